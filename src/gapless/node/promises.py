"""Promises: how far each pubend may have spoken, kept by brokers other than its host.

Theory of operation
    A host that lost its disk, or was given an older copy of it, cannot know that by itself. So its
    pubends tell their promises to every broker that hosts subscribers, and these keep them on disk:
    as the host starts, after the first event of that life, and then at most once in
    `promise_told_every` while events come. An idle topic costs nothing.
    The answer says what the pubend had promised in runs before (`before`). If that is more than the
    disk of the host knows, the disk is not the one that the host had last: what lies between is
    lost (`knowledge.past`). A broker answers each run alike, however often it is asked.
    After its start a host waits for all answers, at most for `dead_after`. It publishes meanwhile,
    but says nothing of the doubtful span, and opens no publisher and no transaction that it does
    not know. A broker that comes later is heard all the same.

Invariants (checked by `check`)
    I1  a host tells nothing that is not on its own disk
    I2  while a pubend waits for answers there is a deadline

Cost: one message and one small fact for each pubend, broker and `promise_told_every`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct
from typing import TYPE_CHECKING

from gapless.core.broker_messages import PromiseKept, PromiseTold
from gapless.core.effects import Persist, Put, Tell
from gapless.core.identity import Instant, PubendName
from gapless.core.messages import Message
from gapless.core.ticks import TICK_MAX

if TYPE_CHECKING:
    from gapless.core.effects import Effect
    from gapless.core.identity import BrokerName, CellName
    from gapless.core.store import Store
    from gapless.knowledge.pubend import Pubend
    from gapless.node.config import Config
    from gapless.node.epoch import Epoch
    from gapless.node.network import Network

KEPT = "kept promises"
"""Table on disk: of each pubend of another host what it has promised, below which tick nothing was
published, and of its last runs what was promised before them."""

HEAD, RUN = Struct("<qq"), Struct("<qq")

RUNS_MAX = 4
"""Runs of a host that are told apart. Messages of older ones are no longer on their way."""

REPEAT_LONGEST = 16
"""A broker that does not answer is told again after `start_repeat`, then up to so many times as
long."""


class PromisePersisted(Message, frozen=True):
    """To ourselves: a promise of another host is durable here."""

    kept: PromiseKept


@dataclass(slots=True)
class Telling:
    """One pubend that is hosted here: which brokers have not answered yet."""

    pubend: Pubend
    cells: dict[CellName, None]
    hearing_end: Instant
    due: Instant
    pause: int
    told: int = 0  # the last tick that was told
    next_at: Instant = field(default=Instant(0))  # when a new promise may be told


class Promises:
    """What one broker tells of its own pubends, and keeps for those of others."""

    def __init__(
        self, name: BrokerName, network: Network, config: Config, store: Store, epoch: Epoch
    ) -> None:
        self.network = network
        self.config = config
        self.store = store
        self.epoch = epoch
        self.here = network.cell_of[name].name
        self.tellings: dict[PubendName, Telling] = {}
        self.deadline: Instant | None = None

    @property
    def keepers(self) -> list[CellName]:
        """The cells that keep promises of this host."""
        return [
            cell.name for cell in self.network.cells if cell.subscribers and cell.name != self.here
        ]

    # --- at the host ------------------------------------------------------------------------------

    def add(self, pubend: Pubend, now: Instant) -> None:
        """Tell the promise of a pubend that begins a life here."""
        if cells := dict.fromkeys(self.keepers):
            end = Instant(now + self.config.dead_after)
            pause = self.config.start_repeat
            self.tellings[pubend.name] = Telling(pubend, cells, end, now, pause)
            self.deadline = now

    def remove(self, pubend: PubendName) -> None:
        self.tellings.pop(pubend, None)

    def hurry(self, now: Instant) -> None:
        """Messages may be lost: tell again what was not answered, now."""
        for telling in self.tellings.values():
            if telling.cells:
                telling.due, telling.pause = now, self.config.start_repeat
                self.deadline = now

    def published(self, pubend: PubendName, now: Instant) -> None:
        """Events became durable: tell how far the pubend has spoken, unless that was lately."""
        telling = self.tellings.get(pubend)
        if telling is None or now < telling.next_at or telling.pubend.vouched <= telling.told:
            return
        telling.next_at = Instant(now + self.config.promise_told_every)
        telling.cells = dict.fromkeys(self.keepers)
        telling.due, telling.pause = now, self.config.start_repeat
        self.deadline = now

    def fire(self, now: Instant) -> list[PromiseTold]:
        """What is to be told now."""
        if self.deadline is None or now < self.deadline:
            return []
        out, run = list[PromiseTold](), self.epoch.number
        for name, telling in self.tellings.items():
            pubend, past = telling.pubend, telling.pubend.past
            if past.is_hearing and telling.hearing_end <= now:
                pubend.end_hearing()
            if not telling.cells or now < telling.due:
                continue
            telling.due = Instant(now + telling.pause)
            telling.pause = min(2 * telling.pause, REPEAT_LONGEST * self.config.start_repeat)
            if not past.is_durable or not self.epoch.is_durable:
                telling.due = Instant(now + self.config.gap_patience)
                continue
            telling.told = min(pubend.vouched, TICK_MAX)
            out += [
                PromiseTold(name, cell, run, telling.told, past.silent_below)
                for cell in telling.cells
            ]
        self._arm()
        return out

    def _arm(self) -> None:
        waiting = [
            min(each.due, each.hearing_end) if each.pubend.past.is_hearing else each.due
            for each in self.tellings.values()
            if each.cells
        ]
        self.deadline = min(waiting, default=None)

    def receive_kept(self, kept: PromiseKept, now: Instant) -> list[Effect]:
        """A broker has kept a promise, and says what it knew before."""
        telling = self.tellings.get(kept.pubend)
        if telling is None or kept.run != self.epoch.number:
            return []
        telling.cells.pop(kept.cell, None)
        effects = telling.pubend.recall(kept.before, now)
        if not telling.cells:
            telling.pubend.end_hearing()
        if effects:  # what was told before no longer holds
            telling.cells = dict.fromkeys(self.keepers)
            telling.due = now
        self._arm()
        return effects

    # --- at the brokers that keep them ------------------------------------------------------------

    def keep(self, told: PromiseTold) -> list[Effect]:
        """Keep the promise of a pubend of another host, and answer when it is durable."""
        fact = self.store.get(KEPT, told.pubend)
        tick, _, runs = decode(fact) if fact else (0, 0, {})
        before = runs.setdefault(told.run, tick)
        runs = dict(list(runs.items())[-RUNS_MAX:])
        pairs = b"".join(RUN.pack(*each) for each in runs.items())
        new = HEAD.pack(max(tick, told.tick), told.silent_below) + pairs
        kept = PromiseKept(told.pubend, told.cell, told.run, before)
        writes = () if new == fact else (Put(KEPT, told.pubend, new),)
        return [Persist(writes, (Tell(PromisePersisted(kept)),))]

    def silent_below(self, pubend: PubendName) -> int:
        """Before this tick nothing was ever published to a pubend of another host, as it says."""
        fact = self.store.get(KEPT, pubend)
        return decode(fact)[1] if fact else 0

    def check(self) -> None:
        for telling in self.tellings.values():
            assert telling.told <= telling.pubend.vouched, "I1"
            is_waiting = telling.pubend.past.is_hearing and bool(telling.cells)
            assert not is_waiting or self.deadline is not None, "I2"


def decode(fact: bytes) -> tuple[int, int, dict[int, int]]:
    tick, silent_below = HEAD.unpack_from(fact)
    return tick, silent_below, dict(RUN.iter_unpack(fact[HEAD.size :]))
