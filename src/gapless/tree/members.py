"""Members: which publications of a run, as a number with one bit for each; the first is bit 0.

A whole number is a set of places that Python unites, cuts and compares in one operation each.
"""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ValueT = TypeVar("ValueT")

Members = int


def whole(count: int) -> Members:
    """All of so many."""
    return (1 << count) - 1


def union(some: Iterable[Members]) -> Members:
    found = 0
    for each in some:
        found |= each
    return found


def places(members: Members) -> list[int]:
    """Their places, ascending."""
    if not members & members + 1:  # all, or the first of all
        return list(range(members.bit_length()))
    found = []
    while members:
        lowest = members & -members
        found.append(lowest.bit_length() - 1)
        members ^= lowest
    return found


def lowest(members: Members, count: int) -> Members:
    """The first `count` of them."""
    if members.bit_count() <= count:
        return members
    return sum(1 << place for place in places(members)[: max(0, count)])


def pick(values: Sequence[ValueT], members: Members) -> tuple[ValueT, ...]:
    """The values at these places."""
    if members == whole(len(values)):
        return tuple(values)
    return tuple(compress(values, map(int, reversed(f"{members:b}"))))
