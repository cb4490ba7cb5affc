"""Planted faults: nodes with one thing wrong, to see that the checkers find it.

Each fault is a small change to one machine of the node, of the kind that a slip of the pen makes:
an off-by-one, a forgotten line, a wrong order. A swarm that does not find one of these has a hole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import structs

from gapless.core.broker_messages import Knowledge
from gapless.core.effects import Effect, Persist
from gapless.core.errors import UsageError
from gapless.core.identity import Instant
from gapless.core.ticks import PUBEND_BITS, Span
from gapless.knowledge.merge import Merge
from gapless.knowledge.pubend import Pubend
from gapless.knowledge.relay import Relay
from gapless.knowledge.subend import Settled, Subend
from gapless.node.delivery.total_order import Run, TotalOrder
from gapless.node.parts import Parts
from gapless.propagation.branch import Branch
from gapless.propagation.delivery import DeliveryStart
from gapless.propagation.leaf import Leaf
from gapless.propagation.stamp import Stamp
from gapless.propagation.sufficiency import Sufficiency
from gapless.testing.planted.catalogues import PLANTED_CATALOGUES
from gapless.testing.planted.durables import PLANTED_DURABLES
from gapless.testing.planted.losses import PLANTED_LOSSES
from gapless.testing.planted.names import PLANTED_NAMES
from gapless.testing.planted.transactions import PLANTED_TRANSACTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gapless.core.broker_messages import Nack, Purpose, SubscriptionChange
    from gapless.core.client_messages import Publish
    from gapless.core.effects import Write
    from gapless.core.identity import CellName, ClientName, PubendName
    from gapless.core.spans import SpanSet
    from gapless.core.store import Store
    from gapless.knowledge.neighbours import Outgoing
    from gapless.knowledge.publications import PublicationRequest
    from gapless.propagation.actions import Action


class DeliversPastGap(Subend):
    """Takes what it has seen for what is settled."""

    def receive_knowledge(self, knowledge: Knowledge, now: Instant) -> list[Nack]:
        nacks = super().receive_knowledge(knowledge, now)
        self.horizon = self.seen
        return nacks


class ForgetsToNack(Subend):
    """Never asks for a gap."""

    def _ask(self, spans: list[object], now: Instant) -> list[Nack]:  # type: ignore[override]
        super()._ask(spans, now)  # type: ignore[arg-type]
        return []


class DeliversTwice(Subend):
    """Gives the last event of a batch out again with the next one."""

    again: tuple[int, bytes] | None = None

    def take(self, through: int, now: Instant) -> Settled:
        settled = super().take(through, now)
        if settled.ticks:
            before, self.again = self.again, (settled.ticks[-1], settled.events[-1])
            if before is not None:
                settled.ticks.insert(0, before[0])
                settled.events.insert(0, before[1])
        return settled


class AcknowledgesTooEarly(Relay):
    """Acknowledges what it knows, not what everyone below has delivered."""

    def _acknowledge(self, now: Instant) -> None:
        for outlet in self.outlets.values():
            if outlet.settled >= 0:
                outlet.settled = max(outlet.settled, self.stream.end)
        super()._acknowledge(now)


class SilencesEvents(Relay):
    """Now and then an event that passes the filter goes down as silence."""

    def _passing(
        self, cell: CellName | None, digest: int, ticks: Sequence[int], events: Sequence[bytes]
    ) -> tuple[Sequence[int], Sequence[bytes]]:
        ticks, events = super()._passing(cell, digest, ticks, events)
        kept = [i for i, event in enumerate(events) if sum(event) % 7]
        return [ticks[i] for i in kept], [events[i] for i in kept]


class AsksForEachChild(Relay):
    """Passes every nack on, whoever else has asked already."""

    def _ask_upstream(
        self, unknown: SpanSet, purpose: Purpose, now: Instant, events_max: int = 0
    ) -> list[Outgoing]:
        self.questions.upstream_questions.clear()
        return super()._ask_upstream(unknown, purpose, now, events_max)


class ReusesPromisedTick(Pubend):
    """Places events a little before its clock, also where silence was promised."""

    def _next_tick(self, now: Instant) -> int:
        logged = self.store.bounds(self.stream)[1]
        self.end = max(logged, self.end - (self.timing.idle_silence << PUBEND_BITS))
        return super()._next_tick(Instant(now - self.timing.idle_silence))


class ForgetsPromise(Pubend):
    """Says silence without having persisted that it may."""

    def _promise_silence(
        self, now: Instant, *, is_promised: bool = False
    ) -> tuple[list[Effect], list[Knowledge]]:
        promise, self.promise = self.promise, 1 << 62
        try:
            return super()._promise_silence(now, is_promised=is_promised)
        finally:
            self.promise = promise


class AcknowledgesBeforeDurable(Pubend):
    """Sends receipts along with the write, not after it."""

    def _write(self, now: Instant) -> list[Effect]:
        effects = super()._write(now)
        early: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Persist):
                early += [
                    self._receipt(request)
                    for request in self.batch.requests
                    if request.message.publisher is None
                ]
        return early + effects


class PublishesRepeats(Pubend):
    """Does not look whether a named publisher's event was there already."""

    def publish(
        self, client: ClientName, message: Publish, now: Instant, owner: str = ""
    ) -> list[Effect]:
        if name := message.publisher:
            self.publishers.accept(name, owner, (message.sequence, message.term, 0))
        return super().publish(client, message, now, owner)


class TakesEveryTerm(Pubend):
    """Does not look whether the name of a publisher was taken over."""

    def publish(
        self, client: ClientName, message: Publish, now: Instant, owner: str = ""
    ) -> list[Effect]:
        if name := message.publisher:
            message = structs.replace(message, term=self.publishers.place(name)[1])
        return super().publish(client, message, now, owner)


class ForgetsTerms(Pubend):
    """Remembers in memory only that the names of publishers were taken over."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        for publisher in self.publishers.records.values():
            publisher.term = 0


class ForgetsPublishers(Pubend):
    """Remembers named publishers in memory only, so that a restart makes repeats possible."""

    def _write(self, now: Instant) -> list[Effect]:
        effects = super()._write(now)
        return [
            Persist(each.writes[:1], each.then, each.otherwise)
            if isinstance(each, Persist)
            and self.batch.requests
            and self._has_events(self.batch.requests)
            else each
            for each in effects
        ]

    def _has_events(self, requests: list[PublicationRequest]) -> bool:
        return any(request.events for request in requests)


class GoesOnWithoutRoom(Pubend):
    """Takes a write that found no room for one that is durable."""

    def _persist(self, writes: tuple[Write, ...], receipts: Sequence[Effect] = ()) -> Persist:
        persist = super()._persist(writes, receipts)
        return Persist(persist.writes, persist.then, persist.then)


class IgnoresLaggards(Merge):
    """Takes an input that lags behind the others for silent, without asking it."""

    def fire(self, now: Instant) -> list[Nack]:
        nacks = super().fire(now)
        foremost = max(subend.horizon for subend in self.inputs.values())
        for subend in self.inputs.values():
            if subend.horizon < foremost:
                silence = Knowledge(subend.pubend, Span(subend.horizon, foremost))
                subend.receive_knowledge(silence, now)
        return nacks


class SendsBeforeLaggards(TotalOrder):
    """Lets go what is in order as far as the foremost pubend is known."""

    def take(self, reached: Mapping[PubendName, int], credit: int) -> list[Run]:
        return super().take(dict.fromkeys(reached, max(reached.values())), credit)


class SendsPubendByPubend(TotalOrder):
    """Sends all that may leave, the pubends one after another."""

    def take(self, reached: Mapping[PubendName, int], credit: int) -> list[Run]:
        return sorted(super().take(reached, credit), key=lambda run: run.pubend)


class TrustsStaleFilter(Sufficiency):
    """Filters although subscriptions may count that it does not know."""

    def test(self, source: str, digest: int, cell: CellName) -> bool | None:
        return super().test(source, digest, cell) is not None


class StartsTooEarly(DeliveryStart):
    """Lets a subscription start with whatever comes first."""

    def start_of(self, stream: str, start: int) -> int | None:
        return super().start_of(stream, 0)


class IgnoresConstraint(Branch):
    """Applies a change on top of whatever it knows."""

    def applies(self, change: SubscriptionChange) -> bool:
        return True


class ReusesClock(Leaf):
    """Forgets over a crash which times it has used."""

    def __init__(self, *arguments: Any, first: int = 1, key: str = "", **options: Any) -> None:
        super().__init__(*arguments, first=1, key=f"forgotten/{key}", **options)
        self.key = key


class ForgetsStamp(Stamp):
    """Forgets its vector over a crash, and takes every leaf for one that never spoke."""

    def __init__(self, source: str, store: Store, *, first: int = 1) -> None:
        super().__init__(f"forgotten/{source}", store, first=first)
        self.source = source

    def begin(self, leaves: Iterable[str] = ()) -> list[Persist]:
        return super().begin()


class NeverRepeats(Leaf):
    """Does not notice that a change got lost on its way."""

    def see(self, source: str, time: int, now: Instant) -> list[Action]:
        return []


PLANTED: dict[str, Parts] = {
    "delivers-past-gap": Parts(subend=DeliversPastGap),
    "forgets-to-nack": Parts(subend=ForgetsToNack),
    "delivers-twice": Parts(subend=DeliversTwice),
    "acknowledges-too-early": Parts(relay=AcknowledgesTooEarly),
    "silences-events": Parts(relay=SilencesEvents),
    "asks-for-each-child": Parts(relay=AsksForEachChild),
    "reuses-promised-tick": Parts(pubend=ReusesPromisedTick),
    "forgets-promise": Parts(pubend=ForgetsPromise),
    "acknowledges-before-durable": Parts(pubend=AcknowledgesBeforeDurable),
    "publishes-repeats": Parts(pubend=PublishesRepeats),
    "takes-every-term": Parts(pubend=TakesEveryTerm),
    "forgets-terms": Parts(pubend=ForgetsTerms),
    "forgets-publishers": Parts(pubend=ForgetsPublishers),
    "goes-on-without-room": Parts(pubend=GoesOnWithoutRoom),
    "ignores-laggards": Parts(merge=IgnoresLaggards),
    "sends-before-laggards": Parts(total_order=SendsBeforeLaggards),
    "sends-pubend-by-pubend": Parts(total_order=SendsPubendByPubend),
    "trusts-stale-filter": Parts(sufficiency=TrustsStaleFilter),
    "starts-too-early": Parts(starts=StartsTooEarly),
    "ignores-constraint": Parts(branch=IgnoresConstraint),
    "reuses-clock": Parts(leaf=ReusesClock),
    "forgets-stamp": Parts(stamp=ForgetsStamp),
    "never-repeats": Parts(leaf=NeverRepeats),
    **PLANTED_DURABLES,
    **PLANTED_CATALOGUES,
    **PLANTED_NAMES,
    **PLANTED_LOSSES,
    **PLANTED_TRANSACTIONS,
}


def parts_with(name: str) -> Parts:
    """The machines of a node with this fault."""
    if name not in PLANTED:
        raise UsageError(f"no fault is called {name!r}", f"Known: {', '.join(PLANTED)}.")
    return PLANTED[name]
