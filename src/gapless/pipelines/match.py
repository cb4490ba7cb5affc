"""Match: many events × many subscriptions.

Theory of operation
    Events come as any DataFrame with `pubend` and `tick`, batch or streaming: with an `attributes`
    map as the source makes it, or with one column for each attribute. Each worker opens the table
    of subscriptions (`subscription_table`) once and matches whole Arrow batches. Bodies never cross
    to Python. Workers read a lake or a log themselves (`match_replay`), and of a lake only the
    columns that the conditions use: then only matches cross, which is cheaper where there are few.
    Where events have many matches, most of the cost is one row a match: `match_numbers` gives one
    row an event, with the numbers of the subscriptions in the table.

    The history of a new subscription is `match` over the lake; the ticks that a lost filtered log
    listed for a subscription are the same. They are not written back into a broker's volume: it
    does without (decision 0016).

Cost: `python -m benchmarks pipelines`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from gapless.core.errors import UsageError
from gapless.pipelines.attribute_maps import match_maps
from gapless.pipelines.lake_schema import MAPS, match_rows
from gapless.pipelines.replay import COMPILED_EVENTS, check_lost, read_range
from gapless.pipelines.spark_tasks import map_items
from gapless.pipelines.subscription_table import SubscriptionMatcher, open_subscriptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from gapless.filters.matcher import Matcher
    from gapless.pipelines.attribute_maps import MatchCounts
    from gapless.pipelines.replay import Replay, ReplayPlan, ReplayRange

    MatchBatch = Callable[[Matcher[int], Any], MatchCounts]
    MakeRows = Callable[[SubscriptionMatcher, Any, Any, Any], Iterator[Any]]

MATCHES = "subscription string, pubend string, tick long"
PLACES = {"pubend": "string", "tick": "bigint"}
ROWS_MAX = 1 << 16
"""Rows of one batch that goes back to Spark, and events that are matched at once."""

ROWS_MIN = 1 << 8
"""Events that are matched at once at least, and first, when nothing is known of their matches."""

MATCHES_MAX = 1 << 20
"""Matches of the events that are matched at once, as far as the events before them tell: so memory
is bounded where events have many matches."""


def match(events: DataFrame, table: str) -> DataFrame:
    """A row (subscription, pubend, tick) for each event and each subscription that it matches.

    `table` is a folder of `write_subscriptions`.
    """
    return _events(events).mapInArrow(partial(_find, table, match_frame, _by_name), MATCHES)


def match_numbers(events: DataFrame, table: str) -> DataFrame:
    """A row (pubend, tick, subscriptions) for each event that any subscription matches."""
    return _events(events).mapInArrow(partial(_find, table, match_frame, _by_event), _numbers())


def match_replay(
    spark: SparkSession,
    replay: Replay,
    planned: ReplayPlan,
    table: str,
    *,
    by_number: bool = False,
) -> DataFrame:
    """As `match` or `match_numbers`, of what a lake and a log have: workers read it themselves."""
    check_lost(replay, planned)
    make_rows, schema = (_by_event, _numbers()) if by_number else (_by_name, MATCHES)
    work = partial(_find_in, replay, table, make_rows)
    return map_items(spark, work, planned.ranges, schema, planned.tasks)


def _find_in(replay: Replay, table: str, make_rows: MakeRows, part: ReplayRange) -> Iterator[Any]:
    attributes = None if replay.condition else open_subscriptions(table).attributes
    return _find(table, match_rows, make_rows, read_range(replay, part, attributes))


def _events(events: DataFrame) -> DataFrame:
    """Only what is matched leaves the JVM."""
    types = dict(events.dtypes)
    for name, kind in PLACES.items():
        if types.get(name) != kind:
            problem = f"the events: there is no column {name!r}"
            if name in types:
                problem = (
                    f"the events: the column {name!r} is of type {types[name]}, and not {kind}"
                )
            raise UsageError(problem, "Give each event a pubend (string) and a tick (bigint).")
    if not types.get(MAPS, "").startswith("map<"):
        return events
    return events.select("pubend", "tick", MAPS)


def match_frame(matcher: Matcher[int], batch: Any) -> MatchCounts:
    """The matches of rows of a DataFrame."""
    place = batch.schema.get_field_index(MAPS)
    if place >= 0 and kinds.is_map(batch.schema.types[place]):
        return match_maps(matcher, batch.column(place))
    found = matcher.match_batch(batch.drop_columns(["pubend", "tick"]))
    return found.counts, found.handles


def _find(
    table: str, match_batch: MatchBatch, make_rows: MakeRows, batches: Iterator[Any]
) -> Iterator[Any]:
    opened, rows, count = open_subscriptions(table), ROWS_MIN, 0
    for batch in batches:
        first, before = 0, count
        count += batch.num_rows
        if before < COMPILED_EVENTS <= count:
            opened = open_subscriptions(table, is_long=True)
        while first < batch.num_rows:
            part = batch.slice(first, rows)
            counts, handles = match_batch(opened.matcher, part)
            yield from make_rows(opened, part, counts, handles)
            first += part.num_rows
            fitting = MATCHES_MAX * part.num_rows // max(1, len(handles))
            rows = max(ROWS_MIN, min(ROWS_MAX, fitting // ROWS_MIN * ROWS_MIN))


def _by_name(opened: SubscriptionMatcher, batch: Any, counts: Any, handles: Any) -> Iterator[Any]:
    rows = np.repeat(np.arange(len(counts)), counts)
    for first in range(0, len(rows), ROWS_MAX):
        which = rows[first : first + ROWS_MAX]
        yield pa.record_batch(
            {
                "subscription": opened.names.take(handles[first : first + ROWS_MAX]).cast("string"),
                "pubend": _plain(batch.column("pubend").take(which)),
                "tick": batch.column("tick").take(which),
            }
        )


def _by_event(opened: SubscriptionMatcher, batch: Any, counts: Any, handles: Any) -> Iterator[Any]:
    del opened
    which = np.flatnonzero(counts)
    offsets = np.zeros(len(which) + 1, np.int32)
    np.cumsum(counts[which], out=offsets[1:])
    yield pa.record_batch(
        {
            "pubend": _plain(batch.column("pubend").take(which)),
            "tick": batch.column("tick").take(which),
            "subscriptions": pa.ListArray.from_arrays(offsets, handles.view(np.int32), HANDLES),
        }
    )


def _plain(texts: Any) -> Any:
    """As Spark wants them."""
    return texts.dictionary_decode() if kinds.is_dictionary(texts.type) else texts


HANDLES = pa.list_(pa.field("element", pa.int32(), nullable=False))


def _numbers() -> StructType:
    """(pubend, tick, subscriptions). Told that no number is null, Spark copies them faster."""
    from pyspark.sql.types import (
        ArrayType,
        IntegerType,
        LongType,
        StringType,
        StructField,
        StructType,
    )

    numbers = ArrayType(IntegerType(), containsNull=False)
    fields = {"pubend": StringType(), "tick": LongType(), "subscriptions": numbers}
    return StructType([StructField(name, kind) for name, kind in fields.items()])
