"""A broker starts from its folder, stops in order, and finds everything again."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from gapless.broker.addresses import read_addresses, show_endpoint
from gapless.broker.broker import Broker
from gapless.broker.settings import Settings
from gapless.core.client_messages import Receipt
from gapless.core.errors import StorageError, UsageError
from gapless.core.events import Event
from gapless.core.identity import BrokerName
from gapless.core.messages import Goodbye
from gapless.node.config import Config
from gapless.node.network import parse_network
from gapless.storage.disk import DiskVolume
from tests.broker.stage import (
    LINE,
    ONE,
    ByHand,
    connected,
    make_broker,
    publication,
    run,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from gapless.core.effects import Write


def test_what_was_under_way_when_it_stops_still_gets_its_receipt_and_a_goodbye(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker:
            peer = await ByHand.connect(broker)
            peer.send(*(publication(10, request) for request in range(50)))
            answers = await peer.read_until(Receipt)  # so all were read, in one turn
        answers += await peer.read_all()
        assert isinstance(answers[-1], Goodbye)
        assert "stopping" in answers[-1].problem
        receipts = [each.request for each in answers if isinstance(each, Receipt)]
        assert receipts == list(range(50))

    run(main())
    volume = DiskVolume(tmp_path / "b" / "volume")
    assert volume.recovery.clean
    volume.close()


def test_two_brokers_never_share_a_folder(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path):
            with pytest.raises(StorageError, match="is open in process"):
                await make_broker(tmp_path).start()

    run(main())


def test_any_free_port_is_told_in_the_folder_and_is_the_same_after_a_restart(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        addresses = []
        for _ in range(2):
            async with make_broker(tmp_path) as broker:
                addresses.append(broker.address)
                assert read_addresses(tmp_path / "b")["listen"] == broker.address
        assert addresses[0] == addresses[1]

    run(main())


def test_a_port_that_is_taken_is_told_and_leaves_nothing_locked(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker:
            other = make_broker(tmp_path / "other", listen=broker.address)
            with pytest.raises(UsageError, match="cannot listen"):
                await other.start()
        async with make_broker(tmp_path / "other"):
            pass

    run(main())


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_port_that_another_takes_at_the_same_moment_is_told(
    tmp_path: Path, make_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """Both have bound it, which is allowed; only one can listen."""
    with socket.socket() as rival:
        rival.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        rival.bind(("127.0.0.1", 0))

        class Late(Broker):
            async def _listen_for_admin(self) -> None:
                await super()._listen_for_admin()
                rival.listen()

        async def main() -> None:
            settings = Settings(
                data=tmp_path, listen=show_endpoint(*rival.getsockname()), admin="127.0.0.1:0"
            )
            broker = Late(BrokerName("b"), parse_network(ONE), settings)
            with pytest.raises(UsageError, match="it is in use"):
                await broker.start()
            assert read_addresses(tmp_path / "b") == {}, "it has told nobody to come"

        loop = make_loop()
        loop.run_until_complete(main())
        loop.close()  # not if that failed: uvloop waits for ever for a socket that never listened


@pytest.mark.parametrize("wrong", [{"listen": "nonsense"}, {"admin": "127.0.0.1:99999"}])
def test_an_address_that_is_none_is_told_before_anything_is_made(
    tmp_path: Path, wrong: dict[str, Any]
) -> None:
    with pytest.raises(UsageError, match="is no address"):
        run(make_broker(tmp_path, **wrong).start())
    assert list(tmp_path.iterdir()) == []


def test_a_broker_that_is_not_in_the_network_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no broker 'x'.*It has: o, p, r1, r2, s"):
        make_broker(tmp_path, LINE, "x")


def test_a_failure_reaches_whoever_waits_and_it_can_still_be_closed(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker:
            waiting = asyncio.create_task(broker.wait())
            broker.fail(StorageError("the disk is gone"))
            with pytest.raises(StorageError, match="the disk is gone"):
                await waiting
            assert not broker.is_ready

    run(main())


def test_events_published_before_a_restart_are_remembered_by_number(tmp_path: Path) -> None:
    async def main() -> None:
        for expected in (0, 5):
            async with (
                make_broker(tmp_path) as broker,
                connected(broker) as client,
                client.publisher("t", name="feed") as publisher,
            ):
                assert publisher.sequence == expected
                await publisher.send_many([({"i": i}, b"") for i in range(5)])

    run(main())


class HeldDisk(DiskVolume):
    """Commits while it is let to."""

    gate = threading.Event()

    def commit_each(self, commits: Sequence[Sequence[Write]]) -> list[StorageError | None]:
        self.gate.wait()
        return super().commit_each(commits)


def test_a_disk_that_stands_still_holds_publishers_back_and_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gapless.broker.broker.DiskVolume", HeldDisk)

    def pending(broker: Broker) -> int:
        figures: dict[str, Any] = broker.statistics()
        return int(figures["pubends"]["t/0"]["pending_events"])

    def heard(broker: Broker) -> int:
        figures: dict[str, Any] = broker.statistics()
        return int(figures["links"]["messages_in"])

    async def main() -> None:
        HeldDisk.gate.set()
        broker = make_broker(tmp_path, config=Config(publish_pending_max=5))
        async with broker, connected(broker) as client, client.subscribe("t") as subscription:
            HeldDisk.gate.clear()
            before = heard(broker)
            publishing = [asyncio.create_task(client.publish("t", {"i": i})) for i in range(50)]
            await wait_until(lambda: heard(broker) >= before + 50)
            assert pending(broker) == 5, "the others are told to try again"
            assert not any(task.done() for task in publishing), "no receipt before it is durable"
            HeldDisk.gate.set()
            receipts = await asyncio.gather(*publishing)
            came = [await anext(subscription) for _ in receipts]
            found = [each for each in came if isinstance(each, Event)]
            assert sorted(each.attributes["i"] for each in found) == list(range(50))
            assert [each.tick for each in found] == sorted(each.tick for each in receipts)

    try:
        run(main())
    finally:
        HeldDisk.gate.set()


def test_what_takes_long_to_send_is_sent_in_further_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        monkeypatch.setattr("gapless.broker.link_table.FLUSH_S", 0.0)  # as if each took long
        async with make_broker(tmp_path) as broker, AsyncExitStack() as stack:
            names = ("one", "two", "three")
            subscriptions = []
            for name in names:
                client = await stack.enter_async_context(connected(broker))
                subscription = client.subscribe("t", name=name)
                subscriptions.append(await stack.enter_async_context(subscription))
            await client.publish("t", {"i": 1})
            for subscription in subscriptions:
                item = await anext(subscription)
                assert isinstance(item, Event)
                assert item.attributes == {"i": 1}

    run(main())
