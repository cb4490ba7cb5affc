"""Members: which publications of a run, as a number with one bit for each; the first is bit 0.

A whole number is a set of places that Python unites, cuts and compares in one operation each.
`Targets` says for which brokers the members are that go one way.
"""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gapless.core.identity import BrokerName

    Target = tuple[BrokerName, int]
    """One life of a subscriber's broker."""

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


class Targets:
    """What goes one way: the brokers of subscribers, and which members are for each. It is never
    changed, so that many runs share it."""

    __slots__ = ("by_life", "members")

    def __init__(self, by_life: Mapping[Target, Members]) -> None:
        self.by_life = by_life
        self.members = union(by_life.values())

    def without(self, gone: Members) -> Targets:
        """What is left when these members need not go this way any more."""
        if not self.members & ~gone:
            return NO_TARGETS
        left = {life: kept for life, some in self.by_life.items() if (kept := some & ~gone)}
        return Targets(left)

    def without_each(self, gone: Mapping[Target, Members]) -> Targets:
        """What is left when each broker has no use for some members."""
        kept = {life: some & ~gone.get(life, 0) for life, some in self.by_life.items()}
        return Targets({life: some for life, some in kept.items() if some})


NO_TARGETS = Targets({})
