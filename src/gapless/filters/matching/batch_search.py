"""Batch search: many encoded events against one arena, however many matches they have.

Theory of operation
    The kernel stops where the room for matches might not do for one more event. What it has found
    by then is taken out, and it goes on with the same room. Mostly all fits: then it is taken out
    once, and nothing is copied twice. How many matches each event has is all that is kept of which
    event they belong to: a match takes four bytes.
    A row has a place for every column: of events that would need too much room at once, some are
    matched at a time.

Invariants
    I1  the sum of the counts is the number of identities, which come event by event, ascending
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from numpy.typing import NDArray

    Counted = tuple[NDArray[np.int64], NDArray[np.uint32]]
    Pairs = tuple[NDArray[np.uint32], NDArray[np.uint32]]
    Events = Sequence[Mapping[str, Any]]
    Search = Callable[[NDArray[np.uint32], NDArray[np.int64], int], int]

ROWS_FLOATS_MAX = 8 << 20
"""In the rows of events that are matched at once, 64 MiB; beyond it, fewer are."""


def search_batch(search: Search, count: int, room: NDArray[np.uint32]) -> Counted:
    """By event how many identities admit it, and the identities of all events. `search` matches
    events from a first one on while there is room, and says which is left."""
    ends = np.empty(count, np.int64)
    first, counts, found = 0, [], []
    while first < count:
        after = search(room, ends, first)
        some = ends[first:after].copy()
        some[1:] -= ends[first : after - 1]  # np.diff takes ten times as long for a few hundred
        counts.append(some)
        found.append(room[: ends[after - 1]].copy())
        first = after
    if len(found) == 1:
        return counts[0], found[0]
    return np.concatenate([ends[:0], *counts]), np.concatenate([room[:0], *found])


def match_slices(match: Callable[[Events], Pairs], events: Events, width: int) -> Pairs:
    """What `match` finds in all of them, as many at a time as there is room for."""
    length = max(1, ROWS_FLOATS_MAX // width)
    found: list[Pairs] = []
    for start in range(0, len(events), length):
        end = min(start + length, len(events))
        indices, handles = match([events[at] for at in range(start, end)])
        found.append((indices + np.uint32(start), handles))
    return np.concatenate([each[0] for each in found]), np.concatenate([each[1] for each in found])
