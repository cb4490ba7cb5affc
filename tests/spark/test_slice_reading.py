"""An executor reads its slice whole, also when the broker dies in the middle of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gapless.spark.arrow_batches import ArrowBatches
from gapless.spark.options import parse_options
from gapless.spark.schema import default_schema
from gapless.spark.slices import BATCH_EVENTS, Slice, read_slice
from gapless.testing.processes.brokers import cell, topic
from tests.spark.conftest import brokers

if TYPE_CHECKING:
    from tests.spark.conftest import Desk

COUNT = BATCH_EVENTS * 5 // 2


@pytest.mark.slow
def test_a_broker_that_is_killed_in_the_middle_of_a_slice_makes_no_difference() -> None:
    with brokers(
        cell("edge", ["b"], subscribers=True),
        topic("t", "b"),
        start=("b",),
        config={"range_bytes_max": 50_000},
    ) as desk:
        part = fill(desk)
        options = parse_options(
            {"url": desk.url, "topic": "t", "filter": "i >= 0", "columns": "tick,sequence"},
            is_stream=False,
        )
        batches = read_slice(part, ArrowBatches(default_schema(options), options), options)
        found = numbers(next(batches))
        desk.kill("b")
        desk.start("b")
        for batch in batches:
            found += numbers(batch)
        assert found == list(range(COUNT))


def fill(desk: Desk) -> Slice:
    with desk.client() as client:
        with client.subscribe("t", name="keeper", start="earliest") as keeper:
            start = keeper.token.get("t/0")
        with client.publisher("t", name="feed") as publisher:
            publisher.send_many(({"i": i}, b"") for i in range(COUNT))
        return Slice("t", "t/0", start, client.positions("t")["t/0"][1])


def numbers(batch: Any) -> list[int]:
    found: list[int] = batch.column("sequence").to_pylist()
    return found
