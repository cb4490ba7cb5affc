"""The lease of a broker whose commits go to a store: stand by, hold, stop speaking in time.

Theory of operation
    `Standby` keeps a local volume up to date with the store and asks for the lease, again and
    again. When it has the lease it brings the volume up to date once more, for no other process can
    commit from then on, and returns a `Holding`: the volume, its mirror, and the lease.
    A thread renews the lease. `Lease.until_s` is when it may have ended: the lease is counted from
    before the request was sent, and a tenth is left for clocks that differ. The broker looks at it
    before each write to connections, and a few times in each lease. Once it has passed the broker
    is silent, and once the store says that another process holds the name, the broker ends. The
    lease is still asked for: under the same term it can begin anew, for nobody had it in between.
    A holder that asked after its lease had ended, and found that the store cannot be reached, is
    *cut off*: it may say what is settled (`drift`).

Invariants
    I1  the volume of a `Holding` has every commit of earlier terms
    I2  `until_s` is never later than the end of the lease by the store's clock, as long as the two
        clocks' rates differ by less than a tenth

Threads: a `Standby` belongs to one thread, apart from `stop`. `Lease.has_ended` is for any.
Source: docs/protocols/replicated-commits.md, 6, 7 and 10.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from gapless.broker.logs import logger
from gapless.core.errors import (
    StorageCorruptError,
    StorageError,
    StorageFullError,
    UsageError,
)
from gapless.storage.disk import DiskVolume
from gapless.storage.replica.copy import (
    agreed_position,
    catch_up,
    is_ahead,
    keeps_up_to,
    stamp_of,
)
from gapless.storage.replica.mirror import StoreMirror
from gapless.storage.replica.store import (
    NO_STATE,
    StorageFencedError,
    StoreUnreachableError,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gapless.storage.replica.store import CommitStore, Grant, StandbyState, StoreState

LEASE_PART = 0.9
RENEWALS = 10
"""In each lease."""
NOTE_S = 1.0
"""How often a standby tells the store that it lives."""

JOIN_S = 0.5
"""How long to wait for a renewal that is under way."""

ENDED = "the lease may have ended: the store has not answered for too long"


def now_s() -> float:
    """Seconds that also pass while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(frozen=True, kw_only=True)
class StoreOptions:
    """Which store, under which name, and how patient."""

    connect: Callable[[], CommitStore]
    name: str
    address: str = ""
    """Where clients find this process."""
    lease_s: float = 2.5
    """How long after a crash of the holder a standby waits."""
    look_s: float = 0.1
    """How often a standby asks for the lease."""
    process: str = f"{socket.gethostname()}:{os.getpid()}"

    def __post_init__(self) -> None:
        if not 0.5 <= self.lease_s <= 3600:
            raise UsageError("a lease takes 0.5 to 3600 seconds")


class Lease:
    """A lease that was given, renewed until it is released or lost."""

    def __init__(self, options: StoreOptions, grant: Grant, asked_s: float) -> None:
        """`asked_s`: before the request was sent."""
        self.term = grant.term
        self.problem = ""
        """Why it could not be renewed just now; empty if it could."""
        self.standbys: tuple[StandbyState, ...] = ()
        """As they were at the last renewal."""
        self.is_to_leave = False
        """Was the holder asked to hand over?"""
        self._options = options
        self._store = options.connect()
        self._stop = threading.Event()
        self.is_lost = False
        """Does another process have the name, or did we let go of it?"""
        self._missed_s = -inf
        self._is_over = False
        self.until_s = asked_s + LEASE_PART * options.lease_s
        self._thread = threading.Thread(target=self._run, name="gapless-lease", daemon=True)
        self._thread.start()

    def has_ended(self) -> bool:
        """May another process have the name?"""
        return self.is_lost or now_s() >= self.until_s

    @property
    def is_cut_off(self) -> bool:
        """Could the store not be reached, when it was asked after the lease had ended?"""
        return not self.is_lost and self._missed_s >= self.until_s

    def _run(self) -> None:
        options = self._options
        pause_s = options.lease_s / RENEWALS
        while not self._stop.wait(pause_s) and not self.is_lost:
            asked_s = now_s()
            try:
                self._store.renew(options.name, self.term, options.lease_s)
                state = self._store.state(options.name)
            except StoreUnreachableError as error:
                self.problem = error.problem
                self._missed_s = asked_s
            except StorageError as error:
                self.problem = error.problem
                self.is_lost = True
            else:
                self.problem = ""
                self.standbys = state.standbys if state else ()
                self.is_to_leave = state is not None and state.leaving == self.term
                self.until_s = asked_s + LEASE_PART * options.lease_s

    def end(self) -> None:
        """Renew it no more, and let another process have it at once, if the store can be told. Fine
        to repeat."""
        if self._is_over:
            return
        self._is_over = True
        self._stop.set()
        self._thread.join(JOIN_S)
        if self._thread.is_alive():  # it waits for a store that does not answer
            self._store.interrupt()
            self._thread.join()
        if not self.problem:
            with suppress(StorageError):
                self._store.release(self._options.name, self.term)
        self.is_lost = True
        self._store.close()


class Holding:
    """What a broker needs to run under a lease."""

    def __init__(
        self, options: StoreOptions, volume: DiskVolume, lease: Lease, mirror: StoreMirror
    ) -> None:
        self.options = options
        self.volume = volume
        self.lease = lease
        self.mirror = mirror

    @property
    def watch_s(self) -> float:
        """How often to look whether the lease has ended."""
        return self.options.lease_s / 30

    def has_ended(self) -> bool:
        return self.lease.has_ended()

    @property
    def is_lost(self) -> bool:
        return self.lease.is_lost

    @property
    def is_cut_off(self) -> bool:
        return self.lease.is_cut_off

    @property
    def must_be_silent(self) -> bool:
        """Must nothing be said, not even what is settled?"""
        return self.lease.has_ended() and not self.lease.is_cut_off

    def ended(self) -> StorageFencedError:
        """Why the broker cannot go on."""
        return StorageFencedError(self.lease.problem or ENDED)

    @property
    def standby_addresses(self) -> list[str]:
        """Where clients will find the processes that stand by, as far as they told it."""
        return [each.address for each in self.lease.standbys if each.address]

    def stop(self) -> None:
        """Commit nothing more; a commit that waits for the store fails. Fine to repeat."""
        self.mirror.stop()

    def release(self) -> None:
        """Let another process take over. Blocks for a round trip."""
        self.mirror.stop()
        self.lease.end()

    def close(self) -> None:
        """Release it, and let go of the volume and the store. Fine to repeat."""
        self.release()
        self.mirror.close()
        self.volume.close()

    def statistics(self) -> dict[str, object]:
        return {
            "term": self.lease.term,
            "position": self.mirror.position,
            "waits": self.mirror.waits,
            "problem": self.mirror.problem or self.lease.problem,
            "standbys": [
                {
                    "process": each.process,
                    "address": each.address,
                    "lag": max(0, self.mirror.position - each.position),
                    "seen_s": round(each.seen_s, 1),
                }
                for each in self.lease.standbys
            ],
        }


class Standby:
    """A warm copy that waits for the lease. Use it in a `with`; see the module docstring."""

    def __init__(self, options: StoreOptions, folder: Path) -> None:
        self._options = options
        self._folder = folder
        self._store = options.connect()
        self._stop = threading.Event()
        self._noted_s = 0.0
        self._is_reached = True
        self._volume: DiskVolume | None = DiskVolume(folder)

    def wait(self) -> Holding | None:
        """Block until this process is the holder; None if it was told to stop."""
        while not self._stop.is_set():
            try:
                if holding := self._look():
                    self._volume = None
                    return holding
                self._is_reached = True
            except StoreUnreachableError as error:
                if self._is_reached:
                    logger.warning("the store cannot be reached", extra={"reason": error.problem})
                self._is_reached = False
            except StorageFullError as error:
                if self._is_reached:
                    logger.error("the copy has no room to follow", extra={"reason": error})
                self._is_reached = False
            self._stop.wait(self._options.look_s)
        return None

    def stop(self) -> None:
        """From any thread."""
        self._stop.set()

    def close(self) -> None:
        """Let go of what was not handed over. Fine to repeat."""
        self._store.close()
        if self._volume is not None:
            self._volume.close()
            self._volume = None

    def _look(self) -> Holding | None:
        """Follow the store, and take the lease if nobody has it."""
        options = self._options
        self._follow()
        asked_s = now_s()
        grant = self._store.acquire(options.name, options.process, options.address, options.lease_s)
        if grant is None:
            if asked_s >= self._noted_s + NOTE_S:
                self._noted_s = asked_s
                self._note()
            return None
        lease = Lease(options, grant, asked_s)
        try:
            volume = self._follow()
            stamp = catch_up(volume, self._store, options.name)
            mirror = StoreMirror(
                options.connect(), options.name, stamp._replace(term=grant.term), volume
            )
        except BaseException:
            lease.end()
            raise
        volume.mirror = mirror
        logger.info("took the lease", extra={"broker": options.name, "term": grant.term})
        return Holding(options, volume, lease, mirror)

    def _note(self) -> None:
        assert self._volume is not None
        stamp, options = stamp_of(self._volume), self._options
        position = stamp.position if stamp else 0
        self._store.stand_by(options.name, options.process, options.address, position)

    def _follow(self) -> DiskVolume:
        """Bring the volume up to date; what the store does not have is cut off."""
        assert self._volume is not None
        name, stamp = self._options.name, stamp_of(self._volume)
        state = self._store.state(name)
        if is_ahead(self._volume, self._store, name, state or NO_STATE):
            self._cut_back(state or NO_STATE)
        elif state is None or (stamp is not None and stamp.position == state.position):
            return self._volume
        if state is not None:
            catch_up(self._volume, self._store, name)
        return self._volume

    def _cut_back(self, state: StoreState) -> None:
        """The volume has commits that never came to the store: it loses them."""
        assert self._volume is not None
        name, stamp = self._options.name, stamp_of(self._volume)
        position = stamp and agreed_position(stamp, self._store, name, state)
        self._volume.close()
        if stamp is None or position is None:
            self._set_aside()
            return
        try:
            self._volume = DiskVolume(self._folder, keeps=keeps_up_to(position))
        except StorageCorruptError:
            self._set_aside()
            return
        logger.info(
            "commits that never came to the store were cut off",
            extra={"broker": name, "kept": position, "had": stamp.position},
        )

    def _set_aside(self) -> None:
        aside = self._folder.with_name(f"{self._folder.name}.ahead-{time.time_ns()}")
        self._folder.rename(aside)
        logger.error(
            "the local volume has commits that the store has not: the store counts",
            extra={"broker": self._options.name, "aside": aside},
        )
        self._volume = DiskVolume(self._folder)
