"""A second evaluator of conditions: slow, short, and written in another way than the first.

Truth is a number, 0 for FALSE, 1 for UNKNOWN, 2 for TRUE, so that AND is the minimum, OR the
maximum and NOT the distance from 2. Numbers are compared as exact fractions. LIKE tries every
way to share out the text.
"""

from __future__ import annotations

import math
from datetime import datetime
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any

from gapless.filters import syntax
from gapless.filters.constraint import (
    Booleans,
    ByteStrings,
    Missing,
    Numbers,
    Present,
    Strings,
    Timestamps,
)
from gapless.filters.constraint import admits as constraint_admits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gapless.core.events import Value
    from gapless.filters.constraint import Constraint

FALSE, UNKNOWN, TRUE = 0, 1, 2


def is_true(condition: syntax.Condition, attributes: Mapping[str, Value]) -> bool:
    return truth(condition, attributes) == TRUE


def truth(condition: Any, attributes: Mapping[str, Value]) -> int:
    name = type(condition).__name__
    if name == "Constant":
        return TRUE if condition.value else FALSE
    if name == "And":
        return min(truth(one, attributes) for one in condition.operands)
    if name == "Or":
        return max(truth(one, attributes) for one in condition.operands)
    if name == "Not":
        return TRUE - truth(condition.operand, attributes)
    if name == "IsNull":
        return FALSE if condition.name in attributes else TRUE
    operand = value_of(getattr(condition, "operand", None), attributes)
    if name == "Between":
        low, high = value_of(condition.low, attributes), value_of(condition.high, attributes)
        return min(compare(">=", operand, low), compare("<=", operand, high))
    if name == "In":
        return max(compare("=", operand, one.value) for one in condition.values)
    if name == "Like":
        if not isinstance(operand, str):
            return UNKNOWN
        return TRUE if like(operand, unescaped(condition.pattern, condition.escape)) else FALSE
    left, right = value_of(condition.left, attributes), value_of(condition.right, attributes)
    return compare(condition.sign, left, right)


def compare(sign: str, left: Any, right: Any) -> int:
    for kind in (bool, str, (int, float), datetime, bytes):
        if isinstance(left, kind) and isinstance(right, kind):
            break
        if isinstance(left, kind) or isinstance(right, kind):
            return UNKNOWN
    else:
        return UNKNOWN
    if isinstance(left, bool) and sign not in ("=", "<>"):
        return UNKNOWN
    one: Any = left
    other: Any = right
    if not isinstance(one, str | datetime | bytes):
        if math.isnan(one) or math.isnan(other):
            return UNKNOWN
        one, other = _rank(one), _rank(other)
    order = (one > other) - (one < other)
    allowed = {"=": (0,), "<>": (-1, 1), "<": (-1,), "<=": (-1, 0), ">": (1,), ">=": (0, 1)}
    return TRUE if order in allowed[sign] else FALSE


def _rank(number: int | float) -> tuple[int, Fraction]:
    """A number as something that sorts exactly, infinities at the ends."""
    if number in (math.inf, -math.inf):
        return (1 if number > 0 else -1), Fraction(0)
    return 0, Fraction(number)


def value_of(expression: Any, attributes: Mapping[str, Value]) -> Any:
    """The value, or None for none."""
    if isinstance(expression, syntax.Attribute):
        return attributes.get(expression.name)
    if isinstance(expression, syntax.Literal):
        return expression.value
    if isinstance(expression, syntax.Signed):
        value = value_of(expression.operand, attributes)
        return apply(expression.sign, 0, value)
    if isinstance(expression, syntax.Arithmetic):
        value = value_of(expression.first, attributes)
        for sign, term in expression.rest:
            value = apply(sign, value, value_of(term, attributes))
        return value
    return None


def apply(sign: str, left: Any, right: Any) -> Any:
    for side in (left, right):
        if isinstance(side, bool) or not isinstance(side, int | float):
            return None
    if sign in "/%" and right == 0:
        return None
    if isinstance(left, int) and isinstance(right, int):
        exact = Fraction(left, right or 1)
        if sign == "/" and exact.denominator != 1:
            return _float(exact)
        quotient = math.trunc(exact)
        whole = {
            "+": left + right,
            "-": left - right,
            "*": left * right,
            "/": quotient,
            "%": left - right * quotient,
        }[sign]
        return whole if -(2**63) <= whole < 2**63 else _float(whole)
    one, other = _float(left), _float(right)
    try:
        result = {
            "+": lambda: one + other,
            "-": lambda: one - other,
            "*": lambda: one * other,
            "/": lambda: one / other,
            "%": lambda: math.fmod(one, other),
        }[sign]()
    except ValueError:
        return None
    return None if math.isnan(result) else result


def _float(number: int | float | Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def unescaped(pattern: str, escape: str | None) -> tuple[str, ...]:
    """Characters; the wildcards as "any" and "one"."""
    parts = []
    index = 0
    while index < len(pattern):
        is_wildcard = escape is not None and escape in "%_"
        if pattern[index] == escape and (
            not is_wildcard or pattern[index + 1 : index + 2] in ("%", "_")
        ):
            index += 1
            parts.append(pattern[index])
        else:
            parts.append({"%": "any", "_": "one"}.get(pattern[index], pattern[index]))
        index += 1
    return tuple(parts)


def like(text: str, parts: tuple[str, ...]) -> bool:
    @cache
    def rest_matches(place: int, part: int) -> bool:
        if part == len(parts):
            return place == len(text)
        if parts[part] == "any":
            return any(rest_matches(later, part + 1) for later in range(place, len(text) + 1))
        fits = place < len(text) and parts[part] in ("one", text[place])
        return fits and rest_matches(place + 1, part + 1)

    return rest_matches(0, 0)


def admits(constraint: Constraint, value: Value | None) -> bool:
    """Is the value, or None for a missing attribute, in the set?"""
    match constraint:
        case Missing():
            return value is None
        case Present():
            return value is not None
        case Booleans():
            return isinstance(value, bool) and value in constraint.values
        case Numbers():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            return number and constraint.admits(value)  # type: ignore[arg-type]  # mypy: number
        case Strings():
            return isinstance(value, str) and constraint.admitting()(value)
        case Timestamps():
            return isinstance(value, datetime) and constraint_admits(constraint, value)
        case ByteStrings():
            return isinstance(value, bytes) and constraint_admits(constraint, value)
