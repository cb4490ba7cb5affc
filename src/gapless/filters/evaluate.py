"""Evaluation: a condition, compiled to closures of three-valued logic.

Theory of operation
    An expression becomes a function from attributes to a value, None standing for NULL and for
    whatever has no value (a missing operand, a wrong kind, division by zero, NaN). A condition
    becomes a function to True, False or None (UNKNOWN). A comparison of an attribute with a
    literal, the most common test, gets a closure of its own with one look-up and one comparison.

    Kinds     number, string, boolean, timestamp, bytes. Comparison is within a kind; else UNKNOWN,
              also for `<>`. A `datetime` without a time zone is of no kind.
    Numbers   int against float compares exactly. A NaN compares UNKNOWN. Integers are exact while
              they fit 64 bits and floats beyond; `5 / 2` is 2.5.
    NULL      None as an attribute's value counts as missing. A value of any other type is there
              (`IS NOT NULL`) and compares UNKNOWN.

Cost
    One call per node. Depth is bounded by the nesting of parentheses, chains are loops.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from gapless.core.timestamps import is_timestamp
from gapless.filters.arithmetic import calculate, negate
from gapless.filters.like import compile_pattern, parse_pattern
from gapless.filters.syntax import (
    And,
    Arithmetic,
    Attribute,
    Between,
    Compare,
    Constant,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    Signed,
)

if TYPE_CHECKING:
    from gapless.core.events import Value
    from gapless.filters.syntax import Condition, Expression

Read = Callable[[Mapping[str, Any]], Any]
Test = Callable[[Mapping[str, Any]], bool | None]

NUMBER, STRING, BOOLEAN, TIMESTAMP, BYTES, OTHER = range(1, 7)
KINDS: dict[type, int] = {int: NUMBER, float: NUMBER, str: STRING, bool: BOOLEAN, bytes: BYTES}
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def kind_of(value: object) -> int:
    """The kind of a value, subclasses (numpy's float, string enumerations) included."""
    kind = KINDS.get(type(value))
    if kind is None:
        kind = (
            NUMBER
            if isinstance(value, int | float)
            else STRING
            if isinstance(value, str)
            else TIMESTAMP
            if is_timestamp(value)
            else BYTES
            if isinstance(value, bytes)
            else OTHER
        )
    return kind


def compile_condition(condition: Condition) -> Test:
    """A function that says True, False or None (UNKNOWN) of an event's attributes."""
    match condition:
        case Constant(value):
            return lambda _attributes: value
        case Compare(sign, left, right):
            return _compile_compare(sign, left, right)
        case Between(operand, low, high):
            return _all_of(
                [_compile_compare(">=", operand, low), _compile_compare("<=", operand, high)]
            )
        case In():
            return _compile_in(condition)
        case Like(operand, pattern, escape):
            return _compile_like(compile_expression(operand), pattern, escape)
        case IsNull(name):
            return lambda attributes: attributes.get(name) is None
        case Not(operand):
            return _opposite_of(compile_condition(operand))
        case And(operands):
            return _all_of([compile_condition(one) for one in operands])
        case Or(operands):
            return _any_of([compile_condition(one) for one in operands])


def _all_of(tests: list[Test]) -> Test:
    def test(attributes: Mapping[str, Any]) -> bool | None:
        result: bool | None = True
        for one in tests:
            outcome = one(attributes)
            if outcome is False:
                return False
            if outcome is None:
                result = None
        return result

    return test


def _any_of(tests: list[Test]) -> Test:
    def test(attributes: Mapping[str, Any]) -> bool | None:
        result: bool | None = False
        for one in tests:
            outcome = one(attributes)
            if outcome:
                return True
            if outcome is None:
                result = None
        return result

    return test


def _opposite_of(test: Test) -> Test:
    def opposite(attributes: Mapping[str, Any]) -> bool | None:
        outcome = test(attributes)
        return None if outcome is None else not outcome

    return opposite


def _compile_compare(sign: str, left: Expression, right: Expression) -> Test:
    if isinstance(left, Literal) and isinstance(right, Attribute):
        sign, left, right = MIRRORED[sign], right, left
    if isinstance(left, Attribute) and isinstance(right, Literal):
        return _compare_with_literal(sign, left.name, right.value)
    read_left, read_right = compile_expression(left), compile_expression(right)
    compare, equality = COMPARISONS[sign], sign in ("=", "<>")

    def test(attributes: Mapping[str, Any]) -> bool | None:
        one, other = read_left(attributes), read_right(attributes)
        if one is None or other is None:
            return None
        kind = kind_of(one)
        if kind != kind_of(other) or one != one or other != other:
            return None
        if kind == OTHER or (kind == BOOLEAN and not equality):
            return None
        return bool(compare(one, other))  # numpy's numbers say it in numpy's way

    return test


def _compare_with_literal(sign: str, name: str, bound: Value) -> Test:
    compare, kind = COMPARISONS[sign], kind_of(bound)
    if kind == BOOLEAN and sign not in ("=", "<>"):
        return lambda _attributes: None
    kinds = KINDS

    def test(attributes: Mapping[str, Any]) -> bool | None:
        value = attributes.get(name)
        if kinds.get(type(value)) != kind and (value is None or kind_of(value) != kind):
            return None
        if value != value:
            return None
        return bool(compare(value, bound))

    return test


def _compile_in(condition: In) -> Test:
    """As the OR of its comparisons: UNKNOWN, rather than FALSE, if any value is of another kind."""
    read = compile_expression(condition.operand)
    of_kind: dict[int, frozenset[Value]] = {}
    for kind in range(NUMBER, OTHER):
        values = [one.value for one in condition.values if kind_of(one.value) == kind]
        if values:
            of_kind[kind] = frozenset(values)
    otherwise = False if len(of_kind) == 1 else None

    def test(attributes: Mapping[str, Any]) -> bool | None:
        value = read(attributes)
        if value is None:
            return None
        values = of_kind.get(kind_of(value))
        if values is None or value != value:
            return None
        return True if value in values else otherwise

    return test


def _compile_like(read: Read, pattern: str, escape: str | None) -> Test:
    matches = compile_pattern(parse_pattern(pattern, escape))

    def test(attributes: Mapping[str, Any]) -> bool | None:
        value = read(attributes)
        return matches(value) if isinstance(value, str) else None

    return test


def compile_expression(expression: Expression) -> Read:
    """A function that reads the value of an expression; None where it has none."""
    match expression:
        case Attribute(name):
            return lambda attributes: attributes.get(name)
        case Literal(value):
            return lambda _attributes: value
        case Signed(sign, operand):
            read = compile_expression(operand)
            return (
                (lambda a: calculate("+", read(a), 0)) if sign == "+" else lambda a: negate(read(a))
            )
        case Arithmetic(first, rest):
            start = compile_expression(first)
            steps = [(sign, compile_expression(term)) for sign, term in rest]
            return lambda attributes: _calculate_all(start(attributes), steps, attributes)


def _calculate_all(
    value: Any, steps: list[tuple[str, Read]], attributes: Mapping[str, Any]
) -> int | float | None:
    for sign, read in steps:
        value = calculate(sign, value, read(attributes))
        if value is None:
            return None
    return value  # type: ignore[no-any-return]  # there is one step or more
