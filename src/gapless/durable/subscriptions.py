"""Subscriptions: the durable subscriptions of one broker, and how far each has acknowledged.

Theory of operation
    A subscription has a name, which its user chooses, and a number, by which the filtered log knows
    it; a number is never given twice. Its definition is written once. How far it has acknowledged
    moves with every acknowledgement and is written in groups: while a write is under way the next
    acknowledgements gather, and each subscription that moved is written once. If the client keeps
    the token, its acknowledgements may wait for `released_flush`. If the broker keeps the token
    (`tokens="broker"`), the acknowledgement is the token: it is written at once, and answers to it
    leave when it is durable.
    Only what is durable counts towards release; otherwise a restart could go back behind it. A new
    subscription holds release from the moment it is asked for, and an ending one until its end is
    durable: in doubt, nothing is released.

Invariants (checked by `check`)
    I1  for each pubend, the least released position of all subscriptions is at hand, in O(1)
    I2  released <= acknowledged, for every subscription; neither moves back
    I3  no number is given twice, across restarts too
    I4  while an acknowledgement waits, a write is under way or there is a deadline
    I5  a subscription has moved at least as often as when it was made here
    I6  the accounts count the subscriptions that exist, and those whose end is not durable yet
    I7  a lease is of a query and of a run of it

Cost: an idle subscription costs nothing per event and under 2 KiB (`python -m benchmarks durable`).
Source: DSN 2003, sec. 4.1 (released) and 5.2 (auto-acknowledge);
docs/protocols/durable-subscriptions.md, 3.2, 3.7.
Deviation: one group at a time instead of four writers; our disk has one sync anyway.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from gapless.core.client_messages import FORMERS_MAX, Former
from gapless.core.effects import Delete, Effect, Persist, Put, Tell, Write
from gapless.core.errors import UsageError, quoted
from gapless.core.identity import BrokerName, Instant, PubendName, SubscriptionName, TopicName
from gapless.core.ledger import Account
from gapless.core.lengths import NAME_BYTES_MAX
from gapless.core.messages import Message
from gapless.core.portion import WHOLE, Portion
from gapless.core.token import Token
from gapless.durable.least_position import LeastPosition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gapless.core.client_messages import Order
    from gapless.core.store import Store
    from gapless.core.ticks import Span
    from gapless.durable.timing import DurableTiming

DEFINITIONS = "durable"
RELEASED = "released"
NUMBERS = "durable numbers"
NEXT = "next"

PUBEND_BYTES = 64
"""Bytes of tables that a subscription takes for each pubend of its topic. The rest is about 300
bytes, and bounded by the limit on subscriptions."""

TOO_MUCH = "End some, use shorter conditions, or use another broker."

TokenKeeper = Literal["client", "broker"]


def is_name(name: str) -> bool:
    """Is this a valid name of a subscription? Check it before writing it down."""
    return name.isprintable() and 0 < len(name.encode()) <= NAME_BYTES_MAX


def size_of(definition: Definition, since: Mapping[str, int]) -> int:
    """The bytes of a subscription whose number clients determine; they are kept in memory."""
    texts = 2 * len(definition.name.encode()) + len(definition.condition.encode())
    texts += len(definition.share_by.encode()) + sum(map(len, definition.topics))
    former = sum(len(each.condition.encode()) for each in definition.former)
    return texts + former + PUBEND_BYTES * len(since) * (1 + len(definition.former))


class SubscriptionPersisted(Message, frozen=True):
    """To the subscriptions themselves: this write is durable (or, not `ok`, had no room)."""

    number: int
    ok: bool = True
    name: SubscriptionName | None = None  # of the one that began or ended; None: acknowledgements
    ended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """The definition of a subscription. While it lives here its condition may change (`alter`), and
    so may what hand-overs need."""

    name: SubscriptionName
    topic: TopicName
    condition: str = ""
    order: Order = "publisher"
    owner: str = ""
    tokens: TokenKeeper = "client"
    moves: int = 0  # how often it moved to another broker
    first: int = 0  # its moves when it was made here; a later copy has more
    previous: BrokerName | None = None  # the broker it came from, which has not forgotten it yet
    registrar: BrokerName | None = None  # the broker that records its home; None: none yet
    altered: int = 0  # how often its condition has changed
    former: tuple[Former, ...] = ()  # what it was before, the oldest first; the last one stays
    share_by: str = ""  # of a group: the attribute that is the key; empty: it is no group
    attempts_max: int = 0  # of a group; 0: any number
    dead_letters: TopicName | None = None  # of a group: the topic of what was tried too often
    query: str = ""  # that has the lease (`node.subscriptions.leases`); empty: none ever had
    run: str = ""  # of the query: no other one may acknowledge by name
    topics: tuple[TopicName, ...] = ()  # of a subscription over several topics: this is one part
    is_anew: bool = False  # an earlier life was lost with a disk: what it lacks before this is lost

    @property
    def is_found(self) -> bool:
        """Will a client that comes to the previous broker be redirected here, even after a
        crash?"""
        return self.previous is None or self.registrar is not None


@dataclass(slots=True)
class Contact:
    """What this process remembers of the clients of a subscription, for people to see."""

    at: int = 0  # the instant of the last acknowledgement, or the end of a session; 0: none
    is_reader: bool = False  # was it acknowledged by name, by a client that reads ranges?
    sent: Token | None = None  # below it, the last client that was attached was sent everything
    leased_at: int = 0  # the instant when the run that has the lease was last heard; 0: not yet
    leaser: str = ""  # the connection on which that was
    gaps: int = 0  # told
    last_gap: tuple[PubendName, Span] | None = None  # of those


@dataclass(slots=True)
class DurableSubscription:
    """One durable subscription, connected or not."""

    number: int
    definition: Definition
    since: dict[str, int]  # by pubend: from there on the filtered log knows it
    released: Token  # acknowledged, and durable
    acknowledged: Token
    contact: Contact = field(default_factory=Contact)

    @property
    def start(self) -> Token:
        """Where one goes on who shows no token. If it begins with the oldest event (0), and where
        that is was found just now, it is to be found again: a crash could take it back."""
        return Token({pubend: at for pubend, at in self.acknowledged if self.released.get(pubend)})

    def encode(self) -> bytes:
        fields = asdict(self.definition) | {"number": self.number, "since": self.since}
        fields["former"] = [[each.condition, each.until] for each in self.definition.former]
        if not self.definition.run:
            del fields["query"], fields["run"]
        if not self.definition.topics:
            del fields["topics"]
        if not self.definition.is_anew:
            del fields["is_anew"]
        return json.dumps(fields, sort_keys=True).encode()

    @classmethod
    def decode(cls, fact: bytes, released: Token) -> DurableSubscription:
        fields = json.loads(fact)
        number, since = fields.pop("number"), fields.pop("since")
        fields["former"] = tuple(Former(*each) for each in fields.get("former", ()))
        fields["topics"] = tuple(fields.get("topics", ()))
        return cls(number, Definition(**fields), since, released, released)


@dataclass(slots=True)
class AckGroup:
    """Acknowledgements that are written together."""

    names: set[SubscriptionName] = field(default_factory=set)
    then: list[Effect] = field(default_factory=list)


class DurableSubscriptions:
    """All durable subscriptions of one broker. Sans-IO: see the module docstring."""

    def __init__(self, store: Store, timing: DurableTiming) -> None:
        self.timing = timing
        self.deadline: Instant | None = None
        share = timing.principal_share_percent
        self.counts = Account("durable subscriptions", timing.durable_subscriptions_max, share)
        what = "bytes of names and conditions of durable subscriptions"
        self.sizes = Account(what, timing.definition_bytes_max, share)
        self._by_name: dict[SubscriptionName, DurableSubscription] = {}
        self._least_positions: dict[PubendName, LeastPosition] = {}
        self._moved_pubends: dict[PubendName, None] = {}  # where release may have changed
        self._next = int.from_bytes(store.get(NUMBERS, NEXT) or b"", "little")
        self._next_group = AckGroup()
        self._ending_subscriptions: dict[int, DurableSubscription] = {}
        self._current_write: list[tuple[DurableSubscription, Token]] | None = None
        self._then: list[Effect] = []  # when the current write is durable
        self._write_number = 0
        released = store.items(RELEASED)
        for name, fact in store.items(DEFINITIONS).items():
            token = Token.from_json(released[name].decode())
            self._take_in(DurableSubscription.decode(fact, token))

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def next_number(self) -> int:
        """The number of the next subscription."""
        return self._next

    def get(self, name: SubscriptionName) -> DurableSubscription | None:
        return self._by_name.get(name)

    def all(self) -> list[DurableSubscription]:
        return list(self._by_name.values())

    def of_topic(self, topic: TopicName) -> list[DurableSubscription]:
        return [each for each in self._by_name.values() if each.definition.topic == topic]

    def released(self, pubend: PubendName) -> int | None:
        """The tick before which no durable subscription here needs anything; None without any."""
        minimum = self._least_positions.get(pubend)
        return minimum.least if minimum else None

    # --- begin and end --------------------------------------------------------------------------

    def create(
        self,
        definition: Definition,
        start: Token,
        since: dict[str, int],
        *,
        then: tuple[Effect, ...] = (),
        otherwise: tuple[Effect, ...] = (),
    ) -> list[Effect]:
        """Add a subscription from `start` on; `then` when it is durable, `otherwise` without
        room."""
        name = definition.name
        if name in self._by_name:
            raise UsageError(f"there is a subscription {name!r} here", "Use another name.")
        if not is_name(name):
            raise UsageError(
                f"{quoted(name)} is no name", f"Use 1 to {NAME_BYTES_MAX} printable bytes."
            )
        if problem := self.refusal(definition, since):
            raise UsageError(problem, TOO_MUCH)
        subscription = DurableSubscription(self._next, definition, since, start, start)
        self._next += 1
        self._take_in(subscription)
        writes = (
            Put(NUMBERS, NEXT, self._next.to_bytes(8, "little")),
            Put(DEFINITIONS, name, subscription.encode()),
            Put(RELEASED, name, start.to_json().encode()),
        )
        failed = Tell(SubscriptionPersisted(subscription.number, ok=False, name=name))
        return [Persist(writes, then, (failed, *otherwise))]

    def refusal(self, definition: Definition, since: Mapping[str, int]) -> str:
        """Why there is no room for one more subscription; empty if there is room."""
        if len(self) >= self.timing.durable_subscriptions_max:
            return f"this broker has {len(self)} durable subscriptions, which is its limit"
        problem = self.counts.refusal(definition.owner, 1)
        return problem or self.sizes.refusal(definition.owner, size_of(definition, since))

    def redefine(
        self,
        definition: Definition,
        *,
        then: tuple[Effect, ...] = (),
        otherwise: tuple[Effect, ...] = (),
    ) -> list[Effect]:
        """Replace the definition under the same name and number, as hand-overs and changes of the
        condition need it."""
        subscription = self._by_name[definition.name]
        before, since = subscription.definition, subscription.since
        self.sizes.give_back(before.owner, size_of(before, since))
        self.sizes.take(definition.owner, size_of(definition, since))
        subscription.definition = definition
        fact = Put(DEFINITIONS, definition.name, subscription.encode())
        return [Persist((fact,), then, otherwise)]

    def altered(self, name: SubscriptionName, condition: str, until: dict[str, int]) -> Definition:
        """The definition with another condition from these ticks on. Former conditions that only
        counted for what is acknowledged are left out."""
        subscription = self._by_name[name]
        before, released = subscription.definition, subscription.released
        needed = [
            each
            for each in before.former
            if any(tick > released.get(pubend) for pubend, tick in each.until.items())
        ]
        return replace(
            before,
            condition=condition,
            altered=before.altered + 1,
            former=(*needed, Former(before.condition, until)),
            registrar=None,
        )

    def refuse_change(self, name: SubscriptionName, condition: str) -> str:
        """Why the condition may not become this one now; empty if it may."""
        subscription = self._by_name[name]
        wanted = self.altered(name, condition, dict(subscription.since))
        if len(wanted.former) > FORMERS_MAX:
            return f"{FORMERS_MAX} conditions of it count for events that are not acknowledged"
        more = size_of(wanted, subscription.since)
        more -= size_of(subscription.definition, subscription.since)
        return self.sizes.refusal(wanted.owner, more) if more > 0 else ""

    def begin_anew(self, pubend: PubendName, tick: int) -> list[Put]:
        """The writes that let the filtered log of a pubend know every subscription from `tick` on
        only."""
        writes: list[Put] = []
        for subscription in self._by_name.values():
            if pubend in subscription.since:
                subscription.since[pubend] = max(tick, subscription.since[pubend])
                name = subscription.definition.name
                writes.append(Put(DEFINITIONS, name, subscription.encode()))
        return writes

    def settle_move(self, name: SubscriptionName) -> list[Effect]:
        """Record that the previous broker has forgotten it."""
        return self.redefine(replace(self._by_name[name].definition, previous=None))

    def end(self, name: SubscriptionName, *, then: tuple[Effect, ...] = ()) -> list[Effect]:
        """End a subscription; `then` when that is durable. Deleting needs no room."""
        subscription = self._by_name.pop(name)
        self._ending_subscriptions[subscription.number] = subscription
        self._next_group.names.discard(name)
        writes = (Delete(DEFINITIONS, name), Delete(RELEASED, name))
        ended = Tell(SubscriptionPersisted(subscription.number, name=name, ended=True))
        return [Persist(writes, (ended, *then))]

    def _take_in(self, subscription: DurableSubscription) -> None:
        definition = subscription.definition
        self._by_name[definition.name] = subscription
        self.counts.take(definition.owner)
        self.sizes.take(definition.owner, size_of(definition, subscription.since))
        self._count(subscription)

    def take_moved(self) -> dict[PubendName, None]:
        """The pubends at which release may have changed since the last call."""
        moved, self._moved_pubends = self._moved_pubends, {}
        return moved

    def _count(self, subscription: DurableSubscription) -> None:
        """Hold release at every pubend of the subscription."""
        for pubend in subscription.since:
            self._moved_pubends[PubendName(pubend)] = None
            minimum = self._least_positions.setdefault(PubendName(pubend), LeastPosition())
            minimum.set(subscription.number, subscription.released.get(pubend))

    def _discount(self, subscription: DurableSubscription) -> None:
        definition = subscription.definition
        self.counts.give_back(definition.owner)
        self.sizes.give_back(definition.owner, size_of(definition, subscription.since))
        for pubend in subscription.since:
            self._moved_pubends[PubendName(pubend)] = None
            self._least_positions[PubendName(pubend)].remove(subscription.number)

    # --- acknowledgements -----------------------------------------------------------------------

    def acknowledge(
        self, name: SubscriptionName, token: Token, now: Instant, *, then: tuple[Effect, ...] = ()
    ) -> list[Effect]:
        """Note that everything below `token` is consumed; `then` once that is durable.

        An older token changes nothing, and pubends that are unknown in it are ignored.
        """
        subscription = self._by_name[name]
        own = Token({pubend: token.get(pubend) for pubend in subscription.since})
        moved = subscription.acknowledged.join(own)
        if moved != subscription.acknowledged:
            subscription.acknowledged = moved
            self._next_group.names.add(name)
        self._next_group.then += then
        is_token = (
            subscription.definition.tokens == "broker" and not subscription.definition.share_by
        )
        if is_token or then:  # what a group has finished is durable elsewhere
            return self._write()
        if self._next_group.names and self._current_write is None and self.deadline is None:
            self.deadline = Instant(now + self.timing.released_flush)
        return []

    def _write(self) -> list[Effect]:
        if self._current_write is not None or not (self._next_group.names or self._next_group.then):
            return []
        self.deadline = None
        group, self._next_group = self._next_group, AckGroup()
        touched = [self._by_name[name] for name in sorted(group.names)]
        self._current_write = [
            (subscription, subscription.acknowledged) for subscription in touched
        ]
        self._then = group.then
        self._write_number += 1
        writes: tuple[Write, ...] = tuple(
            Put(RELEASED, subscription.definition.name, token.to_json().encode())
            for subscription, token in self._current_write
        )
        done, failed = (SubscriptionPersisted(self._write_number, ok=ok) for ok in (True, False))
        return [Persist(writes, (Tell(done),), (Tell(failed),))]

    def persisted(self, message: SubscriptionPersisted, now: Instant) -> list[Effect]:
        """Handle the end of a write; return the effects that waited for it."""
        if message.name is not None:
            if message.ended:
                self._discount(self._ending_subscriptions.pop(message.number))
            elif (begun := self.get(message.name)) and begun.number == message.number:
                self._discount(self._by_name.pop(message.name))  # the disk had no room for it
                self._next_group.names.discard(message.name)  # acknowledged meanwhile
            return []
        assert self._current_write is not None
        assert message.number == self._write_number
        written, self._current_write = self._current_write, None
        present = [each for each in written if self.get(each[0].definition.name) is each[0]]
        if not message.ok:
            self._next_group.names.update(each[0].definition.name for each in present)
            self._next_group.then[:0] = self._then
            self._then = []
            self.deadline = Instant(now + self.timing.storage_retry)
            return []
        for subscription, token in present:
            subscription.released = token
            self._count(subscription)
        then, self._then = self._then, []
        return then + self._write()

    def fire(self, now: Instant) -> list[Effect]:
        if self.deadline is None or now < self.deadline:
            return []
        self.deadline = None  # if a write is under way, its end starts the next
        return self._write()

    def check(self, portion: Portion = WHOLE) -> None:
        self.counts.check()
        self.sizes.check()
        assert self.counts.total == len(self._by_name) + len(self._ending_subscriptions), "I6"
        if portion.is_whole:
            for minimum in self._least_positions.values():
                minimum.check()
        writing = {subscription.number for subscription, _ in self._current_write or ()}
        for name, subscription in portion.of(self._by_name.items()):
            assert subscription.released <= subscription.acknowledged, "I2"
            moved = subscription.released != subscription.acknowledged
            pending = name in self._next_group.names or subscription.number in writing
            assert pending or not moved, "I4"
            assert subscription.number < self._next, "I3"
            assert subscription.definition.first <= subscription.definition.moves, "I5"
            assert bool(subscription.definition.query) is bool(subscription.definition.run), "I7"
            for pubend in subscription.since:
                least = self.released(PubendName(pubend))
                assert least is not None, "I1"
                assert least <= subscription.released.get(pubend), "I1"
        if self._next_group.names or self._next_group.then:
            assert self._current_write is not None or self.deadline is not None, "I4"
