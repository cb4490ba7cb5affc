"""Homes: what one broker asks the registrars of named subscriptions, and what follows from it.

Theory of operation
    The registrar of a name knows the broker at which the subscription is at home (`registry`). A
    broker asks it in two cases. A client asks for a name that is not here (*claim*): if the name is
    free, the subscription is made here as soon as the registrar has noted that. Or a client comes
    without a token to a subscription that is here (*look*): the client may have gone on elsewhere
    while this broker was down or cut off, so that the copy here is an old one. If the home is
    another broker, the subscription is taken over with the client's token, as if the client had
    said where it was. Without a token, or where the broker keeps the token, the client is
    redirected. So no client starts anew what exists. A broker tells the registrar of a subscription
    that came without a question (*tell*), by a hand-over for example. It also tells it when a
    subscription has ended (*free*), and answers the client only then: from then on the name is free
    for everybody. A question is repeated every `name_repeat` until it is answered. A client waits
    for at most `name_patience`; then it is refused, may retry, and is told which broker does not
    answer.

Invariants (checked by `check`)
    I1  a client that waits for a name is connected, and the question is open
    I2  while a question is open there is a deadline
"""

from __future__ import annotations

from dataclasses import dataclass, field
from dataclasses import replace as dataclass_replace
from typing import TYPE_CHECKING, get_args

from msgspec.structs import replace

from gapless.core.client_messages import (
    Acknowledge,
    AlterSubscription,
    Done,
    Forget,
    Refused,
    Subscribe,
)
from gapless.core.effects import Send
from gapless.core.errors import ProtocolError, quoted
from gapless.core.identity import BrokerName, ClientName, Instant, SubscriptionName
from gapless.core.lengths import KEY_BYTES_MAX
from gapless.core.name_messages import (
    NameAnswer,
    NameEntry,
    NameQuestion,
    NamesQuestion,
    NamesTold,
    Want,
)
from gapless.core.portion import WHOLE, Portion
from gapless.node.deadlines import earliest
from gapless.node.directory.registry import Noted, is_same_life, newer, registrar_of
from gapless.node.redirect import refuse_elsewhere
from gapless.node.subscriptions.recall import Recall
from gapless.node.subscriptions.record import Ender
from gapless.node.subscriptions.table import Work

if TYPE_CHECKING:
    from gapless.core.effects import Effect
    from gapless.node.context import Context
    from gapless.node.delivery.connections import ClientConnection
    from gapless.node.directory.registry import Registry
    from gapless.node.subscriptions.alterations import Alterations
    from gapless.node.subscriptions.attachments import Attachments, Left


EVERY_TOPIC = "*"
"""Only the owner of a subscription elsewhere is known, not its topic: to end it takes the right to
administer all topics."""


WANTS: tuple[Want, ...] = get_args(Want)
NameRequest = Subscribe | Forget | Acknowledge | AlterSubscription
"""What clients ask about a name."""


@dataclass(frozen=True, slots=True)
class Asker:
    """A client that waits for an answer."""

    client: ClientName
    message: NameRequest
    until: Instant

    @property
    def key(self) -> tuple[ClientName, int] | None:
        """The number of the subscription that waits, on its connection."""
        message = self.message
        return (self.client, message.subscription) if isinstance(message, Subscribe) else None


@dataclass(slots=True)
class Question:
    """An open question: what is asked, when to ask again, and which clients wait."""

    message: NameQuestion
    due: Instant
    askers: list[Asker] = field(default_factory=list)

    def silent(self, asker: Asker, awaited: list[BrokerName]) -> Refused:
        """The refusal for a client that has waited long enough. `awaited`: the brokers that have
        not told this one their names, where it is the registrar."""
        state = {"free": "has ended, but its name is not free yet", "claim": "is not here"}
        what, registrar = state.get(self.message.want, "may have moved"), self.message.receiver
        name = quoted(self.message.name)
        problem = f"subscription {name} {what}: {registrar!r}, which keeps its name, is silent"
        remedy = f"See that {registrar!r} runs, and that every broker has been up since it is new."
        if awaited:
            problem = f"subscription {name} {what}: {registrar!r} has not heard of all names yet"
            remedy = f"Start what has not answered it, or remove it: {', '.join(awaited)}."
        return Refused(asker.message.request, problem, remedy, retry=True)


class Homes:
    """The questions of one broker. See the module docstring."""

    def __init__(
        self,
        context: Context,
        attachments: Attachments,
        alterations: Alterations,
        registry: Registry,
    ) -> None:
        self.name = context.name
        self.network = context.network
        self.config = context.config
        self.routing = context.routing
        self.attachments = attachments
        self.alterations = alterations
        self.named = attachments.named
        self.registry = registry
        self.epoch = context.epoch
        self.questions: dict[tuple[Want, SubscriptionName], Question] = {}
        self.waiting: dict[tuple[ClientName, int], tuple[Want, SubscriptionName]] = {}
        self.ready: list[tuple[ClientName, Subscribe]] = []  # their names are ours, or to be
        self._due: Instant | None = None
        self._orphans: dict[SubscriptionName, None] = {}  # their former broker is removed
        self._number = 0
        self.table = attachments.table
        self.recall = Recall(context, registry, self.table)
        for subscription in self.named.subscriptions.all():
            definition = subscription.definition
            if definition.registrar != registrar_of(context.network, definition.name):
                self.table.tell_home(definition.name)

    # --- what clients ask for ---------------------------------------------------------------------

    def claim(self, client: ClientName, message: Subscribe, now: Instant) -> list[Effect]:
        """Ask whose a name is that is not known here. Requests that may go on get into `ready`."""
        return self._wait("claim", client, message, now)

    def must_look(self, message: Subscribe, *, is_doubted: bool) -> bool:
        """May the subscription that is here be an old copy? Its client, which should have the
        token, shows none, or says something that cannot be believed."""
        assert message.name is not None
        known = self.named.subscriptions.get(message.name)
        if known is None or known.definition.tokens != "client":
            return False
        return message.token is None or is_doubted

    def look(self, client: ClientName, message: Subscribe, now: Instant) -> list[Effect]:
        """Ask whether a name that is known here has moved. Requests that may go on get into
        `ready`."""
        return self._wait("look", client, message, now)

    def free_if_not_here(self, name: SubscriptionName, now: Instant) -> list[Effect]:
        """A client is sent away that wants a name which is not here. The registrar may believe that
        it is, and send that client back: ask, and free it then."""
        if self.is_full or ("look", name) in self.questions or not may_exist(name):
            return []
        return self._open("look", name, None, "", [], now)

    def _wait(
        self, want: Want, client: ClientName, message: Subscribe, now: Instant
    ) -> list[Effect]:
        assert message.name is not None
        if self.is_full and (want, message.name) not in self.questions:
            return self._refuse_more(client, message)
        self.waiting[client, message.subscription] = want, message.name
        return self._ask(want, message.name, client, message, now)

    def forget(self, client: ClientName, message: Forget, now: Instant) -> list[Effect]:
        """End a subscription for good, here or at its home."""
        name = message.name
        if self._may_end(client, name):
            return self.attachments.forget(client, message)
        if self._may_end_leaving(client, name):
            self.table.ask_to_end(name, Ender(client, message))
            return []
        if self._is_being_freed(client, name):
            return self._ask("free", name, client, message, now)
        if registrar_of(self.network, name) is None or not may_exist(name):
            return refuse_unknown(client, message)
        return self._look(name, client, message, now)

    def acknowledge(self, client: ClientName, message: Acknowledge, now: Instant) -> list[Effect]:
        """Acknowledge by attachment, or by name, here or at the home of the subscription."""
        name = message.name
        if name is None or self._may_end(client, name):
            return self.attachments.acknowledge(client, message, now)
        if self._may_end_leaving(client, name) or registrar_of(self.network, name) is None:
            return refuse_unknown(client, message)
        if not may_exist(name):
            return refuse_unknown(client, message)
        return self._look(name, client, message, now)

    def alter(self, client: ClientName, message: AlterSubscription, now: Instant) -> list[Effect]:
        """Change the condition of a subscription, here or at its home."""
        name = message.name
        if self._may_end(client, name):
            return self.alterations.begin(client, message, now)
        if self._may_end_leaving(client, name) or registrar_of(self.network, name) is None:
            return refuse_unknown(client, message)
        if not may_exist(name):
            return refuse_unknown(client, message)
        return self._look(name, client, message, now)

    def _may_end(self, client: ClientName, name: SubscriptionName) -> bool:
        """Is the subscription here, and the client's? A subscription of another owner is looked for
        like one that does not exist: neither the answer nor its time tells the two apart."""
        known = self.named.subscriptions.get(name)
        if known is None:
            return False
        return self._client(client).may_end(known.definition.owner, known.definition.topic)

    def _may_end_leaving(self, client: ClientName, name: SubscriptionName) -> bool:
        left = self.table.departure(name)
        return left is not None and self._client(client).may_end(left.owner, left.topic)

    def _is_being_freed(self, client: ClientName, name: SubscriptionName) -> bool:
        question = self.questions.get(("free", name))
        known = question.message.known if question is not None else None
        return known is not None and self._client(client).may_end(known.owner, EVERY_TOPIC)

    def _look(
        self, name: SubscriptionName, client: ClientName, message: NameRequest, now: Instant
    ) -> list[Effect]:
        if self.is_full and ("look", name) not in self.questions:
            return self._refuse_more(client, message)
        return self._ask("look", name, client, message, now)

    @property
    def is_full(self) -> bool:
        return len(self.questions) >= self.config.name_questions_max

    def _refuse_more(self, client: ClientName, message: NameRequest) -> list[Effect]:
        problem = f"this broker asks about {len(self.questions)} names, which is its limit"
        return [Send(client, Refused(message.request, problem, "Try again.", retry=True))]

    def _ask(
        self,
        want: Want,
        name: SubscriptionName,
        client: ClientName,
        message: NameRequest,
        now: Instant,
    ) -> list[Effect]:
        """Ask for a client; if the question is open already, the client waits with the others."""
        asker = Asker(client, message, Instant(now + self.config.name_patience))
        if (question := self.questions.get((want, name))) is not None:
            question.askers.append(asker)
            return []
        moved = self.named.moved(name)
        known = None if moved is None else NameEntry(moved.broker, moved.moves, moved.owner)
        return self._open(want, name, known, self._client(client).owner, [asker], now)

    def _client(self, client: ClientName) -> ClientConnection:
        return self.attachments.subscribers.clients[client]

    def give_up(self, key: tuple[ClientName, int]) -> bool:
        """The client does not want the name any more; False if it did not wait for one."""
        asked = self.waiting.pop(key, None)
        if asked is None:
            return False
        question = self.questions[asked]
        question.askers = [each for each in question.askers if each.key != key]
        if not question.askers and asked[1] not in self._orphans:
            self._close(*asked)
        return True

    def take_ready(self) -> list[tuple[ClientName, Subscribe]]:
        """The subscriptions that may go on; they are the caller's from now on."""
        ready, self.ready = self.ready, []
        return ready

    def disconnect(self, client: ClientName) -> None:
        for key in [key for key in self.waiting if key[0] == client]:
            self.give_up(key)

    # --- asking -----------------------------------------------------------------------------------

    def _open(
        self,
        want: Want,
        name: SubscriptionName,
        known: NameEntry | None,
        owner: str,
        askers: list[Asker],
        now: Instant,
    ) -> list[Effect]:
        self._number += 1
        registrar = registrar_of(self.network, name)
        assert registrar is not None
        message = NameQuestion(
            name, self.name, registrar, want, self.epoch.number, self._number, known, owner
        )
        question = self.questions[want, name] = Question(message, now, askers)
        if want == "claim":
            self.table.claim(name)
        return self._put(question, now)

    def _close(self, want: Want, name: SubscriptionName) -> None:
        """Remove a question: it is answered, or no client waits for it."""
        del self.questions[want, name]
        if want == "claim":
            self.table.end_claim(name)

    def _put(self, question: Question, now: Instant) -> list[Effect]:
        """Ask, perhaps again. A claim waits while the name is still to be freed. Nothing is asked
        before the number of this broker's life is durable."""
        message = question.message
        question.due = Instant(now + self.config.name_repeat)
        self._due = min(self._due or question.due, question.due)
        if message.want == "claim" and self._is_leaving(message.name):
            return []
        if message.receiver == self.name:
            answer, effects = self.registry.ask(message)
            return effects + (self._answered(answer, now) if answer is not None else [])
        return self.routing.send_on(message, now) if self.epoch.is_durable else []

    def _is_leaving(self, name: SubscriptionName) -> bool:
        return self.table.departure(name) is not None or ("free", name) in self.questions

    def settle(self, now: Instant) -> list[Effect]:
        """At the end of a step: tell registrars of subscriptions that have come here."""
        effects: list[Effect] = []
        self.recall.settle()
        while not self.is_full and (name := self.table.take_first(Work.TELL_HOME)) is not None:
            if (entry := self.named.entry(name)) is not None:
                effects += self._open("tell", name, entry, "", [], now)
        while not self.is_full and (name := self.table.take_first(Work.SEEK_HOME)) is not None:
            self._orphans[name] = None
            if ("look", name) not in self.questions:
                effects += self._open("look", name, None, "", [], now)
        return effects + self.attachments.confirm(now)

    def left(self, message: Left, now: Instant) -> list[Effect]:
        """The end of a subscription is durable: tell its registrar that the name is free."""
        name = message.name
        until = Instant(now + self.config.name_patience)
        left = self.table.departed(name)
        askers = [Asker(client, asked, until) for client, asked in left.enders] if left else []
        self.questions.pop(("tell", name), None)
        freed = NameEntry(self.name, message.moves, left.owner if left else "")
        return self._open("free", name, freed, "", askers, now)

    # --- answers ----------------------------------------------------------------------------------

    def receive(
        self, message: NameQuestion | NameAnswer | NamesQuestion | NamesTold, now: Instant
    ) -> list[Effect]:
        if isinstance(message, NamesQuestion | NamesTold):
            return self.recall.receive(
                message, {n for want, n in self.questions if want == "tell"}, now
            )
        self._check(message)
        if message.receiver != self.name:
            return self.routing.send_on(message, now)
        if isinstance(message, NameAnswer):
            return self._answered(message, now)
        answer, effects = self.registry.receive(message)
        return effects + (self.routing.send_on(answer, now) if answer is not None else [])

    def _check(self, message: NameQuestion | NameAnswer) -> None:
        """`ProtocolError` if no broker of this network can have said so."""
        entry = message.entry if isinstance(message, NameAnswer) else message.known
        brokers = [message.sender, message.receiver]
        if isinstance(message, NameAnswer) and entry is not None:
            brokers.append(entry.home)  # a registrar sends nobody to one that is not there
        for broker in brokers:
            if broker not in self.network.cell_of:
                raise ProtocolError(f"no broker is called {quoted(broker)}")
        if not may_exist(message.name):
            raise ProtocolError(f"{quoted(message.name)} is no name of a subscription")
        is_told = isinstance(message, NameQuestion) and message.want != "free"
        if is_told and entry is not None and entry.number:  # only what a registrar noted has one
            raise ProtocolError(f"{quoted(message.name)} is told of as if we had noted it")

    def noted(self, message: Noted, now: Instant) -> list[Effect]:
        answer = self.registry.noted(message)
        return self.routing.send_on(answer, now) if answer is not None else []

    def _answered(self, answer: NameAnswer, now: Instant) -> list[Effect]:
        name = answer.name
        asked = [(want, q) for want in WANTS if (q := self.questions.get((want, name))) is not None]
        answered = [each for each in asked if each[1].message.number == answer.number]
        if not answered:
            return []  # to a question that is answered, or that nobody has any more
        [(want, question)] = answered
        if want == "tell" and answer.problem:
            return []  # ask on: there may be room later
        is_moved = want == "free" and is_same_life(question.message.known, answer.entry)
        if is_moved and self.table.ended(name) is not None:
            return []  # ask on: where it has moved to will hear from us that it is over
        self._close(want, name)
        if want == "tell":
            self.recall.told(name, answer.sender)
        effects = self._told(question.message, answer.entry) if want == "tell" else []
        for asker in question.askers:
            if asker.key is not None:
                self.waiting.pop(asker.key)
            if asker.client in self.attachments.subscribers.clients:
                effects += self._serve(want, asker, answer, now)
        if want == "look" and name in self._orphans:
            del self._orphans[name]
            effects += self._found_home(name, answer.entry)
        if want == "look":
            effects += self._free_what_is_not_here(name, answer.entry, now)
        if want == "free" and (claim := self.questions.get(("claim", name))) is not None:
            effects += self._put(claim, now)
        return effects

    def _serve(self, want: Want, asker: Asker, answer: NameAnswer, now: Instant) -> list[Effect]:
        """Go on with a client's request, now that the home of the name is known."""
        client, message, entry = asker.client, asker.message, answer.entry
        if want == "free":
            return [Send(client, Done(message.request))]
        who = self._client(client)
        if not isinstance(message, Subscribe):
            assert message.name is not None
            if self._may_end(client, message.name):  # it came here meanwhile
                if isinstance(message, Forget):
                    return self.attachments.forget(client, message)
                if isinstance(message, AlterSubscription):
                    return self.alterations.begin(client, message, now)
                return self.attachments.acknowledge(client, message, now)
            may_end = entry is not None and who.may_end(entry.owner, EVERY_TOPIC)
            if entry is None or entry.home == self.name or not may_end:
                return refuse_unknown(client, message)
        elif want == "look":
            return self._looked(client, message, entry, now)
        elif entry is None:
            remedy = "Use a name that exists, or unsubscribe one that you do not need."
            return [Send(client, Refused(message.request, answer.problem, remedy))]
        elif not who.may_use(entry.owner, EVERY_TOPIC):
            problem = f"not allowed to use the subscription name {quoted(message.name)}"
            return [Send(client, Refused(message.request, problem, "Use another name."))]
        elif entry.home == self.name or (
            message.token is not None
            and message.tokens == "client"
            and entry.owner == who.owner
            and entry.altered <= max(message.altered, 0)  # else only its home knows all conditions
        ):
            previous = None if entry.home == self.name else entry.home
            if entry.home == self.name and 0 < entry.lost <= self.epoch.first:
                assert message.name is not None
                self.attachments.remember_lost(message.name)
            self.ready.append((client, replace(message, previous=previous, moves=entry.moves)))
            return []
        problem = f"subscription {quoted(message.name)} is at broker {entry.home!r}"
        return refuse_elsewhere(client, message, problem, [entry.home])

    def _looked(
        self, client: ClientName, message: Subscribe, entry: NameEntry | None, now: Instant
    ) -> list[Effect]:
        """Go on with a client that came without a token to a subscription that was here."""
        assert message.name is not None
        own = self.named.entry(message.name)
        if own is None:  # it has ended, or moved, meanwhile
            return self.claim(client, message, now)
        newest = newer(own, entry)
        assert newest is not None
        if newest.home == self.name:
            self.ready.append((client, message))
            return []
        problem = f"subscription {quoted(message.name)} has moved to broker {newest.home!r}"
        return refuse_elsewhere(client, message, problem, [newest.home])

    def _found_home(self, name: SubscriptionName, entry: NameEntry | None) -> list[Effect]:
        """The broker where a subscription was is removed. If that broker had given it to a third
        one, it is taken over from there; otherwise it is ours."""
        known = self.named.subscriptions.get(name)
        if known is None or known.definition.previous in (None, *self.network.cell_of):
            return []
        if entry is None or entry.home == self.name or entry.home not in self.network.cell_of:
            self.table.tell_home(name)
            return self.named.settle_move(name)
        self.table.arrive(name)
        moves = max(known.definition.moves, entry.moves + 1)
        definition = dataclass_replace(
            known.definition, moves=moves, previous=entry.home, registrar=None
        )
        return self.named.subscriptions.redefine(definition)

    def _told(self, told: NameQuestion, entry: NameEntry | None) -> list[Effect]:
        """The registrar knows that the subscription is here: note that. If the registrar has noted
        more moves, from a claim that came to nothing, count from there."""
        known = self.named.subscriptions.get(told.name)
        assert told.known is not None
        if known is None or known.definition.moves != told.known.moves:
            return []
        if known.definition.altered != told.known.altered:
            return []
        moves = told.known.moves
        if entry is not None and entry.home == self.name:
            moves = max(moves, entry.moves)
        definition = dataclass_replace(known.definition, moves=moves, registrar=told.receiver)
        effects = self.named.subscriptions.redefine(definition)
        if entry is not None and entry.home != self.name:
            effects += self.alterations.leave_to(entry.home, told.name)
        return effects

    def _free_what_is_not_here(
        self, name: SubscriptionName, entry: NameEntry | None, now: Instant
    ) -> list[Effect]:
        """Free a name that the registrar believes to be here. A crash came between the claim and
        the creation, or between the end and its note. A name that a client waits for stays: it was
        claimed for a subscription that starts."""
        record = self.table.get(name)
        is_granted = record is not None and record.grant is not None
        is_ready = any(message.name == name for _, message in self.ready)
        is_here = self.named.subscriptions.get(name) is not None
        is_asked = ("claim", name) in self.questions or ("free", name) in self.questions
        is_used = is_here or is_granted or is_ready or is_asked
        if entry is None or entry.home != self.name or is_used:
            return []
        return self._open("free", name, entry, "", [], now)

    # --- time, invariants -------------------------------------------------------------------------

    @property
    def deadline(self) -> Instant | None:
        return earliest([self._due, self.recall.deadline])

    def fire(self, now: Instant) -> list[Effect]:
        return self.recall.fire(now) + self._repeat_all(now)

    def _repeat_all(self, now: Instant) -> list[Effect]:
        if self._due is None or now < self._due:
            return []
        self._due = None
        effects: list[Effect] = []
        for key, question in list(self.questions.items()):
            if self.questions.get(key) is not question:
                continue  # an answer to another has ended it
            if question.due <= now:
                effects += self._repeat(key, question, now)
            else:
                self._due = min(self._due or question.due, question.due)
        return effects

    def _repeat(
        self, key: tuple[Want, SubscriptionName], question: Question, now: Instant
    ) -> list[Effect]:
        want, name = key
        effects: list[Effect] = []
        for asker in [each for each in question.askers if each.until <= now]:
            question.askers.remove(asker)
            if asker.key is not None:
                del self.waiting[asker.key]
            if asker.client in self.attachments.subscribers.clients:
                is_ours = question.message.receiver == self.name
                awaited = self.recall.awaited if is_ours else []
                effects.append(Send(asker.client, question.silent(asker, awaited)))
        is_wanted = want == "free" or bool(question.askers)
        is_wanted |= want == "look" and name in self._orphans
        if want == "tell":
            is_wanted = self.named.subscriptions.get(name) is not None
        if not is_wanted:
            self._close(want, name)
            return effects
        return effects + self._put(question, now)

    def check(self, portion: Portion = WHOLE) -> None:
        self.registry.check(portion)
        assert self._due is not None or not self.questions, "I2"
        self.recall.check()
        for (client, _), asked in self.waiting.items():
            assert client in self.attachments.subscribers.clients, "I1"
            assert asked in self.questions, "I1"


def may_exist(name: SubscriptionName) -> bool:
    """Can a subscription have this name? If not, no registrar need be asked about it."""
    return 0 < len(name.encode()) <= KEY_BYTES_MAX


def refuse_unknown(
    client: ClientName, message: Forget | Acknowledge | AlterSubscription
) -> list[Effect]:
    problem = f"there is no subscription {quoted(message.name)} of yours"
    remedy = "Check the name, and who you are connected as."
    return [Send(client, Refused(message.request, problem, remedy))]
