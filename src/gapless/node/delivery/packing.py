"""Parcels: what each connection gets of one settled batch, made once for all who want the same.

A connection gets every event that any of its subscriptions wants, each once, with the numbers of
those that do, in messages of bounded count and size. Most wants are simple: all that one condition
passes, for one subscription of each connection; or one subscription for each event. The first is
made once however many connections there are, the second without looking at subscriptions at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, TypeVar

from gapless.core.client_messages import Deliveries
from gapless.core.events import EventBatch
from gapless.knowledge.batch import cut

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.core.identity import PubendName, TopicName
    from gapless.knowledge.subend import Settled

    Share = tuple[int, list[int]]
    """A subscription's number on its connection, and the indices of the events it gets."""

    Single = tuple[list[int], list[int]]
    """Indices of events, ascending, and for each the number of a subscription that gets it."""

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Parcel:
    """What goes to one connection, and perhaps to others too."""

    count: int
    size: int
    messages: list[Deliveries]


class Packing:
    """Makes the parcels of one batch; `limits`: events and bytes of a message."""

    def __init__(
        self,
        topic: TopicName,
        pubend: PubendName | None,
        settled: Settled,
        through: int,
        limits: tuple[int, int],
    ) -> None:
        self._topic = topic
        self._pubend = pubend
        self._settled = settled
        self._through = through
        self._limits = limits
        self._kept: dict[tuple[int, int], Parcel] = {}  # by identity of the indices, and number

    def pack(self, shares: Sequence[Share], single: Single | None = None) -> Parcel:
        """For one connection."""
        if single is not None:
            indices, numbers = single
            if not shares and len(set(indices)) == len(indices):
                return self._parcel(indices, tuple(zip(numbers, strict=True)))
            shares = [*shares, *((n, [i]) for i, n in zip(indices, numbers, strict=True))]
        elif len(shares) == 1:
            return self._alike(*shares[0])
        takers: dict[int, list[int]] = {}
        for number, wanted in shares:
            for index in wanted:
                takers.setdefault(index, []).append(number)
        indices = sorted(takers)
        return self._parcel(indices, tuple([tuple(sorted(takers[index])) for index in indices]))

    def _alike(self, number: int, wanted: list[int]) -> Parcel:
        """For a connection that may want just what another got."""
        kept = self._kept.get((id(wanted), number))
        if kept is None:
            kept = self._parcel(wanted, ((number,),) * len(wanted))
            self._kept[id(wanted), number] = kept
        return kept

    def _parcel(self, indices: list[int], takers: tuple[tuple[int, ...], ...]) -> Parcel:
        """These events, in batches."""
        settled = self._settled
        if len(indices) == len(settled.ticks):  # all of them, for each is there once
            ticks, events = tuple(settled.ticks), tuple(settled.events)
        else:
            ticks, events = _pick(settled.ticks, indices), _pick(settled.events, indices)
        size = sum(map(len, events))
        whole = len(events) <= self._limits[0] and size <= self._limits[1]
        messages = [
            Deliveries(
                self._topic,
                self._through if high == len(ticks) else ticks[high],
                self._pubend,
                ticks[low:high],
                EventBatch(events[low:high]),
                takers[low:high],
            )
            for low, high in ([(0, len(events))] if whole else cut(events, *self._limits))
        ]
        return Parcel(len(events), size, messages)


def _pick(values: Sequence[_Value], indices: list[int]) -> tuple[_Value, ...]:
    """The values at these places, in one call."""
    if len(indices) < 2:  # one value is not a tuple of one, to `itemgetter`
        return tuple([values[index] for index in indices])
    picked: tuple[_Value, ...] = itemgetter(*indices)(values)
    return picked
