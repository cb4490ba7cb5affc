"""Columns in, columns out: tables are sent, and subscriptions are read as record batches."""

from __future__ import annotations

import asyncio
import datetime
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest

from gapless import Gap, sync
from gapless.broker import embedded
from gapless.client import subscription as subscription_module
from gapless.client.backlog import Backlog
from gapless.client.client import connect
from gapless.client.columns import SCHEMA, attributes_of
from gapless.client.delivered_events import DeliveredEvents, as_batches
from gapless.client.delivery import Ticket
from gapless.core.errors import EventError, UsageError
from gapless.core.events import Event, EventBatch
from gapless.core.identity import PubendName, TopicName
from gapless.core.ticks import Span
from gapless.core.token import Token
from gapless.wire.events import encode_event
from tests.broker.stage import run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from gapless.client.subscription import Subscription

COUNT = 3_000  # more than a message has, and than the compiled code needs to be worth it

TABLE = pa.table(
    {
        "n": pa.array(range(COUNT), pa.int32()),
        "price": pa.array([None if i % 7 == 0 else i / 4 for i in range(COUNT)], pa.float32()),
        "symbol": pa.array([f"s{i % 5}" for i in range(COUNT)]).dictionary_encode(),
        "odd": pa.array([bool(i % 2) for i in range(COUNT)]),
        "note": pa.array(
            [None if i % 3 else f"ü{i}" * 20 for i in range(COUNT)], pa.large_string()
        ),
        "nothing": pa.nulls(COUNT),
        "at": pa.array([None if i % 5 == 0 else 1_000 * i for i in range(COUNT)], pa.int64()).cast(
            pa.timestamp("ms", "UTC")
        ),
        "digest": pa.array([bytes([i % 256, 255]) for i in range(COUNT)], pa.large_binary()),
        "text": pa.array([f"body {i}" for i in range(COUNT)]),
    }
)
ROWS = [
    {name: value for name, value in row.items() if value is not None and name != "text"}
    for row in TABLE.to_pylist()
]


async def received(subscription: Subscription, count: int) -> list[Any]:
    """Batches until there are so many events."""
    batches = []
    async for batch in subscription.arrow_batches():
        batches.append(batch)
        count -= batch.num_rows
        if count <= 0:
            break
    return batches


def attributes(batches: Sequence[Any]) -> list[dict[str, Any]]:
    return [
        attributes_of(row) for batch in batches for row in batch.column("attributes").to_pylist()
    ]


def test_a_table_arrives_as_batches_of_the_same_rows(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            embedded(["t"], tmp_path) as broker,
            connect(f"gapless://{broker.address}") as client,
            client.subscribe("t") as subscription,
            client.publisher("t", name="p") as publisher,
        ):
            await publisher.send_table(TABLE, body="text")
            await publisher.send({"n": -1})
            await publisher.flush()
            batches = await received(subscription, COUNT + 1)
            assert all(batch.schema == SCHEMA for batch in batches)
            assert max(batch.num_rows for batch in batches) <= subscription_module.ARROW_EVENTS_MAX
            assert attributes(batches) == [*ROWS, {"n": -1}]
            table = pa.Table.from_batches(batches)
            assert table["body"].to_pylist()[:COUNT] == [b"body %d" % i for i in range(COUNT)]
            assert table["sequence"].to_pylist() == list(range(COUNT + 1))
            assert set(table["publisher"].to_pylist()) == {"p"}
            ticks = table["tick"].to_pylist()
            assert ticks == sorted(set(ticks))
            assert subscription.token.get(table["pubend"][-1].as_py()) == ticks[-1] + 1

    run(main())


def test_batches_that_were_received_can_be_sent_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            embedded(["t", "u"], tmp_path) as broker,
            connect(f"gapless://{broker.address}") as client,
            client.subscribe("t") as first,
            client.subscribe("u") as second,
            client.publisher("t", name="p") as publisher,
            client.publisher("u", name="q") as other,
        ):
            await publisher.send_table(TABLE, body="text")
            for batch in await received(first, COUNT):
                await other.send_table(batch)
            await other.flush()
            batches = await received(second, COUNT)
            assert attributes(batches) == ROWS
            bodies = pa.Table.from_batches(batches)["body"].to_pylist()
            assert bodies == [b"body %d" % i for i in range(COUNT)]

    run(main())


def test_a_named_subscription_goes_on_after_what_was_read_in_columns(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            embedded(["t"], tmp_path) as broker,
            connect(f"gapless://{broker.address}") as client,
        ):
            async with client.subscribe("t", "n < 2000", name="desk"):
                pass
            async with client.publisher("t", name="p") as publisher:
                await publisher.send_table(TABLE)
            found: list[dict[str, Any]] = []
            while len(found) < 2000:
                async with client.subscribe("t", "n < 2000", name="desk") as subscription:
                    stream = subscription.arrow_batches()
                    found += attributes([await anext(stream)])
                    await subscription.acknowledge()
            assert [each["n"] for each in found] == list(range(2000))

    run(main())


def test_events_and_columns_may_be_read_by_turns(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            embedded(["t"], tmp_path) as broker,
            connect(f"gapless://{broker.address}") as client,
            client.subscribe("t", order="total") as subscription,
            client.publisher("t", name="p") as publisher,
        ):
            await publisher.send_table(TABLE)
            await publisher.flush()
            found: list[int] = []
            stream: AsyncIterator[Any] = subscription.arrow_batches()
            while len(found) < COUNT:
                event = await anext(subscription)
                assert isinstance(event, Event)
                found.append(int(event.attributes["n"]))
                if len(found) < COUNT:
                    found += [each["n"] for each in attributes([await anext(stream)])]
            assert found == list(range(COUNT))

    run(main())


def test_gaps_stand_between_the_batches() -> None:
    topic, pubend = TopicName("t"), PubendName("t/0")
    finished: list[Ticket] = []
    backlog = Backlog(topic, finished.append)
    backlog.events_max = 100
    backlog.start({"t/0": 10})

    def add(*ticks: int) -> Ticket:
        encoded = EventBatch(tuple([encode_event({"n": tick}) for tick in ticks]))
        ticket = Ticket(cast("Any", None), 1, len(ticks), 1)
        events = DeliveredEvents(topic, pubend, ticks, encoded)
        backlog.add(pubend, events, ticks[-1] + 1, ticket)
        return ticket

    tickets = [add(10, 12), add(12, 13)]  # what comes twice is dropped
    backlog.add_gap(pubend, Span(14, 20))
    tickets.append(add(25))
    found: list[Any] = []
    while backlog.load():
        while taken := backlog.pop_encoded():
            found.append(list(as_batches(taken)))
            assert len(finished) == (2 if len(found) > 1 else 0)
    (first,), (gap,), (last,) = found
    assert first.column("tick").to_pylist() == [10, 12, 13]
    assert gap == Gap(topic, pubend, Span(14, 20))
    assert last.column("tick").to_pylist() == [25]
    assert finished == tickets
    assert backlog.token() == Token({"t/0": 26})


def test_the_sync_client_has_both(tmp_path: Path) -> None:
    def work(url: str) -> list[dict[str, Any]]:
        with (
            sync.connect(url) as client,
            client.subscribe("t") as subscription,
            client.publisher("t", name="p") as publisher,
        ):
            publisher.send_table(TABLE)
            batches, count = [], 0
            for batch in subscription.arrow_batches():
                batches.append(batch)
                count += batch.num_rows
                if count >= COUNT:
                    return attributes(batches)
        raise AssertionError

    async def main() -> list[dict[str, Any]]:
        async with embedded(["t"], tmp_path) as broker:
            return await asyncio.to_thread(work, f"gapless://{broker.address}")

    found = run(main())
    assert [each["n"] for each in found] == list(range(COUNT))


@pytest.mark.parametrize(
    ("table", "body", "error"),
    [
        (pa.table({"at": [datetime.date(2026, 1, 1)]}), None, UsageError),
        (pa.table({"n": pa.array([1 << 63], pa.uint64())}), None, EventError),
        (pa.table({"n": [1]}), "text", UsageError),
        (pa.table({"n": [1], "b": [1.5]}), "b", UsageError),
        (pa.table([[1], [2]], names=["n", "n"]), None, UsageError),
        (pa.table({"": [1]}), None, EventError),
        (pa.table({"n": ["x" * 2_000_000]}), None, EventError),
    ],
)
def test_a_table_that_cannot_be_sent_is_refused_and_nothing_of_it_is_sent(
    tmp_path: Path, table: Any, body: str | None, error: type[Exception]
) -> None:
    async def main() -> None:
        async with (
            embedded(["t"], tmp_path) as broker,
            connect(f"gapless://{broker.address}") as client,
            client.publisher("t", name="p") as publisher,
        ):
            with pytest.raises(error):
                await publisher.send_table(table, body=body)
            assert publisher.sequence == 0
            await publisher.send_table(pa.table({"n": [1]}))
            await publisher.flush()
            assert publisher.confirmed == 1

    run(main())
