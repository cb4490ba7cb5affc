"""Leaves: what one comparison or test demands, as constraints on its attribute.

A leaf that holds an attribute against constants becomes one constraint, or a few alternatives
(`NOT LIKE 'b%'` is below or above the prefix). One without attributes is decided here and now.
Every other leaf is a residual, in one form: `>` is turned around to `<`, equal sides are sorted.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from gapless.core.timestamps import Timestamp
from gapless.filters.constraint import (
    Booleans,
    ByteStrings,
    Constraint,
    Missing,
    Present,
    Timestamps,
    after,
    booleans,
    numbers,
    prefix_end,
    ranges,
    strings,
)
from gapless.filters.evaluate import MIRRORED, compile_condition, compile_expression
from gapless.filters.like import parse_pattern
from gapless.filters.show import show_expression
from gapless.filters.syntax import (
    Attribute,
    Between,
    Compare,
    Constant,
    Expression,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    names_in,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gapless.core.events import Value
    from gapless.filters.syntax import Condition

Draft = tuple[dict[str, Constraint], tuple["Condition", ...]]
"""A conjunction in the making: constraints by attribute, and residuals."""

ALWAYS: list[Draft] = [({}, ())]
NEVER: list[Draft] = []

MAKERS: dict[type, Callable[..., Constraint | None]] = {
    str: strings,
    Timestamp: partial(ranges, Timestamps),
    bytes: partial(ranges, ByteStrings),
}
"""By class of a literal: what makes sets of values that each have a next one."""


def read_leaf(leaf: Condition) -> list[Draft]:
    """The alternatives under which the leaf is TRUE."""
    if isinstance(leaf, Compare):
        return _read_compare(leaf)
    negated = isinstance(leaf, Not)
    test = leaf.operand if isinstance(leaf, Not) else leaf
    match test:
        case Constant(value):
            return ALWAYS if value else NEVER
        case IsNull(name):
            return [({name: Present() if negated else Missing()}, ())]
        case Between(Attribute(name), Literal(low), Literal(high)):
            return _drafts(name, [_between(low, high)])
        case In(Attribute(name)):
            return _drafts(name, _outside(test.values) if negated else _inside(test.values))
        case Like(Attribute(name), pattern, escape):
            return _drafts(name, _like(pattern, escape, negated))
        case In(operand) | Like(operand):
            if names_in(operand):
                return [({}, (leaf,))]
            return ALWAYS if compile_condition(leaf)({}) else NEVER
        case _:
            raise AssertionError(f"{leaf} is no leaf")


def _drafts(name: str, constraints: Iterable[Constraint | None]) -> list[Draft]:
    return [({name: constraint}, ()) for constraint in constraints if constraint is not None]


def _read_compare(test: Compare) -> list[Draft]:
    if test.left.__class__ is Attribute and test.right.__class__ is Literal:  # nearly all
        constraint = compared(test.sign, test.right.value)
        return NEVER if constraint is None else [({test.left.name: constraint}, ())]
    sign, left, right = test.sign, _folded(test.left), _folded(test.right)
    if left is None or right is None:
        return NEVER
    if isinstance(left, Literal):
        if isinstance(right, Literal):
            return ALWAYS if compile_condition(Compare(sign, left, right))({}) else NEVER
        sign, left, right = MIRRORED[sign], right, left
    if isinstance(left, Attribute) and isinstance(right, Literal):
        return _drafts(left.name, [compared(sign, right.value)])
    if sign in (">", ">=") or (
        sign in ("=", "<>") and show_expression(left) > show_expression(right)
    ):
        sign, left, right = MIRRORED[sign], right, left
    return [({}, (Compare(sign, left, right),))]


def _folded(expression: Expression) -> Expression | None:
    """A literal where there are no attributes; None where such a constant has no value."""
    if isinstance(expression, Attribute | Literal) or names_in(expression):
        return expression
    value = compile_expression(expression)({})
    return None if value is None else Literal(value)


def compared(sign: str, value: Value) -> Constraint | None:
    """The constraint `attribute sign value`; None if nothing meets it."""
    if isinstance(value, bool):
        return Booleans((value == (sign == "="),)) if sign in ("=", "<>") else None
    if not isinstance(value, int | float):
        return _compared_range(sign, value)
    match sign:
        case "=":
            return numbers(values=(value,))
        case "<>":
            return numbers(excluded=(value,))
        case "<" | "<=":
            return numbers(high=value, high_open=sign == "<")
        case _:
            return numbers(low=value, low_open=sign == ">")


def _compared_range(sign: str, value: Value) -> Constraint | None:
    make = MAKERS[type(value)]
    match sign:
        case "=":
            return make(values=(value,))
        case "<>":
            return make(excluded=(value,))
        case "<" | "<=":
            return make(high=value if sign == "<" else after(value))
        case _:
            low = value if sign == ">=" else after(value)
            return None if low is None else make(low=low)


def _between(low: Value, high: Value) -> Constraint | None:
    """`attribute BETWEEN low AND high`; bounds of two kinds leave nothing."""
    make = MAKERS.get(type(low), numbers)
    if MAKERS.get(type(high), numbers) is not make:
        return None
    return make(low, high if make is numbers else after(high))


def _by_kind(values: tuple[Literal, ...]) -> dict[Callable[..., Constraint | None], list[Any]]:
    """Values by what makes a set of their kind."""
    kinds: dict[Callable[..., Constraint | None], list[Any]] = {}
    for literal in values:
        kind = type(literal.value)
        make = booleans if kind is bool else MAKERS.get(kind, numbers)
        kinds.setdefault(make, []).append(literal.value)
    return kinds


def _inside(values: tuple[Literal, ...]) -> list[Constraint | None]:
    kinds = _by_kind(values)
    order = (booleans, numbers, *MAKERS.values())
    return [make(values=kinds[make]) for make in order if make in kinds]


def _outside(values: tuple[Literal, ...]) -> list[Constraint | None]:
    """NOT IN. Values of several kinds leave none: against one of them it is UNKNOWN."""
    kinds = _by_kind(values)
    if len(kinds) > 1:
        return []
    [(make, listed)] = kinds.items()
    if make is booleans:
        return [booleans({True, False}.difference(listed))]
    return [make(excluded=listed)]


def _like(text: str, escape: str | None, negated: bool) -> list[Constraint | None]:
    pattern = parse_pattern(text, escape)
    exact, prefix = pattern.exact, pattern.prefix
    if exact is not None:
        return [strings(excluded=(exact,)) if negated else strings(values=(exact,))]
    if not pattern.is_prefix:
        return [strings(unlike=(pattern,)) if negated else strings(like=(pattern,))]
    end = prefix_end(prefix)
    if not negated:
        return [strings(low=prefix, high=end)]
    return [strings(high=prefix), None if end is None else strings(low=end)]
