"""Cover index: which of many conjunctions cover a given one, and which does it cover?

Theory of operation
    A conjunction pins an attribute if it allows one value only. What pins an attribute can only be
    covered by what leaves it free, allows more, or pins it to the same value. So entries stand in
    buckets by all their pins together. The entries that may cover `symbol = 'IBM' AND side = 'buy'
    AND price > 90` are in the buckets of the four subsets of its two pins; those it may cover are
    in its own bucket and in buckets with more pins, found through the rarest of its pins.
    Candidates are tested exactly. If the buckets hold too many, or there are no pins, `boxes`
    pre-selects.

Invariants
    I1  both answers are exactly those of a test of every entry
    I2  no bucket is empty

Cost: with pins, the size of a few buckets; else 0.3 ns for each entry, and again for each bound if
many have fitting attributes.
"""

from __future__ import annotations

from itertools import chain, combinations
from typing import TYPE_CHECKING, Generic, TypeVar

from gapless.filters.constraint import Missing, Present

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gapless.core.events import Value
    from gapless.filters.normal import Conjunction
    from gapless.propagation.boxes import Boxes

    Pin = tuple[str, Value]
    Pins = tuple[Pin, ...]

SCANNED_MAX = 256
"""Above this many candidates, array operations pre-select."""

PINS_MAX = 6
"""With more pins than this, the subsets of them are too many to look up."""


class CoverEntry:
    """One conjunction of an index."""

    __slots__ = ("conjunction", "is_root", "pins", "row")

    def __init__(self, conjunction: Conjunction) -> None:
        self.conjunction = conjunction
        self.is_root = False
        self.pins = pins_of(conjunction)
        self.row = -1


EntryT = TypeVar("EntryT", bound=CoverEntry)


class CoverIndex(Generic[EntryT]):
    """A dynamic set of conjunctions, no two of them equal."""

    def __init__(self, *, scanned_max: int = SCANNED_MAX) -> None:
        self._scanned_max = scanned_max
        self._rows: list[EntryT | None] = []
        self._free: list[int] = []
        self._buckets: dict[Pins, dict[EntryT, None]] = {}
        self._with_pin: dict[Pin, dict[Pins, None]] = {}  # buckets of two or more pins, by each pin
        self._boxes: Boxes | None = None

    def __len__(self) -> int:
        return len(self._rows) - len(self._free)

    def add(self, entry: EntryT) -> None:
        if self._free:
            entry.row = self._free.pop()
            self._rows[entry.row] = entry
        else:
            entry.row = len(self._rows)
            self._rows.append(entry)
        bucket = self._buckets.get(entry.pins)
        if bucket is None:
            bucket = self._buckets[entry.pins] = {}
            for pin in entry.pins if len(entry.pins) > 1 else ():
                self._with_pin.setdefault(pin, {})[entry.pins] = None
        bucket[entry] = None
        if self._boxes is not None:
            self._boxes.put(entry.row, entry.conjunction, entry.is_root)

    def remove(self, entry: EntryT) -> None:
        self._rows[entry.row] = None
        self._free.append(entry.row)
        bucket = self._buckets[entry.pins]
        del bucket[entry]
        if not bucket:
            del self._buckets[entry.pins]
            for pin in entry.pins if len(entry.pins) > 1 else ():
                del self._with_pin[pin][entry.pins]
                if not self._with_pin[pin]:
                    del self._with_pin[pin]
        if self._boxes is not None:
            self._boxes.drop(entry.row, entry.conjunction)

    def set_root(self, entry: EntryT, is_root: bool) -> None:
        entry.is_root = is_root
        if self._boxes is not None:
            self._boxes.set_root(entry.row, is_root)

    def covering(self, conjunction: Conjunction, *, roots: bool = False) -> Iterator[EntryT]:
        """All others, or all other roots, that cover the conjunction."""
        pins = pins_of(conjunction)
        sizes = range(len(pins) + 1) if len(pins) <= PINS_MAX else ()
        subsets = chain.from_iterable(combinations(pins, size) for size in sizes)
        buckets = [self._buckets[key] for key in subsets if key in self._buckets]
        candidates: Iterable[EntryT] = chain.from_iterable(buckets)
        if sum(map(len, buckets)) > self._scanned_max or not sizes:
            candidates = self._entries(self._wide_net().covering(conjunction, roots=roots))
        for entry in candidates:
            if roots and not entry.is_root:
                continue
            if entry.conjunction.covers(conjunction) and entry.conjunction != conjunction:
                yield entry

    def covered(self, conjunction: Conjunction, *, roots: bool = False) -> Iterator[EntryT]:
        """All others, or all other roots, that the conjunction covers."""
        buckets = list(self._buckets_below(pins_of(conjunction)))
        candidates: Iterable[EntryT] = chain.from_iterable(buckets)
        if sum(map(len, buckets)) > self._scanned_max:
            candidates = self._entries(self._wide_net().covered(conjunction, roots=roots))
        for entry in list(candidates):
            if roots and not entry.is_root:
                continue
            if conjunction.covers(entry.conjunction) and entry.conjunction != conjunction:
                yield entry

    def _buckets_below(self, pins: Pins) -> Iterable[dict[EntryT, None]]:
        """The buckets of entries that have all these pins and perhaps more."""
        if not pins:
            return self._buckets.values()
        own = [self._buckets[pins]] if pins in self._buckets else []
        rarest = min((self._with_pin.get(pin, {}) for pin in pins), key=len)
        wanted = set(pins)
        return own + [self._buckets[key] for key in rarest if key != pins and wanted <= set(key)]

    def _entries(self, rows: Iterable[int]) -> Iterator[EntryT]:
        for row in rows:
            entry = self._rows[row]
            assert entry is not None
            yield entry

    def _wide_net(self) -> Boxes:
        if self._boxes is None:
            from gapless.propagation.boxes import Boxes

            self._boxes = Boxes()
            for entry in self._rows:
                if entry is not None:
                    self._boxes.put(entry.row, entry.conjunction, entry.is_root)
        return self._boxes

    def check(self) -> None:
        assert all(self._buckets.values()), "I2"
        assert sum(map(len, self._buckets.values())) == len(self)


def pins_of(conjunction: Conjunction) -> Pins:
    """The attributes that are pinned to one value, with that value."""
    pins = []
    for name, constraint in conjunction.constraints:
        kind = constraint.__class__
        if kind is Missing or kind is Present:
            continue
        values = constraint.values  # type: ignore[union-attr]
        if values is not None and len(values) == 1:
            pins.append((name, values[0]))
    return tuple(pins)
