"""Match: events × subscriptions, as many of both as there are.

Theory of operation
    Events come as any DataFrame with `pubend` and `tick`, batch or streaming: with an `attributes`
    map as the lake and the source have it, or with a column an attribute. Each worker opens the
    audience (`gapless.pipelines.audience`) once and matches whole Arrow batches. Bodies never
    cross to Python. What is in a lake or a log is read by the workers themselves: then only matches
    cross, which is cheaper by far where there are few. Where events have many matches, most of the
    cost is one row a match: `match_numbers` gives one row an event, with the numbers of the
    subscriptions in the table.

    The history of a new subscription is `match` over the lake; the ticks that a lost filtered log
    listed for a subscription are the same. They are not written back into a broker's volume: it
    does without (decision 0016).

Cost: `python -m benchmarks pipelines`.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from gapless.core.ticks import TICK_MAX
from gapless.pipelines.attributes import match_maps
from gapless.pipelines.audience import Audience, open_audience
from gapless.pipelines.match_files import check_places, missing, read_events
from gapless.pipelines.replay import check_lost, read_piece
from gapless.pipelines.spread import TASK_BYTES, spread, tasks_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from gapless.pipelines.replay import Piece, Pieces, Replay

    Finder = Callable[[Audience, Any, Any, Any], Iterator[Any]]

MATCHES = "subscription string, pubend string, tick long"
ROWS_MAX = 1 << 16
"""Rows of one batch that goes back to Spark, and events that are matched at once."""

ROWS_MIN = 1 << 8
"""Events that are matched at once at least, and first, when nothing is known of their matches."""

MATCHES_MAX = 1 << 20
"""Of events that are matched at once, as far as can be told from those before: so memory is bounded
where they have many. Fewer at once would cost more, by what each time costs."""


def match(events: DataFrame, audience: str) -> DataFrame:
    """A row (subscription, pubend, tick) for each event and each subscription that it matches."""
    return _events(events).mapInArrow(partial(_find, audience, _by_name), MATCHES)


def match_numbers(events: DataFrame, audience: str) -> DataFrame:
    """A row (pubend, tick, subscriptions) for each event that any subscription matches."""
    return _events(events).mapInArrow(partial(_find, audience, _by_event), _numbers())


def match_replay(
    spark: SparkSession, replay: Replay, pieces: Pieces, audience: str, *, by_number: bool = False
) -> DataFrame:
    """As `match` or `match_numbers`, of what a lake and a log have: workers read it themselves."""
    check_lost(replay, pieces)
    finder, schema = (_by_event, _numbers()) if by_number else (_by_name, MATCHES)
    work, tasks = partial(_find_in, replay, audience, finder), tasks_for(_sizes(replay, pieces))
    return spread(spark, work, pieces.pieces, schema, tasks)


def match_files(
    spark: SparkSession, paths: Sequence[str], audience: str, *, by_number: bool = False
) -> DataFrame:
    """The same of Parquet files that all workers see, with columns as `match` wants them."""
    finder, schema = (_by_event, _numbers()) if by_number else (_by_name, MATCHES)
    tasks = tasks_for(_size(Path(path)) for path in paths)
    return spread(spark, partial(_find_in_file, audience, finder), list(paths), schema, tasks)


def _sizes(replay: Replay, pieces: Pieces) -> Iterator[int]:
    for piece in pieces.pieces:
        if piece.path and replay.lake is not None:
            yield _size(replay.lake.folder / piece.path)
        else:
            yield TASK_BYTES  # of a log: one knows when it is read


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        raise missing(path) from None


def _find_in(replay: Replay, audience: str, finder: Finder, piece: Piece) -> Iterator[Any]:
    if piece.path and not replay.condition:
        assert replay.lake is not None
        file = replay.lake.folder / piece.path
        return _find(audience, finder, read_events(file, piece.start, piece.end))
    columns = ["pubend", "tick", "attributes"]
    batches = (batch.select(columns) for batch in read_piece(replay, piece, columns))
    return _find(audience, finder, batches)


def _find_in_file(audience: str, finder: Finder, path: str) -> Iterator[Any]:
    return _find(audience, finder, read_events(Path(path), 0, TICK_MAX))


def _events(events: DataFrame) -> DataFrame:
    """Only what is matched leaves the JVM."""
    names = {"bigint": "int64"}
    types = {name: names.get(kind, kind) for name, kind in events.dtypes}
    check_places(types, "the events")
    kind = events.schema["attributes"].dataType if "attributes" in events.columns else None
    if kind is None or kind.typeName() != "map":
        return events
    return events.select("pubend", "tick", "attributes")


def _find(audience: str, finder: Finder, batches: Iterator[Any]) -> Iterator[Any]:
    opened, rows = open_audience(audience), ROWS_MIN
    for batch in batches:
        first = 0
        while first < batch.num_rows:
            part = batch.slice(first, rows)
            counts, handles = _match(opened, part)
            yield from finder(opened, part, counts, handles)
            first += part.num_rows
            fitting = MATCHES_MAX * part.num_rows // max(1, len(handles))
            rows = max(ROWS_MIN, min(ROWS_MAX, fitting // ROWS_MIN * ROWS_MIN))


def _match(opened: Audience, batch: Any) -> tuple[Any, Any]:
    """By event how many subscriptions match, and their handles."""
    place = batch.schema.get_field_index("attributes")
    if place >= 0 and kinds.is_map(batch.schema.types[place]):
        return match_maps(opened.matcher, batch.column("attributes"))
    found = opened.matcher.match_batch(batch.drop_columns(["pubend", "tick"]))
    return found.counts, found.handles


def _by_name(opened: Audience, batch: Any, counts: Any, handles: Any) -> Iterator[Any]:
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


def _by_event(opened: Audience, batch: Any, counts: Any, handles: Any) -> Iterator[Any]:
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
