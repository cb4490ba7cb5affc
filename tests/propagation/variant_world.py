"""The miniature world with the variants of section 3.7: silence is doubted and asked for again.

`goes_back`: the stamp persists nothing. `history_max`: empty changes stay below; then every message
and every silence carries its whole vector, because a broker on the way may raise it. Nacks with a
minimum may get lost; a leaf asks until it knows. Answers go to the broker that asked.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gapless.core.identity import Instant
from gapless.core.ticks import Span
from gapless.propagation.digest import Announcement
from gapless.propagation.stamp import Stamp
from gapless.propagation.sufficiency import Sufficiency, is_sufficient
from gapless.propagation.vector import join
from tests.propagation.actors import NOTHING, Broker, EndlessHistory, Event, LooseHistory
from tests.propagation.decision import decide
from tests.propagation.requirement import Requirement, digest_of_answer, reaches
from tests.propagation.stand import TIMING
from tests.propagation.variants import (
    FrugalBranch,
    LifeAnnouncer,
    LifeKnown,
    LifeStart,
    LifeSufficiency,
    SoftStamp,
    knows_exactly,
    may_start,
)
from tests.propagation.world import ROOT, SOURCE, World

if TYPE_CHECKING:
    from gapless.core.broker_messages import Vector
    from gapless.core.identity import CellName
    from gapless.propagation.branch import Branch
    from gapless.propagation.delivery import DeliveryStart
    from gapless.propagation.digest import Announcer
    from tests.propagation.actors import Planted
    from tests.propagation.decision import Decision
    from tests.propagation.variant_checker import VariantChecker

CACHED_MAX = 50
ASK_AGAIN_US = 100_000


@dataclass(frozen=True)
class Variant:
    """What differs from the plain protocol."""

    goes_back: bool = False
    history_max: int = 0


class VariantWorld(World):
    """See the module docstring."""

    checker: VariantChecker

    def __init__(
        self, seed: int, checker: VariantChecker, variant: Variant, planted: Planted = NOTHING
    ) -> None:
        self.variant = variant
        self.asked = 0
        self._asked_last = 0
        super().__init__(seed, checker, planted)

    # --- brokers --------------------------------------------------------------------------------

    def make_announcer(self) -> Announcer:
        return LifeAnnouncer() if self.variant.goes_back else super().make_announcer()

    def make_starts(self, broker: Broker) -> DeliveryStart:
        return LifeStart(broker.name) if self.variant.goes_back else super().make_starts(broker)

    def make_sufficiency(self, broker: Broker) -> Sufficiency:
        kind = LifeSufficiency if self.variant.goes_back else Sufficiency
        return kind(self.children(broker.cell))

    def make_branch(self, broker: Broker) -> Branch:
        history_max = self.variant.history_max
        if not history_max:
            return super().make_branch(broker)
        below, upstream = self.children(broker.cell), self.parents.get(broker.cell)
        branch = FrugalBranch(broker.cell, upstream, below, TIMING, history_max=history_max)
        if branch.history is not None and self.planted.is_history_a_range:
            branch.history = LooseHistory(branch.leaves, history_max)
        if branch.history is not None and self.planted.is_history_endless:
            branch.history = EndlessHistory(branch.leaves, 1_000_000)
        return branch

    def make_stamp(self, broker: Broker) -> Stamp:
        first = max(self.now, 1)
        if self.variant.goes_back:
            return SoftStamp(SOURCE, first=first)
        return Stamp(SOURCE, broker.volume, first=first)

    def start(self, broker: Broker) -> None:
        super().start(broker)
        broker.cache, broker.curious, broker.newest = {}, {}, (0, 0)
        if broker.leaf is None:
            return
        broker.requirement = Requirement(broker.name)
        for each in self.subscriptions.values():
            if each.leaf == broker.name and each.first is not None:
                broker.requirement.start(SOURCE, each.first, each.start)

    def tick(self) -> None:
        super().tick()
        for broker in self.brokers():
            if broker.branch is not None:
                self.checker.remembered(broker, self.variant.history_max)
            if broker.requirement is not None:
                broker.requirement.check()
        if self.now >= self._asked_last + ASK_AGAIN_US:
            self._asked_last = self.now
            for broker in self.brokers():
                for number, minimum in list(broker.doubts.items()):
                    if broker.is_up:
                        self._ask(broker, number, minimum)

    def adopt(self, root: Broker) -> None:
        if isinstance(root.sufficiency, LifeSufficiency) and isinstance(root.stamp, SoftStamp):
            root.sufficiency.adopt(SOURCE, root.stamp.known)
        else:
            super().adopt(root)

    # --- downwards ------------------------------------------------------------------------------

    def carry(self, broker: Broker, event: Event, said: Announcement, is_silence: bool) -> bool:
        known = event.digest == 0 or broker.sufficiency.learn(
            SOURCE, event.digest, said.vector, said.base
        )
        if broker.leaf is not None:
            self.arrive(broker, event, is_silence)
            return known
        branch = broker.branch
        assert branch is not None
        if isinstance(branch, FrugalBranch):
            event = replace(event, vector=branch.raised(event.vector))
            branch.notice(event.vector, Instant(self.now))
        elif SOURCE in broker.sufficiency.dictionary.known:
            highest = broker.sufficiency.dictionary.known[SOURCE]
            branch.notice(highest.vector, Instant(self.now))
        self._keep(broker, event, is_silence)
        if event.requested:
            self._answer(broker, event, is_silence)
            return known
        for cell in self.children(broker.cell):
            silent = self._filter(broker, cell, event, is_silence)
            self.pass_on(broker, cell, event, silent)
        return known

    def _filter(self, broker: Broker, cell: CellName, event: Event, is_silence: bool) -> bool:
        """Does silence go to this child?"""
        if not is_silence:
            decision = self._decide_variant(broker, cell, event)
            self.checker.reasons[decision.because] += 1
            is_silence = not decision.passes
        if is_silence:
            self.checker.silenced(self, broker, cell, event)
        return is_silence

    def _decide_variant(self, broker: Broker, cell: CellName, event: Event) -> Decision:
        branch = broker.branch
        assert branch is not None
        if self.variant.history_max:
            below = self.leaves_below[cell]
            test = is_sufficient if self.planted.is_test_at_least else knows_exactly
            sufficient = test(branch.vector, event.vector, below)
            return decide(sufficient, branch.matches(cell, event.attributes))
        return self.decide(broker, cell, event)

    def _keep(self, broker: Broker, event: Event, is_silence: bool) -> None:
        kept = broker.cache.get(event.number)
        if kept is not None and is_silence and not kept[1]:
            return  # an event is better than silence
        broker.cache[event.number] = event, is_silence
        if len(broker.cache) > CACHED_MAX:
            del broker.cache[min(broker.cache)]

    # --- asking again ---------------------------------------------------------------------------

    def _ask(self, broker: Broker, number: int, minimum: Vector) -> None:
        """Ask some member of the cell above, on an unreliable link."""
        live = [each for each in self.members[self.parents[broker.cell]] if each.is_up]
        if not live or self.dice.random() < self.loss:
            return
        self.asked += 1
        target = self.dice.choice(live)
        wait = self.dice.randint(500, 20_000)
        self.later(wait, lambda: self._receive_nack(target, broker, number, minimum))

    def _receive_nack(self, broker: Broker, asker: Broker, number: int, minimum: Vector) -> None:
        if not broker.is_up:
            return
        asking = broker.curious.setdefault(number, {})
        asking[asker.name] = join(asking.get(asker.name, {}), minimum)
        if broker.cell == ROOT:
            self._answer_at_root(broker, number, minimum)
            return
        kept = broker.cache.get(number)
        if kept is None:
            self._ask(broker, number, minimum)
            return
        self._answer(broker, *kept)
        if number in broker.curious:
            self._ask(broker, number, minimum)

    def _vector_of(self, broker: Broker, event: Event) -> Vector | None:
        """What a broker knows of the vector of what it keeps."""
        if self.variant.history_max:
            return event.vector
        known = broker.sufficiency.dictionary.known.get(SOURCE)
        return known.vector if known is not None and known.digest == event.digest else None

    def _answer_at_root(self, root: Broker, number: int, minimum: Vector) -> None:
        stamp = root.stamp
        assert stamp is not None
        if not self.planted.is_minimum_ignored:
            self.act(root, stamp.advance(minimum))
            if not reaches(stamp.vector, minimum):
                return  # not durable yet; it will be asked again
        self.adopt(root)
        event = self.checker.events[number - 1]
        event = replace(event, digest=stamp.digest, vector=stamp.vector, requested=True)
        self.checker.stamped(event)
        self.carry(root, event, Announcement(None), is_silence=False)

    def _answer(self, broker: Broker, event: Event, is_silence: bool) -> None:
        """Send what was asked for to those who did, if it will do for them."""
        vector = self._vector_of(broker, event)
        asking = broker.curious.pop(event.number, {})
        for name, asked in asking.items():
            minimum = {} if self.planted.is_minimum_ignored else asked
            if is_silence and not reaches(vector, minimum):
                broker.curious.setdefault(event.number, {})[name] = asked
                continue
            digest = digest_of_answer(event.digest, vector, minimum)
            vectors = join(event.vector, minimum)
            passing = replace(event, digest=digest, vector=vectors, requested=True)
            [asker] = [each for each in self.brokers() if each.name == name]
            silent = self._filter(broker, asker.cell, passing, is_silence)
            self.checker.answered(broker, passing, silent, asked)
            said = self.announced(broker, asker, passing)
            wait = self.dice.randint(500, 40_000)
            step = (broker, asker, passing, said, silent)
            self.later(wait, lambda step=step: self._reach_asker(*step))  # type: ignore[misc]

    def _reach_asker(
        self, sender: Broker, asker: Broker, event: Event, said: Announcement, is_silence: bool
    ) -> None:
        if asker.is_up and not self.carry(asker, event, said, is_silence):
            sender.announcer.receive_nack(asker.name, SOURCE)

    # --- at a leaf ------------------------------------------------------------------------------

    def arrive(self, broker: Broker, event: Event, is_silence: bool) -> None:
        leaf, requirement = broker.leaf, broker.requirement
        assert leaf is not None
        assert requirement is not None
        time = self._own_time(broker, event)
        if not is_silence:
            self.checker.arrived(broker.name, event)
            broker.doubts.pop(event.number, None)
        elif not (event.requested and event.number not in broker.doubts):
            span = Span(event.number, event.number + 1)
            doubt = requirement.see(SOURCE, span, time)
            if doubt is None or self.planted.is_silence_believed:
                broker.doubts.pop(event.number, None)
            else:
                is_new = event.number not in broker.doubts
                broker.doubts[event.number] = doubt.minimum
                if is_new:
                    self._ask(broker, event.number, doubt.minimum)
        before, broker.seen_below = broker.seen_below, max(broker.seen_below, event.number + 1)
        if time is None or event.requested:
            return
        self._start_subscriptions(broker, event, time, before)
        self.act(broker, leaf.see(SOURCE, time, Instant(self.now)))

    def _own_time(self, broker: Broker, event: Event) -> int | None:
        """The leaf's element, if it knows that; it takes note of a stamp that went back."""
        assert broker.leaf is not None
        assert broker.starts is not None
        if self.variant.history_max:
            time = event.vector.get(broker.name, 0)
            digest, newest = broker.newest
            if event.digest > digest:
                broker.newest = event.digest, time
            if event.digest > digest and time < newest:
                broker.leaf.expectation.forget(SOURCE)
            return time
        known = broker.sufficiency.dictionary.known.get(SOURCE)
        if isinstance(broker.starts, LifeStart) and isinstance(known, LifeKnown):
            if broker.starts.learn_life(SOURCE, known):
                broker.leaf.expectation.forget(SOURCE)
        elif known is not None:
            broker.starts.learn(SOURCE, *known)
        return broker.starts.time_of(SOURCE, event.digest) if event.digest else None

    def _start_subscriptions(
        self, broker: Broker, event: Event, time: int, seen_below: int
    ) -> None:
        assert broker.requirement is not None
        assert broker.starts is not None
        if not self.variant.history_max:
            broker.starts.see(SOURCE, SOURCE, event.number, event.digest)
        for each in self.subscriptions.values():
            if each.leaf != broker.name or each.first is not None:
                continue
            first: int | None
            if self.variant.history_max:
                first = (
                    event.number if may_start({each.leaf: time}, each.leaf, each.start) else None
                )
            else:
                first = broker.starts.start_of(SOURCE, each.start)
            if first is not None:
                first = max(first, seen_below)  # it may have been believed before a crash
                each.first = broker.requirement.start(SOURCE, first, each.start)
