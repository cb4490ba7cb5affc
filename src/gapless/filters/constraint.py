"""Constraints: what a conjunction says about one attribute, in canonical form.

Theory of operation
    Every simple predicate of the language restricts one attribute to a set of values of one
    kind: numbers, strings or booleans; or it asks whether the attribute is there at all. A
    constraint is such a set. `AND` on the same attribute is intersection, covering is inclusion.
    Equal sets have equal constraints, so two conjunctions that cover each other are equal: the
    routing tables of `propagation` depend on that.

    Numbers   an interval of the real line less some points, or a finite set of points.
              1 and 1.0 are the same number; a NaN is in no set (it compares UNKNOWN).
    Strings   a half-open interval by code point, less some points, or a finite set of points.
              The string right after s is s + NUL, so `> s` starts at s + NUL, `<= s` ends
              before s + NUL, `= s` is [s, s + NUL), and the prefix `ab` is ['ab', 'ac').
              `LIKE` patterns that are no prefix are kept beside the interval.

Invariants (established by `canonical` constructors; never build these classes by hand elsewhere)
    I1  no constraint is empty: an impossible conjunction has no constraints, it is dropped
    I2  `values` is set exactly if the set is finite and known; then all else is at its default
    I3  `excluded` holds only points inside the interval and not at a closed end of it
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class Missing:
    """The attribute is not there: `a IS NULL`."""


@dataclass(frozen=True, slots=True)
class Present:
    """The attribute is there, of whatever kind: `a IS NOT NULL`, `EXISTS a`."""


@dataclass(frozen=True, slots=True)
class Booleans:
    """A boolean that is one of `values` (sorted; one or two of them)."""

    values: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Numbers:
    """A number in an interval less `excluded`, or one of `values` (both sorted)."""

    low: int | float = -inf
    high: int | float = inf
    low_open: bool = False
    high_open: bool = False
    excluded: tuple[int | float, ...] = ()
    values: tuple[int | float, ...] | None = None


@dataclass(frozen=True, slots=True)
class Pattern:
    """A LIKE pattern with its escapes resolved: literal pieces around `%` (None) and `_` ("")."""

    parts: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Strings:
    """A string in [low, high) less `excluded`, or one of `values` (sorted); and the patterns."""

    low: str = ""
    high: str | None = None  # None: no upper end
    excluded: tuple[str, ...] = ()
    values: tuple[str, ...] | None = None
    like: tuple[Pattern, ...] = ()
    unlike: tuple[Pattern, ...] = ()


Constraint = Missing | Present | Booleans | Numbers | Strings
