"""Arithmetic on attribute values, as SQL does it, and never an exception.

Integers are exact while the result fits a signed 64-bit integer and become floats beyond. The
quotient of integers is an integer where they divide evenly, else the nearest float (5 / 2 is 2.5);
their remainder has the sign of the dividend. Float overflow gives infinity. What has no value is
None: an operand that is no number, a zero divisor, a result that is NaN.
"""

from __future__ import annotations

from math import fmod, inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gapless.core.events import Value

INTEGER_MIN = -(1 << 63)
INTEGER_MAX = (1 << 63) - 1
NUMBERS = (int, float)  # to make `int | float` takes longer than to ask


def calculate(sign: str, left: Value | None, right: Value | None) -> int | float | None:
    """`left sign right`, the sign being one of `+ - * / %`; None where that has no value."""
    if left.__class__ is int and right.__class__ is int:  # as nearly all are
        return _calculate_integers(sign, left, right)
    if left.__class__ is float and right.__class__ is float:
        return _calculate_floats(sign, left, right)
    if not _is_number(left) or not _is_number(right):
        return None
    if isinstance(left, int) and isinstance(right, int):
        return _calculate_integers(sign, left, right)
    return _calculate_floats(sign, _as_float(left), _as_float(right))


def negate(value: Value | None) -> int | float | None:
    return calculate("-", 0, value)


def _is_number(value: object) -> bool:
    return isinstance(value, NUMBERS) and not isinstance(value, bool)


def _as_float(value: Value | None) -> float:
    """The nearest float; infinity for integers beyond all floats."""
    assert isinstance(value, NUMBERS)
    try:
        return float(value)
    except OverflowError:
        return inf if value > 0 else -inf


def _calculate_integers(sign: str, left: int, right: int) -> int | float | None:
    if sign == "+":
        result = left + right
    elif sign == "-":
        result = left - right
    elif sign == "*":
        result = left * right
    elif right == 0:
        return None
    elif sign == "/":
        result, rest = divmod(left, right)
        if rest:
            return _divide_unevenly(left, right)
    else:
        result = abs(left) % abs(right)
        result = -result if left < 0 else result
    return result if INTEGER_MIN <= result <= INTEGER_MAX else _as_float(result)


def _divide_unevenly(left: int, right: int) -> float:
    try:
        return left / right
    except OverflowError:  # beyond all floats
        return inf if (left < 0) == (right < 0) else -inf


def _calculate_floats(sign: str, left: float, right: float) -> float | None:
    if sign == "+":
        result = left + right
    elif sign == "-":
        result = left - right
    elif sign == "*":
        result = left * right
    elif right == 0 or left != left or right != right:
        return None
    elif sign == "/":
        result = left / right
    elif left in (inf, -inf):
        return None
    else:
        result = fmod(left, right)
    return result if result == result else None
