"""Shapes: conditions that differ in their literals only are read once.

Theory of operation
    A system with a million subscriptions has a handful of forms: `symbol = … AND price > …`.
    The text without its literals is the *shape*. The first condition of a shape goes the usual
    way, through the parser and the normal form; if it turns out to be a plain conjunction of
    tests on different attributes, each against literals in the order of the text, that is kept
    as a recipe: which literal goes into which constraint. The next one of the shape follows it.
    Whatever is in any way unusual (quoted names, comments, doubled quotes, signs, exponents,
    characters beyond ASCII) has no recipe and goes the usual way every time.

Invariants
    I1  `read(text)` equals `Filter.parse(text).conjunctions`, or raises the same error
    I2  at most `SHAPES_MAX` recipes are kept

Cost: a tenth of parsing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gapless.filters.constraint import numbers
from gapless.filters.filter import Filter
from gapless.filters.leaf import compared, read_leaf
from gapless.filters.normal import Conjunction
from gapless.filters.syntax import And, Attribute, Between, Compare, Like, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.filters.constraint import Constraint
    from gapless.filters.syntax import Condition

    Literals = list[str | int | float]
    Make = Callable[[Literals], Constraint | None]
    Recipe = list[tuple[str, Make]]

SHAPES_MAX = 1_000
TEXT_MAX = 1_000

_LITERAL = re.compile(
    r"('[^']*'|(?<![\w.$])(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?(?![\w.$]))", re.ASCII
)


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
        for name, make in recipe:  # type: ignore[union-attr]
            constraint = make(literals)
            if constraint is None:
                return ()
            constraints.append((name, constraint))
        return (Conjunction(tuple(constraints)),)

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
    leaves = condition.operands if isinstance(condition, And) else (condition,)
    recipe: dict[str, Make] = {}
    used: Literals = []
    for leaf in leaves:
        step = _step(leaf, len(used))
        if step is None or step[0] in recipe:
            return None
        name, make, values = step
        recipe[name] = make
        used += values
    if [(type(v), v) for v in used] != [(type(v), v) for v in literals]:
        return None
    return sorted(recipe.items(), key=lambda step: step[0])


def _step(leaf: Condition, place: int) -> tuple[str, Make, Literals] | None:
    """Attribute and constraint of one test, its literals being those from `place` on."""
    match leaf:
        case Compare(sign, Attribute(name), Literal(value)) if not isinstance(value, bool):
            return name, lambda literals: compared(sign, literals[place]), [value]
        case Between(Attribute(name), Literal(low), Literal(high)) if not (
            isinstance(low, bool | str) or isinstance(high, bool | str)
        ):
            between: Make = lambda literals: numbers(literals[place], literals[place + 1])  # type: ignore[arg-type]  # noqa: E731
            return name, between, [low, high]
        case Like(Attribute(name), pattern, None):
            return name, lambda literals: _like(name, str(literals[place])), [pattern]
        case _:
            return None


def _like(name: str, pattern: str) -> Constraint | None:
    drafts = read_leaf(Like(Attribute(name), pattern, None))
    return drafts[0][0][name] if drafts else None
