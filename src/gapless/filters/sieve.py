"""Sieve: which of many events cannot match, decided by a few bytes of each.

Theory of operation
    A digest holds, for one attribute of many events, the kind of each value and one number: the
    value, or a checksum of the text or the bytes. The normal form of a filter, without residuals,
    says which of these may match. An event that passes is a *candidate*, and is decoded; one that
    does not pass surely does not match. So a digest may be coarse: whole numbers are rounded,
    different texts may have one checksum, and a constraint that cannot be judged takes every value
    of its kind.
    For a filter with many alternatives, the sieve tests each attribute that all of them constrain:
    does any alternative take its value? It need not be the same alternative for all attributes.

Invariants
    I1  an event that the filter matches is a candidate
    I2  candidates are a function of filter and events: nothing is random

Cost: a digest is 4 bytes an event where all values are of one kind and texts or short numbers, and
9 at most, made of values in some 0.3 µs; sieving takes some 2 ns an event for each constraint. With
few different values (`shrink`) it is 1 or 2 bytes, and sieving is no slower. With more than
`ALTERNATIVES_MAX` alternatives it takes some 50 ns an event for each attribute, however many.
Importing this module imports numpy.
"""

from __future__ import annotations

from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import numpy as np

from gapless.core.timestamps import Timestamp, to_microseconds
from gapless.filters.constraint import (
    Booleans,
    ByteStrings,
    Missing,
    Numbers,
    Present,
    Range,
    Strings,
    Timestamps,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from gapless.core.events import Value
    from gapless.filters.constraint import Constraint
    from gapless.filters.filter import Filter

    Mask = Any  # an array of bool, by event
NOTHING, BOOLEAN, NUMBER, TEXT, TIMESTAMP, BYTES = range(6)
KINDS = {
    type(None): NOTHING,
    bool: BOOLEAN,
    int: NUMBER,
    float: NUMBER,
    str: TEXT,
    Timestamp: TIMESTAMP,
    bytes: BYTES,
}

CODES_MAX = 1 << 16
"""The number of different values up to which a digest keeps each once."""

POINTS_MAX = 16
"""A set of more numbers, timestamps or bytes is sieved as the interval that its codes lie in; of
more texts, as any text."""


ALTERNATIVES_MAX = 16
"""Alternatives up to which each is sieved by itself."""


class Digest(NamedTuple):
    """One attribute of many events: by event, a kind, and a number."""

    kinds: NDArray[np.uint8]
    values: NDArray[Any]

    @property
    def nbytes(self) -> int:
        """What it takes in memory: of kinds that are all the same, nothing."""
        return (self.kinds.nbytes if self.kinds.strides[0] else 0) + self.values.nbytes

    def cut(self, low: int, high: int) -> Digest:
        """Of the events `low` to `high` alone; nothing is copied."""
        return Digest(self.kinds[low:high], self.values[low:high])


class Coded(NamedTuple):
    """A digest that holds each different value once: by event, the number of its value."""

    codes: NDArray[Any]
    table: Digest

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.table.nbytes

    def cut(self, low: int, high: int) -> Coded:
        return Coded(self.codes[low:high], self.table)


def shrink(given: Digest) -> Digest | Coded:
    """The digest in less room, if there are few different values."""
    known, places = np.unique(given.values, return_inverse=True)
    pairs, codes = np.unique(places * len(KINDS) + given.kinds, return_inverse=True)
    if len(pairs) > CODES_MAX:
        return given
    where, kinds = np.divmod(pairs, len(KINDS))
    table = Digest(kinds.astype(np.uint8), known[where])
    coded = Coded(codes.astype(np.uint8 if len(pairs) <= 1 << 8 else np.uint16), table)
    return coded if coded.nbytes < given.nbytes else given


def digest(values: Sequence[Value | None]) -> Digest:
    """The digest of these values; None is a missing one."""
    kinds = np.array([KINDS[type(each)] for each in values], np.uint8)
    return compact(kinds, np.array([_code(each) for each in values], np.float64))


def compact(kinds: NDArray[np.uint8], values: NDArray[np.float64]) -> Digest:
    """The digest of values of these kinds, which these numbers stand for."""
    if len(kinds) and (kinds == kinds[0]).all():  # as most attributes are
        kinds = np.broadcast_to(kinds[0].copy(), len(kinds))
        if kinds[0] == TEXT:
            return Digest(kinds, values.astype(np.uint32))
    return Digest(kinds, _narrow(values))


def _narrow(values: NDArray[np.float64]) -> NDArray[Any]:
    """In half of the room, if nothing is lost by it."""
    with np.errstate(over="ignore"):
        half = values.astype(np.float32)
    return half if np.array_equal(half, values) else values


def _code(value: Any) -> float:
    if type(value) is str:
        return crc32(value.encode(errors="surrogatepass"))
    if type(value) is bytes:
        return crc32(value)
    if type(value) is Timestamp:
        return float(to_microseconds(value))
    return 0.0 if value is None else _rounded(value)


def _rounded(number: float) -> float:
    """The nearest float. Rounding keeps the order of numbers."""
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


class Sieve:
    """A coarse filter: it looks at digests alone, and passes more than the filter does."""

    def __init__(self, condition: Filter) -> None:
        self._alternatives = [each.constraints for each in condition.conjunctions]
        self._unions: dict[str, Union] = {}
        if len(self._alternatives) > ALTERNATIVES_MAX:
            self._unions = _unions(self._alternatives)
            self.names = tuple(sorted(self._unions))
        else:
            self.names = tuple(sorted({name for some in self._alternatives for name, _ in some}))

    @property
    def is_tight(self) -> bool:
        """Does every alternative constrain an attribute? Else every event passes."""
        if len(self._alternatives) > ALTERNATIVES_MAX:
            return bool(self._unions)
        return all(self._alternatives)

    def candidates(self, digests: Mapping[str, Digest | Coded], count: int) -> NDArray[np.bool_]:
        """By event: may it match? `digests` must hold all of `names`."""
        if len(self._alternatives) > ALTERNATIVES_MAX:
            unions = (union.mask(digests[name]) for name, union in self._unions.items())
            return np.ones(count, np.bool_) & reduce(and_, unions, True)
        passing = np.zeros(count, np.bool_)
        for constraints in self._alternatives:
            masks = (_mask(digests[name], constraint) for name, constraint in constraints)
            passing |= reduce(and_, masks, True)
        return passing


def _unions(alternatives: Sequence[Sequence[tuple[str, Constraint]]]) -> dict[str, Union]:
    """For each attribute that all alternatives constrain, the union of the constraints."""
    demands: dict[str, list[Constraint]] = {}
    for constraints in alternatives:
        for name, constraint in constraints:
            demands.setdefault(name, []).append(constraint)
    return {name: Union(some) for name, some in demands.items() if len(some) == len(alternatives)}


class Union:
    """The union of some constraints: kinds that it takes wholly, and ranges of the other kinds."""

    def __init__(self, constraints: Sequence[Constraint]) -> None:
        self._kinds: set[int] = set()
        spans: dict[int, list[tuple[float, float]]] = {kind: [] for kind in set(KINDS.values())}
        for constraint in constraints:
            match constraint:
                case Missing():
                    self._kinds.add(NOTHING)
                case Present():
                    self._kinds |= {*KINDS.values()} - {NOTHING}
                case Booleans(values=wanted):
                    spans[BOOLEAN] += [(float(each), float(each)) for each in wanted]
                case Numbers(low, high, values=points):
                    ends = [(each, each) for each in points] if points else [(low, high)]
                    spans[NUMBER] += [(_rounded(low), _rounded(high)) for low, high in ends]
                case Strings(values=words) if words is not None:
                    spans[TEXT] += [(_code(each), _code(each)) for each in words]
                case Strings():
                    self._kinds.add(TEXT)
                case Timestamps() | ByteStrings():
                    kind, ends = _spans_of(constraint)
                    spans[kind] += ends
        self._spans = {kind: _joined(some) for kind, some in spans.items() if some}

    def mask(self, given: Digest | Coded) -> Mask:
        if isinstance(given, Coded):
            return self.mask(given.table)[given.codes]
        kinds, values = given
        passing = np.isin(kinds, list(self._kinds))
        for kind, (lows, highs) in self._spans.items():
            if kind not in self._kinds:
                places = np.searchsorted(lows, values, "right") - 1
                passing |= (kinds == kind) & (places >= 0) & (values <= highs[places])
        return passing


def _spans_of(constraint: Range) -> tuple[int, list[tuple[float, float]]]:
    """The kind of a constraint, and spans of codes that hold the codes of all its values."""
    kind = TIMESTAMP if isinstance(constraint, Timestamps) else BYTES
    if constraint.values is not None:
        return kind, [(_code(each), _code(each)) for each in constraint.values]
    if kind == BYTES:
        return kind, [(float("-inf"), float("inf"))]
    high = float("inf") if constraint.high is None else _code(constraint.high)
    return kind, [(_code(constraint.low), high)]


def _joined(spans: list[tuple[float, float]]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Lower and upper ends, ascending, of as many spans as do not overlap."""
    joined: list[list[float]] = []
    for low, high in sorted(spans):
        if joined and low <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], high)
        else:
            joined.append([low, high])
    lows, highs = zip(*joined, strict=True)
    return np.array(lows, np.float64), np.array(highs, np.float64)


def _mask(given: Digest | Coded, constraint: Constraint) -> Mask:
    if isinstance(given, Coded):
        return _mask(given.table, constraint)[given.codes]
    kinds, values = given
    match constraint:
        case Missing():
            return kinds == NOTHING
        case Present():
            return kinds != NOTHING
        case Booleans(values=wanted):
            return (kinds == BOOLEAN) & _one_of(values, [float(each) for each in wanted])
        case Numbers(values=points) if points is not None and len(points) <= POINTS_MAX:
            return (kinds == NUMBER) & _one_of(values, [_rounded(each) for each in points])
        case Numbers(low, high, values=points):
            low, high = (points[0], points[-1]) if points else (low, high)
            within = (values >= np.float64(_rounded(low))) & (values <= np.float64(_rounded(high)))
            return (kinds == NUMBER) & within
        case Strings(values=points) if points is not None and len(points) <= POINTS_MAX:
            return (kinds == TEXT) & _one_of(values, [_code(each) for each in points])
        case Strings():
            return kinds == TEXT
        case Timestamps() | ByteStrings():
            kind, spans = _spans_of(constraint)
            if len(spans) > POINTS_MAX:
                spans = [(min(spans)[0], max(spans)[1])]
            inside = [
                (values >= np.float64(low)) & (values <= np.float64(high)) for low, high in spans
            ]
            return (kinds == kind) & reduce(or_, inside)


def _one_of(values: NDArray[Any], points: Sequence[float]) -> Mask:
    # As float64: numpy would round a plain float to what the array has.
    return reduce(or_, (values == np.float64(point) for point in points))
