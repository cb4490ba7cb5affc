"""Links to brokers that are no neighbours: dialled when there is something to send."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from gapless.core.identity import BrokerName
from gapless.node.config import Config
from gapless.scribe.messages import Leave, Ringed
from tests.broker.stage import make_broker, run, served, wait_until
from tests.broker.test_multicast import ROW

if TYPE_CHECKING:
    import asyncio
    from pathlib import Path

    from gapless.broker.broker import Broker

A, C = BrokerName("a"), BrokerName("c")
SOMETHING = Ringed((Leave(),))


def test_what_is_sent_to_a_far_broker_waits_for_its_link(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, ROW, "a") as a, make_broker(tmp_path, ROW, "c") as c:
            assert C not in a._links.neighbours
            for _ in range(3):
                a.send(C, SOMETHING)
            await wait_until(lambda: A in c._links.named)
            await wait_until(lambda: c._links.named[A].messages_in == 4)  # a Hello, and these

    run(main())


def test_what_waits_for_one_that_does_not_answer_is_dropped_and_counted(tmp_path: Path) -> None:
    async def main() -> None:
        made = [make_broker(tmp_path, ROW, name, far_queue_max=2) for name in "ab"]
        async with made[0] as a, made[1]:
            await wait_until(lambda: BrokerName("b") in a._links.named)  # to which pings go
            before = a._links.unsent
            for _ in range(3):
                a.send(C, SOMETHING)
            assert a._links.unsent == before + 1
            await wait_until(lambda: a._links.unsent == before + 3)

    run(main())


def test_what_is_for_a_neighbour_that_is_down_does_not_wait(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, ROW, "a") as a:
            before = a._links.unsent
            a.send(BrokerName("b"), SOMETHING)
            assert a._links.unsent == before + 1

    run(main())


RELIABLE = '[[topic]]\nname = "r"\nservice = "reliable"\n'
DEAF = Config(tree_beat=10**11, tree_patience=10**12)
"""Nobody is found silent while a test runs: only news of links tell that a broker is away."""


def test_a_broker_that_refuses_a_link_or_closes_it_before_its_hello_counts_as_away_at_once(
    tmp_path: Path,
) -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()
        await writer.wait_closed()

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as nobody:  # closed again: dials are refused
            closed = nobody.getsockname()[1]
        text = ROW.replace('"b", listen = "127.0.0.1:0"', f'"b", listen = "127.0.0.1:{closed}"')
        async with served(hang_up) as address:
            text = text.replace('"c", listen = "127.0.0.1:0"', f'"c", listen = "{address}"')
            async with make_broker(tmp_path, text + RELIABLE, "a", DEAF) as a:
                await wait_until(lambda: unreachable(a) == [["b"], ["b", "c"]])

    run(main())


def unreachable(broker: Broker) -> object:
    services = broker.statistics()["services"]
    assert isinstance(services, dict)
    return services["reliable"].get("unreachable")
