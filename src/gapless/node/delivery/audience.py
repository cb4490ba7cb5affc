"""Audience: the subscriptions of one topic and order, those with equal conditions together.

Theory of operation
    Many subscribers want the same. Equal conditions are one *group*, which the matcher holds once:
    a batch is matched against groups, and what a group wants is found once for all its members.
    Where conditions all differ, most groups have one member: what these want is gathered by client
    right away, and no group is looked at again.
    Durable subscriptions stand in a group by number, whether a client is attached or not;
    `attached` are those to which one is, so that idle ones cost nothing here.

Invariants (checked by `check`)
    I1  a key is a member of exactly one group; the matcher holds exactly the groups with members
    I2  `sole` is the member of a group that has one, if that is a client's
    I3  `clients` are those of all groups, by name and number

Cost
    Matching costs by group, sharing out by member that is connected; neither by idle subscription.
"""

from __future__ import annotations

from array import array
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from gapless.core.identity import ClientName
from gapless.core.portion import WHOLE, Portion
from gapless.filters.matcher import Matcher

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from gapless.core.events import Attributes
    from gapless.filters.filter import Filter
    from gapless.node.delivery.packing import Single

Key = tuple["ClientName", int]

DURABLE = ClientName("@durable")
"""In place of a client: the number is that of a durable subscription."""

NOBODY: dict[int, None] = {}


VACANT = -1
CLIENTS_MAX = 64
"""With more clients than this there is too little for each, and matches are looked at singly."""


class MatchedBatch(NamedTuple):
    """What is wanted of a batch, by index, ascending."""

    groups: list[tuple[ConditionGroup, list[int]]]
    singles: dict[ClientName, Single]  # of groups with one member: indices, and its number for each


class ConditionGroup:
    """Subscriptions with the same condition. `sole`: the only one, if it is a client's."""

    __slots__ = ("attached", "condition", "connected", "durable", "sole")

    def __init__(self, condition: Filter) -> None:
        self.condition = condition
        self.connected: dict[Key, None] = {}
        self.durable: dict[int, None] = NOBODY
        self.attached: dict[int, None] = NOBODY
        self.sole: Key | None = None

    def __len__(self) -> int:
        return len(self.connected) + len(self.durable)

    def add(self, key: Key) -> None:
        if key[0] != DURABLE:
            self.connected[key] = None
        elif self.durable is NOBODY:
            self.durable = {key[1]: None}
        else:
            self.durable[key[1]] = None
        self._look_for_one()

    def remove(self, key: Key) -> None:
        if key[0] != DURABLE:
            del self.connected[key]
        else:
            del self.durable[key[1]]
            self.attached.pop(key[1], None)
        self._look_for_one()

    def _look_for_one(self) -> None:
        self.sole = next(iter(self.connected)) if self.connected and len(self) == 1 else None


class Audience:
    """All subscriptions of one topic and order."""

    def __init__(self) -> None:
        self._matcher: Matcher[ConditionGroup] = Matcher()
        self._groups: dict[Filter, ConditionGroup] = {}
        self._group_of: dict[Key, ConditionGroup] = {}
        self._soles = Soles()
        self.clients: dict[ClientName, dict[int, None]] = {}  # without durable subscriptions

    def __len__(self) -> int:
        return len(self._group_of)

    def __contains__(self, key: Key) -> bool:
        return key in self._group_of

    def condition_of(self, key: Key) -> Filter:
        return self._group_of[key].condition

    def add(self, key: Key, condition: Filter) -> None:
        group = self._groups.get(condition)
        if group is None:
            group = self._groups[condition] = ConditionGroup(condition)
            self._matcher.add(group, condition)
        group.add(key)
        self._group_of[key] = group
        if key[0] != DURABLE:
            self.clients.setdefault(key[0], {})[key[1]] = None
        self._soles.set(self._matcher.handle_of(group), group.sole)

    def remove(self, key: Key) -> None:
        group = self._group_of.pop(key)
        group.remove(key)
        if key[0] != DURABLE:
            del self.clients[key[0]][key[1]]
            if not self.clients[key[0]]:
                del self.clients[key[0]]
        self._soles.set(self._matcher.handle_of(group), group.sole)
        if not len(group):
            del self._groups[group.condition]
            self._matcher.remove(group)

    def attach(self, number: int) -> None:
        """A client came to a durable subscription."""
        group = self._group_of[DURABLE, number]
        if group.attached is NOBODY:
            group.attached = {}
        group.attached[number] = None

    def detach(self, number: int) -> None:
        """It left, or the subscription is gone."""
        group = self._group_of.get((DURABLE, number))
        if group is not None:
            group.attached.pop(number, None)

    def match(self, events: Sequence[Attributes], *, apart: bool = True) -> MatchedBatch:
        """Who wants what of these events. `apart`: by client, who is alone in its group."""
        if (everybody := self._matcher.match_any()) is not None:
            everything = list(range(len(events)))
            return MatchedBatch([(group, everything) for group in everybody], {})
        groups: dict[ConditionGroup, list[int]] = {}
        singles: dict[ClientName, Single] = {}
        for index, group in self._one_by_one(events, singles, apart=apart):
            sole = group.sole if apart else None
            if sole is not None:
                name, number = sole
                if name not in singles:
                    singles[name] = ([], [])
                indices, numbers = singles[name]
                indices.append(index)
                numbers.append(number)
            elif group in groups:
                groups[group].append(index)
            else:
                groups[group] = [index]
        return MatchedBatch(list(groups.items()), singles)

    def _one_by_one(
        self, events: Sequence[Attributes], singles: dict[ClientName, Single], *, apart: bool
    ) -> list[tuple[int, ConditionGroup]]:
        """The matches to look at; those of few clients may be shared out here, all at once."""
        matcher, soles = self._matcher, self._soles
        matches = matcher.match_handles(events) if apart and 0 < len(soles) <= CLIENTS_MAX else None
        if matches is None:
            return matcher.match_batch(events)
        indices, handles = matches
        alone = soles.are(handles)
        singles.update(soles.share_out(indices[alone], handles[alone]))
        rest = zip(indices[~alone].tolist(), handles[~alone].tolist(), strict=True)
        return [(index, matcher.key_of(handle)) for index, handle in rest]

    def check(self, portion: Portion = WHOLE) -> None:
        assert len(self._matcher) == len(self._groups), "I1"
        for group in portion.of(self._groups.values()):
            assert len(group), "I1"
            assert group.attached.keys() <= group.durable.keys(), "I1"
            assert (group.sole is not None) == (len(group) == len(group.connected) == 1), "I2"
            assert group.sole is None or group.sole in group.connected, "I2"
        if not portion.is_whole:
            return
        assert sum(map(len, self._groups.values())) == len(self._group_of), "I1"
        self._soles.check()
        connected = {key for group in self._groups.values() for key in group.connected}
        assert connected == {(n, number) for n, some in self.clients.items() for number in some}
        assert all(self.clients.values()), "I3"


class Soles:
    """The only members of groups, by the matcher's handle of the group, as flat arrays.

    Where conditions differ, most groups have one member, and a batch has one match for each event.
    To look at each match in Python is dear; so what one client gets is picked from all at once.

    Invariant (checked by `check`): a client has a place as long as it is a sole member; a free
    place is used again.
    """

    def __init__(self) -> None:
        self._places = array("q")  # by handle: the client's, or VACANT
        self._numbers = array("q")  # by handle: of the subscription on its connection
        self._names: list[ClientName | None] = []  # by place
        self._place_of: dict[ClientName, int] = {}
        self._counts: list[int] = []  # by place: of handles
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._place_of)

    def set(self, handle: int, sole: tuple[ClientName, int] | None) -> None:
        while handle >= len(self._places):
            self._places.append(VACANT)
            self._numbers.append(0)
        if (before := self._places[handle]) != VACANT:
            self._places[handle] = VACANT
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

        alone: NDArray[np.bool_] = np.frombuffer(self._places, np.int64)[handles] != VACANT
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
                assert name is not None, "places"
                yield name, (indices[low:high].tolist(), numbers[low:high].tolist())

    def check(self) -> None:
        used = [place for place in self._places if place != VACANT]
        assert sorted(self._place_of.values()) == sorted(set(used)), "places"
        assert sum(self._counts) == len(used), "places"
        assert len(self._free) + len(self._place_of) == len(self._names), "places"
