"""Timestamps and bytes go through a broker as they are, and conditions find them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from gapless import sync
from gapless.broker import embedded
from gapless.client.client import connect
from gapless.client.columns import event_columns
from gapless.client.json_values import from_json, to_json
from gapless.core.errors import EventError, UsageError
from gapless.core.timestamps import FIRST, LAST
from tests.broker.stage import run

if TYPE_CHECKING:
    from pathlib import Path

AT = datetime(2026, 11, 17, 9, 0, 0, 1, UTC)
EAST = timezone(timedelta(hours=2))
EVENTS: list[dict[str, Any]] = [
    {"i": 0, "at": AT.astimezone(EAST), "digest": b"\x00\xff"},
    {"i": 1, "at": AT - timedelta(microseconds=1), "digest": b""},
    {"i": 2, "at": FIRST, "last": LAST},
    {"i": 3, "at": "2026-11-17T09:00:01Z", "digest": "00ff"},
]
CONDITIONS = {
    "at > TIMESTAMP '2026-11-17T09:00:00Z'": [0],
    "at <= TIMESTAMP '2026-11-17T09:00:00Z'": [1, 2],
    "at BETWEEN TIMESTAMP '0001-01-01T00:00Z' AND TIMESTAMP '2000-01-01T00:00Z'": [2],
    "digest = X'00FF'": [0],
    "digest <> X'00FF'": [1],
    "at = last OR at IN (TIMESTAMP '2026-11-17T11:00:00+02:00', X'')": [1],
    "digest IS NOT NULL AND at <> TIMESTAMP '2026-11-17T09:00:00Z'": [0],
}


def test_a_broker_delivers_them_as_they_are_and_by_condition(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            embedded(["t"], tmp_path) as broker,
            connect(f"gapless://{broker.address}") as client,
        ):
            found: dict[str, list[int]] = {}
            subscriptions = {text: client.subscribe("t", text) for text in CONDITIONS}
            for subscription in subscriptions.values():
                await subscription.__aenter__()
            async with client.subscribe("t", name="all") as whole:
                await client.publish_many("t", [(event, b"") for event in EVENTS])
                received = [await anext(whole) for _ in EVENTS]
            assert [event.attributes for event in received] == EVENTS  # type: ignore[union-attr]
            first = received[0].attributes  # type: ignore[union-attr]
            assert repr(first["at"]) == repr(AT), "a moment comes out in UTC"
            for text, subscription in subscriptions.items():
                wanted = CONDITIONS[text]
                found[text] = [(await anext(subscription)).attributes["i"] for _ in wanted]  # type: ignore[union-attr]
                await subscription.__aexit__(None, None, None)
            assert found == CONDITIONS
            for text, wanted in CONDITIONS.items():
                batches = [batch async for batch in client.read("t", text)]
                events = [event for batch in batches for event in batch.events()]  # type: ignore[union-attr]
                assert [event.attributes["i"] for event in events] == wanted

    run(main())


def test_the_blocking_client_has_them_too(tmp_path: Path) -> None:
    async def main() -> None:
        import asyncio

        async with embedded(["t"], tmp_path) as broker:
            await asyncio.to_thread(talk, f"gapless://{broker.address}")

    def talk(url: str) -> None:
        with (
            sync.connect(url) as client,
            client.subscribe("t", "at >= TIMESTAMP '2026-11-17T09:00:00Z'") as subscription,
        ):
            client.publish("t", EVENTS[0])
            assert next(iter(subscription)).attributes == EVENTS[0]  # type: ignore[union-attr]
            with pytest.raises(EventError, match="without a time zone"):
                client.publish("t", {"at": datetime(2026, 11, 17)})  # noqa: DTZ001 - on purpose

    run(main())


def test_json_has_them_under_a_mark_and_reads_them_back() -> None:
    shown = json.loads(json.dumps(to_json(EVENTS[0])))
    assert shown["at"] == {"timestamp": "2026-11-17T09:00:00.000001Z"}
    assert shown["digest"] == {"bytes": "AP8="}
    assert from_json(shown) == EVENTS[0]
    for bad, why in (
        ({"timestamp": "noon"}, "'noon' is no timestamp"),
        ({"timestamp": "2026-11-17T09:00:00"}, "without a time zone"),
        ({"bytes": "?"}, "not bytes in Base64"),
    ):
        with pytest.raises(EventError, match=why):
            from_json({"a": bad})
    assert from_json({"a": {"timestamp": 5}}) == {"a": {"timestamp": 5}}


def test_a_column_of_times_without_a_zone_is_refused_by_name() -> None:
    naive = pa.record_batch({"at": pa.array([0], pa.timestamp("us"))})
    with pytest.raises(UsageError, match="without a time zone"):
        event_columns(naive, None)
    fine = pa.record_batch({"at": pa.array([1], pa.timestamp("ns", "UTC"))})
    with pytest.raises(EventError, match="column 'at'"):
        event_columns(fine, None)
