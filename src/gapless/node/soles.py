"""Soles: who is alone in a group, by the matcher's handle of that group, as flat arrays.

Where conditions differ, most groups have one member, and a batch has one match for each event. To
look at each match in Python is dear; so what one client gets is picked from all matches at once.

Invariants (checked by `check`)
    I1  a client has a place as long as it is somebody's; a free place is used again
"""

from __future__ import annotations

from array import array
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from gapless.core.identity import ClientName
    from gapless.node.parcels import Single

NOBODY = -1
CLIENTS_MAX = 64
"""With more clients than this there is too little for each, and matches are looked at singly."""


class Soles:
    """The only members of groups."""

    def __init__(self) -> None:
        self._places = array("q")  # by handle: the client's, or NOBODY
        self._numbers = array("q")  # by handle: of the subscription on its connection
        self._names: list[ClientName | None] = []  # by place
        self._place_of: dict[ClientName, int] = {}
        self._counts: list[int] = []  # by place: of handles
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._place_of)

    def set(self, handle: int, sole: tuple[ClientName, int] | None) -> None:
        while handle >= len(self._places):
            self._places.append(NOBODY)
            self._numbers.append(0)
        if (before := self._places[handle]) != NOBODY:
            self._places[handle] = NOBODY
            self._leave(before)
        if sole is not None:
            self._places[handle], self._numbers[handle] = self._enter(sole[0]), sole[1]

    def _enter(self, name: ClientName) -> int:
        place = self._place_of.get(name)
        if place is None:
            place = self._free.pop() if self._free else len(self._names)
            if place == len(self._names):
                self._names.append(name)
                self._counts.append(0)
            self._names[place], self._place_of[name] = name, place
        self._counts[place] += 1
        return place

    def _leave(self, place: int) -> None:
        self._counts[place] -= 1
        name = self._names[place]
        if not self._counts[place] and name is not None:
            self._names[place] = None
            del self._place_of[name]
            self._free.append(place)

    def are(self, handles: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """Of which of these someone is the only member."""
        import numpy as np

        alone: NDArray[np.bool_] = np.frombuffer(self._places, np.int64)[handles] != NOBODY
        return alone

    def share_out(
        self, indices: NDArray[np.uint32], handles: NDArray[np.uint32]
    ) -> Iterator[tuple[ClientName, Single]]:
        """By client, the events that it gets and the numbers of who wants them, in their order."""
        import numpy as np

        places = np.frombuffer(self._places, np.int64)[handles]
        order = np.argsort(places, kind="stable")
        places, indices, handles = places[order], indices[order], handles[order]
        numbers = np.frombuffer(self._numbers, np.int64)[handles]
        bounds = [0, *(np.flatnonzero(places[1:] != places[:-1]) + 1).tolist(), len(places)]
        for low, high in pairwise(bounds):
            if low < high:
                name = self._names[places[low]]
                assert name is not None, "I1"
                yield name, (indices[low:high].tolist(), numbers[low:high].tolist())

    def check(self) -> None:
        used = [place for place in self._places if place != NOBODY]
        assert sorted(self._place_of.values()) == sorted(set(used)), "I1"
        assert sum(self._counts) == len(used), "I1"
        assert len(self._free) + len(self._place_of) == len(self._names), "I1"
