"""Shapes: conditions that differ in their literals only are read once.

Theory of operation
    A system with a million subscriptions has a handful of forms: `symbol = … AND price > …`.
    The text without its literals is the *shape*. The first condition of a shape goes the usual
    way, through the parser and the normal form; if it turns out to be a plain conjunction of
    tests on different attributes, each against literals in the order of the text, that is kept
    as a recipe: which literal goes into which constraint. (One comparison of an expression may
    be among them.) The next one of the shape follows it.
    Whatever is in any way unusual (quoted names, comments, doubled quotes, signs, exponents,
    characters beyond ASCII) has no recipe and goes the usual way every time.

Invariants
    I1  `read(text)` equals `Filter.parse(text).conjunctions`, or raises the same error
    I2  at most `SHAPES_MAX` recipes are kept

Cost: a tenth of parsing.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from gapless.filters.constraint import Missing, Present, numbers, strings
from gapless.filters.filter import Filter
from gapless.filters.leaf import compared, read_leaf
from gapless.filters.normal import Conjunction, push_negation
from gapless.filters.syntax import (
    And,
    Arithmetic,
    Attribute,
    Between,
    Compare,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    Signed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gapless.filters.constraint import Constraint
    from gapless.filters.syntax import Condition, Expression

    Literals = list[Any]
    Make = Callable[[Literals], Constraint | None]
    MakeResidual = Callable[[Literals], Condition]
    Step = tuple[str | None, Any, Literals]  # attribute; how to make it; the literals that takes

SHAPES_MAX = 1_000
TEXT_MAX = 1_000

_LITERAL = re.compile(
    r"('[^']*'|(?<![\w.$])(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?(?![\w.$]))", re.ASCII
)


class Recipe(NamedTuple):
    """How to make a conjunction from literals: by attribute, sorted; and what is left beside."""

    constraints: list[tuple[str, Make]]
    residual: MakeResidual | None


class Shapes:
    """The recipes of one matcher."""

    def __init__(self) -> None:
        self._recipes: dict[object, Recipe | None] = {}

    def read(self, text: str) -> tuple[Conjunction, ...]:
        """The conjunctions of a condition; FilterError if it is refused."""
        if len(text) > TEXT_MAX or '"' in text or "/*" in text or not text.isascii():
            return Filter.parse(text).conjunctions
        pieces = _LITERAL.split(text)
        literals = [_value(piece) for piece in pieces[1::2]]
        shape = (*pieces[::2], *map(type, literals))
        recipe = self._recipes.get(shape, self)
        if recipe is self:
            return self._learn(text, shape, pieces, literals)
        if recipe is None:
            return Filter.parse(text).conjunctions
        constraints = []
        for name, make in recipe.constraints:  # type: ignore[union-attr]
            constraint = make(literals)
            if constraint is None:
                return ()
            constraints.append((name, constraint))
        residual = recipe.residual  # type: ignore[union-attr]
        return (Conjunction(tuple(constraints), (residual(literals),) if residual else ()),)

    def _learn(
        self, text: str, shape: object, pieces: list[str], literals: Literals
    ) -> tuple[Conjunction, ...]:
        parsed = Filter.parse(text)
        if len(self._recipes) >= SHAPES_MAX:
            self._recipes.clear()
        # A sign before a literal is part of it, and -0 would look as if it were not.
        signed = any(piece.rstrip().endswith("-") for piece in pieces[:-1:2])
        self._recipes[shape] = None if signed else _recipe(parsed.condition, literals)
        return parsed.conjunctions


def _value(literal: str) -> str | int | float:
    if literal[0] == "'":
        return literal[1:-1]
    return float(literal) if "." in literal else int(literal)


def _recipe(condition: Condition, literals: Literals) -> Recipe | None:
    made: dict[str | None, Any] = {}
    used: Literals = []
    for leaf in _leaves(condition):
        step = _step(leaf, len(used)) or _residual_step(leaf, len(used))
        if step is None or step[0] in made:
            return None
        name, make, values = step
        made[name] = make
        used += values
    if [(type(v), v) for v in used] != [(type(v), v) for v in literals]:
        return None
    residual = made.pop(None, None)
    return Recipe(sorted(made.items(), key=lambda step: step[0] or ""), residual)  # type: ignore[arg-type]


def _leaves(condition: Condition) -> Iterator[Condition]:
    """The tests that must all hold, in the order of the text."""
    if isinstance(condition, Not) and isinstance(condition.operand, Compare | Or):
        condition = push_negation(condition)
    if isinstance(condition, And):
        for operand in condition.operands:
            yield from _leaves(operand)
    else:
        yield condition


def _step(leaf: Condition, place: int) -> Step | None:
    """Attribute and constraint of one test, its literals being those from `place` on."""
    match leaf:
        case Compare(sign, Attribute(name), Literal(value)):
            if isinstance(value, bool):
                return name, lambda _literals: compared(sign, value), []
            return name, lambda literals: compared(sign, literals[place]), [value]
        case Between(Attribute(name), Literal(low), Literal(high)) if {type(low), type(high)} <= {
            int,
            float,
        }:
            return name, lambda given: numbers(given[place], given[place + 1]), [low, high]
        case Like(Attribute(name), pattern, None):
            return name, lambda literals: _like(literals[place]), [pattern]
        case In(Attribute(name), listed):
            return _listed_step(name, listed, place, "values")
        case Not(In(Attribute(name), listed)):
            return _listed_step(name, listed, place, "excluded")
        case IsNull(name):
            return name, lambda _literals: Missing(), []
        case Not(IsNull(name)):
            return name, lambda _literals: Present(), []
        case _:
            return None


def _listed_step(name: str, listed: tuple[Literal, ...], place: int, role: str) -> Step | None:
    """IN or NOT IN a list of one kind."""
    values: list[Any] = [one.value for one in listed]
    end, kinds = place + len(values), set(map(type, values))
    if kinds == {str}:
        return name, lambda literals: strings(**{role: literals[place:end]}), values
    if kinds <= {int, float}:
        return name, lambda literals: numbers(**{role: literals[place:end]}), values
    return None


def _residual_step(leaf: Condition, place: int) -> Step | None:
    """A comparison of an expression without literals with a literal."""
    match leaf:
        case Compare(sign, Arithmetic() | Signed() as left, Literal(value)) if _is_bare(left):
            turned = False
        case Compare(sign, Literal(value), Arithmetic() | Signed() as left) if _is_bare(left):
            turned = True
        case _:
            return None
    if isinstance(value, bool):
        return None

    def make(literals: Literals) -> Condition:
        one = Literal(literals[place])
        test = Compare(sign, one, left) if turned else Compare(sign, left, one)
        [(_, (residual,))] = read_leaf(test)
        return residual

    return None, make, [value]


def _is_bare(expression: Expression) -> bool:
    """Is it made of attributes alone?"""
    match expression:
        case Attribute():
            return True
        case Signed(_, operand):
            return _is_bare(operand)
        case Arithmetic(first, rest):
            return _is_bare(first) and all(_is_bare(term) for _, term in rest)
        case _:
            return False


@lru_cache(maxsize=SHAPES_MAX)
def _like(pattern: str) -> Constraint | None:
    drafts = read_leaf(Like(Attribute(""), pattern, None))
    return drafts[0][0][""] if drafts else None
