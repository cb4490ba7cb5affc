"""Reasons: which part of a condition decides about an event, and the values that it saw.

Of a condition that is not TRUE, these parts are to blame: of an AND the first operand that is
FALSE, or else UNKNOWN; of an OR all operands. Of a condition that is TRUE, these parts carry it: of
an AND all operands, of an OR the first that is TRUE. NOT is not taken apart. UNKNOWN means that an
attribute is missing or of another type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gapless.filters.evaluate import compile_condition
from gapless.filters.show import show, show_attribute
from gapless.filters.syntax import And, Or, names_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gapless.core.events import Value
    from gapless.filters.filter import Filter
    from gapless.filters.syntax import Condition

REASONS_MAX = 10
"""Parts that are named; an OR may have thousands."""


class Reason(NamedTuple):
    """One part of a condition, what came of it, and the attributes that it reads; None: missing."""

    condition: str
    outcome: bool | None
    values: dict[str, Value | None]

    def __str__(self) -> str:
        word = {True: "TRUE", False: "FALSE", None: "UNKNOWN"}[self.outcome]
        seen = ", ".join(
            f"{name} is missing" if value is None else f"{name} is {show_attribute(value)}"
            for name, value in self.values.items()
        )
        return f"{self.condition} is {word}" + (f": {seen}" if seen else "")


def reasons(condition: Filter, attributes: Mapping[str, Value]) -> list[Reason]:
    """The parts that decide, at most `REASONS_MAX`."""
    found = list[Reason]()
    for part, outcome in _deciding(condition.condition, attributes):
        values = {name: attributes.get(name) for name in sorted(names_in(part))}
        found.append(Reason(show(part), outcome, values))
        if len(found) == REASONS_MAX:
            break
    return found


def _deciding(
    part: Condition, attributes: Mapping[str, Value]
) -> Iterator[tuple[Condition, bool | None]]:
    outcome = compile_condition(part)(attributes)
    if not isinstance(part, And | Or):
        yield part, outcome
        return
    every = [(each, compile_condition(each)(attributes)) for each in part.operands]
    takes_one = (outcome is True) == isinstance(part, Or)
    deciding = [each for each, result in every if result is outcome]
    if not takes_one:
        deciding = [each for each, _ in every]
    for each in deciding[:1] if takes_one else deciding:
        yield from _deciding(each, attributes)
