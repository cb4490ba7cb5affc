"""LinkMemory: what frames on their way in, and answers on their way out, take of a broker's memory.

Theory of operation
    A frame that is not yet whole is kept until it is, and what a peer does not read is kept until
    it does: both for as long as the peer likes, if nobody counts. Here they are counted, in bytes,
    for each principal and for all (`core.ledger`; decision 0028 says who the principal is).
    Input: a large frame is read only after its whole size was set aside, so that every frame that
    was begun can be finished. While there is no room, nothing more is read from its connection; but
    what one read has brought is there already, and is counted too: where too much waits, the
    connection ends. A frame that brings nothing while others wait for its room loses its
    connection. Small frames need no leave: connections are bounded.
    Output: a connection that has more than `BACKED_UP_BYTES` unsent is backed up. Where a principal
    has more unsent than its share, its requests for long answers wait until it has read some. Where
    all together have too much, the connection that was backed up first is dropped.

Invariants
    I1  frames that were let in take at most `input_bytes_max` bytes, or are one frame; what waits
        takes at most as much
    I2  whoever waits is asked to go on when room was given back
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gapless.core.errors import ProtocolError
from gapless.core.ledger import SHARE_PERCENT, Account

if TYPE_CHECKING:
    from gapless.broker.settings import Settings

BACKED_UP_BYTES = 64 << 10
"""Unsent bytes of one connection that are not worth counting."""


class Holder(Protocol):
    """A connection, as far as it takes room."""

    who: str

    @property
    def unsent_bytes(self) -> int: ...
    def has_stalled(self) -> bool: ...
    def read_on(self, reason: str) -> None: ...
    def drop(self, problem: str) -> None: ...


NO_ROOM = "there is no room for its frame"
UNREAD = "its principal does not read its answers"


class LinkMemory:
    """The memory of all connections of one broker."""

    def __init__(self, settings: Settings, share: int = SHARE_PERCENT) -> None:
        self.input = Account("bytes of unfinished frames", settings.input_bytes_max, share)
        self.waiting = Account("bytes that wait for room", settings.input_bytes_max, share)
        self.output = Account("unsent bytes", settings.output_bytes_max, share)
        self._sizes: dict[Holder, int] = {}  # of frames that were let in
        self._wanted: dict[Holder, int] = {}  # of those that wait
        self._kept: dict[Holder, int] = {}  # what was read of whoever waits
        self._unsent: dict[Holder, int] = {}  # of connections that are backed up, as counted last
        self._asking: dict[Holder, None] = {}  # those whose requests wait

    # --- in ---------------------------------------------------------------------------------------

    def let_in(self, holder: Holder, size: int, read: int) -> bool:
        """Set room aside for a frame of which so much was read; or else `holder` is asked to go on
        when there is some. `ProtocolError`: it may not even wait."""
        assert holder not in self._sizes
        if self.input.total and self.input.refusal(holder.who, size):
            self._keep(holder, read)
            self._wanted[holder] = size
            return False
        self._sizes[holder] = size
        self.input.take(holder.who, size)
        return True

    def _keep(self, holder: Holder, size: int) -> None:
        """So much is kept of one that waits."""
        if refused := self.waiting.refusal(holder.who, size):
            raise ProtocolError(f"this broker is busy: {refused}", "Try again later.")
        self._kept[holder] = size
        self.waiting.take(holder.who, size)

    def _waited(self, holder: Holder) -> None:
        self.waiting.give_back(holder.who, self._kept.pop(holder, 0))

    def finished(self, holder: Holder) -> None:
        """Its frame is whole, or gone."""
        if (size := self._sizes.pop(holder, 0)) != 0:
            self.input.give_back(holder.who, size)
            self._admit()

    def _admit(self) -> None:
        """Those that waited longest come first, but nobody waits for a principal at its limit."""
        for holder, size in list(self._wanted.items()):
            if holder not in self._wanted:
                continue  # it left, because another went on
            if not self.input.total or not self.input.refusal(holder.who, size):
                del self._wanted[holder]
                self._waited(holder)
                self._sizes[holder] = size
                self.input.take(holder.who, size)
                holder.read_on(NO_ROOM)

    def drop_stalled(self) -> None:
        """Somebody has waited for a while: let go of frames that bring nothing, if they are what
        all wait for."""
        for holder in list(self._sizes):
            if not any(map(self._lacks, self._wanted.values())):
                return
            if holder in self._sizes and holder.has_stalled():
                holder.drop("its frame brought nothing while others waited for its room")
                self.leave(holder)

    def _lacks(self, size: int) -> bool:
        """Is there too little for such a frame, whoever sends it?"""
        return self.input.total + size > self.input.total_max

    # --- out --------------------------------------------------------------------------------------

    def may_ask(self, holder: Holder, read: int) -> bool:
        """Whether a long answer may be prepared; or else `holder`, of which so much was read, is
        asked to read on later. `ProtocolError`: it may not even wait."""
        if self.output.held(holder.who) < self.output.each_max:
            return True
        self._recount()
        if self.output.held(holder.who) < self.output.each_max:
            return True
        self._keep(holder, read)
        self._asking[holder] = None
        return False

    def count(self, holder: Holder) -> None:
        """After something was sent to it, or it has read something."""
        unsent = holder.unsent_bytes
        before = self._unsent.pop(holder, 0) if unsent <= BACKED_UP_BYTES else None
        if before is None:
            before, self._unsent[holder] = self._unsent.get(holder, 0), unsent
        else:
            unsent = 0
        self.output.give_back(holder.who, before)
        self.output.take(holder.who, unsent)
        if unsent < before:
            self._answer()

    def _recount(self) -> None:
        for holder in list(self._unsent):
            self.count(holder)

    def _answer(self) -> None:
        for holder in list(self._asking):
            may = self.output.held(holder.who) < self.output.each_max
            if may and self._asking.pop(holder, holder) is None:
                self._waited(holder)
                holder.read_on(UNREAD)

    def make_room(self) -> None:
        """At the end of a turn: drop who has not read for longest, while all have too much."""
        if self.output.total <= self.output.total_max:
            return
        self._recount()
        for holder in list(self._unsent):
            if self.output.total <= self.output.total_max:
                return
            holder.drop(f"{self.output.total} bytes were sent to all clients and not taken")
            self.leave(holder)

    def leave(self, holder: Holder) -> None:
        """The connection is gone."""
        self._wanted.pop(holder, None)
        self._asking.pop(holder, None)
        self._waited(holder)
        self.finished(holder)
        unsent = self._unsent.pop(holder, 0)
        self.output.give_back(holder.who, unsent)
        if unsent:
            self._answer()

    def check(self) -> None:
        self.input.check()
        self.output.check()
        self.waiting.check()
        assert self._kept.keys() == self._wanted.keys() | self._asking.keys(), "I1"
        assert self.input.total == sum(self._sizes.values()), "I1"
        assert self.input.total <= self.input.total_max or len(self._sizes) == 1, "I1"
        assert not self._wanted or self._sizes, "I2"
