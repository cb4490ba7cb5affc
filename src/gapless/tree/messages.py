"""What brokers of a tree say to each other, and what a broker tells its driver.

Theory of operation
    `Beat` is all that crosses an unproven link. Everything else is `Carried` on a connection: in
    batches that are numbered, so that what arrives is a prefix of what was sent (`connections`).
    Publications travel in runs: many of one source and topic, events as their publisher encoded
    them. A run carries its whole way through the tree: `hops`, nearest first, as the receiver sees
    it, its source last. A hop that was stepped over has no position. So does a subscription: a
    broker that missed it can get it from any side.

Source: SRDS 2011, sec. III to VIII. Deviations: a subscription is told apart by its name, not by
a vector of numbers; a path is carried whole, so that publications need no tags: the subscriber's
broker sees where each comes from. The numbers of a source are those of its broker's queue.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from msgspec.structs import replace

from gapless.core.events import EventBatch
from gapless.core.identity import BrokerName
from gapless.core.lengths import AnyCount, Condition, Name
from gapless.core.messages import Message
from gapless.tree.members import Members, pick, whole


class Position(NamedTuple):
    """A number that a broker gave; `epoch` counts its starts, so that numbers never fall."""

    epoch: AnyCount
    number: AnyCount


class PartitionId(NamedTuple):
    """Brokers that `detector` cannot reach, in the order of the path from it.

    As a tag of one subscription it may leave open what lies behind some neighbours of the last.
    """

    detector: BrokerName
    epoch: AnyCount
    number: AnyCount
    nodes: tuple[BrokerName, ...]
    open: tuple[BrokerName, ...] = ()

    @property
    def key(self) -> PartitionKey:
        """What tells partitions apart, whatever a tag leaves open."""
        return (self.detector, self.epoch, self.number)


PartitionKey = tuple[BrokerName, int, int]


Tags = tuple[PartitionId, ...]
"""Ascending: what travels is the same however a set was built."""


class SubscriptionId(NamedTuple):
    """One subscription; `source` is the broker of the subscriber."""

    source: BrokerName
    epoch: AnyCount
    number: AnyCount


NO_EVENTS = EventBatch(())


Life = tuple[BrokerName, AnyCount]
"""A broker from one start to its end; the number is its epoch."""


class Loss(NamedTuple):
    """Of what one life of `source` published for a topic, up to a number, `target` gets no more.

    Without a target: no broker need keep it for brokers that are out of reach.
    """

    source: BrokerName
    epoch: AnyCount
    topic: Name
    through: AnyCount
    target: Life | None = None


class Hop(NamedTuple):
    """One broker of a message's way; without a position it was bypassed."""

    broker: BrokerName
    position: Position | None


Edge = tuple[BrokerName, BrokerName]


class Clearing(NamedTuple):
    """For one subscription these partitions are over; what is still closed behind them is new."""

    subscription: SubscriptionId
    removed: Tags
    added: Tags


class Beat(Message, frozen=True):
    """I live. `session` is mine; `heard` is the last I know of yours; I sent `sent` on mine."""

    session: Position
    heard: Position | None = None
    sent: AnyCount = 0
    is_answer: bool = False
    """It needs none: two brokers that do not want each other would answer for ever."""


class SubscriptionOffer(Message, frozen=True):
    """Take this subscription. A broker behind the sender, seen from the subscriber, confirms it."""

    id: SubscriptionId
    topic: Name
    condition: Condition
    hops: tuple[Hop, ...]
    tags: Tags = ()


class SubscriptionConfirmed(Message, frozen=True):
    """All behind the sender have it, except what is on or beyond the tagged partitions.

    It is not clean if what comes from behind the sender does not come on this session now.
    """

    id: SubscriptionId
    tags: Tags = ()
    is_clean: bool = True


class SubscriptionRefused(Message, frozen=True):
    """`by` has no room for it: it cannot be in force."""

    id: SubscriptionId
    by: BrokerName


class SubscriptionWithdrawn(Message, frozen=True):
    """It is over; for all. `life` is the epoch of its source when that said so: if it is later than
    the subscription's, its source has crashed since."""

    id: SubscriptionId
    life: AnyCount = 0


class PublicationRun(Message, frozen=True):
    """Publications of one life of a source for one topic, by ascending number, with their events.

    A recovery notifier has `clearings`, a notice of the source's life has `life`: each is one
    number without an event.
    """

    source: BrokerName
    epoch: AnyCount
    numbers: tuple[AnyCount, ...]
    hops: tuple[Hop, ...]
    topic: Name = ""
    events: EventBatch = NO_EVENTS
    clearings: tuple[Clearing, ...] = ()
    not_for: tuple[SubscriptionId, ...] = ()
    """A broker had it in its queue before it knew of these: they do not begin with it."""
    is_awaited: bool = False
    """Its publisher wants to hear when all within reach have it, though others may be away."""
    life: Literal["", "begins", "ends"] = ""
    """For all subscribers: the first or the last of a life of its source."""

    @property
    def all(self) -> Members:
        return whole(len(self.numbers))

    def part(self, members: Members) -> PublicationRun:
        """The run of these members alone."""
        if members == self.all:
            return self
        numbers, events = pick(self.numbers, members), pick(self.events.events, members)
        return replace(self, numbers=numbers, events=EventBatch(events))


class RunConfirmed(Message, frozen=True):
    """Every subscriber behind the sender that may have these publications has them."""

    source: BrokerName
    epoch: AnyCount
    numbers: tuple[AnyCount, ...]


class RunHeld(Message, frozen=True):
    """Of publications that are awaited: all within reach behind the sender have them; for
    these brokers they are kept."""

    source: BrokerName
    epoch: AnyCount
    numbers: tuple[AnyCount, ...]
    away: tuple[BrokerName, ...]


class Credit(Message, frozen=True):
    """I have taken this many more publications from you: send the next."""

    count: AnyCount


class Losses(Message, frozen=True):
    """What is not kept any more. A broker that learns of one passes it on, before all younger."""

    losses: tuple[Loss, ...]


class SyncStart(Message, frozen=True):
    """My session with you is active now: which subscriptions do you have?

    `edges` is what the sender knows of the tree: a newcomer may have been missed. One that is new,
    or new again after a crash, wants all that the other has, and `SyncEnd` after it.
    """

    edges: tuple[Edge, ...] = ()
    is_new: bool = False
    retired: tuple[BrokerName, ...] = ()


class SyncSummary(Message, frozen=True):
    """I have these."""

    ids: tuple[SubscriptionId, ...] = ()


class SyncEnd(Message, frozen=True):
    """Now you have all that I have."""


class TreeJoin(Message, frozen=True):
    """I am new and want to be your neighbour."""


class TreeWelcome(Message, frozen=True):
    """This is your neighbourhood, and these brokers of the tree never return."""

    edges: tuple[Edge, ...]
    retired: tuple[BrokerName, ...] = ()


class Joined(Message, frozen=True):
    """Brokers came: each edge is an old broker and a new one. A broker that learns of one
    passes it on."""

    edges: tuple[Edge, ...]


class BrokersRetired(Message, frozen=True):
    """These brokers never return. A broker that learns of one passes it on."""

    names: tuple[BrokerName, ...]


CarriedMessage = (
    SubscriptionOffer
    | SubscriptionConfirmed
    | SubscriptionRefused
    | SubscriptionWithdrawn
    | PublicationRun
    | RunConfirmed
    | RunHeld
    | Credit
    | Losses
    | SyncStart
    | SyncSummary
    | SyncEnd
    | Joined
    | BrokersRetired
)


class Carried(Message, frozen=True):
    """One batch of a connection: the `number`-th, from 0, that was sent on it."""

    session: Position
    number: AnyCount
    messages: tuple[CarriedMessage, ...]


TreeMessage = Beat | Carried | TreeJoin | TreeWelcome


class Accepted(Message, frozen=True):
    """To the driver: the subscription is in force, except for what its tags close."""

    id: SubscriptionId
    tags: Tags = ()


class NoRoom(Message, frozen=True):
    """To the driver: the subscription has ended, since `by` has no room for it."""

    id: SubscriptionId
    by: BrokerName


class TreeDelivery(Message, frozen=True):
    """To the driver: publications for subscriptions of ours, and for each which of them."""

    run: PublicationRun
    takers: tuple[tuple[SubscriptionId, Members], ...]


class Missed(Message, frozen=True):
    """To the driver: of a life of `source` these subscriptions of ours have lost what matches of a
    topic after one number, through another."""

    source: BrokerName
    epoch: int
    topic: str
    after: int
    through: int
    subscriptions: tuple[SubscriptionId, ...]


class SourceEnded(Message, frozen=True):
    """To the driver: a life of `source` has ended without a word, and nothing more comes of it:
    these subscriptions of ours may have lost what came after the last of it."""

    source: BrokerName
    epoch: int
    subscriptions: tuple[SubscriptionId, ...]


class Confirmed(Message, frozen=True):
    """To the driver: publications of ours, by number, have reached all they should, but for brokers
    that were out of reach for so long that they were given up for them."""

    numbers: tuple[int, ...]
    lost_to: tuple[BrokerName, ...] = ()


class Held(Message, frozen=True):
    """To the driver: publications of ours that are awaited have reached all within reach; they are
    kept for subscribers of these brokers."""

    numbers: tuple[int, ...]
    away: tuple[BrokerName, ...]
