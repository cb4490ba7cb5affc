"""A batch of events as Arrow loses nothing."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from gapless.client.columns import SCHEMA, attributes_of, to_arrow, to_table
from gapless.client.range_reads import RangeBatch
from gapless.core.events import EventRun
from gapless.core.identity import PubendName, PublisherName, TopicName
from gapless.core.ticks import Span
from gapless.wire.events import encode_event
from tests.wire.samples import attributes

T, PUBEND = TopicName("t"), PubendName("t/0")
MICROS = 1_700_000_000_000_000


@given(st.lists(st.tuples(attributes, st.binary(max_size=20)), max_size=8))
def test_what_went_in_comes_out_with_its_types(
    events: list[tuple[dict[str, object], bytes]],
) -> None:
    encoded = tuple(encode_event(attributes, body) for attributes, body in events)  # type: ignore[arg-type]
    ticks = tuple(range(100, 100 + len(events)))
    rows = to_arrow(T, PUBEND, EventRun.of(ticks, encoded)).to_pylist()
    found = [(attributes_of(row["attributes"]), row["body"]) for row in rows]
    assert repr(found) == repr(events)  # 1, 1.0 and True are not the same
    assert [row["tick"] for row in rows] == list(ticks)


def test_each_row_says_where_and_when_it_was_published_and_by_whom() -> None:
    named = encode_event({"i": 1}, b"b", PublisherName("feed"), 7)
    batch = RangeBatch(T, PUBEND, Span(0, 1 << 62), EventRun.of([MICROS << 10], [named]))
    table = to_table([batch.to_arrow()])
    assert table.schema == SCHEMA
    [row] = table.to_pylist()
    assert (row["topic"], row["pubend"], row["publisher"], row["sequence"]) == (
        "t",
        "t/0",
        "feed",
        7,
    )
    assert row["published"] == datetime.fromtimestamp(MICROS // 1_000_000, tz=UTC)
    nothing = dict.fromkeys(("bool", "float", "text", "timestamp", "bytes"))
    assert row["attributes"] == [("i", {**nothing, "int": 1})]
    assert to_table([]).schema == SCHEMA
