"""Plan: from where to where a read goes, and how it is cut for executors.

Theory of operation
    A read is a token interval. Where it begins and ends may be said by name or by time; positions
    that the brokers give make tokens of that. An interval is cut at the pubends, and each pubend's
    part into spans of equal length, so that there are as many as are asked for at least.
    The cut depends on the two tokens and that number alone: a batch that is read again after a
    crash is cut alike, or, with another number, differently with the same rows.

Invariants
    I1  the slices of a plan are disjoint, and cover the interval
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from gapless.core.errors import UsageError
from gapless.core.ticks import PUBEND_BITS
from gapless.core.token import Token

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gapless.spark.options import Place

Positions = dict[str, tuple[int, int]]
"""By pubend: from which tick on it can be read, and up to where it is settled."""


class Slice(InputPartition):
    """A span of one pubend, for one task."""

    def __init__(self, pubend: str, low: int, high: int) -> None:
        super().__init__((pubend, low, high))
        self.pubend = pubend
        self.low = low
        self.high = high


def resolve_start(place: Place, positions: Positions) -> Token:
    """Where a read begins. A pubend that a token does not name is read from the oldest event."""
    match place:
        case "earliest":
            ticks = {name: low for name, (low, _) in positions.items()}
        case "latest":
            ticks = {name: high for name, (_, high) in positions.items()}
        case Token():
            _check_known(place, positions)
            ticks = {name: place.get(name) or low for name, (low, _) in positions.items()}
        case instant:
            tick = instant << PUBEND_BITS
            ticks = {name: min(tick, high) for name, (_, high) in positions.items()}
    return Token(ticks)


def resolve_end(place: Place, positions: Positions) -> Token:
    """Where a read ends: what is settled, at the latest."""
    match place:
        case "earliest":
            raise UsageError("endingOffsets=earliest is before everything", "Give latest.")
        case "latest":
            ticks = {name: high for name, (_, high) in positions.items()}
        case Token():
            _check_known(place, positions)
            for name, tick in place:
                if tick > positions[name][1]:
                    raise UsageError(
                        f"{name} is settled up to {positions[name][1]}, and not up to {tick}",
                        "Give an end that a read or a subscription has given.",
                    )
            return place
        case instant:
            tick = instant << PUBEND_BITS
            ticks = {name: min(tick, high) for name, (_, high) in positions.items()}
    return Token(ticks)


def _check_known(token: Token, positions: Mapping[str, object]) -> None:
    if unknown := [name for name, _ in token if name not in positions]:
        raise UsageError(
            f"the token names {unknown[0]!r}, which is no pubend that is read",
            f"There are {', '.join(positions)}.",
        )


def plan(start: Token, end: Token, partitions_min: int) -> list[Slice]:
    """The interval in slices, by pubend and tick."""
    spans = [(name, start.get(name), high) for name, high in end if start.get(name) < high]
    total = sum(high - low for _, low, high in spans)
    slices: list[Slice] = []
    for name, low, high in spans:
        count = max(1, -(-partitions_min * (high - low) // total))
        count = min(count, high - low)
        edges = [low + (high - low) * k // count for k in range(count + 1)]
        slices += [Slice(name, *edge) for edge in pairwise(edges)]
    return slices
