"""Columns: what an event becomes for the compiled index, a row of floats.

Theory of operation
    Each attribute that filters use has up to three columns, and the odd constraint has its own:

    number    the number; NaN if missing or of another kind
    code      False 0, True 1, a string that no filter names 2, a number that none names -1, and
              for each string or number that filters do name its own code, from `CODE_FIRST` on,
              negative for numbers; NaN if missing. Values are compared exactly, by dictionary.
    presence  1 if there, else 0
    truth     1 if the value is in the set of one constraint, else 0: LIKE patterns, intervals of
              strings, sets of numbers. Judged once per distinct string, as long as the memo
              remembers. At most `TRUTHS_MAX`; further odd constraints are checked on survivors.

    computed  the value of an expression, see `computed`

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

from gapless.filters.constraint import Booleans, Missing, Numbers, Present, Strings
from gapless.filters.matching.checks import check_of
from gapless.filters.matching.computed import COMPUTED_MAX, Computed, read_comparison

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gapless.filters.constraint import Constraint
    from gapless.filters.matching.checks import Check
    from gapless.filters.matching.plan import Point
    from gapless.filters.matching.text_codes import TextCodes
    from gapless.filters.syntax import Condition, Expression

EXACT_MAX = 1 << 53
TRUTHS_MAX = 128
EXCLUDED_MAX = 4
COLUMNS_MAX = 0xFFFF - 1
MEMO_MAX = 10_000
CODE_FIRST = 4
STRING = 2.0
"""The code of a string that no filter names; every string's code is at least this."""


class Slot(NamedTuple):
    """A closed interval of one column; what lies outside it if `low` is above `high`."""

    column: int
    low: float
    high: float


class Truth:
    """One odd constraint: is a value in its set? Remembers strings, as many as `MEMO_MAX`."""

    def __init__(self, constraint: Constraint, column: int) -> None:
        self.column = column
        self.constraint = constraint
        self.of_strings = isinstance(constraint, Strings)
        self._check: Check = check_of(constraint)
        self._memo: dict[str, float] = {}

    def __reduce__(self) -> tuple[object, ...]:
        return Truth, (self.constraint, self.column)

    def of_string(self, value: str) -> float:
        found = self._memo.get(value)
        if found is None:
            if len(self._memo) >= MEMO_MAX:
                self._memo.clear()
            found = self._memo[value] = 1.0 if self._check(value) else 0.0
        return found

    def of_number(self, value: float) -> float:
        return 1.0 if self._check(value) else 0.0


class AttributeColumns:
    """The columns of one attribute, its codes and its prefixes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.number: int | None = None
        self.code: int | None = None
        self.presence: int | None = None
        self.truths: dict[Constraint, Truth] = {}
        self.codes: dict[Point, float] = {}
        self.texts: TextCodes | None = None  # the same for record batches, once there was one
        self.edges: dict[str, int] = {}  # literal prefix -> the edge key it stands for
        self.lengths: dict[int, int] = {}  # length of such prefixes -> how many there are

    def columns(self) -> list[int]:
        own = [self.number, self.code, self.presence]
        own += [truth.column for truth in self.truths.values()]
        return [column for column in own if column is not None]


class Columns:
    """All columns, codes and sets of one compiled index."""

    def __init__(self) -> None:
        self.attributes: dict[str, AttributeColumns] = {}
        self.computed: dict[Expression, Computed] = {}
        self.width = 0  # columns in use are below this
        self.version = 0  # grows when an encoder made before is out of date
        self.sets: dict[tuple[str, ...], int] = {}  # names -> number of the set
        self.prefix_sets: dict[str, int] = {}
        self.set_count = 0
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

    def _new_column(self) -> int:
        self.version += 1
        if self._free_columns:
            return self._free_columns.pop()
        self.width += 1
        return self.width - 1

    def has_room(self) -> bool:
        """Are there columns left for one more constraint?"""
        return self.width + 1 - len(self._free_columns) < COLUMNS_MAX

    def number_column(self, name: str) -> int:
        attribute = self.attribute(name)
        if attribute.number is None:
            attribute.number = self._new_column()
        return attribute.number

    def code_column(self, name: str) -> int:
        attribute = self.attribute(name)
        if attribute.code is None:
            attribute.code = self._new_column()
        return attribute.code

    def presence_column(self, name: str) -> int:
        attribute = self.attribute(name)
        if attribute.presence is None:
            attribute.presence = self._new_column()
        return attribute.presence

    def _new_code(self) -> int:
        if self._free_codes:
            return self._free_codes.pop()
        self.code_count += 1
        return self.code_count - 1

    def code_of(self, name: str, point: Point) -> float:
        """The code of a string or number, positive or negative; a new one if it has none."""
        codes = self.attribute(name).codes
        code = codes.get(point)
        if code is None:
            sign = 1.0 if isinstance(point, str) else -1.0
            code = codes[point] = sign * self._new_code()
        return code

    def key_code(self, name: str, point: Point) -> int:
        """The code of a value in a key, without its sign."""
        found = self.attributes.get(name)
        if found is None or found.code is None:
            self.code_column(name)
            found = self.attributes[name]
        code = found.codes.get(point)
        return abs(int(self.code_of(name, point) if code is None else code))

    def prefix_edge(self, name: str, prefix: str) -> int:
        """The edge key of a literal prefix."""
        attribute = self.attribute(name)
        edge = attribute.edges.get(prefix)
        if edge is None:
            if name not in self.prefix_sets:
                self.prefix_sets[name] = self._new_set()
            edge = attribute.edges[prefix] = self.prefix_sets[name] << 32 | self._new_code()
            if len(prefix) not in attribute.lengths:
                self.version += 1
            attribute.lengths[len(prefix)] = attribute.lengths.get(len(prefix), 0) + 1
        return edge

    def set_of(self, names: tuple[str, ...]) -> int:
        number = self.sets.get(names)
        if number is None:
            number = self.sets[names] = self._new_set()
        return number

    def _new_set(self) -> int:
        self.version += 1
        if self._free_sets:
            return self._free_sets.pop()
        self.set_count += 1
        return self.set_count - 1

    # -- constraints as slots ------------------------------------------------------------------

    def slots(self, name: str, constraint: Constraint) -> tuple[Sequence[Slot], bool]:
        """The slots of one constraint, and whether they say all of it."""
        kind = constraint.__class__
        if kind is Numbers:
            return self._number_slots(name, constraint)  # type: ignore[arg-type]
        if kind is Strings:
            return self._string_slots(name, constraint)  # type: ignore[arg-type]
        match constraint:
            case Missing():
                return [Slot(self.presence_column(name), 0.0, 0.0)], True
            case Present():
                return [Slot(self.presence_column(name), 1.0, 1.0)], True
            case Booleans():
                values = constraint.values
                return [Slot(self.code_column(name), float(values[0]), float(values[-1]))], True
            case _:
                raise AssertionError(constraint)

    def _number_slots(self, name: str, constraint: Numbers) -> tuple[Sequence[Slot], bool]:
        values = constraint.values
        if values is not None and len(values) > 1 and self.truth_count < TRUTHS_MAX:
            return [self._truth_slot(name, constraint)], True
        return _interval_slots(self.number_column(name), constraint)

    def _string_slots(self, name: str, constraint: Strings) -> tuple[Sequence[Slot], bool]:
        values = constraint.values
        if values is not None and len(values) == 1:
            code = self.code_of(name, values[0])
            return [Slot(self.code_column(name), code, code)], True
        if constraint == Strings(excluded=constraint.excluded[:EXCLUDED_MAX]):
            column = self.code_column(name)
            slots = [Slot(column, STRING, inf)]
            for point in constraint.excluded:
                code = self.code_of(name, point)
                slots.append(Slot(column, code + 0.5, code - 0.5))
            return slots, True
        if self.truth_count < TRUTHS_MAX:
            return [self._truth_slot(name, constraint)], True
        return [Slot(self.code_column(name), STRING, inf)], False

    def _truth_slot(self, name: str, constraint: Constraint) -> Slot:
        truths = self.attribute(name).truths
        truth = truths.get(constraint)
        if truth is None:
            truth = truths[constraint] = Truth(constraint, self._new_column())
            self.truth_count += 1
        return Slot(truth.column, 1.0, 1.0)

    def comparison_slots(self, condition: Condition) -> tuple[Sequence[Slot], bool]:
        """The slots of a comparison of an expression, and whether they say all of it."""
        found = read_comparison(condition)
        if found is None:
            return (), False
        expression, constraint = found
        computed = self.computed.get(expression)
        if computed is None:
            if len(self.computed) >= COMPUTED_MAX:
                return (), False
            computed = self.computed[expression] = Computed(expression, self._new_column())
        return _interval_slots(computed.column, constraint)

    # -- letting go ----------------------------------------------------------------------------

    def sweep(
        self,
        uses_column: Callable[[int], bool],
        uses_code: Callable[[int], bool],
        uses_set: Callable[[int], bool],
    ) -> None:
        """Free what no row uses any more."""
        self._sweep_sets(uses_set)
        keyed = {name for names in self.sets for name in names}
        for name, attribute in list(self.attributes.items()):
            self._sweep_codes(attribute, uses_code)
            for kind in ("number", "code", "presence"):
                column = getattr(attribute, kind)
                if column is None or uses_column(column) or (kind == "code" and name in keyed):
                    continue
                setattr(attribute, kind, None)
                self._free_columns.append(column)
            for constraint, truth in list(attribute.truths.items()):
                if not uses_column(truth.column):
                    del attribute.truths[constraint]
                    self._free_columns.append(truth.column)
                    self.truth_count -= 1
            if not attribute.columns() and not attribute.edges:
                del self.attributes[name]
        for expression, computed in list(self.computed.items()):
            if not uses_column(computed.column):
                del self.computed[expression]
                self._free_columns.append(computed.column)
        self.version += 1

    def _sweep_sets(self, uses_set: Callable[[int], bool]) -> None:
        for table in (self.sets, self.prefix_sets):
            for names, number in list(table.items()):
                if not uses_set(number):
                    del table[names]  # type: ignore[arg-type]
                    self._free_sets.append(number)

    def _sweep_codes(self, attribute: AttributeColumns, uses_code: Callable[[int], bool]) -> None:
        attribute.texts = None
        for point, code in list(attribute.codes.items()):
            if not uses_code(abs(int(code))):
                del attribute.codes[point]
                self._free_codes.append(abs(int(code)))
        for prefix, edge in list(attribute.edges.items()):
            if not uses_code(edge & 0xFFFFFFFF):
                del attribute.edges[prefix]
                self._free_codes.append(edge & 0xFFFFFFFF)
                attribute.lengths[len(prefix)] -= 1
                if not attribute.lengths[len(prefix)]:
                    del attribute.lengths[len(prefix)]


def _interval_slots(column: int, constraint: Numbers) -> tuple[Sequence[Slot], bool]:
    """A set of numbers as slots of a column of numbers, and whether they say all of it."""
    values, excluded = constraint.values, constraint.excluded
    low, high = (values[0], values[-1]) if values else (constraint.low, constraint.high)
    exact = (
        (-EXACT_MAX < low < EXACT_MAX or isinf(low))
        and (-EXACT_MAX < high < EXACT_MAX or isinf(high))
        and (not excluded or max(map(abs, excluded)) < EXACT_MAX)
    )
    if not exact:
        return [Slot(column, _rounded(low), _rounded(high))], False
    first = nextafter(low, inf) if constraint.low_open else float(low)
    last = nextafter(high, -inf) if constraint.high_open else float(high)
    if first > last:
        return [Slot(column, nan, nan)], True  # between two neighbouring floats: nothing
    slots = [Slot(column, first, last)]
    slots += [
        Slot(column, nextafter(point, inf), nextafter(point, -inf))
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
