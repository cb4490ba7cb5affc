"""A data folder is deleted, or an older copy is put in its place: clients are told what is lost."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

import pytest

import gapless
from gapless import sync
from gapless.client.client import connect
from gapless.client.delivery import Gap
from gapless.core.events import Event
from gapless.testing.processes.brokers import Processes
from tests.broker.stage import LINE, ONE, run

if TYPE_CHECKING:
    from pathlib import Path

ALL = ("p", "r1", "r2", "s", "o")


async def consume(url: str, count: int) -> dict[str, int]:
    """Publish and take this many events; the token after them."""
    async with connect(url) as client, client.subscribe("t", name="desk") as desk:
        for number in range(count):
            await client.publish("t", {"i": number})
            assert isinstance(await anext(desk), Event)
        return dict(desk.token)


async def publish(url: str, count: int) -> list[int]:
    """The ticks of new events that nobody takes."""
    async with connect(url) as client:
        return [(await client.publish("t", {"i": -1})).tick for _ in range(count)]


async def gap_then_event(host: str, url: str, token: dict[str, int]) -> Gap:
    """What one who returns with its token is told to be lost; then it gets what is new."""
    async with (
        connect(url) as client,
        connect(host) as publisher,
        client.subscribe("t", name="desk", start=gapless.Token(token)) as desk,
    ):
        gap = await anext(desk)
        assert isinstance(gap, Gap)
        await publisher.publish("t", {"i": 100})
        event = await anext(desk)
        assert isinstance(event, Event)
        assert event.attributes["i"] == 100
        return gap


async def read_from(url: str, token: dict[str, int]) -> None:
    async with connect(url) as client:
        async for _ in client.read("t", start=gapless.Token(token)):
            pass


def covers(gap: Gap, ticks: list[int]) -> bool:
    return gap.span.start <= ticks[0] and ticks[-1] < gap.span.end


@pytest.mark.slow
def test_a_broker_whose_folder_was_deleted_tells_one_gap_for_all_that_is_missing(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with Processes(ONE, folder=tmp_path) as brokers:
            await brokers.start("b")
            token = await consume(brokers.url("b"), 3)
            missing = await publish(brokers.url("b"), 5)
            brokers.kill("b")
            shutil.rmtree(tmp_path / "b")
            await brokers.start("b")
            url = brokers.url("b")
            assert covers(await gap_then_event(url, url, token), missing)
            with pytest.raises(gapless.LostError):
                await read_from(url, token)
            async with (
                connect(url) as client,
                client.subscribe("two", name="new", start="earliest") as new,
            ):
                await client.publish("two", {"i": 7})
                assert isinstance(await anext(new), Event), "nothing is told of what is new"

    run(main())


@pytest.mark.slow
def test_a_broker_that_is_given_an_older_copy_tells_what_came_after_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with Processes(ONE, folder=tmp_path) as brokers:
            await brokers.start("b")
            token = await consume(brokers.url("b"), 3)
            await brokers.stop("b")
            shutil.copytree(tmp_path / "b", tmp_path / "copy")
            await brokers.start("b")
            missing = await publish(brokers.url("b"), 5)
            brokers.kill("b")
            shutil.rmtree(tmp_path / "b")
            shutil.copytree(tmp_path / "copy", tmp_path / "b")
            await brokers.start("b")
            url = brokers.url("b")
            assert covers(await gap_then_event(url, url, token), missing)
            with pytest.raises(gapless.LostError):
                await read_from(url, token)

    run(main())


@pytest.mark.slow
def test_a_host_that_lost_its_folder_tells_what_had_not_come_to_the_broker_of_the_subscriber(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with Processes(LINE, folder=tmp_path) as brokers:
            await brokers.start(*ALL)
            async with (
                connect(brokers.url("p")) as host,
                connect(brokers.url("s")) as client,
                client.subscribe("t", name="desk") as desk,
            ):
                await host.publish("t", {"i": 0})
                assert isinstance(await anext(desk), Event)
                token = dict(desk.token)
            brokers.kill("r1", "r2", "s")
            missing = await publish(brokers.url("p"), 5)
            brokers.kill("p", "o")
            shutil.rmtree(tmp_path / "p")
            await brokers.start(*ALL)
            gap = await gap_then_event(brokers.url("p"), brokers.url("s"), token)
            assert covers(gap, missing)

    run(main())


@pytest.mark.slow
def test_without_an_event_loop_it_is_told_alike(tmp_path: Path) -> None:
    async def before(brokers: Processes) -> tuple[dict[str, int], list[int]]:
        await brokers.start("b")
        token = await consume(brokers.url("b"), 2)
        missing = await publish(brokers.url("b"), 2)
        brokers.kill("b")
        shutil.rmtree(tmp_path / "b")
        await brokers.start("b")
        return token, missing

    def after(url: str, token: dict[str, int], missing: list[int]) -> None:
        with (
            sync.connect(url) as client,
            client.subscribe("t", name="desk", start=gapless.Token(token)) as desk,
        ):
            gap = next(iter(desk))
            assert isinstance(gap, Gap)
            assert covers(gap, missing)

    async def main() -> None:
        async with Processes(ONE, folder=tmp_path) as brokers:
            token, missing = await before(brokers)
            await asyncio.to_thread(after, brokers.url("b"), token, missing)

    run(main())
