"""Batch search: many encoded events against one arena, however many matches they have.

Theory of operation
    The kernel stops where the room for matches might not do for one more event. What it has found
    by then is taken out, and it goes on with the same room. Mostly all fits: then it is taken out
    once, and nothing is copied twice. How many matches each event has is all that is kept of which
    event they belong to: a match takes four bytes.

Invariants
    I1  the sum of the counts is the number of identities, which come event by event, ascending
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gapless.filters.matching import kernels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Counted = tuple[NDArray[np.int64], NDArray[np.uint32]]


def search_batch(
    words: NDArray[np.int64],
    width: int,
    rows: NDArray[np.float64],
    extra: NDArray[np.int64],
    extra_ends: NDArray[np.int64],
    room: NDArray[np.uint32],
) -> Counted:
    """By event how many identities admit it, and the identities of all events."""
    count = len(extra_ends)
    ends = np.empty(count, np.int64)
    first, counts, found = 0, [], []
    while first < count:
        after = kernels.match_rows(words, rows, width, extra, extra_ends, room, ends, first)
        some = ends[first:after].copy()
        some[1:] -= ends[first : after - 1]  # np.diff takes ten times as long for a few hundred
        counts.append(some)
        found.append(room[: ends[after - 1]].copy())
        first = after
    if len(found) == 1:
        return counts[0], found[0]
    return np.concatenate([ends[:0], *counts]), np.concatenate([room[:0], *found])
