"""Filter: a condition that can be matched, compared with others, shown and sent.

Theory of operation
    A filter keeps the tree of its condition. Compiled closures and normal form take room, so they
    are made at the first use. Only a condition whose normal form might grow is multiplied out at
    once: then `parse` refuses it, and later calls need not.
    Equal filters have equal text. Two filters mean the same if each `covers` the other.

Invariants
    I1  Filter.parse(str(f)) == f
    I2  `conjunctions` never raises
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.filters.covering import covers
from gapless.filters.evaluate import Test, compile_condition
from gapless.filters.normal import Conjunction, is_plain, normalise
from gapless.filters.parse import parse
from gapless.filters.show import show
from gapless.filters.syntax import names_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gapless.core.events import Value
    from gapless.filters.syntax import Condition

PAIRS_MAX = 10_000
"""Pairs of conjunctions that are compared to find out whether two filters mean the same."""


class Filter:
    """A SQL condition over event attributes. Immutable; made by `Filter.parse`."""

    __slots__ = ("_conjunctions", "_test", "_text", "condition")

    def __init__(self, condition: Condition) -> None:
        self.condition = condition
        self._text: str | None = None
        self._test: Test | None = None
        self._conjunctions = None if is_plain(condition) else normalise(condition)

    @classmethod
    def parse(cls, text: str) -> Filter:
        """The filter that `text` writes. FilterError says where and why it is refused."""
        return cls(parse(text))

    def matches(self, attributes: Mapping[str, Value]) -> bool:
        """Is the condition TRUE of these attributes? (Neither FALSE nor UNKNOWN.)"""
        if self._test is None:
            self._test = compile_condition(self.condition)
        return self._test(attributes) is True

    def covers(self, other: Filter) -> bool:
        """Does this surely match every event that `other` matches? False may mean "cannot tell"."""
        return covers(self.conjunctions, other.conjunctions)

    def means(self, other: Filter) -> bool:
        """Do both surely match the same events? False may mean "cannot tell"."""
        if self == other:
            return True
        pairs = len(self.conjunctions) * len(other.conjunctions)
        return pairs <= PAIRS_MAX and self.covers(other) and other.covers(self)

    @property
    def conjunctions(self) -> tuple[Conjunction, ...]:
        """The normal form: it matches if any of these does."""
        if self._conjunctions is None:
            self._conjunctions = normalise(self.condition)
        return self._conjunctions

    @property
    def attributes(self) -> frozenset[str]:
        """The names of all attributes that the condition reads."""
        return frozenset(names_in(self.condition))

    def __str__(self) -> str:
        if self._text is None:
            self._text = show(self.condition)
        return self._text

    def __repr__(self) -> str:
        return f"Filter.parse({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Filter) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Filter.parse, (str(self),)
