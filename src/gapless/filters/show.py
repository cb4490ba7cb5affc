"""Show: the canonical text of a condition, which parses back to an equal tree.

Keywords are upper case, one space stands around signs, parentheses only where precedence needs
them. The depth of recursion is that of the tree, which the parser bounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.timestamps import Timestamp, show_timestamp
from gapless.filters.lexer import is_plain
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


def show(condition: Condition) -> str:
    """The canonical text of a condition."""
    match condition:
        case Compare(sign, left, right):
            return f"{show_expression(left)} {sign} {show_expression(right)}"
        case Constant(value):
            return show_value(value)
        case And(operands):
            return " AND ".join(_enclosed(one, Or) for one in operands)
        case Or(operands):
            return " OR ".join(map(show, operands))
        case Not(Between() | In() | Like() | IsNull() as operand):
            return _show_test(operand, "NOT ")
        case Not(operand):
            return f"NOT {_enclosed(operand, And, Or)}"
        case Between() | In() | Like() | IsNull():
            return _show_test(condition, "")


def _enclosed(condition: Condition, *looser: type) -> str:
    text = show(condition)
    return f"({text})" if isinstance(condition, looser) else text


def _show_test(condition: Between | In | Like | IsNull, negation: str) -> str:
    match condition:
        case Between(operand, low, high):
            bounds = f"{show_expression(low)} AND {show_expression(high)}"
            return f"{show_expression(operand)} {negation}BETWEEN {bounds}"
        case In(operand, values):
            listed = ", ".join(show_value(one.value) for one in values)
            return f"{show_expression(operand)} {negation}IN ({listed})"
        case Like(operand, pattern, escape):
            ending = "" if escape is None else f" ESCAPE {show_value(escape)}"
            return f"{show_expression(operand)} {negation}LIKE {show_value(pattern)}{ending}"
        case IsNull(name):
            return f"{show_name(name)} IS {negation}NULL"


def show_expression(expression: Expression) -> str:
    match expression:
        case Attribute(name):
            return show_name(name)
        case Literal(value):
            return show_value(value)
        case Signed(sign, operand):
            # A space keeps `- -a` two signs; a literal would take the sign as its own.
            inner = show_expression(operand)
            loose = isinstance(operand, Arithmetic)
            return f"{sign}({inner})" if loose else f"{sign} {inner}"
        case Arithmetic(first, rest):
            tight = rest[0][0] in "*/%"
            terms = "".join(f" {sign} {_term(term, tight, 1)}" for sign, term in rest)
            return _term(first, tight, 0) + terms


def _term(term: Expression, tight: bool, place: int) -> str:
    """One term of a chain, in parentheses where the chain would otherwise swallow it."""
    text = show_expression(term)
    if isinstance(term, Arithmetic) and (tight or (place and term.rest[0][0] in "+-")):
        return f"({text})"
    return text


def show_name(name: str) -> str:
    if is_plain(name):
        return name
    return '"' + name.replace('"', '""') + '"'


def show_attribute(value: Value) -> str:
    """The value of an attribute for people: as conditions write it, and truths as JSON does."""
    shown = show_value(value)
    return shown.lower() if isinstance(value, bool) else shown


def show_value(value: Value) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, Timestamp):
        return f"TIMESTAMP '{show_timestamp(value)}'"
    if isinstance(value, bytes):
        return f"X'{value.hex().upper()}'"
    return repr(value)
