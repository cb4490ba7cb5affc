"""A miniature world: a random tree of cells that loses, doubles and shuffles, and crashes.

The root publishes; leaves subscribe and unsubscribe. Data and the silence left by filtering are
carried reliably, as the knowledge streams do, but late and out of order, each hop by any live
member of the next cell. Subscription messages get lost. `Planted` breaks one rule on purpose, to
see that `checker` finds out. Times are microseconds.
"""

from __future__ import annotations

import heapq
import random
from typing import TYPE_CHECKING

from gapless.core.broker_messages import (
    Propagated,
    SubscriptionChange,
    SubscriptionNack,
    SubscriptionState,
)
from gapless.core.effects import Persist, Tell
from gapless.core.identity import BrokerName, CellName, Instant
from gapless.core.outgoing import ToBroker, ToCell, ToSiblings
from gapless.filters.filter import Filter
from gapless.propagation.branch import Branch
from gapless.propagation.delivery import DeliveryStart
from gapless.propagation.digest import Announcement, Announcer
from gapless.propagation.leaf import ClockPersisted, Leaf
from gapless.propagation.stamp import Stamp, StampPersisted
from gapless.propagation.sufficiency import Sufficiency
from gapless.testing.memory_volume import MemoryVolume
from tests.bounds import so_long_as
from tests.propagation.actors import NOTHING, Broker, Event, LooseBranch, Planted, Subscription
from tests.propagation.decision import Decision, decide
from tests.propagation.stand import TIMING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gapless.core.events import Value
    from gapless.propagation.actions import Action, Outgoing
    from tests.propagation.checker import Checker

ROOT = CellName("p")
SOURCE = "p"
CONDITIONS = (
    *("s = 'ibm'", "s = 't'", "s LIKE 'n%'", "s LIKE 'ny%'", "s = 'nyse'", "s = 'ibm' AND p > 5"),
    *("p > 5", "p > 7", "p < 3", "s = 't' AND p > 2 OR s = 'ibm' AND p < 2", "s IN ('ibm', 't')"),
    *("s = 'ibm' OR p = 9", "s = 'nasdaq' AND p > 3", "p BETWEEN 3 AND 6", "p = 4"),
)


class World:
    """The tree, its clock and its faults; all dice come from the seed."""

    def __init__(
        self,
        seed: int,
        checker: Checker,
        planted: Planted = NOTHING,
        *,
        leaf_count: int | None = None,
    ) -> None:
        self.dice = random.Random(seed)
        self.checker = checker
        self.planted = planted
        self.now = 0
        self.loss = 0.15
        self.conditions: Sequence[str] = CONDITIONS
        self.leaf_count = leaf_count
        self.checked_every = 1  # one in so many times, where checking would take most of the time
        self.parents: dict[CellName, CellName] = {}
        self.members: dict[CellName, list[Broker]] = {ROOT: [Broker(BrokerName("p"), ROOT)]}
        self.leaves_below: dict[CellName, list[str]] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.event_count = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0
        self._check_number = 0
        self._make_tree()
        for broker in self.brokers():
            self.start(broker)

    # --- the tree -------------------------------------------------------------------------------

    def _make_tree(self) -> None:
        dice = self.dice
        inner = [ROOT]
        for number in range(dice.randint(1, 3)):
            cell = CellName(f"m{number}")
            self.parents[cell] = dice.choice(inner)
            names = [BrokerName(f"{cell}.{member}") for member in range(dice.randint(1, 3))]
            self.members[cell] = [Broker(name, cell) for name in names]
            inner.append(cell)
        bare = [cell for cell in inner[1:] if cell not in self.parents.values()]
        more = dice.randint(1, 3) if self.leaf_count is None else self.leaf_count - len(bare)
        hosts = bare + [dice.choice(inner[1:]) for _ in range(more)]
        for number, parent in enumerate(hosts):
            cell = CellName(f"l{number}")
            self.parents[cell] = parent
            self.members[cell] = [Broker(BrokerName(cell), cell)]
        for cell in self.members:
            self.leaves_below[cell] = []
        for leaf in [cell for cell in self.members if cell.startswith("l")]:
            above: CellName | None = leaf
            while above is not None:
                self.leaves_below[above].append(leaf)
                above = self.parents.get(above)

    def brokers(self) -> list[Broker]:
        return [broker for some in self.members.values() for broker in some]

    def children(self, cell: CellName) -> dict[CellName, list[str]]:
        return {each: self.leaves_below[each] for each, up in self.parents.items() if up == cell}

    def start(self, broker: Broker) -> None:
        """Begin, or begin again, with what is durable."""
        broker.is_up, broker.life = True, broker.life + 1
        broker.announcer = self.make_announcer()
        upstream = self.parents.get(broker.cell)
        broker.sufficiency = self.make_sufficiency(broker)
        if broker.cell.startswith("l"):
            assert upstream is not None
            broker.leaf = Leaf(
                broker.name,
                broker.cell,
                (upstream,),
                broker.volume,
                TIMING,
            )
            broker.starts = self.make_starts(broker)
            mine = {k: s for k, s in self.subscriptions.items() if s.leaf == broker.name}
            survivors = {key: each.condition for key, each in mine.items()}
            self.act(broker, broker.leaf.begin(survivors, Instant(self.now)))
            for key, each in mine.items():
                each.start = broker.leaf.starts[key]
            return
        broker.branch = self.make_branch(broker)
        if broker.cell == ROOT:
            broker.stamp = self.make_stamp(broker)

    def make_announcer(self) -> Announcer:
        return Announcer()

    def make_starts(self, broker: Broker) -> DeliveryStart:
        return DeliveryStart(broker.name)

    def make_sufficiency(self, broker: Broker) -> Sufficiency:
        return Sufficiency(self.children(broker.cell))

    def make_branch(self, broker: Broker) -> Branch:
        below, upstream = self.children(broker.cell), self.parents.get(broker.cell)
        kind = LooseBranch if self.planted.is_constraint_at_least else Branch
        return kind(broker.cell, upstream, below, TIMING)

    def make_stamp(self, broker: Broker) -> Stamp:
        return Stamp(SOURCE, broker.volume)

    def crash(self, broker: Broker) -> None:
        broker.is_up = False
        if broker.leaf is not None:
            for key, each in list(self.subscriptions.items()):
                if each.leaf == broker.name and not each.is_durable:
                    del self.subscriptions[key]
            if self.planted.is_clock_forgotten:
                broker.volume = MemoryVolume()
        if broker.stamp is not None and self.planted.is_stamp_forgotten:
            broker.volume = MemoryVolume()
        self.later(self.dice.randint(1, 400_000), lambda: self.start(broker))

    # --- time -----------------------------------------------------------------------------------

    def later(self, wait: int, step: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._queue, (self.now + wait, self._number, step))

    def run(self, duration: int) -> None:
        end = self.now + duration
        for _ in so_long_as(lambda: self._queue and self._queue[0][0] <= end):
            self.now, _, step = heapq.heappop(self._queue)
            step()
        self.now = end

    def tick(self) -> None:
        """Fire what is due at every broker."""
        now = Instant(self.now)
        for broker in self.brokers():
            if broker.is_up and broker.branch is not None:
                self.act(broker, broker.branch.fire(now))
            elif broker.is_up and broker.leaf is not None:
                self.act(broker, broker.leaf.fire(now))
            self.check(broker)

    def check(self, broker: Broker) -> None:
        self._check_number += 1
        if broker.is_up and self._check_number % self.checked_every == 0:
            machine = broker.branch or broker.leaf
            assert machine is not None
            machine.check()
            broker.sufficiency.check()

    # --- subscriptions --------------------------------------------------------------------------

    def churn(self) -> None:
        """One batch at one leaf."""
        dice = self.dice
        hosts = [each for each in self.brokers() if each.leaf is not None and each.is_up]
        if not hosts:
            return
        broker = dice.choice(hosts)
        gone = [key for key in self.keys_of(broker) if dice.random() < 0.3]
        fresh = [dice.choice(self.conditions) for _ in range(dice.choice((0, 1, 1, 2)))]
        self.update(broker, fresh, gone)

    def keys_of(self, broker: Broker) -> list[str]:
        return [key for key, each in self.subscriptions.items() if each.leaf == broker.name]

    def update(self, broker: Broker, conditions: Iterable[str], gone: Iterable[str]) -> None:
        leaf = broker.leaf
        assert leaf is not None
        fresh: dict[str, Filter] = {}
        for text in conditions:
            self._number += 1
            fresh[f"s{self._number}"] = Filter.parse(text)
        actions = leaf.update(fresh, gone, Instant(self.now))
        for key in gone:
            del self.subscriptions[key]
        for key, condition in fresh.items():
            start = leaf.starts[key]
            durable = self.dice.random() < 0.5
            self.subscriptions[key] = Subscription(broker.name, condition, durable, start)
        self.act(broker, actions)

    def act(self, broker: Broker, actions: Iterable[Action]) -> None:
        for action in actions:
            if isinstance(action, Persist):
                self._persist(broker, action)
            else:
                self.checker.told(broker, action)
                self._send(broker, action)

    def _persist(self, broker: Broker, persist: Persist) -> None:
        life = broker.life

        def done() -> None:
            alive = broker.is_up and broker.life == life
            if not alive and self.dice.random() < 0.5:
                return  # the crash came first
            broker.volume.commit(persist.writes)
            for effect in persist.then if alive else ():
                assert isinstance(effect, Tell)
                if isinstance(effect.message, ClockPersisted) and broker.leaf is not None:
                    self.act(broker, broker.leaf.persisted(effect.message, Instant(self.now)))
                elif isinstance(effect.message, StampPersisted) and broker.stamp is not None:
                    self.act(broker, broker.stamp.persisted(effect.message))

        self.later(self.dice.randint(500, 20_000), done)

    def _send(self, broker: Broker, action: Outgoing) -> None:
        match action:
            case ToCell(cell, message):
                live = [each for each in self.members[cell] if each.is_up]
                if live and self.dice.random() < 0.2:  # a link is cut: not the first one
                    self.dice.shuffle(live)
                targets = live[:1]
            case ToBroker(name, message):
                targets = [each for each in self.brokers() if each.name == name]
            case ToSiblings(message):
                targets = [each for each in self.members[broker.cell] if each is not broker]
        for target in targets:
            while self.dice.random() > self.loss:
                wait = self.dice.randint(1_000, 60_000)
                self.later(wait, lambda to=target: self._receive(to, broker, message))  # type: ignore[misc]
                if self.dice.random() < 0.9:
                    break  # else it comes twice

    def _receive(self, broker: Broker, sender: Broker, message: Propagated) -> None:
        if not broker.is_up:
            return
        now, sibling = Instant(self.now), sender.cell == broker.cell
        if broker.leaf is not None:
            assert isinstance(message, SubscriptionNack)
            self.act(broker, broker.leaf.receive_nack(sender.name, now))
            return
        branch = broker.branch
        assert branch is not None
        match message:
            case SubscriptionChange():
                out = branch.receive_change(message, now, from_sibling=sibling)
            case SubscriptionState():
                out = branch.receive_state(message, now, from_sibling=sibling)
            case SubscriptionNack():
                out = branch.receive_nack(sender.name, message, now)
        broker.sufficiency.advance(branch.vector)
        self.check(broker)
        self.act(broker, out)

    # --- data -----------------------------------------------------------------------------------

    def publish(self) -> None:
        [root] = self.members[ROOT]
        if not root.is_up:
            return
        assert root.stamp is not None
        assert root.branch is not None
        self.act(root, root.stamp.advance(root.branch.vector))
        root.stamp.check()
        values: dict[str, Value] = {
            "s": self.dice.choice(["ibm", "t", "nyse", "nasdaq", "x"]),
            "p": self.dice.randint(0, 9),
        }
        self.event_count += 1
        event = Event(self.event_count, values, root.stamp.digest, root.stamp.vector)
        self.checker.published(event)
        self.adopt(root)
        self.carry(root, event, Announcement(None), is_silence=False)

    def adopt(self, root: Broker) -> None:
        """The publishers' broker takes in its own stamp."""
        assert root.stamp is not None
        root.sufficiency.learn(SOURCE, *root.stamp.known)

    def carry(self, broker: Broker, event: Event, said: Announcement, is_silence: bool) -> bool:
        """A broker has an event, or the silence in its place: pass it on. Is its vector known?"""
        known = broker.sufficiency.learn(SOURCE, event.digest, said.vector, said.base)
        if broker.leaf is not None:
            self.arrive(broker, event, is_silence)
            return known
        assert broker.branch is not None
        if known:
            highest = broker.sufficiency.dictionary.known[SOURCE]
            broker.branch.notice(highest.vector, Instant(self.now))
        for cell in self.children(broker.cell):
            decision = self.decide(broker, cell, event)
            if not is_silence:
                self.checker.decided(self, broker, cell, event, decision)
            self.pass_on(broker, cell, event, is_silence or not decision.passes)
        return known

    def decide(self, broker: Broker, cell: CellName, event: Event) -> Decision:
        assert broker.branch is not None
        sufficient = broker.sufficiency.test(SOURCE, event.digest, cell)
        if self.planted.is_filter_trusted:
            sufficient = True
        return decide(sufficient, broker.branch.matches(cell, event.attributes))

    def pass_on(self, broker: Broker, cell: CellName, event: Event, is_silence: bool) -> None:
        live = [each for each in self.members[cell] if each.is_up]
        if not live:
            self.later(50_000, lambda: self.pass_on(broker, cell, event, is_silence))
            return
        target = self.dice.choice(live)
        said = self.announced(broker, target, event)
        wait = self.dice.randint(500, 40_000)
        self.later(wait, lambda: self._reach(broker, target, event, said, is_silence))

    def announced(self, broker: Broker, target: Broker, event: Event) -> Announcement:
        """What goes along with the event's digest."""
        highest = broker.sufficiency.dictionary.known.get(SOURCE)
        if highest is None or highest.digest != event.digest:
            return Announcement(None)
        return broker.announcer.announce(target.name, SOURCE, highest)

    def _reach(
        self, sender: Broker, broker: Broker, event: Event, said: Announcement, is_silence: bool
    ) -> None:
        if not broker.is_up:
            self.pass_on(sender, broker.cell, event, is_silence)  # sent again, to whom it may
            return
        if not self.carry(broker, event, said, is_silence):
            sender.announcer.receive_nack(broker.name, SOURCE)

    def arrive(self, broker: Broker, event: Event, is_silence: bool) -> None:
        leaf, starts = broker.leaf, broker.starts
        assert leaf is not None
        assert starts is not None
        if not is_silence:
            self.checker.arrived(broker.name, event)
        known = broker.sufficiency.dictionary.known.get(SOURCE)
        if known is not None:
            starts.learn(SOURCE, known.digest, known.vector)
        starts.see(SOURCE, SOURCE, event.number, event.digest)
        for each in self.subscriptions.values():
            if each.leaf == broker.name and each.first is None:
                first = starts.start_of(SOURCE, each.start)
                each.first = event.number if self.planted.is_start_early else first
        time = starts.time_of(SOURCE, event.digest)
        if time is not None:
            self.act(broker, leaf.see(SOURCE, time, Instant(self.now)))
