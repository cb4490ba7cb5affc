"""Checks: a constraint as a function of a value, exact for every kind of value.

Both engines use them: the Python engine for every test, the compiled one for what does not fit
its columns.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from gapless.core.timestamps import is_timestamp
from gapless.filters.arithmetic import NUMBERS
from gapless.filters.constraint import (
    Booleans,
    ByteStrings,
    Missing,
    Numbers,
    Present,
    Strings,
    Timestamps,
    admits,
)
from gapless.filters.evaluate import compile_condition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from gapless.core.events import Value
    from gapless.filters.constraint import Constraint
    from gapless.filters.syntax import Condition

    ValueCheck = Callable[[Value | None], bool]
    ClauseCheck = Callable[[Mapping[str, Value]], bool]


def is_number(value: object) -> bool:
    return isinstance(value, NUMBERS) and not isinstance(value, bool)


def check_of(constraint: Constraint) -> ValueCheck:
    """The test of one attribute's value (None where it is missing)."""
    match constraint:
        case Missing():
            return lambda value: value is None
        case Present():
            return lambda value: value is not None
        case Booleans(values):
            return lambda value: isinstance(value, bool) and value in values
        case Strings():
            inside = constraint.admitting()
            return lambda value: isinstance(value, str) and inside(value)
        case Numbers():
            return _number_check(constraint)
        case Timestamps():
            return lambda value: is_timestamp(value) and admits(constraint, value)
        case ByteStrings():
            return lambda value: isinstance(value, bytes) and admits(constraint, value)


def _number_check(constraint: Numbers) -> ValueCheck:
    low, high = constraint.low, constraint.high
    if constraint.values is not None or constraint.excluded:
        return lambda value: is_number(value) and constraint.admits(value)  # type: ignore[arg-type]
    if not constraint.low_open and not constraint.high_open:
        return lambda value: is_number(value) and low <= value <= high  # type: ignore[operator]
    if high == inf and not constraint.high_open:
        return lambda value: is_number(value) and low < value  # type: ignore[operator]
    if low == -inf and not constraint.low_open:
        return lambda value: is_number(value) and value < high  # type: ignore[operator]
    return lambda value: is_number(value) and constraint.admits(value)  # type: ignore[arg-type]


def clause_check(
    tests: Iterable[tuple[str, Constraint]],
    residuals: Collection[Condition],
    known: dict[int, ValueCheck],
) -> ClauseCheck | None:
    """The test of all that is left of a conjunction; None if nothing is.

    `known` holds checks by the id of their constraint: the clauses of a filter share many.
    """
    tests = tuple(tests)
    if len(tests) == 1 and not residuals and tests[0][1] == Missing():
        [(absent, _)] = tests
        return lambda attributes: attributes.get(absent) is None
    checks = [
        (name, known.get(id(one)) or known.setdefault(id(one), check_of(one)))
        for name, one in tests
    ]
    conditions = [compile_condition(condition) for condition in residuals]
    if len(conditions) == 1 and not checks:
        [only] = conditions
        return lambda attributes: only(attributes) is True
    if not conditions:
        if not checks:
            return None
        if len(checks) == 1:
            [(name, check)] = checks
            return lambda attributes: check(attributes.get(name))

    def holds(attributes: Mapping[str, Value]) -> bool:
        get = attributes.get
        for name, check in checks:
            if not check(get(name)):
                return False
        return all(condition(attributes) is True for condition in conditions)

    return holds
