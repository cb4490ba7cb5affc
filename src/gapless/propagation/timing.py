"""The limits and timers that the propagation machines need; the broker's configuration provides
them."""

from __future__ import annotations

from typing import Protocol


class PropagationTiming(Protocol):
    """Times are whole microseconds. Defaults in brackets are what the specification says."""

    @property
    def change_wait(self) -> int:
        """How long a leaf waits at first for a change to come back in message vectors [2 s]."""

    @property
    def change_wait_shortest(self) -> int:
        """The least that this wait may shrink to with experience [200 ms]."""

    @property
    def change_wait_longest(self) -> int:
        """The most that it may grow to by doubling [60 s]."""

    @property
    def lag_patience(self) -> int:
        """How long a broker that lags waits before it asks: the news may be on its way [50 ms]."""

    @property
    def lag_repeat(self) -> int:
        """How often it asks again for a state that does not come [500 ms]."""

    @property
    def changes_pending_max(self) -> int:
        """Changes that wait for what they build on; beyond it the oldest is dropped [64]."""

    @property
    def virtual_time_step(self) -> int:
        """How far ahead of need the bound of the virtual clock is persisted [1,000]."""
