"""Epoch: a number for each life of a broker, higher than all before.

What a broker reports is numbered within its life; the epoch orders lives. It is taken from the
clock, and where that was set back, from what was persisted; nothing is reported under it before
it is durable, so that no life is ever taken for an older one. The first epoch of a disk tells what
an earlier disk of this broker had: whatever was done before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.effects import Effect, Persist, Put, Tell
from gapless.core.identity import Instant
from gapless.core.messages import Message

if TYPE_CHECKING:
    from gapless.core.store import Store
    from gapless.node.config import Config

EPOCHS = "epochs"
LAST, FIRST = "last", "first"


class EpochPersisted(Message, frozen=True):
    """To ourselves: the epoch is durable (or, not `ok`, there was no room)."""

    ok: bool = True


class Epoch:
    """The number of this life of a broker."""

    def __init__(
        self, store: Store, config: Config, now: Instant, *, is_copy: bool = False
    ) -> None:
        """`is_copy`: the disk is an older copy of what it was."""
        last = int.from_bytes(store.get(EPOCHS, LAST) or b"", "little")
        self.number = max(int(now), last + 1)
        self.first = int.from_bytes(store.get(EPOCHS, FIRST) or b"", "little")
        """Of this disk."""
        if not last or is_copy:
            self.first = self.number
        self.config = config
        self.is_durable = False
        self.deadline: Instant | None = now

    def fire(self, now: Instant) -> list[Effect]:
        """Write it down, at the start and until there is room for it."""
        if self.deadline is None or now < self.deadline:
            return []
        self.deadline = None
        put = Put(EPOCHS, LAST, self.number.to_bytes(8, "little"))
        first = Put(EPOCHS, FIRST, self.first.to_bytes(8, "little"))
        done, failed = EpochPersisted(), EpochPersisted(ok=False)
        return [Persist((put, first), (Tell(done),), (Tell(failed),))]

    def persisted(self, message: EpochPersisted, now: Instant) -> None:
        self.is_durable = message.ok
        if not message.ok:
            self.deadline = Instant(now + self.config.storage_retry)
