"""The limits and timers of durable subscriptions; the broker's configuration provides them."""

from __future__ import annotations

from typing import Protocol

from gapless.knowledge.timing import KnowledgeTiming


class DurableTiming(KnowledgeTiming, Protocol):
    """Times are whole microseconds. Defaults in brackets are what the specification says."""

    @property
    def catch_up_window(self) -> int:
        """Wanted ticks that one catch-up has asked for and not delivered yet [256]."""

    @property
    def definition_bytes_max(self) -> int:
        """Bytes of all definitions of durable subscriptions; beyond it a new one is refused [32
        MiB]."""

    @property
    def filtered_read_max(self) -> int:
        """Wanted ticks in one answer of the filtered log; the rest is read later [5,000]."""

    @property
    def filtered_walk_max(self) -> int:
        """Records that one read of the filtered log looks at; the next read continues [5,000]."""

    @property
    def filtered_replay_max(self) -> int:
        """Records that a restart reads again at most, besides one batch: after this many, the heads
        of all chains are saved again [20,000]."""

    @property
    def filtered_pending_max(self) -> int:
        """Events delivered and not yet in the filtered log; beyond it nothing more is delivered
        until the disk has caught up [10,000]."""

    @property
    def filtered_pending_bytes_max(self) -> int:
        """The limit on those events in bytes [64 MiB]."""

    @property
    def delivered_flush(self) -> int:
        """How long a position may wait to be written when no event was taken [250 ms]."""

    @property
    def released_flush(self) -> int:
        """How long acknowledgements are gathered before they are written [250 ms]."""

    @property
    def storage_retry(self) -> int:
        """When to try again a write for which there was no room [1 s]."""

    @property
    def hand_over_repeat(self) -> int:
        """How often a step of a hand-over is repeated until it is answered [1 s]."""

    @property
    def durable_subscriptions_max(self) -> int:
        """Durable subscriptions at one broker; a new one beyond it is refused [100,000]."""
