"""Build: the node for an operator and its terms, in the one form that `syntax` promises."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from gapless.filters.syntax import (
    And,
    Arithmetic,
    Compare,
    Condition,
    Constant,
    Expression,
    In,
    Literal,
    Not,
    Or,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

Node = Condition | Expression


def chained(kind: type[And | Or], terms: Sequence[Condition]) -> Condition:
    """One flat node; AND in AND and OR in OR are the same."""
    operands: list[Condition] = []
    for term in terms:
        if isinstance(term, kind):
            operands.extend(term.operands)
        else:
            operands.append(term)
    return kind(tuple(operands))


def opposite(condition: Condition) -> Condition:
    if isinstance(condition, Not):
        return condition.operand
    if isinstance(condition, Constant):
        return Constant(not condition.value)
    return Not(condition)


def calculated(terms: Sequence[Expression], signs: Sequence[str]) -> Expression:
    """`(a + b) + c` is `a + b + c`; a product to the left of a sum stays apart."""
    first = terms[0]
    rest = tuple(zip(signs, terms[1:], strict=True))
    if isinstance(first, Arithmetic) and (first.rest[0][0] in "+-") == (signs[0] in "+-"):
        return Arithmetic(first.first, first.rest + rest)
    return Arithmetic(first, rest)


def one_of(terms: Sequence[Expression], negated: bool) -> Condition:
    """`terms[0] IN (terms[1:])`; where these are not all literals, the OR that IN stands for."""
    operand, *listed = terms
    test: Condition
    if all(isinstance(one, Literal) for one in listed):
        test = In(operand, tuple(dict.fromkeys(cast("list[Literal]", listed))))
    elif len(listed) == 1:
        test = Compare("=", operand, listed[0])
    else:
        test = Or(tuple(Compare("=", operand, one) for one in listed))
    return Not(test) if negated else test
