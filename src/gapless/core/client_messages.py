"""The messages between a client and its broker.

A batch is the unit here too: a `Publish` carries many events, `Deliveries` carries all that one
step of the broker has for one connection, each event once however many subscriptions want it.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from gapless.core.events import NO_EVENTS, EventBatch
from gapless.core.identity import (
    BrokerName,
    PubendName,
    PublisherName,
    SubscriptionName,
    TopicName,
    check_name,
)
from gapless.core.lengths import Address, AnyCount, Condition, LongName, Name, Prose
from gapless.core.messages import Made, Message, Told
from gapless.core.ticks import PUBEND_COUNT_MAX, TICK_MAX, AnyTick, Span, check_ticks

Order = Literal["publisher", "total"]
TokenKeeper = Literal["client", "broker"]

TokenMap = Annotated[dict[LongName, int], msgspec.Meta(max_length=PUBEND_COUNT_MAX)]
"""A token on the wire: at most one position for each pubend that a topic can have."""

OPENING_MAX = (1 << 63) - 1

FORMERS_MAX = 64
"""Former conditions of a subscription that are kept. While its client has not acknowledged what the
oldest one is for, no further change is accepted."""


class Former(msgspec.Struct, frozen=True):
    """A condition that a named subscription had: it counts below these ticks, by pubend."""

    condition: Condition
    until: TokenMap


Formers = Annotated[tuple[Former, ...], msgspec.Meta(max_length=FORMERS_MAX)]
"""The former conditions of a subscription, the oldest first."""

UNKNOWN = -1
"""In place of a count: the client has never been attached to the subscription."""

ALTERED_MAX = 1 << 32
"""More changes of a condition than clients can make: what is counted on from here fits brokers'
messages."""


class Publish(Message, frozen=True):
    """Events for a topic. A named publisher numbers them, `sequence` is that of the first, and says
    under which term of its name it does."""

    topic: TopicName
    request: int
    events: EventBatch
    publisher: PublisherName | None = None
    sequence: int = 0
    term: int = 0  # 0: no broker was asked about the name
    confirmed: bool = False
    """For a reliable topic: send the receipt when every broker within reach that has subscribers
    for the events has all of them. The receipt of a durable topic promises more in any case."""

    def __post_init__(self) -> None:
        if not len(self.events):
            raise ValueError("a publication needs at least one event")
        if self.sequence < 0 or self.term < 0:
            raise ValueError("sequence numbers and terms start at 0")
        if self.publisher is not None:
            check_name(self.publisher, "publisher")


class Receipt(Message, frozen=True):
    """All events of the request are on stable storage, at these ticks.

    A repeated event gets the tick it got the first time; -1 where that is no longer remembered.
    """

    request: int
    pubend: PubendName
    ticks: tuple[int, ...]
    unheard: bool = False  # nobody subscribes, and the topic keeps nothing: it is gone at once


class PublisherQuery(Message, frozen=True):
    """I take this name over: which number does the next event get, and what is my term? Asked again
    with the same `opening`, any number but 0, it is the same take-over."""

    request: int
    topic: TopicName
    publisher: PublisherName
    opening: int = 0

    def __post_init__(self) -> None:
        check_name(self.publisher, "publisher")
        if not 0 <= self.opening <= OPENING_MAX:
            raise ValueError("an opening has 63 bits")


class PublisherPosition(Message, frozen=True):
    """So many events were published under the name: the next gets this number. From now on only
    what is published under this term counts, until somebody else takes the name over."""

    request: int
    sequence: int
    term: int = 0


class Refused(Told, frozen=True):
    """The request was not carried out; nothing of it took effect."""

    request: int
    problem: Prose
    remedy: Prose
    retry: bool = False  # whether the same request may succeed later
    elsewhere: tuple[Address, ...] = ()  # addresses of brokers that can serve it, any of them


class Sharing(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a group shares its events among its members."""

    share_by: Name  # the attribute that is the key
    attempts_max: AnyCount = 0  # how often an event may be tried; 0: any number
    dead_letters: TopicName | None = None  # the topic where an event goes after that

    def __post_init__(self) -> None:
        if not self.share_by:
            raise ValueError("a group shares by an attribute, which has a name")
        if bool(self.attempts_max) is not (self.dead_letters is not None):
            raise ValueError("attempts_max and dead_letters go together")


TOPICS_MAX = 64
"""Topics of one subscription."""

Topics = Annotated[tuple[TopicName, ...], msgspec.Meta(max_length=TOPICS_MAX)]


class Subscribe(Message, frozen=True):
    """Deliver what matches `condition`, until the connection ends.

    With a `name` the subscription is durable: it goes on counting while no client is connected,
    until a client ends it with `Forget`. A new one starts now, or where `token`, `earliest` or
    `instant` says. An existing one goes on from `token`, or from what its broker knows to be
    consumed.
    """

    topic: TopicName
    request: int
    subscription: int  # chosen by the client, unique on its connection
    condition: Condition = ""
    order: Order = "publisher"
    name: SubscriptionName | None = None
    token: TokenMap | None = None  # by pubend: everything below is consumed
    earliest: bool = False  # from the oldest event that is kept
    instant: int | None = None  # from this time on, in microseconds
    tokens: TokenKeeper = "client"  # the side that remembers what is consumed
    previous: BrokerName | None = None  # where it lived before, if elsewhere
    moves: int = 0  # how often it has moved
    altered: int = UNKNOWN  # how often its condition has changed, as the client was told
    former: Formers = ()  # the conditions before this one that may still count
    share: Sharing | None = None  # the client becomes a member of a group
    in_hand_max: AnyCount = 0  # events that this member has in hand; 0: as many as the group allows
    topics: Topics = ()  # sorted, of a subscription over several topics: this is the part of one

    def __post_init__(self) -> None:
        is_shown = self.token is not None and self.previous is None
        if self.share is not None and (self.name is None or is_shown):
            raise ValueError("a group has a name, and no token that clients could show")
        if self.topics and (self.name is None or self.topic not in self.topics):
            raise ValueError("a part of a named subscription is of one of its topics")
        given = (self.token is not None) + self.earliest + (self.instant is not None)
        if given > 1:
            raise ValueError("a subscription starts at one place: token, earliest or instant")
        if self.name is None and given:
            raise ValueError("only a named subscription starts elsewhere than now")
        if not 0 <= self.subscription <= TICK_MAX or self.moves < 0:
            raise ValueError("subscriptions are numbered from 0, within 63 bits; so are moves")
        if not UNKNOWN <= self.altered <= ALTERED_MAX:
            raise ValueError(f"no condition changes more than {ALTERED_MAX} times")
        check_ticks(self.token or {})
        for former in self.former:
            check_ticks(former.until)


class Subscribed(Told, frozen=True):
    """The subscription counts from these ticks on: all that match and none before them."""

    request: int
    subscription: int
    start: dict[LongName, int]  # by pubend: the first tick that counts
    behind: tuple[LongName, ...] = ()  # pubends at which it has to catch up first
    moves: int = 0
    altered: int = 0  # how often the condition of a named subscription has changed
    condition: Condition = ""  # with `altered`: the present one
    former: Formers = ()


class Unreached(Told, frozen=True):
    """The subscription, of a reliable topic, has not reached these brokers: what is published there
    or behind them is missed until it has. Said before its `Subscribed` if there are any, and again
    whenever they change; none: from here on it gets everything."""

    subscription: int
    brokers: tuple[BrokerName, ...] = ()


class Unsubscribe(Message, frozen=True):
    """End a subscription; nothing is delivered to it after the `Ended`."""

    subscription: int


class Ended(Told, frozen=True):
    """The subscription is over. Empty `problem`: as asked."""

    subscription: int
    problem: Prose = ""
    remedy: Prose = ""
    elsewhere: bool = False  # it goes on at another broker, to which a retry is redirected


class Deliveries(Told, frozen=True):
    """Events for one connection, and which subscriptions take each of them.

    Event i, at `ticks[i]`, goes to the subscriptions `takers[i]`, in this order. All else below
    `through` is silence for the subscriptions of that order: their position is now `through`.
    With a `pubend`, this is about that one; without, about all pubends of the topic, merged.
    With `only`, it is about that subscription alone, which is catching up. Without, it is about all
    subscriptions that are not catching up.
    """

    topic: TopicName
    through: int
    pubend: PubendName | None = None
    ticks: tuple[int, ...] = ()
    events: EventBatch = NO_EVENTS
    takers: tuple[tuple[int, ...], ...] = ()
    only: int | None = None

    def __post_init__(self) -> None:
        if not len(self.ticks) == len(self.events) == len(self.takers):
            raise ValueError("each delivered event has a tick and takers")
        Made.count += 1


class Lost(Message, frozen=True):
    """These subscriptions have lost every event of the span: it was released early."""

    subscriptions: tuple[int, ...]
    pubend: PubendName
    span: Span


class CaughtUp(Message, frozen=True):
    """The subscription has caught up: from here on it shares the deliveries of this pubend."""

    subscription: int
    pubend: PubendName


class FellBehind(Message, frozen=True):
    """From here on the subscription is behind again, because its client is slower than the stream:
    it gets deliveries of its own, as fast as it takes them."""

    subscription: int
    pubend: PubendName


class Acknowledge(Message, frozen=True):
    """A named subscription has consumed everything below `token`: it need not be kept.

    With a `request`, the answer comes when that is on stable storage. With a `name`, which needs a
    request, it is about the subscription of that name, whichever client is attached to it, and the
    number does not matter: clients that consume by range reads use this. With an empty token and
    without a run it only asks which topics the subscription has (`Done`).

    Such a client may say which `run` it is. With a `query` it asks for the lease of the name, for
    this run of that query; without, it has the lease, or is refused."""

    subscription: int
    token: TokenMap
    request: int = 0
    name: SubscriptionName | None = None
    run: Name = ""
    query: Name = ""
    awaited: AnyTick = 0
    """Of a subscription in total order: tell soon that everything below this tick has come."""

    def __post_init__(self) -> None:
        if self.name is not None and not self.request:
            raise ValueError("an acknowledgement by name needs a request")
        if (self.run and self.name is None) or (self.query and not self.run):
            raise ValueError("a run acknowledges by name, and a query has a run")
        check_ticks(self.token)


class Done(Told, frozen=True):
    """The request was carried out, durably. `topics`: of a subscription over several topics that
    was asked about."""

    request: int
    topics: Topics = ()


class Forget(Message, frozen=True):
    """End a named subscription for good, whichever client is connected to it."""

    request: int
    name: SubscriptionName


class AlterSubscription(Message, frozen=True):
    """Give a named subscription another condition, whichever client is connected to it."""

    request: int
    name: SubscriptionName
    condition: Condition = ""


class SubscriptionAltered(Told, frozen=True):
    """A named subscription has another condition, from the ticks on where its last former one ends.

    With a `request` it is the answer to an `AlterSubscription`. Without, it is for the client that
    is attached under the number `subscription`, before anything that the new condition decides; the
    client answers `AlterationNoted`."""

    request: int
    subscription: int
    condition: Condition
    altered: int
    former: Formers = ()


class AlterationNoted(Message, frozen=True):
    """I know the condition of the subscription after this many changes, and take it along."""

    subscription: int
    altered: int


class RetireBroker(Message, frozen=True):
    """A broker never returns: end its subscriptions to reliable topics everywhere, and hand its
    place in their tree on."""

    request: int
    broker: BrokerName


class Consumed(Message, frozen=True):
    """The client has taken this many events off its queue since it last said so."""

    count: int
