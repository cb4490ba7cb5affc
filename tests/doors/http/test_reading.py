"""Range reads over HTTP: pages, streams, Arrow, CloudEvents, long-polls."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from gapless.client.columns import SCHEMA
from gapless.client.json_values import delivery_fields
from gapless.core.errors import UsageError
from gapless.doors.http import reading
from tests.broker.stage import connected, make_broker, run, wait_until
from tests.doors.http.caller import Caller

if TYPE_CHECKING:
    from pathlib import Path

ARROW, BATCH = "application/vnd.apache.arrow.stream", "application/cloudevents-batch+json"


async def fill(client: Any, count: int, topic: str = "two") -> None:
    """Events at both pubends, which a named subscription keeps."""
    async with client.subscribe(topic, name="keeper"):
        pass
    for name in ("one", "other"):
        async with client.publisher(topic, name=name) as publisher:
            await publisher.send_many(({"n": n, "by": name}, b"x" * n) for n in range(count))


def keys(lines: list[Any]) -> list[tuple[str, int]]:
    return [(each["pubend"], each["tick"]) for each in lines]


@pytest.mark.parametrize("limit", [1, 3, 7, 100])
def test_pages_make_up_the_whole_whatever_their_size(tmp_path: Path, limit: int) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker, connected(broker) as client:
            caller = Caller.of(broker)
            await fill(client, 10)
            whole = await caller.get("/topics/two/events", where="n <> 4")
            assert len(whole.lines) == 18
            found: list[Any] = []
            at = "earliest"
            while (
                page := await caller.get(
                    "/topics/two/events", **{"from": at, "limit": limit, "where": "n <> 4"}
                )
            ).body:
                assert len(page.lines) <= limit
                found += page.lines
                at = page.headers["gapless-next"]
            assert keys(found) == keys(whole.lines)
            after = await caller.get(
                "/topics/two/events", **{"from": whole.headers["gapless-next"]}
            )
            assert after.body == b""
            again = await caller.get("/topics/two/events", to=whole.headers["gapless-next"])
            assert len(again.lines) == 20

    run(main())


def test_arrow_has_the_columns_of_the_client(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker, connected(broker) as client:
            caller = Caller.of(broker)
            await fill(client, 10)
            answer = await caller.ask("GET", "/topics/two/events", headers={"Accept": ARROW})
            assert answer.headers["content-type"] == ARROW
            table = pa.ipc.open_stream(answer.body).read_all()
            assert table.schema == SCHEMA
            assert table.equals(await client.read_arrow("two"))
            empty = await caller.ask(
                "GET", "/topics/two/events", headers={"Accept": ARROW}, where="n < 0"
            )
            assert pa.ipc.open_stream(empty.body).read_all().num_rows == 0
            unknown = await caller.ask("GET", "/topics/t/events", headers={"Accept": "text/csv"})
            assert unknown.status == 406

    run(main())


def test_a_large_range_is_streamed_and_complete(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker, connected(broker) as client:
            await fill(client, 3_000)
            answer = await Caller.of(broker).get("/topics/two/events")
            numbers = [each["attributes"]["n"] for each in answer.lines]
            assert sorted(numbers) == sorted([*range(3_000), *range(3_000)])

    run(main())


def test_what_was_released_is_a_line_and_where_there_is_no_place_for_it_an_error(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker, connected(broker) as client:
            caller = Caller.of(broker)
            async with client.subscribe("t", name="keeper") as keeper:
                first = await client.publish("t", {"n": 0})
                await anext(keeper)
                await keeper.acknowledge()
            second = await client.publish("t", {"n": 1})
            while (await client.positions("t"))["t/0"][0] <= first.tick:
                pass  # it is about to be released
            start = {"from": json.dumps({"t/0": first.tick})}
            gap, event = (await caller.get("/topics/t/events", **start)).lines
            assert gap["gap"]["start"] == first.tick
            assert gap["gap"]["end"] <= second.tick == event["tick"]
            for form in (ARROW, BATCH):
                answer = await caller.ask(
                    "GET", "/topics/t/events", headers={"Accept": form}, **start
                )
                assert answer.status == 410

    run(main())


def test_a_read_that_fails_midway_is_cut_and_not_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody may take a part for the whole."""

    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker, connected(broker) as client:
            await fill(client, 10)
            count = 0

            def failing(item: Any) -> Any:
                nonlocal count
                count += 1
                if count > 15:
                    raise UsageError("no more")
                return delivery_fields(item)

            monkeypatch.setattr(reading, "delivery_fields", failing)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await Caller.of(broker).get("/topics/two/events")

    run(main())


def test_a_long_poll_waits_for_an_event_that_matches(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker, connected(broker) as client:
            caller = Caller.of(broker)
            await fill(client, 1, "t")
            nothing = await caller.get(
                "/topics/t/events", **{"from": "latest", "wait": 0.01, "where": "n = 5"}
            )
            assert nothing.status == 204
            at = nothing.headers["gapless-next"]
            waiting = asyncio.ensure_future(
                caller.get("/topics/t/events", **{"from": at, "wait": 60, "where": "n = 5"})
            )
            await client.publish("t", {"n": 4})
            await client.publish("t", {"n": 5})
            answer = await waiting
            assert [each["attributes"]["n"] for each in answer.lines] == [5]
            there = await caller.get("/topics/t/events", **{"from": at, "wait": 60})
            assert [each["attributes"]["n"] for each in there.lines] == [4, 5]
            bounded = await caller.get("/topics/t/events", wait=1, to=at)
            assert bounded.status == 400

    run(main())


def test_a_long_poll_ends_when_the_broker_stops(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker:
            waiting = asyncio.ensure_future(
                Caller.of(broker).get("/topics/t/events", **{"from": "latest", "wait": 60})
            )
            door: Any = broker.doors.opened["http"]
            await wait_until(lambda: door._app._streams > 0)
            await broker.drain()
            assert (await waiting).status in (204, 503)

    run(main())
