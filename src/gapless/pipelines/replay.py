"""Replay: the events between two tokens, from the lake and the log as if they were one.

Theory of operation
    The manifest says what the lake has; the rest is in the log, which the archive's subscription
    holds until the lake has it. So a plan cuts each pubend's ticks into pieces that follow each
    other: parts of the lake's files, and ranges of the log. Every piece is read by itself, on any
    worker, with the condition.
    The archive may go on between plan and reading. A file that has grown gives what the plan asked
    for. What was released from the log meanwhile is in the lake by then: a piece of the log that
    finds its beginning gone looks the rest up in the manifest as it is then.

Invariants
    I1  the pieces of a pubend follow each other, from start to end, without overlap; what is
        between them has no events, or is lost
    I2  what neither has is a `LostError` that names it, or is left out if that is asked for
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from gapless.client.columns import SCHEMA, attributes_of
from gapless.client.delivery import Gap
from gapless.client.errors import LostError
from gapless.core.errors import UsageError
from gapless.core.events import Event
from gapless.core.identity import PubendName, PublisherName, TopicName
from gapless.core.ticks import Tick
from gapless.core.token import Token
from gapless.filters.matcher import Matcher
from gapless.pipelines.attributes import match_maps
from gapless.pipelines.source import read_ticks
from gapless.pipelines.spread import spread
from gapless.pipelines.writing import read_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from gapless.pipelines.lake import Lake
    from gapless.pipelines.manifest import Covered, Manifest
    from gapless.pipelines.source import Source

Lost = Literal["raise", "skip"]

VALUE = "struct<bool: boolean, int: long, float: double, text: string>"
ROWS = (
    "topic string, pubend string, tick long, published timestamp, publisher string, "
    f"sequence long, attributes map<string, {VALUE}>, body binary"
)


@dataclass(frozen=True, slots=True)
class Piece:
    """The ticks [start, end) of a pubend: of a file of the lake, or (no path) of the log."""

    pubend: str
    start: int
    end: int
    path: str = ""


@dataclass(frozen=True, slots=True)
class Replay:
    """Where to read: a lake, a log, or both; and what of it."""

    lake: Lake | None
    source: Source | None
    condition: str = ""
    lost: Lost = "raise"


@dataclass(frozen=True, slots=True)
class Pieces:
    """A plan: what is read, what neither the lake nor the log has, and the ticks by pubend."""

    pieces: list[Piece]
    lost: list[Piece]
    extents: dict[str, tuple[int, int]] = field(default_factory=dict)

    def known(self) -> dict[str, tuple[int, int]]:
        """By pubend, the ticks of which nothing is lost: all, or those behind the last loss."""
        known = dict(self.extents)
        for piece in self.lost:
            low, high = known[piece.pubend]
            known[piece.pubend] = (max(low, piece.end), high)
        return known


def plan(replay: Replay, start: Token | None = None, end: Token | None = None) -> Pieces:
    """From a token to another; by default from the oldest that there is to what is settled now."""
    manifest = _manifest(replay)
    positions: dict[str, tuple[int, int]] = {}
    if replay.source is not None:
        with replay.source.connect() as client:
            positions = client.positions(replay.source.topic)
    found = Pieces([], [])
    for pubend in sorted({*positions, *(manifest.pubends if manifest is not None else ())}):
        covered = manifest.pubends.get(pubend) if manifest is not None else None
        extents = [positions[pubend]] if pubend in positions else []
        extents += [(covered.start, covered.end)] if covered is not None else []
        oldest, settled = min(low for low, _ in extents), max(high for _, high in extents)
        low = oldest if start is None else start.get(pubend)
        high = settled if end is None else end.get(pubend)
        if high > settled:
            problem = f"{pubend!r} is settled up to {settled}, and not up to {high}"
            raise UsageError(problem, "Give an end that a subscription or `positions` has given.")
        found.extents[pubend] = (low, high)
        add_pieces(found, pubend, (low, high), covered, has_log=pubend in positions)
    return found


def _manifest(replay: Replay) -> Manifest | None:
    return replay.lake.manifest() if replay.lake is not None else None


def add_pieces(
    found: Pieces, pubend: str, ticks: tuple[int, int], covered: Covered | None, *, has_log: bool
) -> None:
    """What of these ticks is in the lake, and the rest from the log, if there is one."""
    low, high = ticks
    outside = found.pieces if has_log else found.lost
    seam_low = seam_high = low
    if covered is not None and max(low, covered.start) < min(high, covered.end):
        seam_low, seam_high = max(low, covered.start), min(high, covered.end)
        if low < seam_low:
            outside.append(Piece(pubend, low, seam_low))
        for file in covered.files:
            first, last = max(file.start, low), min(file.end, high)
            if first < last:
                found.pieces.append(Piece(pubend, first, last, file.path))
        lost = covered.lost_within(seam_low, seam_high)
        found.lost.extend(Piece(pubend, first, last) for first, last in lost)
    if seam_high < high:
        outside.append(Piece(pubend, seam_high, high))


def replay_rows(spark: SparkSession, replay: Replay, pieces: Pieces) -> DataFrame:
    """As a DataFrame with the columns of a range read; rows of a pubend come in order of ticks."""
    check_lost(replay, pieces)
    return spread(spark, partial(_rows, replay), pieces.pieces, ROWS)


def _rows(replay: Replay, piece: Piece) -> Iterator[Any]:
    return (batch.cast(NULLABLE) for batch in read_piece(replay, piece))


def replay_events(replay: Replay, pieces: Pieces) -> Iterator[Event]:
    """One by one in this process, pubend by pubend, in order."""
    check_lost(replay, pieces)
    for piece in pieces.pieces:
        for batch in read_piece(replay, piece):
            for row in batch.to_pylist():
                publisher = row["publisher"]
                yield Event(
                    attributes_of(row["attributes"]),
                    row["body"],
                    TopicName(row["topic"]),
                    PubendName(row["pubend"]),
                    Tick(row["tick"]),
                    None if publisher is None else PublisherName(publisher),
                    row["sequence"],
                )


def fill_gap(replay: Replay, gap: Gap) -> Iterator[Event]:
    """What a subscription missed: the events of its gap that match, in order."""
    start, end = Token({gap.pubend: gap.span.start}), Token({gap.pubend: gap.span.end})
    return replay_events(replay, plan(replay, start, end))


def check_lost(replay: Replay, pieces: Pieces) -> None:
    if pieces.lost and replay.lost == "raise":
        first = pieces.lost[0]
        raise LostError(f"{first.pubend} [{first.start}, {first.end})", REMEDY)


REMEDY = "Replay from later on, or ask for what is lost to be left out."


def read_piece(replay: Replay, piece: Piece, columns: Sequence[str] | None = None) -> Iterator[Any]:
    """Record batches with the matching events of a piece; with these columns at least."""
    if piece.path:
        assert replay.lake is not None
        batches = read_file(replay.lake.folder / piece.path, piece.start, piece.end, columns)
        yield from select(batches, replay.condition)
        return
    assert replay.source is not None
    with replay.source.connect() as client:
        ticks = (piece.start, piece.end)
        for item in read_ticks(client, replay.source, piece.pubend, *ticks, replay.condition):
            if isinstance(item, Gap):
                yield from _archived_meanwhile(replay, piece.pubend, item, columns)
            elif len(item):
                yield item.to_arrow()


def _archived_meanwhile(
    replay: Replay, pubend: str, gap: Gap, columns: Sequence[str] | None
) -> Iterator[Any]:
    """What the log no longer has is read from the lake as it is now."""
    manifest, found = _manifest(replay), Pieces([], [])
    covered = manifest.pubends.get(pubend) if manifest is not None else None
    add_pieces(found, pubend, (gap.span.start, gap.span.end), covered, has_log=False)
    check_lost(replay, found)
    for piece in found.pieces:
        yield from read_piece(replay, piece, columns)


def select(batches: Iterator[Any], condition: str) -> Iterator[Any]:
    """The rows that match."""
    if not condition:
        yield from batches
        return
    matcher = Matcher[int]({0: condition}, engine="python")
    for batch in batches:
        counts, _ = match_maps(matcher, batch.column("attributes"))
        if counts.any():
            yield batch.take(pa.array(np.flatnonzero(counts)))


NULLABLE = pa.schema([field.with_nullable(True) for field in SCHEMA])
"""As Spark wants it."""
