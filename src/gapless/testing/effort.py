"""Effort: how much one step of a broker does, counted and not timed.

A record that is looked at counts one, and so does whatever leaves: a message, each event in it,
each span that it asks for. What counts is the same on every machine, so a bound on it can be held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.broker_messages import Knowledge, Nack
from gapless.core.client_messages import Deliveries
from gapless.core.effects import Send
from gapless.core.store import NO_IDENTITY, SCAN_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gapless.core.effects import Effect
    from gapless.core.store import DiskIdentity, RecordRun, Store


class CountedStore:
    """A store that counts the records which its broker looks at."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._looks = 0

    @property
    def identity(self) -> DiskIdentity:
        """Tells the disk from its copies."""
        return getattr(self._store, "identity", NO_IDENTITY)

    def take(self) -> int:
        """How many since it was asked last."""
        looks, self._looks = self._looks, 0
        return looks

    def read(self, stream: str, index: int) -> bytes:
        self._looks += 1
        return self._store.read(stream, index)

    def read_near(self, stream: str, index: int) -> Mapping[int, bytes]:
        self._looks += 1
        return self._store.read_near(stream, index)

    def scan(
        self, stream: str, start: int, end: int, *, bytes_max: int = SCAN_BYTES
    ) -> tuple[list[int], list[bytes]]:
        found = self._store.scan(stream, start, end, bytes_max=bytes_max)
        self._looks += 1 + len(found[0])
        return found

    def scan_runs(self, stream: str, start: int, end: int, *, bytes_max: int) -> list[RecordRun]:
        found = self._store.scan_runs(stream, start, end, bytes_max=bytes_max)
        self._looks += 1 + sum(len(run.indices) for run in found)
        return found

    def bounds(self, stream: str) -> tuple[int, int]:
        return self._store.bounds(stream)

    def get(self, table: str, key: str) -> bytes | None:
        return self._store.get(table, key)

    def items(self, table: str) -> Mapping[str, bytes]:
        return self._store.items(table)


def effort(effects: Iterable[Effect]) -> int:
    """What it takes to carry these out."""
    total = 0
    for effect in effects:
        total += 1
        if isinstance(effect, Send):
            match effect.message:
                case Deliveries(ticks=some) | Knowledge(ticks=some):
                    total += len(some)
                case Nack(spans=spans):
                    total += len(spans)
                case _:
                    pass
    return total
