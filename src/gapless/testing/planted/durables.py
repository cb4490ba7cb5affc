"""Planted faults of durable subscriptions; see `planted`."""

from __future__ import annotations

import dataclasses
from copy import copy
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gapless.core.effects import Effect, Persist, Put
from gapless.core.identity import Instant
from gapless.core.ticks import PUBEND_BITS
from gapless.durable.catch_up import CatchUp, LostSpan
from gapless.durable.consolidated import Consolidated, SubscriptionBatch
from gapless.durable.hand_over import Arrival, ForgetRequest
from gapless.durable.subscriptions import DEFINITIONS, DurableSubscriptions
from gapless.knowledge.pubend import Pubend
from gapless.knowledge.relay import Relay
from gapless.node.parts import Parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.core.broker_messages import Knowledge, ReleaseHold
    from gapless.core.identity import SubscriptionName, TopicName
    from gapless.core.token import Token
    from gapless.durable.catch_up import CatchUpSource, Taker
    from gapless.durable.subscriptions import Definition, DurableSubscription
    from gapless.durable.timing import DurableTiming
    from gapless.knowledge.neighbours import Outgoing
    from gapless.knowledge.subend import Settled

EARLIER = 100_000 << PUBEND_BITS
"""A tenth of a second, in ticks."""


class ReleasesDelivered(Pubend):
    """Lets go of what was delivered everywhere, acknowledged or not."""

    def acknowledge(self, delivered: int, now: Instant, released: int | None = None) -> None:
        super().acknowledge(delivered, now, delivered)


class AssuresBeforeDurable(DurableSubscriptions):
    """Answers an acknowledgement along with its write, not after it."""

    def acknowledge(
        self, name: SubscriptionName, token: Token, now: Instant, *, then: tuple[Effect, ...] = ()
    ) -> list[Effect]:
        return [*then, *super().acknowledge(name, token, now)]


class ForgetsAcknowledgements(DurableSubscriptions):
    """Remembers in memory only how far its subscriptions are."""

    def _write(self) -> list[Effect]:
        return [
            Persist((), each.then, each.otherwise) if isinstance(each, Persist) else each
            for each in super()._write()
        ]


class MissesRecord(Consolidated):
    """Now and then forgets to write down who takes an event."""

    def advance(
        self, settled: Settled, takers: Sequence[Sequence[int]], through: int, now: Instant
    ) -> list[Effect]:
        kept = [
            some if sum(event) % 5 else ()
            for some, event in zip(takers, settled.events, strict=True)
        ]
        return super().advance(settled, kept, through, now)


class ForgetsTail(Consolidated):
    """Lets one that has caught up go on from there without what is not logged yet."""

    def tail(self, taker: int, start: int) -> SubscriptionBatch:
        return SubscriptionBatch([], [], super().tail(taker, start).through)


class TellsGapTwice(CatchUp):
    """Says it again."""

    def _add_gap(self, pieces: list[SubscriptionBatch | LostSpan]) -> None:
        super()._add_gap(pieces)
        pieces.append(pieces[-1])


class SilencesLoss(CatchUp):
    """Passes over what is lost without a word."""

    def _add_gap(self, pieces: list[SubscriptionBatch | LostSpan]) -> None:
        super()._add_gap(pieces)
        pieces[-1] = SubscriptionBatch([], [], pieces[-1].span.end)  # type: ignore[union-attr]  # it is a gap


class SwitchesTooEarly(CatchUp):
    """Takes what it has asked for for what it has."""

    def is_done(self, latest: int) -> bool:
        return self.window_end >= max(latest, self.since)


class FillsScattered(Relay):
    """Takes what lies between scattered events for silence."""

    def receive_knowledge(self, knowledge: Knowledge, now: Instant) -> list[Outgoing]:
        return super().receive_knowledge(replace(knowledge, scattered=False), now)


class ForgetsSince(CatchUp):
    """Believes the log also where the subscription was not there yet."""

    def __init__(
        self, taker: Taker, start: int, source: CatchUpSource, timing: DurableTiming
    ) -> None:
        super().__init__(dataclasses.replace(taker, since=0), start, source, timing)


class BelievesFilteredSilence(CatchUp):
    """Does not say that it needs everything, where others have filtered."""

    def __init__(
        self, taker: Taker, start: int, source: CatchUpSource, timing: DurableTiming
    ) -> None:
        super().__init__(taker, start, source, timing)
        self._contradictions.is_whole = False


class DoesNotRefilter(CatchUp):
    """Takes everything that it gets where the log knows nothing."""

    def __init__(
        self, taker: Taker, start: int, source: CatchUpSource, timing: DurableTiming
    ) -> None:
        super().__init__(dataclasses.replace(taker, matches=None), start, source, timing)


class ForgetsSurvivors(DurableSubscriptions):
    """After a restart nobody is told what the durable subscriptions of a topic want."""

    def of_topic(self, topic: TopicName) -> list[DurableSubscription]:
        return []


class AltersInMemory(DurableSubscriptions):
    """Does not write down that a condition has changed."""

    def redefine(
        self,
        definition: Definition,
        *,
        then: tuple[Effect, ...] = (),
        otherwise: tuple[Effect, ...] = (),
    ) -> list[Effect]:
        effects = super().redefine(definition, then=then, otherwise=otherwise)
        if not definition.altered:
            return effects
        first = definition.former[0].condition
        written = copy(self._by_name[definition.name])
        written.definition = dataclasses.replace(definition, condition=first, altered=0, former=())
        return [Persist((Put(DEFINITIONS, definition.name, written.encode()),), then, otherwise)]


class AltersAtOtherTicks(DurableSubscriptions):
    """Says that a condition has changed a little earlier than it has."""

    def altered(self, name: SubscriptionName, condition: str, until: dict[str, int]) -> Definition:
        earlier = {pubend: max(0, tick - EARLIER) for pubend, tick in until.items()}
        return super().altered(name, condition, earlier)


class NeverHandsOver(Arrival):
    """Leaves the copy at the old broker where it is."""

    def fire(self, now: Instant) -> list[ReleaseHold | ForgetRequest]:
        self.deadline = Instant(now + self.timing.hand_over_repeat)
        return []


PLANTED_DURABLES: dict[str, Parts] = {
    "alters-in-memory": Parts(durable_subscriptions=AltersInMemory),
    "alters-at-other-ticks": Parts(durable_subscriptions=AltersAtOtherTicks),
    "releases-delivered": Parts(pubend=ReleasesDelivered),
    "assures-before-durable": Parts(durable_subscriptions=AssuresBeforeDurable),
    "forgets-acknowledgements": Parts(durable_subscriptions=ForgetsAcknowledgements),
    "misses-record": Parts(consolidated=MissesRecord),
    "forgets-tail": Parts(consolidated=ForgetsTail),
    "tells-gap-twice": Parts(catch_up=TellsGapTwice),
    "silences-loss": Parts(catch_up=SilencesLoss),
    "switches-too-early": Parts(catch_up=SwitchesTooEarly),
    "fills-scattered": Parts(relay=FillsScattered),
    "forgets-since": Parts(catch_up=ForgetsSince),
    "believes-filtered-silence": Parts(catch_up=BelievesFilteredSilence),
    "does-not-refilter": Parts(catch_up=DoesNotRefilter),
    "forgets-survivors": Parts(durable_subscriptions=ForgetsSurvivors),
    "never-hands-over": Parts(arrival=NeverHandsOver),
}
