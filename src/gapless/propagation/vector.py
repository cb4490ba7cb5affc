"""Virtual-time vectors: how much of each leaf's subscriptions counts.

An element that is missing is 0: nothing of that leaf. Vectors are plain maps, as in the messages;
none of these functions changes its arguments.

Source: Middleware 2004, sec. 3.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gapless.core.broker_messages import Vector


def join(one: Mapping[str, int], *others: Mapping[str, int]) -> Vector:
    """The least vector that is at least each of these."""
    joined = dict(one)
    for other in others:
        for leaf, time in other.items():
            if time > joined.get(leaf, 0):
                joined[leaf] = time
    return joined


def is_at_least(one: Mapping[str, int], other: Mapping[str, int]) -> bool:
    """Is no element of `one` below that of `other`?"""
    known = one.get
    return all(known(leaf, 0) >= time for leaf, time in other.items())


def agrees(one: Mapping[str, int], constraint: Mapping[str, int]) -> bool:
    """Does `one` have exactly these elements? Others do not matter."""
    return all(one.get(leaf, 0) == time for leaf, time in constraint.items())


def restrict(vector: Mapping[str, int], leaves: Iterable[str]) -> Vector:
    """The elements of all these leaves, zeros included, as a constraint needs them."""
    return {leaf: vector.get(leaf, 0) for leaf in sorted(leaves)}


def without_zeros(vector: Mapping[str, int]) -> Vector:
    """This vector without its zeros, sorted."""
    return {leaf: time for leaf, time in sorted(vector.items()) if time}


def difference(new: Mapping[str, int], old: Mapping[str, int]) -> Vector:
    """The elements that differ: `join(old, difference(new, old)) == new` if `new` is the later."""
    return {leaf: time for leaf, time in new.items() if time != old.get(leaf, 0)}
