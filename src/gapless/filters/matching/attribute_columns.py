"""Attribute columns: what an index keeps of one attribute, and how a value of it fills its columns.

Theory of operation
    See `columns` for what the columns mean. `fill` adds the columns that one value fills to lists
    of places and values: an event costs only what it has, and nothing is prepared when filters
    change. `encoder` generates source that does the same, which is quicker where columns seldom
    change.

Invariants
    I1  `numbers` are those of `codes` that stand for numbers
    I2  an empty dictionary is replaced before something is added: all attributes share it
"""

from __future__ import annotations

from math import inf, nan, nextafter
from typing import TYPE_CHECKING, Any

from gapless.core.timestamps import EPOCH, Timestamp, in_utc, is_timestamp, to_microseconds
from gapless.filters.constraint import ByteStrings, Strings, Timestamps
from gapless.filters.matching.checks import check_of

if TYPE_CHECKING:
    from gapless.core.events import Value
    from gapless.filters.constraint import Constraint
    from gapless.filters.matching.checks import ValueCheck
    from gapless.filters.matching.plan import Point
    from gapless.filters.matching.text_codes import TextCodes

EXACT_MAX = 1 << 53
CODE_FIRST = 4
MEMO_MAX = 10_000
MEMO_TEXT_MAX = 256
"""Length of a text up to which its result is cached."""

STRING = 2.0
"""The code of a string that no filter names; every string's code is at least this."""

NUMBER_MAX = nextafter(inf, 0.0)
LOW_HALF = 0xFFFFFFFF


class Opaque:
    """Stands for a value of no kind that attributes have: present, nothing else."""


def clamp(value: int) -> float:
    """An integer as a float, as near as can be."""
    try:
        return float(value)
    except OverflowError:
        return NUMBER_MAX if value > 0 else -NUMBER_MAX


def moment(value: Timestamp) -> float:
    """The microseconds of a timestamp as a float, as near as can be; NaN without a time zone."""
    return float(to_microseconds(value)) if is_timestamp(value) else nan


def plain(value: object) -> Value | Opaque | None:
    """The value itself, as one of the classes that encoders know."""
    match value:
        case None | bool():
            return value
        case str():
            return str.__str__(value)  # not str(value): an enum would give its name
        case float():
            return float.__float__(value)
        case int():
            return int.__int__(value)
        case bytes():
            return bytes(value)
        case Timestamp():
            return value if type(value) is Timestamp else _plain_timestamp(value)
        case _:
            return Opaque()


def _plain_timestamp(value: Timestamp) -> Timestamp | Opaque:
    try:
        found = in_utc(value)
    except ValueError:
        return Opaque()
    return Timestamp.combine(found.date(), found.time(), EPOCH.tzinfo)


JUDGED: dict[type, type] = {Strings: str, Timestamps: Timestamp, ByteStrings: bytes}
"""By constraint the class of the values in its set."""


class Truth:
    """One odd constraint: is a value in its set? Remembers short strings, up to `MEMO_MAX`."""

    def __init__(self, constraint: Constraint, column: int) -> None:
        self.column = column
        self.constraint = constraint
        self.judged = JUDGED.get(type(constraint), float)  # the class of values; float: any number
        self.of = self.of_string if self.judged is str else self._of_value
        self._check: ValueCheck = check_of(constraint)
        self._memo: dict[str, float] = {}

    def __reduce__(self) -> tuple[object, ...]:
        return Truth, (self.constraint, self.column)

    def of_string(self, value: str) -> float:
        found = self._memo.get(value)
        if found is None:
            found = 1.0 if self._check(value) else 0.0
            if len(value) <= MEMO_TEXT_MAX:
                if len(self._memo) >= MEMO_MAX:
                    self._memo.clear()
                self._memo[value] = found
        return found

    def _of_value(self, value: Value) -> float:
        return 1.0 if self._check(value) else 0.0


NOTHING: dict[Any, Any] = {}
"""What an attribute has none of, as most have of most; nothing is ever added to it."""


class AttributeColumns:
    """The columns of one attribute, its codes and its prefixes."""

    __slots__ = (
        *("code", "codes", "edges", "guard", "guarded", "is_key", "keyed", "lengths", "loose"),
        *("moment", "name", "number", "numbers", "presence", "texts", "truths"),
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.number: int | None = None
        self.moment: int | None = None
        self.code: int | None = None
        self.presence: int | None = None
        self.guard: int | None = None  # the edge key of events that have the attribute
        self.guarded = 0  # clauses that were put there
        self.is_key = False  # by itself
        self.keyed = 0  # clauses that were put under one of its values for want of a better key
        self.loose = 0  # tests that got no column because columns are short
        self.truths: dict[Constraint, Truth] = NOTHING
        self.codes: dict[Point, float] = NOTHING
        self.numbers: dict[int | float, float] = NOTHING
        self.texts: TextCodes | None = None  # the same for batches, once there was one
        self.edges: dict[str, int] = NOTHING  # literal prefix -> the edge key it stands for
        self.lengths: dict[int, int] = NOTHING  # length of such prefixes -> how many there are

    def put_truth(self, truth: Truth) -> None:
        if not self.truths:
            self.truths = {}
        self.truths[truth.constraint] = truth

    def put_code(self, point: Point, code: float) -> None:
        if not self.codes:
            self.codes = {}
        self.codes[point] = code
        if isinstance(point, int | float):
            if not self.numbers:
                self.numbers = {}
            self.numbers[point] = code

    def put_prefix(self, prefix: str, edge: int) -> None:
        if not self.edges:
            self.edges, self.lengths = {}, {}
        self.edges[prefix] = edge
        self.lengths[len(prefix)] = self.lengths.get(len(prefix), 0) + 1

    def columns(self) -> list[int]:
        own = [self.number, self.moment, self.code, self.presence]
        own += [truth.column for truth in self.truths.values()]
        return [column for column in own if column is not None]

    def sweep_codes(self, used: bytes, freed: list[int]) -> None:
        """Forget the codes that are not used any more."""
        self.texts = None
        if self.codes:
            for point in [p for p, code in self.codes.items() if not used[int(abs(code))]]:
                freed.append(int(abs(self.codes.pop(point))))
                self.numbers.pop(point, None)  # type: ignore[arg-type]
            self.keyed = min(self.keyed, len(self.codes))
            self.is_key = self.is_key and bool(self.codes)
        if self.edges:
            for prefix in [p for p, edge in self.edges.items() if not used[edge & LOW_HALF]]:
                freed.append(self.edges.pop(prefix) & LOW_HALF)
                self.lengths[len(prefix)] -= 1
                if not self.lengths[len(prefix)]:
                    del self.lengths[len(prefix)]
        if self.guard is not None and not used[self.guard & LOW_HALF]:
            freed.append(self.guard & LOW_HALF)
            self.guard, self.guarded = None, 0

    def sweep_columns(self, used: bytes, freed: list[int], *, keeps_code: bool) -> int:
        """Let go of the columns that are not used any more, except that of codes if it is kept; how
        many of them were truths."""
        if self.number is not None and not used[self.number]:
            freed.append(self.number)
            self.number = None
        if self.moment is not None and not used[self.moment]:
            freed.append(self.moment)
            self.moment = None
        if self.code is not None and not used[self.code] and not keeps_code:
            freed.append(self.code)
            self.code = None
        if self.presence is not None and not used[self.presence]:
            freed.append(self.presence)
            self.presence = None
        if not self.truths:
            return 0
        gone = [one for one, truth in self.truths.items() if not used[truth.column]]
        freed += [self.truths.pop(one).column for one in gone]
        return len(gone)

    def is_used(self) -> bool:
        return (
            self.number is not None
            or self.moment is not None
            or self.code is not None
            or self.presence is not None
            or self.guard is not None
            or bool(self.codes or self.edges or self.truths)
        )

    def fill(self, value: Any, places: list[int], values: list[float], edges: list[int]) -> None:
        """Add the columns that a value which is not None fills, and the edge keys it stands for."""
        kind = value.__class__
        if kind is str:
            self._fill_string(value, places, values, edges)
        elif kind is float or kind is int:
            self._fill_named(value, float, places, values, edges)
            if self.number is not None:
                places.append(self.number)
                values.append(value if -EXACT_MAX < value < EXACT_MAX else clamp(value))
        elif kind is Timestamp or kind is bytes:
            self._fill_named(value, kind, places, values, edges)
            if self.moment is not None and kind is Timestamp:
                places.append(self.moment)
                values.append(moment(value))
        elif kind is bool or kind is Opaque:
            if self.code is not None:
                places.append(self.code)
                values.append(float(value) if kind is bool else -1.0)
        else:
            self.fill(plain(value), places, values, edges)
            return
        if self.presence is not None:
            places.append(self.presence)
            values.append(1.0)
        if self.guard is not None:
            edges.append(self.guard)

    def _fill_string(
        self, value: str, places: list[int], values: list[float], edges: list[int]
    ) -> None:
        code = self.codes.get(value, STRING)
        if self.code is not None:
            places.append(self.code)
            values.append(code)
        if code >= CODE_FIRST:
            edges.append(int(code))
        for truth in self.truths.values():
            if truth.judged is str:
                places.append(truth.column)
                values.append(truth.of_string(value))
        for length in self.lengths:
            if length <= len(value):
                edge = self.edges.get(value[:length])
                if edge is not None:
                    edges.append(edge)

    def _fill_named(
        self, value: Any, kind: type, places: list[int], values: list[float], edges: list[int]
    ) -> None:
        """The code and the truths of a value that is no string."""
        code = self.codes.get(value, -1.0)
        if self.code is not None:
            places.append(self.code)
            values.append(code)
        if code <= -CODE_FIRST:
            edges.append(-int(code))
        for truth in self.truths.values():
            if truth.judged is kind:
                places.append(truth.column)
                values.append(truth.of(value))
