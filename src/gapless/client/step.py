"""Keeping in step: what a subscription does to be read together with others, and by itself again.

It falls in with a lane (`gapless.client.lane`) when it is live, behind nowhere, has nothing of its
own left, and gets nothing any more that it has received before. From then on its position is that
of the lane. It falls out before anything happens that is about it alone, and takes over what the
lane has for it. Who hands out silences never falls in: they are about each one alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gapless.client.backlog import Backlog
    from gapless.client.carrier import Carrier, Mail
    from gapless.client.delivery import Delivery
    from gapless.client.lane import Lane
    from gapless.client.residence import Residence
    from gapless.core.client_messages import Order
    from gapless.core.identity import PubendName, TopicName
    from gapless.core.token import Token


class Stepping(ABC):
    """The part of a subscription that others are read together with."""

    topic: TopicName
    order: Order
    tells_silence: bool
    behind: set[str]
    _backlog: Backlog
    _residence: Residence
    _is_live: bool
    _is_over: bool
    _since: Mapping[str, int]  # where it counts from on this connection
    _lane: Lane | None = None  # in step with it
    on_ready: Callable[[Any], None] | None = None  # told instead of who iterates: `together`

    @abstractmethod
    def _advance(self) -> bool: ...

    @abstractmethod
    def _take_silence(self) -> bool: ...

    @abstractmethod
    def _wake(self) -> None: ...

    @property
    def _carrier(self) -> Carrier:
        return self._residence.carrier

    @property
    def inbox(self) -> Mail:
        """Of the connection that it lives on."""
        return self._residence.carrier.inbox

    @property
    def address(self) -> str:
        """Of the broker where it lives: not always the one that its client is connected to."""
        return self._residence.carrier.address

    @property
    def token(self) -> Token:
        """By pubend: everything below this tick was taken, or did not match, or was lost."""
        if self._lane is None:
            return self._backlog.token()
        return self._backlog.token(self._lane.taken((self.topic, self.order)))

    def _finished(self) -> Token:
        """The same without what may still be worked on."""
        if self._lane is None:
            return self._backlog.finished()
        return self._backlog.finished(self._lane.finished((self.topic, self.order)))

    def take_at_once(self) -> list[Delivery] | None:
        """All that is at hand, which may be nothing; None when the subscription is over."""
        if self._advance():
            return self._backlog.pop_all()
        if self._is_over:
            return None
        self._residence.check_entered()
        return []

    def fall_in(self, lane: Lane) -> None:
        """Go on in step with the lane, if it may."""
        if self.tells_silence or not self._is_live or self.behind:
            return
        self._take_silence()
        positions = self.inbox.positions(self.topic, self.order)
        common = positions.get(None, 0)
        for name, tick in self._backlog.received():
            place: PubendName = name  # type: ignore[assignment]
            if tick > max(common, positions.get(place, 0), self._since.get(name, 0)):
                return
        if self._backlog.is_idle:
            self._lane = lane
            lane.members[self._residence.number] = self

    def fall_out(self) -> None:
        """Go on alone, from where the lane is, with what waits there for it."""
        lane = self._lane
        if lane is None:
            return
        place = (self.topic, self.order)
        self._lane = None
        self._backlog.take_over(lane.finished(place), lane.taken(place))
        for share in lane.leave(self._residence.number, place):
            self._backlog.add(*share)
        self._wake()
