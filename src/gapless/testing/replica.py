"""Brokers with a store: two machines for each, a lease, zombies, partitions from the store.

Theory of operation
    Every broker of the world has two machines (`Replica`), each with a disk and a clock of its own.
    One has the lease and runs the node; the other follows the store and waits. `World.processes`
    has whichever took the lease last. Clients know both machines and connect to any that is up, a
    former holder included. Between a machine and the store stands a way that may be cut; a commit
    whose answer is lost may have happened, or happen later, when nobody expects it any more. A
    machine may be *frozen*: it does not notice that its lease has ended and goes on speaking, as a
    virtual machine does whose clock stood still. A holder that is *cut off* from the store when its
    lease ends may go on to say what is settled. A machine may lose its whole disk.

    Commit, fence, stamps and copies are the real ones (`storage.replica`). Only the lease's thread
    and the waits between tries are played.

Invariants (checked while it plays)
    I1  when a machine takes the lease, no other machine speaks, unless that one is frozen or cut
        off
    I2  a commit counts for the checkers from when the store has it: a receipt needs no less

Source: docs/protocols/replicated-commits.md.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gapless.core.effects import Append, Put
from gapless.core.errors import StorageError, StorageFullError
from gapless.core.identity import BrokerName, Instant
from gapless.knowledge.pubend import PROMISES
from gapless.storage.replica.copy import (
    agreed_position,
    catch_up,
    is_ahead,
    keeps_up_to,
    stamp_of,
)
from gapless.storage.replica.mirror import CommitQueue
from gapless.storage.replica.store import StorageFencedError, StoreUnreachableError
from gapless.testing.clock import Clock
from gapless.testing.disk import Disk
from gapless.testing.links import Connection
from gapless.testing.memory_store import MemoryConnection, MemoryStore
from gapless.testing.memory_volume import MemoryVolume
from gapless.testing.process import Process
from gapless.testing.record import Violation
from gapless.testing.world import World

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.core.effects import Effect, Persist, Write
    from gapless.core.identity import ClientName
    from gapless.storage.replica.changes import Changes
    from gapless.storage.replica.copy import CommitStamp
    from gapless.storage.replica.mirror import SentCommit
    from gapless.storage.replica.store import StoreState
    from gapless.testing.links import Client

MILLISECOND = 1_000
LEASE = 600 * MILLISECOND
LEASE_PART = 0.9
RENEWALS = 6
LOOK = 40 * MILLISECOND
RETRY = 30 * MILLISECOND
WAY = 4 * MILLISECOND
DEPTH = 4
"""So many commits may be under way to the store."""
SETTLED_LEFT = 0.9
"""How likely it is, at each look, that a holder without its store has something left to say."""
LATE = 2_000 * MILLISECOND
"""How much later a commit may happen whose sender was cut off."""


class SimulatedConnection(MemoryConnection):
    """The way of one machine to the store."""

    def __init__(self, replica: Replica) -> None:
        super().__init__(replica.world.store)
        self._replica = replica
        self.writes: Sequence[Write] = ()
        """What the next `append` consists of, for the watch."""

    def append(self, name: str, term: int, position: int, changes: Changes) -> None:
        if not self.is_reachable:
            self.perhaps_late(name, term, position, changes, self.writes)
            raise StoreUnreachableError("cut off")
        self._happen(name, term, position, changes, self.writes)

    def perhaps_late(
        self, name: str, term: int, position: int, changes: Changes, writes: Sequence[Write]
    ) -> None:
        """It was on its way over a connection that its sender has given up."""
        world = self._replica.world
        if world.dice.random() < 0.3:
            world.reached["a commit came to the store after its sender was cut off"] += 1
            late = 1 + world.dice.randrange(LATE)
            world.after(late, self._happen_late, name, term, position, changes, writes)

    def _happen_late(
        self, name: str, term: int, position: int, changes: Changes, writes: Sequence[Write]
    ) -> None:
        was, self.is_reachable = self.is_reachable, True
        try:
            self._happen(name, term, position, changes, writes)
        except StorageFencedError:
            self._replica.world.reached["a late commit was fenced"] += 1
        except StoreUnreachableError:
            pass
        finally:
            self.is_reachable = was

    def _happen(
        self, name: str, term: int, position: int, changes: Changes, writes: Sequence[Write]
    ) -> None:
        loses, self.loses_answer = self.loses_answer, False
        super().append(name, term, position, changes)
        self._replica.world.watch.committed(self._replica.process, writes)
        if loses:
            self._replica.world.reached[
                "a commit is in the store, and its sender does not know"
            ] += 1
            raise StoreUnreachableError("the answer is lost")


class ReplicatedDisk(Disk):
    """A disk whose writes are seen when the store has them; several are under way. A crash finds
    some of these on the disk, and their sender does not know which the store has."""

    replica: Replica

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._sent: deque[tuple[list[Persist], list[Write], CommitStamp]] = deque()
        self._connection_number = 0
        """What was sent over an earlier connection gets no answer any more."""
        self._arrives = Instant(0)

    def write(self, persist: Persist) -> None:
        self._waiting.append(persist)
        self._begin()

    def _begin(self) -> None:
        """Send what waits as one commit, unless enough are under way."""
        if not self._waiting or len(self._sent) >= DEPTH:
            return
        group, self._waiting = self._waiting, []
        refused: list[Persist] = []
        if self.is_full:  # it says so before the store has the commit
            refused = [each for each in group if _grows(each)]
            group = [each for each in group if not _grows(each)]
        queue, writes = self.replica.queue, [write for each in group for write in each.writes]
        assert queue is not None
        if self.replica.world.forgets_promises:
            writes = [each for each in writes if not _is_promise(each)]
        if group:
            commit = queue.push(writes)
            self._sent.append((group, writes, queue.stamp_for(commit)))
            if len(self._sent) > 1:
                self._stage.reached["several commits are under way to the store"] += 1
            self._send(queue.stamp.term, commit, writes)
        self._carry_out([effect for each in refused for effect in each.otherwise])

    def _send(self, term: int, commit: SentCommit, writes: list[Write]) -> None:
        world, options = self.replica.world, self.options
        takes = options.sync_min + int(world.dice.random() * options.sync_spread)
        self._arrives = max(self._arrives, Instant(world.now + takes))
        world.at(self._arrives, self._arrive, self._connection_number, term, commit, writes)

    def _arrive(self, number: int, term: int, commit: SentCommit, writes: list[Write]) -> None:
        connection, queue = self.replica.connection, self.replica.queue
        if number != self._connection_number or queue is None:
            connection.perhaps_late(self.replica.name, term, *commit, writes)
            return
        connection.writes = writes
        connection.loses_answer = self._stage.dice.random() < self.replica.world.loss
        try:
            connection.append(self.replica.name, term, *commit)
        except StorageError:
            self._connection_number += 1
            self._stage.after(RETRY, self._resume, self._connection_number)
        else:
            self._settle(queue, 1)
        finally:
            connection.loses_answer = False

    def _resume(self, number: int) -> None:
        """The connection is made anew: ask what is there, and send the rest again."""
        queue = self.replica.queue
        if number != self._connection_number or queue is None:
            return
        try:
            count = queue.count_there(self.replica.connection.state(self.replica.name))
        except StoreUnreachableError:
            self._stage.after(RETRY, self._resume, number)
            return
        except StorageFencedError:
            self._stage.reached["a holder was fenced"] += 1
            self.replica.step_down("fenced")
            return
        rest = list(zip(queue.under_way, self._sent, strict=True))[count:]
        for commit, (_, writes, _) in rest:
            self._send(queue.stamp.term, commit, writes)
        if rest and count:
            self._stage.reached["some of the commits under way were there"] += 1
        self._settle(queue, count)

    def _settle(self, queue: CommitQueue, count: int) -> None:
        """The store has so many more: they become the volume's, and what follows is done."""
        effects: list[Effect] = []
        for _ in range(count):
            group, writes, stamp = self._sent.popleft()
            size_max, self.volume.size_max = self.volume.size_max, None  # there was room
            self.volume.commit([*writes, stamp.fact])
            self.volume.size_max = size_max
            queue.settled(1)
            effects += [effect for persist in group for effect in persist.then]
        self._begin()
        self._carry_out(effects)

    def crash(self) -> None:
        self._waiting = []
        for _ in range(self._stage.dice.randrange(len(self._sent) + 1)):
            _, writes, stamp = self._sent.popleft()
            size_max, self.volume.size_max = self.volume.size_max, None
            with suppress(StorageError):  # the disk fails, and has none of those behind it either
                self.volume.stage([*writes, stamp.fact])
            self.volume.size_max = size_max
        self._sent.clear()
        self._connection_number += 1
        self.volume.crash()


def _grows(persist: Persist) -> bool:
    return any(isinstance(each, Append | Put) for each in persist.writes)


def _is_promise(write: Write) -> bool:
    return isinstance(write, Put) and write.table == PROMISES


class ReplicaProcess(Process):
    """The broker on one machine."""

    replica: Replica

    def crash(self, down_for: int | None = None) -> None:
        self.replica.is_alive = False
        if self.node is None:
            if down_for is not None:
                self.replica.world.after(down_for, self.replica.revive)
            return
        self.stop()
        if down_for is not None:
            self.replica.world.after(down_for, self.replica.revive)

    def stop(self) -> None:
        """The node is gone; what the disk has stays."""
        assert self.node is not None
        self.node = None
        self.incarnation += 1
        self._stage.say(f"{self.name} crash")
        self.disk.crash()
        for connection in list(self.replica.world.links.connections.values()):
            if connection.is_with(self):
                connection.break_off()


class Replica:
    """One machine of a broker: alive or not, with the lease or not."""

    def __init__(self, world: ReplicatedWorld, name: BrokerName, number: int, clock: Clock) -> None:
        self.world = world
        self.name = name
        self.label = f"{name}/{number}"
        self.connection = SimulatedConnection(self)
        self.process = ReplicaProcess(world, world, name, clock, MemoryVolume())
        self.process.incarnation = number * 1_000_000
        self.process.replica = self
        self._make_disk()
        self.is_alive = True
        self.is_frozen = False
        self.is_cut_off = False
        self.queue: CommitQueue | None = None
        self.term = 0
        self.until = world.now
        world.after(1 + world.dice.randrange(LOOK), self._look)

    def _make_disk(self) -> None:
        process = self.process
        disk = ReplicatedDisk(
            self.world, process, process.disk.volume, process.carry_out, process.crash
        )
        disk.replica = self
        process.disk = disk

    @property
    def speaks(self) -> bool:
        return self.process.is_up

    # --- life ------------------------------------------------------------------------------------

    def revive(self) -> None:
        self.is_alive = True

    def thaw(self) -> None:
        """It sees how late it is before it says another word."""
        self.is_frozen = False
        if self.process.is_up and self.world.now >= self.until:
            self.step_down("its lease may have ended")

    def lose_disk(self) -> None:
        """The machine comes back with an empty disk."""
        if self.process.is_up:
            self.process.crash()
        self.process.disk.volume = MemoryVolume()
        self.world.reached["a machine lost its disk"] += 1
        self.world.say(f"{self.label} lost its disk")

    def step_down(self, why: str) -> None:
        self.world.say(f"{self.label} steps down: {why}")
        self.queue = None
        self.is_frozen = self.is_cut_off = False
        if self.process.is_up:
            self.process.stop()

    # --- standing by -----------------------------------------------------------------------------

    def _look(self) -> None:
        self.world.after(1 + self.world.dice.randrange(2 * LOOK), self._look)
        if not self.is_alive or self.process.is_up or not self.connection.is_reachable:
            return
        self.process.disk.volume.reopen()
        store, now = self.world.store, self.world.now
        if not self.world.misses_commits or self.world.dice.random() < 0.2:
            try:
                self._follow()
            except StorageFullError:
                self.world.reached["a copy had no room to follow"] += 1
                return
        if self.world.judges_by_own_clock:
            seen = store.of(self.name)
            own_s = (now + self.process.clock.offset) / 1e6
            if seen.lease_end > own_s:
                return
            seen.lease_end = store.clock()
        grant = self.connection.acquire(self.name, self.label, "", LEASE / 1e6)
        if grant is not None:
            self._hold(grant.term, now)

    def _follow(self) -> None:
        volume, state = self.process.disk.volume, self.connection.state(self.name)
        if state is None:
            return
        if is_ahead(volume, self.connection, self.name, state):
            self._cut_back(volume, state)
        catch_up(volume, self.connection, self.name)

    def _cut_back(self, volume: MemoryVolume, state: StoreState) -> None:
        self.world.reached["commits that never came to the store were cut off"] += 1
        stamp = stamp_of(volume)
        position = stamp and agreed_position(stamp, self.connection, self.name, state)
        assert position is not None, "a store lost nothing"
        if not self.world.keeps_what_never_came:
            volume.cut_back(keeps_up_to(position))
            assert not is_ahead(volume, self.connection, self.name, state), "it was cut off"

    def _hold(self, term: int, asked: Instant) -> None:
        """The lease is ours: read what is left, and run."""
        world = self.world
        for other in world.replicas[self.name]:
            if other is not self and other.speaks:
                if not other.is_frozen and not other.is_cut_off:
                    raise Violation(
                        "one process speaks", f"{self.label} took the lease of {other.label}"
                    )
                world.reached["a zombie spoke while its successor did"] += 1
        volume = self.process.disk.volume
        try:
            if not world.misses_commits or stamp_of(volume) is None:
                self._follow()
        except StorageFullError:
            self.connection.release(self.name, term)
            return
        stamp = stamp_of(volume)
        assert stamp is not None
        self.term, self.until = term, Instant(asked + int(LEASE_PART * LEASE))
        self.queue = CommitQueue(self.name, stamp._replace(term=term), volume.bounds)
        world.say(f"{self.label} holds under term {term}")
        world.reached["a machine took over"] += term > 1
        world.processes[self.name] = self.process
        self.process.start(world.make)
        world.after(LEASE // RENEWALS, self._renew, term)
        world.at(self.until, self._watch, term)

    # --- holding ---------------------------------------------------------------------------------

    def _renew(self, term: int) -> None:
        if term != self.term or not self.process.is_up:
            return
        world = self.world
        world.after(LEASE // RENEWALS, self._renew, term)
        world.after(1 + world.dice.randrange(WAY), self._renewal_arrives, term, world.now)

    def _renewal_arrives(self, term: int, asked: Instant) -> None:
        if term != self.term or not self.process.is_up or not self.connection.is_reachable:
            return
        try:
            self.connection.renew(self.name, term, LEASE / 1e6)
        except StorageFencedError:
            self.step_down("its lease is another's")
        else:
            self.until = Instant(asked + int(LEASE_PART * LEASE))

    def _watch(self, term: int) -> None:
        """Be silent in time."""
        if term != self.term or not self.process.is_up:
            return
        if self.world.now < self.until or self.is_frozen:
            self.is_cut_off = False
            self.world.at(max(self.until, Instant(self.world.now + LOOK)), self._watch, term)
        elif not self.connection.is_reachable and self.world.dice.random() < SETTLED_LEFT:
            self.is_cut_off = True
            self.world.reached["a holder without its store said what is settled"] += 1
            self.world.after(LOOK, self._watch, term)
        else:
            self.world.reached["a holder was silent before its lease ended"] += 1
            self.step_down("its lease may have ended")


class ReplicatedWorld(World):
    """A world in which each broker has two machines and a store."""

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        self.store = MemoryStore(lambda: self.now / 1e6)
        self.loss = 0.05
        """How often the answer to a commit is lost."""
        self.misses_commits = False
        self.judges_by_own_clock = False
        self.forgets_promises = False
        self.keeps_what_never_came = False
        self.replicas: dict[BrokerName, list[Replica]] = {}
        for name, process in list(self.processes.items()):
            offsets = (process.clock.offset, self.dice.randrange(-LEASE, LEASE))
            self.replicas[name] = [
                Replica(self, name, number, Clock(offset)) for number, offset in enumerate(offsets)
            ]
            self.processes[name] = self.replicas[name][0].process

    def start(self) -> None:
        for replica in self.every():
            replica.revive()

    def restart(self, name: BrokerName) -> None:
        for replica in self.replicas[name]:
            replica.revive()

    def every(self) -> list[Replica]:
        return [each for replicas in self.replicas.values() for each in replicas]

    def connect(self, name: ClientName, client: Client, broker: BrokerName) -> Connection | None:
        """To any machine of the broker that is up, whether it still has the lease or not."""
        up = [each.process for each in self.replicas[broker] if each.process.is_up]
        return Connection(self, self.links, name, client, self.dice.choice(up)) if up else None

    def strike(self, rate: float, end: Instant) -> None:
        """From now on, until `end`: something happens to machines so many times a second."""
        delay = int(self.dice.expovariate(rate) * 1_000_000)
        if self.now + delay < end:
            self.after(delay, self._strike, rate, end)

    def _strike(self, rate: float, end: Instant) -> None:
        machines = self.replicas[self.dice.choice(list(self.replicas))]
        holders = [each for each in machines if each.process.is_up]
        replica = self.dice.choice(holders if holders and self.dice.random() < 0.8 else machines)
        lasts = 1 + self.dice.randrange(3 * LEASE)
        kind = self.dice.choice(("cut", "cut", "kill", "freeze", "freeze", "lose"))
        self.say(f"{replica.label} {kind}")
        if kind == "cut":
            self._cut(machines)
        elif kind == "kill":
            replica.process.crash(lasts)
        elif kind == "lose":
            replica.lose_disk()
            self.after(lasts, replica.revive)
        else:
            replica.is_frozen = replica.process.is_up
            replica.connection.is_reachable = False
            self.after(lasts, self._mend, replica)
        self.strike(rate, end)

    def _cut(self, machines: list[Replica]) -> None:
        """Part machines of one broker from the store, in any combination, each for its own time."""
        chosen = self.dice.choice((machines[:1], machines[1:], machines))
        roles = sorted("holder" if each.process.is_up else "standby" for each in chosen)
        self.reached[f"cut off from the store: {' and '.join(roles)}"] += 1
        for each in chosen:
            each.connection.is_reachable = False
            self.after(1 + self.dice.randrange(3 * LEASE), self._mend, each)

    def _mend(self, replica: Replica) -> None:
        replica.connection.is_reachable = True
        self.after(1 + self.dice.randrange(LEASE), replica.thaw)

    def heal(self) -> None:
        for replica in self.every():
            replica.connection.is_reachable = True
            replica.thaw()
            replica.process.disk.heal()
        self.loss = 0.0
        super().heal()
        while not all(process.is_up for process in self.processes.values()):
            self.run(LEASE)
