"""Columns: what an event becomes for the compiled index, a row of floats.

Theory of operation
    Each attribute that filters use has up to four columns, and the odd constraint has its own:

    number    the number; NaN if missing or of another kind
    moment    the microseconds of a timestamp; NaN if missing or of another kind
    code      False 0, True 1, a string that no filter names 2, another value that none names -1,
              and for each value that filters do name its own code, from `CODE_FIRST` on, negative
              for all but strings; NaN if missing. Values are compared exactly, by dictionary.
    presence  1 if there, else 0
    truth     1 if the value is in the set of one constraint, else 0: LIKE patterns, intervals of
              strings, sets of numbers, bytes. Judged once per distinct string, as long as the memo
              remembers. At most `TRUTHS_MAX`; further odd constraints are checked on survivors.

    expression  the value of an expression, see `expression_column`

    An attribute has an edge key, its *guard*, if a clause that is found neither by values nor by a
    prefix needs the attribute: a clause that columns cannot say in full, or any such clause once
    there are more than `DENSE_MAX` attributes.

    Exactness: a bound beyond 2^53 has no exact place on the number column. Such a constraint gets
    the nearest slot, which admits too much, and is checked on survivors. Below 2^53 every bound
    is exact, and an event's integer beyond 2^53 may be rounded without passing any bound.

Invariants
    I1  `slots` are implied by the constraint; they are equivalent to it if `exact`
    I2  a column, code or set belongs to some filter, or was freed by `sweep`, or will be by the
        next one: at most as many are left over as there were removals since the last
"""

from __future__ import annotations

from math import inf, isinf, nan, nextafter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gapless.core.timestamps import FIRST, to_microseconds
from gapless.filters.constraint import (
    Booleans,
    ByteStrings,
    Missing,
    Numbers,
    Present,
    Strings,
    Timestamps,
)
from gapless.filters.matching.attribute_columns import (
    CODE_FIRST,
    EXACT_MAX,
    STRING,
    AttributeColumns,
    Truth,
)
from gapless.filters.matching.expression_column import (
    EXPRESSIONS_MAX,
    ExpressionColumn,
    read_comparison,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.filters.constraint import Constraint
    from gapless.filters.matching.plan import Point
    from gapless.filters.syntax import Condition, Expression

TRUTHS_MAX = 128
EXCLUDED_MAX = 4
COLUMNS_MAX = 0xFFFF - 1
"""Columns have 16 bits in a row, and one number stands for none."""

COLUMNS_PLENTY = COLUMNS_MAX // 2
"""Number of columns up to which every attribute has its own; beyond it, only an attribute with more
than `RARE_MAX` tests, so that one client's many attributes leave columns for others."""

COLUMNS_SPARE = 1_024
"""Columns that are left for codes of which keys are made, whatever there is."""

RARE_MAX = 16

DENSE_MAX = 256
"""Attributes up to which it pays to look at all of them for every event."""

KEYS, PREFIXES, GUARDS, SETS_FIRST = 0, 1, 2, 3
"""Roots of edges: of values, of prefixes, and of attributes that an event must have. A code stands
for one value of one attribute, so one root will do for all. Sets of several attributes follow."""


class ColumnInterval(NamedTuple):
    """A closed interval of one column; what lies outside it if `low` is above `high`."""

    column: int
    low: float
    high: float


class ColumnLayout:
    """All columns, codes and sets of one compiled index."""

    def __init__(self) -> None:
        self.attributes: dict[str, AttributeColumns] = {}
        self.expressions: dict[Expression, ExpressionColumn] = {}
        self.width = 0  # columns in use are below this
        self.blank = np.full(64, nan)  # the row of an event without attributes, with room to spare
        self.version = 0  # grows when an encoder made before is out of date
        self.sets: dict[tuple[str, ...], int] = {}  # two names or more -> number of the set
        self.sets_version = 0  # grows when the sets, or their columns, are others
        self.set_count = SETS_FIRST
        self.code_count = CODE_FIRST
        self.truth_count = 0
        self._free_columns: list[int] = []
        self._free_codes: list[int] = []
        self._free_sets: list[int] = []

    def attribute(self, name: str) -> AttributeColumns:
        found = self.attributes.get(name)
        if found is None:
            found = self.attributes[name] = AttributeColumns(name)
        return found

    @property
    def is_sparse(self) -> bool:
        """Are there too many attributes or columns to look at each for every event?"""
        return len(self.attributes) > DENSE_MAX or self.width > 4 * DENSE_MAX

    def _new_column(self, blank: float = nan) -> int:
        self.version += 1
        if self._free_columns:
            column = self._free_columns.pop()
        else:
            column = self.width
            self.width += 1
            if column == len(self.blank):
                self.blank = np.concatenate([self.blank, np.full(column, nan)])
        self.blank[column] = blank
        return column

    def has_room(self, name: str | None = None) -> bool:
        """Are there columns left for one more test, of this attribute or of an expression?"""
        used = self.width - len(self._free_columns)
        if used < COLUMNS_PLENTY:
            return True
        if name is not None:
            attribute = self.attribute(name)
            attribute.loose += 1
            if attribute.loose <= RARE_MAX:
                return False
        return used < COLUMNS_MAX - COLUMNS_SPARE

    def number_column(self, name: str) -> int:
        attribute = self.attribute(name)
        if attribute.number is None:
            attribute.number = self._new_column()
        return attribute.number

    def moment_column(self, name: str) -> int:
        attribute = self.attribute(name)
        if attribute.moment is None:
            attribute.moment = self._new_column()
        return attribute.moment

    def code_column(self, name: str) -> int:
        attribute = self.attribute(name)
        if attribute.code is None:
            attribute.code = self._new_column()
        return attribute.code

    def presence_column(self, name: str) -> int:
        attribute = self.attribute(name)
        if attribute.presence is None:
            attribute.presence = self._new_column(0.0)
        return attribute.presence

    def _new_code(self) -> int:
        if self._free_codes:
            return self._free_codes.pop()
        self.code_count += 1
        return self.code_count - 1

    def code_of(self, name: str, point: Point) -> float:
        """The code of a value, positive for a string; a new one if it has none."""
        attribute = self.attribute(name)
        code = attribute.codes.get(point)
        if code is None:
            if not attribute.codes:
                self.version += 1
            code = float(self._new_code())
            if not isinstance(point, str):
                code = -code
            attribute.put_code(point, code)
        return code

    def key_code(self, name: str, point: Point) -> int:
        """The code of a value in a key, without its sign."""
        return abs(int(self.code_of(name, point)))

    def prefix_edge(self, name: str, prefix: str) -> int:
        """The edge key of a literal prefix."""
        attribute = self.attribute(name)
        edge = attribute.edges.get(prefix)
        if edge is None:
            if len(prefix) not in attribute.lengths:
                self.version += 1
            edge = PREFIXES << 32 | self._new_code()
            attribute.put_prefix(prefix, edge)
        return edge

    def guard_of(self, needed: Sequence[str], *, is_dear: bool) -> int | None:
        """The edge key of the one of these attributes that has guarded the fewest clauses; None for
        a clause that may as well be looked at for every event: it is not dear, and names few."""
        if not needed or not (is_dear or len(self.attributes) > DENSE_MAX):
            return None
        known = self.attributes
        name = min(needed, key=lambda one: known[one].guarded if one in known else 0)
        attribute = self.attribute(name)
        attribute.guarded += 1
        if attribute.guard is None:
            attribute.guard = GUARDS << 32 | self._new_code()
            self.version += 1
        return attribute.guard

    def rarest(self, names: Sequence[str]) -> int:
        """Which of these attributes leads to the fewest clauses by one of its values."""
        found = [self.attributes.get(name) for name in names]
        loads = [one.keyed / max(1, len(one.codes)) if one is not None else 0 for one in found]
        best = loads.index(min(loads))
        self.attribute(names[best]).keyed += 1
        return best

    def set_of(self, names: tuple[str, ...]) -> int:
        """The root of keys over these attributes."""
        if len(names) == 1:
            attribute = self.attribute(names[0])
            if not attribute.is_key:
                attribute.is_key = True
                self.version += 1
            return KEYS
        number = self.sets.get(names)
        if number is None:
            for name in names:
                self.code_column(name)
            number = self._free_sets.pop() if self._free_sets else self.set_count
            self.set_count = max(self.set_count, number + 1)
            self.sets[names] = number
            self.sets_version += 1
            self.version += 1
        return number

    # -- constraints as slots ------------------------------------------------------------------

    def slots(self, name: str, constraint: Constraint) -> tuple[Sequence[ColumnInterval], bool]:
        """The slots of one constraint, and whether they say all of it."""
        kind = constraint.__class__
        if kind is Numbers:
            return self._number_slots(name, constraint)  # type: ignore[arg-type]
        if kind is Strings:
            return self._string_slots(name, constraint)  # type: ignore[arg-type]
        match constraint:
            case Missing():
                return [ColumnInterval(self.presence_column(name), 0.0, 0.0)], True
            case Present():
                return [ColumnInterval(self.presence_column(name), 1.0, 1.0)], True
            case Booleans():
                values = constraint.values
                return [
                    ColumnInterval(self.code_column(name), float(values[0]), float(values[-1]))
                ], True
            case Timestamps():
                return self._timestamp_slots(name, constraint)
            case ByteStrings():
                return self._byte_slots(name, constraint)
            case _:
                raise AssertionError(constraint)

    def _number_slots(
        self, name: str, constraint: Numbers
    ) -> tuple[Sequence[ColumnInterval], bool]:
        values = constraint.values
        if values is not None and len(values) > 1 and self.truth_count < TRUTHS_MAX:
            return [self._truth_slot(name, constraint)], True
        return _interval_slots(self.number_column(name), constraint)

    def _string_slots(
        self, name: str, constraint: Strings
    ) -> tuple[Sequence[ColumnInterval], bool]:
        values = constraint.values
        if values is not None and len(values) == 1:
            code = self.code_of(name, values[0])
            return [ColumnInterval(self.code_column(name), code, code)], True
        if constraint == Strings(excluded=constraint.excluded[:EXCLUDED_MAX]):
            column = self.code_column(name)
            slots = [ColumnInterval(column, STRING, inf)]
            for point in constraint.excluded:
                code = self.code_of(name, point)
                slots.append(ColumnInterval(column, code + 0.5, code - 0.5))
            return slots, True
        if self.truth_count < TRUTHS_MAX:
            return [self._truth_slot(name, constraint)], True
        return [ColumnInterval(self.code_column(name), STRING, inf)], False

    def _timestamp_slots(
        self, name: str, constraint: Timestamps
    ) -> tuple[Sequence[ColumnInterval], bool]:
        values = constraint.values
        if values is not None and len(values) > 1 and self.truth_count < TRUTHS_MAX:
            return [self._truth_slot(name, constraint)], True
        return _interval_slots(self.moment_column(name), _as_numbers(constraint))

    def _byte_slots(
        self, name: str, constraint: ByteStrings
    ) -> tuple[Sequence[ColumnInterval], bool]:
        values = constraint.values
        if values is not None and len(values) == 1:
            code = self.code_of(name, values[0])
            return [ColumnInterval(self.code_column(name), code, code)], True
        if self.truth_count < TRUTHS_MAX:
            return [self._truth_slot(name, constraint)], True
        return (), False

    def _truth_slot(self, name: str, constraint: Constraint) -> ColumnInterval:
        attribute = self.attribute(name)
        truth = attribute.truths.get(constraint)
        if truth is None:
            truth = Truth(constraint, self._new_column())
            attribute.put_truth(truth)
            self.truth_count += 1
        return ColumnInterval(truth.column, 1.0, 1.0)

    def comparison_slots(self, condition: Condition) -> tuple[Sequence[ColumnInterval], bool]:
        """The slots of a comparison of an expression, and whether they say all of it."""
        found = read_comparison(condition)
        if found is None:
            return (), False
        expression, constraint = found
        computed = self.expressions.get(expression)
        if computed is None:
            if len(self.expressions) >= EXPRESSIONS_MAX:
                return (), False
            computed = self.expressions[expression] = ExpressionColumn(
                expression, self._new_column()
            )
        return _interval_slots(computed.column, constraint)

    # -- letting go ----------------------------------------------------------------------------

    def sweep(self, columns: bytes, codes: bytes, sets: bytes) -> None:
        """Free what no row uses any more: these say it of each, by number."""
        for names, number in list(self.sets.items()):
            if not sets[number]:
                del self.sets[names]
                self._free_sets.append(number)
        keyed = {name for names in self.sets for name in names}
        for name, attribute in list(self.attributes.items()):
            attribute.sweep_codes(codes, self._free_codes)
            keeps = name in keyed
            gone = attribute.sweep_columns(columns, self._free_columns, keeps_code=keeps)
            self.truth_count -= gone
            if not attribute.is_used():
                del self.attributes[name]
        for expression, computed in list(self.expressions.items()):
            if not columns[computed.column]:
                del self.expressions[expression]
                self._free_columns.append(computed.column)
        self._narrow()
        self.sets_version += 1
        self.version += 1

    def _narrow(self) -> None:
        """Give back the free columns at the end."""
        free = set(self._free_columns)
        while self.width - 1 in free:
            self.width -= 1
        self._free_columns = [column for column in self._free_columns if column < self.width]


def _as_numbers(constraint: Timestamps) -> Numbers:
    """The set of the microseconds of these timestamps."""
    if constraint.values is not None:
        return Numbers(values=tuple(map(to_microseconds, constraint.values)))
    low, high = constraint.low, constraint.high
    return Numbers(
        -inf if low == FIRST else to_microseconds(low),
        inf if high is None else to_microseconds(high),
        high_open=high is not None,
        excluded=tuple(map(to_microseconds, constraint.excluded)),
    )


def _interval_slots(column: int, constraint: Numbers) -> tuple[Sequence[ColumnInterval], bool]:
    """A set of numbers as slots of a column of numbers, and whether they say all of it."""
    values, excluded = constraint.values, constraint.excluded
    low, high = (values[0], values[-1]) if values else (constraint.low, constraint.high)
    exact = (
        (-EXACT_MAX < low < EXACT_MAX or isinf(low))
        and (-EXACT_MAX < high < EXACT_MAX or isinf(high))
        and (not excluded or max(map(abs, excluded)) < EXACT_MAX)
    )
    if not exact:
        return [ColumnInterval(column, _rounded(low), _rounded(high))], False
    first = nextafter(low, inf) if constraint.low_open else float(low)
    last = nextafter(high, -inf) if constraint.high_open else float(high)
    if first > last:
        return [ColumnInterval(column, nan, nan)], True  # between two neighbouring floats: nothing
    slots = [ColumnInterval(column, first, last)]
    slots += [
        ColumnInterval(column, nextafter(point, inf), nextafter(point, -inf))
        for point in excluded[:EXCLUDED_MAX]
    ]
    several = values is not None and len(values) > 1
    return slots, not several and len(excluded) <= EXCLUDED_MAX


def _rounded(bound: float) -> float:
    """The nearest float; the largest one where there is none near."""
    try:
        return float(bound)
    except OverflowError:
        return nextafter(inf, 0.0) if bound > 0 else nextafter(-inf, 0.0)
