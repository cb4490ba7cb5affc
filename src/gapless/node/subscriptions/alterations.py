"""Alterations: named subscriptions that get another condition, at one tick of each pubend.

Theory of operation
    The old condition goes on until the new one is known wherever it has to be. First this broker
    asks for what the new condition wants, as for a new subscription (*starting*). When everything
    from some tick of each pubend on gets here, and these ticks are delivered, the broker takes no
    more from the streams of the topic until all that is delivered is durable (*draining*), which
    takes one write. The ticks that the streams have reached then are the ticks of the change: the
    definition is written with them (*writing*), and from there on the new condition decides. So the
    filtered log below a tick is of the old condition, and above of the new one, also after a crash.
    A client may catch up with what lies before the change, here or at another broker. The
    definition therefore keeps the former conditions and the ticks where they end, as long as
    something before them is not acknowledged. The client that is attached is told of the change
    before it gets anything of the new condition, and takes it along when it moves.
    The caller is told the ticks when nothing can change them (*telling*): the registrar of the name
    knows of the change, so that a client without that knowledge is redirected here; and the client
    that is attached has said that it knows, or is gone.
    A client that knows nothing of the change may move to another broker with its token. When the
    two brokers meet, the other one takes the condition over, at ticks of its own (`adopt`): no
    event is lost or doubled, but these are not the ticks that the caller was told. Where the
    registrar knows of the move already, the caller is redirected there instead (`leave_to`).

Invariants (checked by `check`)
    I1  streams are held back only while a change drains or is written
    I2  a subscription changes once at a time

Source: docs/protocols/durable-subscriptions.md, 3.9; decision 0037.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from gapless.core.client_messages import Former, Refused, SubscriptionAltered
from gapless.core.effects import NO_ROOM, Send, Tell
from gapless.core.errors import FilterError, quoted
from gapless.core.identity import BrokerName, ClientName, Instant, PubendName, SubscriptionName
from gapless.core.messages import Message
from gapless.durable.subscriptions import TOO_MUCH
from gapless.filters.filter import Filter
from gapless.node.delivery.audience import DURABLE
from gapless.node.directory.registry import registrar_of
from gapless.node.subscriptions.record import Phase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gapless.core.client_messages import AlterationNoted, AlterSubscription
    from gapless.core.effects import Effect
    from gapless.core.identity import TopicName
    from gapless.durable.subscriptions import Definition, DurableSubscription
    from gapless.node.context import Context
    from gapless.node.delivery.session import Session
    from gapless.node.subscriptions.attachments import Attachments

ALTERING = ClientName("@altering")
"""In place of a client: the number is that of a durable subscription that gets this condition."""


class ConditionStarts(Protocol):
    """What is wanted of one topic, and from where on it all gets here."""

    def start_of(self, key: tuple[str, int]) -> dict[PubendName, int] | None: ...
    def rename(self, key: tuple[str, int], other: tuple[str, int]) -> None: ...


class Interests(Protocol):
    """What is wanted of all topics; see `node.durable.interest_table`."""

    @property
    def by_topic(self) -> Mapping[TopicName, ConditionStarts]: ...

    def subscribe(
        self, topic: TopicName, key: tuple[str, int], condition: Filter, now: Instant
    ) -> None: ...
    def unsubscribe(self, topic: TopicName, key: tuple[str, int], now: Instant) -> None: ...


class AlterationPersisted(Message, frozen=True):
    """To ourselves: a changed definition is durable (or, not `ok`, had no room)."""

    name: SubscriptionName
    number: int
    ok: bool = True


class AlterationStep(Enum):
    """How far a change has come."""

    STARTING = "what the new condition wants does not all get here yet"
    DRAINING = "what is delivered is not all durable yet"
    WRITING = "the definition is being written"
    TELLING = "the registrar and the client are being told"


@dataclass(slots=True)
class Alteration:
    """One subscription whose condition changes."""

    subscription: DurableSubscription
    text: str
    condition: Filter
    until: Instant
    """When callers are told to try again."""

    step: AlterationStep = AlterationStep.STARTING
    askers: list[tuple[ClientName, int]] = field(default_factory=list)
    """The callers, and the numbers of their requests."""

    altered: int = 0
    """The count of changes that it is to have at least; for a change made at another broker."""

    before: Definition | None = None
    told: Session | None = None
    """The client that has not said yet that it knows."""

    new_home: BrokerName | None = None
    """The broker that the subscription moves to, and that adopts the change."""

    @property
    def name(self) -> SubscriptionName:
        return self.subscription.definition.name

    @property
    def topic(self) -> TopicName:
        return self.subscription.definition.topic

    @property
    def key(self) -> tuple[ClientName, int]:
        return ALTERING, self.subscription.number

    @property
    def pubends(self) -> list[PubendName]:
        return [PubendName(each) for each in self.subscription.since]


class Alterations:
    """All changes under way at one broker. See the module docstring."""

    def __init__(self, context: Context, attachments: Attachments, interests: Interests) -> None:
        self.network = context.network
        self.config = context.config
        self.named = attachments.named
        self.table = attachments.table
        self.subscribers = attachments.subscribers
        self.catch_ups = attachments.catch_ups
        self.interests = interests
        self._open: dict[SubscriptionName, Alteration] = {}

    @property
    def is_quiet(self) -> bool:
        return not self._open

    # --- what clients ask for ---------------------------------------------------------------------

    def begin(self, client: ClientName, message: AlterSubscription, now: Instant) -> list[Effect]:
        """Change the condition of a subscription that is here, and may be changed by the client."""
        known = self.named.subscriptions.get(message.name)
        assert known is not None
        if known.definition.share_by:
            problem = f"subscription {quoted(message.name)} is a group, whose condition stays"
            remedy = "Subscribe with the new condition under another name."
            return [Send(client, Refused(message.request, problem, remedy))]
        under_way = self._open.get(message.name)
        asker = (client, message.request)
        if under_way is not None and under_way.new_home is not None:
            return _redirect(asker, under_way)
        if under_way is not None and under_way.text == message.condition:
            under_way.askers.append(asker)
            return []
        record = self.table.get(message.name)
        is_new = record is not None and record.phase is Phase.CREATING
        if under_way is not None or is_new or message.name in self.named.changing:
            problem = f"subscription {quoted(message.name)} is being made or changed just now"
            return [Send(client, Refused(message.request, problem, "Try again.", retry=True))]
        try:
            condition = Filter.parse(message.condition)
        except FilterError as error:
            remedy = f"{error.remedy}\n{error.caret()}"
            return [Send(client, Refused(message.request, error.problem, remedy))]
        until = Instant(now + self.config.name_patience)
        alteration = Alteration(known, message.condition, condition, until, askers=[asker])
        if message.condition == known.definition.condition:  # the answer may have got lost
            alteration.step = AlterationStep.TELLING
            self._open[message.name] = alteration
            return []
        if refused := self._refusal(known, message.condition, condition):
            return [Send(client, Refused(message.request, *refused))]
        self._start(alteration, now)
        return []

    def _refusal(
        self, known: DurableSubscription, text: str, condition: Filter
    ) -> tuple[str, str] | None:
        definition = known.definition
        if problem := self.named.subscriptions.refuse_change(definition.name, text):
            return problem, f"Acknowledge what was consumed. {TOO_MUCH}"
        meter = self.subscribers.meter
        return meter.refusal((definition.topic, "publisher"), definition.owner, condition)

    def adopt(self, name: SubscriptionName, text: str, altered: int, now: Instant) -> None:
        """Take over a change that was made at the broker where the subscription was before."""
        known = self.named.subscriptions.get(name)
        if known is None or name in self._open or name in self.named.changing:
            return  # the other broker tells us again
        alteration = Alteration(known, text, Filter.parse(text), now, altered=altered)
        self._start(alteration, now)

    def _start(self, alteration: Alteration, now: Instant) -> None:
        self._open[alteration.name] = alteration
        self.interests.subscribe(alteration.topic, alteration.key, alteration.condition, now)

    def note(self, client: ClientName, message: AlterationNoted) -> None:
        """A client knows of the change."""
        session = self.subscribers.sessions_of.get(client, {}).get(message.subscription)
        if session is None:
            return
        alteration = self._open.get(session.subscription.definition.name)
        if (
            alteration is not None
            and alteration.told is session
            and message.altered >= alteration.subscription.definition.altered
        ):
            alteration.told = None

    def leave_to(self, home: BrokerName, name: SubscriptionName) -> list[Effect]:
        """The registrar knows the subscription at another broker, where a client without the change
        has taken it. That broker adopts the change, and can tell callers its ticks."""
        alteration = self._open.get(name)
        if alteration is None or alteration.step is not AlterationStep.TELLING:
            return []
        alteration.new_home = home
        refused = [effect for asker in alteration.askers for effect in _redirect(asker, alteration)]
        alteration.askers = []
        return refused

    def disconnect(self, client: ClientName) -> None:
        for each in self._open.values():
            each.askers = [asker for asker in each.askers if asker[0] != client]

    # --- the end of a step ------------------------------------------------------------------------

    def settle(self, now: Instant) -> list[Effect]:
        """Take every change as far as it goes now."""
        effects: list[Effect] = []
        for each in list(self._open.values()):
            known = self.named.subscriptions.get(each.name)
            if known is not each.subscription:
                effects += self._cancel(each, f"{quoted(each.name)} has ended or moved", now)
                continue
            if each.step is AlterationStep.STARTING:
                self._drain_if_started(each)
            if each.step is AlterationStep.DRAINING:
                effects += self._write_if_drained(each, now)
            elif each.step is AlterationStep.TELLING:
                effects += self._answer_if_told(each)
        return effects

    def _drain_if_started(self, alteration: Alteration) -> None:
        interest = self.interests.by_topic.get(alteration.topic)
        start = interest.start_of(alteration.key) if interest is not None else {}
        if start is None:
            return
        since, streams = alteration.subscription.since, self.named.streams
        for pubend in alteration.pubends:
            if streams[pubend].delivered < max(start.get(pubend, 0), since[pubend]):
                return
        alteration.step = AlterationStep.DRAINING
        self._hold()

    def _hold(self) -> None:
        """Hold the streams of all changes that drain or are written; let go of the others."""
        self.named.hold(self._busy_pubends)

    @property
    def _busy_pubends(self) -> set[PubendName]:
        busy = (AlterationStep.DRAINING, AlterationStep.WRITING)
        some = [each for each in self._open.values() if each.step in busy]
        return {pubend for each in some for pubend in each.pubends}

    def _write_if_drained(self, alteration: Alteration, now: Instant) -> list[Effect]:
        effects: list[Effect] = []
        streams = [self.named.streams[pubend] for pubend in alteration.pubends]
        for stream in streams:
            if stream.latest < stream.delivered:
                effects += stream.flush(now)
        if any(stream.latest < stream.delivered for stream in streams):
            return effects
        name, number = alteration.name, alteration.subscription.number
        alteration.before = alteration.subscription.definition
        ticks = {str(stream.pubend): stream.delivered for stream in streams}
        definition = self.named.subscriptions.altered(name, alteration.text, ticks)
        altered = max(definition.altered, alteration.altered)
        done, failed = (AlterationPersisted(name, number, ok=ok) for ok in (True, False))
        effects += self.named.subscriptions.redefine(
            replace(definition, altered=altered), then=(Tell(done),), otherwise=(Tell(failed),)
        )
        alteration.step = AlterationStep.WRITING
        self.named.begin_change(name)
        self._change(alteration)
        return effects

    def _change(self, alteration: Alteration) -> None:
        self.named.change(alteration.subscription)
        if self.table.session(alteration.name) is not None:
            self.catch_ups.begin_again(alteration.name)

    def persisted(self, message: AlterationPersisted, now: Instant) -> list[Effect]:
        """The write of a definition has ended: the change counts, or never was."""
        self.named.end_change(message.name)
        alteration = self._open.get(message.name)
        known = self.named.subscriptions.get(message.name)
        if alteration is None or known is None or known.number != message.number:
            return []  # `settle` cancels it
        if not message.ok:
            return self._undo(alteration, now)
        self.interests.unsubscribe(alteration.topic, (DURABLE, known.number), now)
        if alteration.topic in self.interests.by_topic:
            interest = self.interests.by_topic[alteration.topic]
            interest.rename(alteration.key, (DURABLE, known.number))
        alteration.step = AlterationStep.TELLING
        self._hold()
        self.table.tell_home(message.name)
        session = alteration.told = self.table.session(message.name)
        if session is None:
            return []
        return [Send(session.name, altered(known.definition, subscription=session.number))]

    def _undo(self, alteration: Alteration, now: Instant) -> list[Effect]:
        """The disk had no room: the old condition goes on. Nothing was delivered meanwhile."""
        known, before = alteration.subscription, alteration.before
        assert before is not None
        definition = replace(
            known.definition,
            condition=before.condition,
            altered=before.altered,
            former=before.former,
        )
        effects = self.named.subscriptions.redefine(definition)
        self._change(alteration)
        self.table.tell_home(alteration.name)
        return effects + self._cancel(alteration, NO_ROOM, now)

    def _cancel(self, alteration: Alteration, problem: str, now: Instant) -> list[Effect]:
        """The change did not happen; callers may try again."""
        del self._open[alteration.name]
        if alteration.step is not AlterationStep.TELLING:
            self.interests.unsubscribe(alteration.topic, alteration.key, now)
        self._hold()
        return self._refuse(alteration, problem)

    def _refuse(self, alteration: Alteration, problem: str) -> list[Effect]:
        return [
            Send(client, Refused(request, problem, "Try again.", retry=True))
            for client, request in alteration.askers
        ]

    def _answer_if_told(self, alteration: Alteration) -> list[Effect]:
        if alteration.new_home is not None:
            return []
        definition = alteration.subscription.definition
        has_registrar = registrar_of(self.network, definition.name) is not None
        if has_registrar and definition.registrar is None and definition.altered:
            return []
        if alteration.told is not None:
            if self.table.session(definition.name) is alteration.told:
                return []
            alteration.told = None
        del self._open[definition.name]
        answer = altered(definition, since=alteration.subscription.since)
        return [
            Send(client, replace_request(answer, request)) for client, request in alteration.askers
        ]

    # --- time, invariants -------------------------------------------------------------------------

    @property
    def deadline(self) -> Instant | None:
        some = (each.until for each in self._open.values() if each.askers or each.new_home)
        return min(some, default=None)

    def fire(self, now: Instant) -> list[Effect]:
        """Tell callers that have waited long enough to try again."""
        effects: list[Effect] = []
        late = [each for each in self._open.values() if each.until <= now]
        for each in [each for each in late if each.askers or each.new_home]:
            problem = f"the change of {quoted(each.name)} takes long: {each.step.value}"
            if each.step is AlterationStep.STARTING:
                effects += self._cancel(each, problem, now)
            else:
                effects += self._refuse(each, problem)
                each.askers = []
                if each.step is AlterationStep.TELLING:
                    del self._open[each.name]
        return effects

    def check(self) -> None:
        assert self.named.held == self._busy_pubends, "I1"
        for name, each in self._open.items():
            assert each.name == name, "I2"


def _redirect(asker: tuple[ClientName, int], alteration: Alteration) -> list[Effect]:
    home = alteration.new_home
    assert home is not None
    problem = f"subscription {quoted(alteration.name)} moves to broker {home!r}"
    remedy = f"Connect to one of: {home}."
    return [Send(asker[0], Refused(asker[1], problem, remedy, elsewhere=(home,)))]


def altered(
    definition: Definition, *, subscription: int = 0, since: dict[str, int] | None = None
) -> SubscriptionAltered:
    """What callers and clients are told. A condition that never changed counts from the start."""
    former = definition.former
    if not former:
        former = (Former(definition.condition, dict(since or {})),)
    return SubscriptionAltered(0, subscription, definition.condition, definition.altered, former)


def replace_request(answer: SubscriptionAltered, request: int) -> SubscriptionAltered:
    return SubscriptionAltered(request, 0, answer.condition, answer.altered, answer.former)
