"""Expression columns: the value of an expression such as `price * size`, as a column of numbers.

Theory of operation
    A comparison of an expression with a number demands of its value what `price > 5` demands of
    an attribute. So each distinct expression has one column, computed once an event, however many
    filters compare it. The value is that of `evaluate`, and NaN where it has none.

At most `EXPRESSIONS_MAX` of at most `TERMS_MAX` terms, for every event pays for each: further and
longer ones are checked on survivors.
"""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING

from gapless.filters.constraint import Numbers
from gapless.filters.evaluate import MIRRORED, compile_expression
from gapless.filters.leaf import compared
from gapless.filters.syntax import Arithmetic, Compare, Literal, Signed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gapless.core.events import Value
    from gapless.filters.syntax import Condition, Expression

EXPRESSIONS_MAX = 16
TERMS_MAX = 32


class ExpressionColumn:
    """One expression and its column."""

    def __init__(self, expression: Expression, column: int) -> None:
        self.expression = expression
        self.column = column
        self._read = compile_expression(expression)

    def __reduce__(self) -> tuple[object, ...]:
        return ExpressionColumn, (self.expression, self.column)

    def of(self, attributes: Mapping[str, Value]) -> float:
        """The value as a float. (What arithmetic gives is no integer beyond 64 bits.)"""
        value = self._read(attributes)
        return nan if value is None else float(value)


def read_comparison(condition: Condition) -> tuple[Expression, Numbers] | None:
    """The expression of a comparison with a number, and what it demands; None for all else."""
    if not isinstance(condition, Compare):
        return None
    sign, left, right = condition.sign, condition.left, condition.right
    if isinstance(left, Literal):
        sign, left, right = MIRRORED[sign], right, left
    if not isinstance(left, Arithmetic | Signed) or not isinstance(right, Literal):
        return None
    if _terms(left) > TERMS_MAX:
        return None
    demanded = compared(sign, right.value)
    return (left, demanded) if isinstance(demanded, Numbers) else None


def _terms(expression: Expression) -> int:
    match expression:
        case Signed(_, operand):
            return 1 + _terms(operand)
        case Arithmetic(first, rest):
            if len(rest) > TERMS_MAX:
                return len(rest)
            return _terms(first) + sum(_terms(term) for _, term in rest)
        case _:
            return 1
