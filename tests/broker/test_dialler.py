"""Neighbours find each other, whoever starts first, and again after one was away."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from gapless.core.events import Event
from gapless.core.identity import BrokerName
from tests.broker.stage import LINE, connected, make_broker, run, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.broker.broker import Broker

NEIGHBOURS = {"p": ["r1", "r2"], "r1": ["o", "p", "r2", "s"], "r2": ["o", "p", "r1", "s"]}


def brokers_up(broker: Broker) -> list[str]:
    links = broker.statistics()["links"]
    assert isinstance(links, dict)
    return list(links["brokers_up"])


@pytest.mark.parametrize("names", [["p", "r1", "r2", "s", "o"], ["o", "s", "r2", "r1", "p"]])
def test_events_get_from_one_end_to_the_other_whoever_starts_first(
    tmp_path: Path, names: list[str]
) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            found = {}
            for name in names:
                broker = make_broker(tmp_path, LINE, name)
                found[name] = await stack.enter_async_context(broker)
            await wait_until(
                lambda: all(brokers_up(found[name]) == up for name, up in NEIGHBOURS.items())
            )
            subscriber = await stack.enter_async_context(connected(found["s"]))
            publisher = await stack.enter_async_context(connected(found["p"]))
            async with subscriber.subscribe("t", "a > 1") as subscription:
                await publisher.publish("t", {"a": 1})
                receipt = await publisher.publish("t", {"a": 2}, b"body")
                event = await anext(subscription)
                assert isinstance(event, Event)
                assert (event.body, event.tick) == (b"body", receipt.tick)

    run(main())


def test_who_has_just_started_is_dialled_at_once_however_long_the_other_would_wait(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    patient: dict[str, Any] = {
        "redial_s": 1e6,
        "redial_longest_s": 1e6,
    }  # nobody waits for its second try

    async def main() -> None:
        async with make_broker(tmp_path, LINE, "p", **patient) as first:
            await wait_until(lambda: caplog.text.count("no answer") == len(NEIGHBOURS["p"]))
            for _ in range(2):
                await wait_until(lambda: brokers_up(first) == [])
                async with make_broker(tmp_path, LINE, "r1") as other:
                    await wait_until(lambda: brokers_up(first) == ["r1"])
                    await wait_until(lambda: brokers_up(other) == ["p"])

    run(main())


def test_a_dial_that_is_cancelled_as_the_connection_is_made_leaves_no_link_behind(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        patient: dict[str, Any] = {"redial_s": 1e6, "redial_longest_s": 1e6}
        async with make_broker(tmp_path, LINE, "p", **patient) as first:
            links = first._links.all
            async with make_broker(tmp_path, LINE, "r1", **patient):
                await wait_until(lambda: brokers_up(first) == ["r1"])
                before = set(links)
                dial = asyncio.create_task(first._dialler._dial(BrokerName("r1")))
                while links == before and not dial.done():  # noqa: ASYNC110 - the very turn
                    await asyncio.sleep(0)
                assert not dial.done()
                dial.cancel()
                await asyncio.wait([dial])
                assert links <= before

    uvloop.run(main())  # it tells nobody of a transport that it closes; asyncio's own loop does


def test_a_neighbour_that_comes_back_is_linked_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, LINE, "p") as first:
            for _ in range(2):
                async with make_broker(tmp_path, LINE, "r1"):
                    await wait_until(lambda: brokers_up(first) == ["r1"])
                await wait_until(lambda: brokers_up(first) == [])

    run(main())
