"""Names: what one broker asks the registrars of durable subscriptions, and what follows from it.

Theory of operation
    A subscription that exists here needs nobody else; but a client that should have its token and
    comes without may have moved on since, while this broker was down or cut off, and finished more
    elsewhere: its registrar is asked. Where a client asks for a name that is not known here, that
    is asked first (`registry`): a name that is free is claimed, and made here once that is noted.
    One that is at home elsewhere is taken over with the token that the client shows, as if it had
    said where it was; without a token, or where its broker keeps it, the client is sent there. So
    nobody ever starts anew what exists.
    A registrar is told of what came here without asking it: by a hand-over, or from a time before
    there were registrars. It is told too when a subscription has ended, and only then is that
    answered: whoever makes it anew, anywhere, finds the name free.
    Every question is repeated each `name_repeat` until it is answered. Clients wait for at most
    `name_patience`; then they are refused for the moment, and told who does not answer.

Invariants (checked by `check`)
    I1  who waits for a name is connected, and the question is open
    I2  while a question is open there is a deadline
"""

from __future__ import annotations

from dataclasses import replace as dataclass_replace
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gapless.core.client_messages import Done, Forget, Refused, Subscribe
from gapless.core.effects import Send
from gapless.core.errors import ProtocolError, quoted
from gapless.core.identity import BrokerName, ClientName, Instant, SubscriptionName
from gapless.core.lengths import KEY_BYTES_MAX
from gapless.core.name_messages import NameAnswer, NameEntry, NameQuestion
from gapless.core.portion import WHOLE, Portion
from gapless.node.directory.registry import Noted, is_same_life, newer, registrar_of
from gapless.node.redirect import refuse_elsewhere
from gapless.node.subscriptions.name_question import WANTS, Asker, Question

if TYPE_CHECKING:
    from gapless.core.client_messages import Acknowledge
    from gapless.core.effects import Effect
    from gapless.core.name_messages import Want
    from gapless.node.config import Config
    from gapless.node.delivery.connection import ClientConnection
    from gapless.node.directory.registry import Registry
    from gapless.node.epoch import Epoch
    from gapless.node.network import Network
    from gapless.node.routing import Routing
    from gapless.node.subscriptions.attachments import Attachments, Left
    from gapless.node.subscriptions.name_question import Request


EVERY_TOPIC = "*"
"""Of a subscription elsewhere only its owner is known: to administer it is to administer all."""


class Names:
    """The questions of one broker. See the module docstring."""

    def __init__(
        self,
        name: BrokerName,
        network: Network,
        config: Config,
        routing: Routing,
        attachments: Attachments,
        registry: Registry,
        epoch: Epoch,
    ) -> None:
        self.name = name
        self.network = network
        self.config = config
        self.routing = routing
        self.attachments = attachments
        self.durables = attachments.durables
        self.registry = registry
        self.epoch = epoch
        self.questions: dict[tuple[Want, SubscriptionName], Question] = {}
        self.waiting: dict[tuple[ClientName, int], tuple[Want, SubscriptionName]] = {}
        self.ready: list[tuple[ClientName, Subscribe]] = []  # their names are ours, or to be
        self.deadline: Instant | None = None
        self._number = 0
        for subscription in self.durables.subscriptions.all():
            definition = subscription.definition
            if definition.registrar != registrar_of(network, definition.name):
                attachments.untold[definition.name] = None

    # --- what clients ask for ---------------------------------------------------------------------

    def claim(self, client: ClientName, message: Subscribe, now: Instant) -> list[Effect]:
        """A name that is not known here: whose is it? What may go on is found in `ready`."""
        return self._wait("claim", client, message, now)

    def must_look(self, message: Subscribe, *, is_doubted: bool) -> bool:
        """May a subscription that is here be an old copy of one that has moved? Its client, who
        should know how far it is, does not say; or what it says cannot be believed."""
        assert message.name is not None
        known = self.durables.subscriptions.get(message.name)
        if known is None or known.definition.tokens != "client":
            return False
        return message.token is None or is_doubted

    def look(self, client: ClientName, message: Subscribe, now: Instant) -> list[Effect]:
        """A name that is known here: has it moved? What may go on is found in `ready`."""
        return self._wait("look", client, message, now)

    def _wait(
        self, want: Want, client: ClientName, message: Subscribe, now: Instant
    ) -> list[Effect]:
        assert message.name is not None
        if self.is_full and (want, message.name) not in self.questions:
            return self._refuse_more(client, message)
        self.waiting[client, message.subscription] = want, message.name
        return self._ask(want, message.name, client, message, now)

    def forget(self, client: ClientName, message: Forget, now: Instant) -> list[Effect]:
        """End a subscription for good, here or where it is."""
        name = message.name
        if self._may_end(client, name):
            return self.attachments.forget(client, message)
        if self._may_end_leaving(client, name):
            self.attachments.leaving[name].askers.append((client, message))
            return []
        if self._is_being_freed(client, name):
            return self._ask("free", name, client, message, now)
        if registrar_of(self.network, name) is None or not may_exist(name):
            return refuse_unknown(client, message)
        return self._look(name, client, message, now)

    def acknowledge(self, client: ClientName, message: Acknowledge, now: Instant) -> list[Effect]:
        """Of a subscription that its client is attached to, or by name, here or where it is."""
        name = message.name
        if name is None or self._may_end(client, name):
            return self.attachments.acknowledge(client, message, now)
        if self._may_end_leaving(client, name) or registrar_of(self.network, name) is None:
            return refuse_unknown(client, message)
        if not may_exist(name):
            return refuse_unknown(client, message)
        return self._look(name, client, message, now)

    def _may_end(self, client: ClientName, name: SubscriptionName) -> bool:
        """Is it here, and the client's? What is another's is looked for like one that is nowhere:
        no answer says, by its words or by its time, which of the two it is."""
        known = self.durables.subscriptions.get(name)
        if known is None:
            return False
        return self._client(client).may_end(known.definition.owner, known.definition.topic)

    def _may_end_leaving(self, client: ClientName, name: SubscriptionName) -> bool:
        left = self.attachments.leaving.get(name)
        return left is not None and self._client(client).may_end(left.owner, left.topic)

    def _is_being_freed(self, client: ClientName, name: SubscriptionName) -> bool:
        question = self.questions.get(("free", name))
        known = question.message.known if question is not None else None
        return known is not None and self._client(client).may_end(known.owner, EVERY_TOPIC)

    def _look(
        self, name: SubscriptionName, client: ClientName, message: Request, now: Instant
    ) -> list[Effect]:
        if self.is_full and ("look", name) not in self.questions:
            return self._refuse_more(client, message)
        return self._ask("look", name, client, message, now)

    @property
    def is_full(self) -> bool:
        return len(self.questions) >= self.config.name_questions_max

    def _refuse_more(self, client: ClientName, message: Request) -> list[Effect]:
        problem = f"this broker asks about {len(self.questions)} names, which is its limit"
        return [Send(client, Refused(message.request, problem, "Try again.", retry=True))]

    def _ask(
        self,
        want: Want,
        name: SubscriptionName,
        client: ClientName,
        message: Request,
        now: Instant,
    ) -> list[Effect]:
        """For a client, who may wait for the answer to a question that is open already."""
        asker = Asker(client, message, Instant(now + self.config.name_patience))
        if (question := self.questions.get((want, name))) is not None:
            question.askers.append(asker)
            return []
        moved = self.durables.moved(name)
        known = None if moved is None else NameEntry(moved.broker, moved.moves, moved.owner)
        return self._open(want, name, known, self._client(client).owner, [asker], now)

    def _client(self, client: ClientName) -> ClientConnection:
        return self.attachments.subscribers.clients[client]

    def give_up(self, key: tuple[ClientName, int]) -> bool:
        """Whoever waits for a name does not want it any more."""
        asked = self.waiting.pop(key, None)
        if asked is None:
            return False
        question = self.questions[asked]
        question.askers = [each for each in question.askers if each.key != key]
        if not question.askers:
            del self.questions[asked]
        return True

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
        return self._put(question, now)

    def _put(self, question: Question, now: Instant) -> list[Effect]:
        """Ask, perhaps again. Nobody claims what is still to be freed, nor in a life of which an
        older one may know nothing."""
        message = question.message
        question.due = Instant(now + self.config.name_repeat)
        self.deadline = min(self.deadline or question.due, question.due)
        if message.want == "claim" and self._is_leaving(message.name):
            return []
        if message.receiver == self.name:
            answer, effects = self.registry.ask(message)
            return effects + (self._answered(answer, now) if answer is not None else [])
        return self.routing.send_on(message, now) if self.epoch.is_durable else []

    def _is_leaving(self, name: SubscriptionName) -> bool:
        return name in self.attachments.leaving or ("free", name) in self.questions

    def settle(self, now: Instant) -> list[Effect]:
        """At the end of a step: tell of those that have come here."""
        effects: list[Effect] = []
        untold = self.attachments.untold
        while untold and not self.is_full:
            name = next(iter(untold))
            del untold[name]
            if (entry := self.durables.entry(name)) is not None:
                effects += self._open("tell", name, entry, "", [], now)
        return effects + self.attachments.confirm(now)

    def left(self, message: Left, now: Instant) -> list[Effect]:
        """A subscription has ended here, durably: its name is free."""
        name = message.name
        until = Instant(now + self.config.name_patience)
        left = self.attachments.leaving.pop(name, None)
        askers = [Asker(client, asked, until) for client, asked in left.askers] if left else []
        self.questions.pop(("tell", name), None)
        freed = NameEntry(self.name, message.moves, left.owner if left else "")
        return self._open("free", name, freed, "", askers, now)

    # --- answers ----------------------------------------------------------------------------------

    def receive(self, message: NameQuestion | NameAnswer, now: Instant) -> list[Effect]:
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
        if is_moved and name in self.attachments.ended:
            return []  # ask on: where it has moved to will hear from us that it is over
        del self.questions[want, name]
        effects = self._told(question.message, answer.entry) if want == "tell" else []
        for asker in question.askers:
            if asker.key is not None:
                self.waiting.pop(asker.key)
            if asker.client in self.attachments.subscribers.clients:
                effects += self._serve(want, asker, answer, now)
        if want == "look":
            effects += self._free_what_is_not_here(name, answer.entry, now)
        if want == "free" and (claim := self.questions.get(("claim", name))) is not None:
            effects += self._put(claim, now)
        return effects

    def _serve(self, want: Want, asker: Asker, answer: NameAnswer, now: Instant) -> list[Effect]:
        """Go on with what a client wants of a name, now that its home is known."""
        client, message, entry = asker.client, asker.message, answer.entry
        if want == "free":
            return [Send(client, Done(message.request))]
        who = self._client(client)
        if not isinstance(message, Subscribe):
            assert message.name is not None
            if self._may_end(client, message.name):  # it came here meanwhile
                if isinstance(message, Forget):
                    return self.attachments.forget(client, message)
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
            message.token is not None and message.tokens == "client" and entry.owner == who.owner
        ):
            previous = None if entry.home == self.name else entry.home
            self.ready.append((client, replace(message, previous=previous, moves=entry.moves)))
            return []
        problem = f"subscription {quoted(message.name)} is at broker {entry.home!r}"
        return refuse_elsewhere(client, message, problem, [entry.home])

    def _looked(
        self, client: ClientName, message: Subscribe, entry: NameEntry | None, now: Instant
    ) -> list[Effect]:
        """A subscription was here when its client came without a token."""
        assert message.name is not None
        own = self.durables.entry(message.name)
        if own is None:  # it has ended, or moved, meanwhile
            return self.claim(client, message, now)
        newest = newer(own, entry)
        assert newest is not None
        if newest.home == self.name:
            self.ready.append((client, message))
            return []
        problem = f"subscription {quoted(message.name)} has moved to broker {newest.home!r}"
        return refuse_elsewhere(client, message, problem, [newest.home])

    def _told(self, told: NameQuestion, entry: NameEntry | None) -> list[Effect]:
        """The registrar knows that a subscription is here: it need not be told again. If it has
        noted more moves for us, of a claim that came to nothing, the next must be beyond them."""
        known = self.durables.subscriptions.get(told.name)
        assert told.known is not None
        if known is None or known.definition.moves != told.known.moves:
            return []
        moves = told.known.moves
        if entry is not None and entry.home == self.name:
            moves = max(moves, entry.moves)
        definition = dataclass_replace(known.definition, moves=moves, registrar=told.receiver)
        return self.durables.subscriptions.redefine(definition)

    def _free_what_is_not_here(
        self, name: SubscriptionName, entry: NameEntry | None, now: Instant
    ) -> list[Effect]:
        """A crash came between a claim and what was claimed, or between an end and its note."""
        is_here = self.durables.subscriptions.get(name) is not None
        if entry is None or entry.home != self.name or is_here or ("claim", name) in self.questions:
            return []
        return self._open("free", name, entry, "", [], now)

    # --- time, invariants -------------------------------------------------------------------------

    def fire(self, now: Instant) -> list[Effect]:
        if self.deadline is None or now < self.deadline:
            return []
        self.deadline = None
        effects: list[Effect] = []
        for key, question in list(self.questions.items()):
            if self.questions.get(key) is not question:
                continue  # an answer to another has ended it
            if question.due <= now:
                effects += self._repeat(key, question, now)
            else:
                self.deadline = min(self.deadline or question.due, question.due)
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
                effects.append(Send(asker.client, question.silent(asker)))
        is_wanted = want == "free" or bool(question.askers)
        if want == "tell":
            is_wanted = self.durables.subscriptions.get(name) is not None
        if not is_wanted:
            del self.questions[key]
            return effects
        return effects + self._put(question, now)

    def check(self, portion: Portion = WHOLE) -> None:
        self.registry.check(portion)
        assert self.deadline is not None or not self.questions, "I2"
        for (client, _), asked in self.waiting.items():
            assert client in self.attachments.subscribers.clients, "I1"
            assert asked in self.questions, "I1"


def may_exist(name: SubscriptionName) -> bool:
    """Can any subscription be called so? If not, nobody need be asked about it."""
    return 0 < len(name.encode()) <= KEY_BYTES_MAX


def refuse_unknown(client: ClientName, message: Forget | Acknowledge) -> list[Effect]:
    problem = f"there is no subscription {quoted(message.name)} of yours"
    remedy = "Check the name, and who you are connected as."
    return [Send(client, Refused(message.request, problem, remedy))]
