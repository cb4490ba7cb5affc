"""The disk: carries out `Persist`, some time later, several at once, or not at all.

Theory of operation
    A write takes time. What is asked for meanwhile waits and then goes out as one group commit, in
    order. A crash in the middle keeps some prefix of the group (durable, though nobody was told),
    tears the next commit (reopening cuts it) and loses the rest. A full disk refuses what would
    grow it and takes it again later. A sync that fails stops the broker: it cannot know what is
    durable, so it is started again from what is there.

Invariants
    I1  `then` is carried out only after the volume has all the writes
    I2  commits become durable in the order they were asked for
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapless.core.effects import Delete
from gapless.core.errors import StorageError, StorageFullError
from gapless.testing.memory_volume import Fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.core.effects import Effect, Persist
    from gapless.testing.checkers.checker import Broker
    from gapless.testing.memory_volume import MemoryVolume
    from gapless.testing.stage import Stage


@dataclass(frozen=True, kw_only=True)
class DiskOptions:
    """How disks behave; times in microseconds."""

    sync_min: int = 200
    sync_spread: int = 1_000


class Disk:
    """One broker's disk: its volume and what waits to be written."""

    def __init__(
        self,
        stage: Stage,
        owner: Broker,
        volume: MemoryVolume,
        carry_out: Callable[[list[Effect]], object],
        stop: Callable[[], object],
    ) -> None:
        self._stage = stage
        self._owner = owner
        self._carry_out = carry_out
        self._stop = stop
        self.volume = volume
        self.options = DiskOptions()
        self.sync_fails = False
        self._waiting: list[Persist] = []
        self._group: list[Persist] = []
        self._sync_number = 0

    def write(self, persist: Persist) -> None:
        self._waiting.append(persist)
        if not self._group:
            self._begin()

    def _begin(self) -> None:
        stage, options = self._stage, self.options
        self._group, self._waiting = self._waiting, []
        self._sync_number += 1
        if len(self._group) > 1:
            stage.reached["several writes in one commit"] += 1
        takes = options.sync_min + int(stage.dice.random() * options.sync_spread)
        stage.after(takes, self._finish, self._sync_number)

    def _finish(self, number: int) -> None:
        if number != self._sync_number or not self._group:
            return  # the broker crashed in between
        if self.sync_fails:
            self.sync_fails = False
            self._stage.reached["a sync failed"] += 1
            self._stage.say(f"{self._owner.name} sync failed")
            self._stop()
            return
        group, self._group = self._group, []
        effects: list[Effect] = []
        for persist in group:
            effects += persist.then if self._commit(persist) else persist.otherwise
        if self._waiting:
            self._begin()
        self._carry_out(effects)

    def _commit(self, persist: Persist) -> bool:
        """Whether the writes are durable now; False if there is no room for them."""
        try:
            self.volume.commit(persist.writes)
        except StorageFullError:
            self._stage.reached["the disk was full"] += 1
            self._stage.say(f"{self._owner.name} disk full")
            return False
        except StorageError as error:
            raise AssertionError(f"{self._owner.name} wrote what cannot be: {error}") from error
        self._stage.watch.committed(self._owner, persist.writes)
        return True

    def crash(self) -> None:
        """Lose what waits; of the group under way, keep a prefix and cut the commit after it."""
        group, self._group, self._waiting = self._group, [], []
        self._sync_number += 1
        kept = self._stage.dice.randrange(len(group) + 1)
        for persist in group[:kept]:
            self._commit(persist)
            self._stage.reached["durable, but nobody was told"] += 1
        for persist in group[kept : kept + 1]:
            self.volume.inject(Fault.TORN)
            with suppress(StorageError):
                self.volume.commit(persist.writes)
        self.volume.crash()

    def reopen(self) -> None:
        """What a restarted broker finds."""
        if self.volume.reopen().cut_bytes:
            self._stage.reached["a torn write was cut"] += 1

    def lose(self, table: str) -> None:
        """A broker that is down will not find what it kept in this table."""
        self.volume.reopen()
        self.volume.commit([Delete(table, key) for key in self.volume.items(table)])
        self.volume.crash()

    def replace(self, volume: MemoryVolume) -> None:
        """A broker that is down will find this volume instead of its own."""
        self.volume = volume

    @property
    def is_full(self) -> bool:
        return self.volume.size_max is not None

    def fill(self) -> None:
        """From now on there is no room for anything more."""
        self.volume.size_max = 0

    def make_room(self) -> None:
        self.volume.size_max = None

    def heal(self) -> None:
        self.make_room()
        self.sync_fails = False
