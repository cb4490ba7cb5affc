"""The limits and timers of durable subscriptions; the broker's configuration has them."""

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
        """What definitions of durable subscriptions take in tables; beyond it no more [32 MiB]."""

    @property
    def filtered_read_max(self) -> int:
        """Wanted ticks in one answer of the filtered log; the rest is read later [5,000]."""

    @property
    def filtered_walk_max(self) -> int:
        """Records that one read of the filtered log looks at; it goes on in the next [5,000]."""

    @property
    def filtered_replay_max(self) -> int:
        """Records that a restart reads again at most, beside one batch: after as many, the heads
        of all chains are written down anew [20,000]."""

    @property
    def filtered_pending_max(self) -> int:
        """Events delivered and not yet in the filtered log; beyond it nothing more is delivered
        until the disk has caught up [10,000]."""

    @property
    def filtered_pending_bytes_max(self) -> int:
        """The same in bytes [64 MiB]."""

    @property
    def delivered_flush(self) -> int:
        """How long a position may wait to be written when nobody took an event [250 ms]."""

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
