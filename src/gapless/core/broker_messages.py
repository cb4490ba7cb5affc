"""The messages between brokers for the durable service: knowledge, subscriptions, release.

Theory of operation
    Knowledge flows down from a pubend, curiosity and acknowledgements flow up. One `Knowledge`
    covers a span with everything there is to know about it, so that a group commit is one
    message and silence costs nothing. The three papers of this service share one set of messages:
    the fields that subscription propagation (`digest`, `vector`, `minimum`) and durable
    subscriptions (`released`, `lost_below`) need stand here from the start.

Source: Bhola et al., DSN 2002; Zhao et al., Middleware 2004; Bhola et al., DSN 2003.
"""

from __future__ import annotations

from enum import IntEnum
from operator import lt

import msgspec

from gapless.core.client_messages import Subscribe
from gapless.core.events import NO_EVENTS, EventBatch
from gapless.core.identity import BrokerName, CellName, PubendName, SubscriptionName, TopicName
from gapless.core.lengths import AnyCount, Condition, LongName, Name
from gapless.core.messages import Message
from gapless.core.name_messages import NameAnswer, NameQuestion, NamesQuestion, NamesTold
from gapless.core.ticks import AnyTick, Span
from gapless.core.topic_messages import TopicQuestion

Vector = dict[Name, int]
"""Virtual-time vector: for each subscriber-hosting broker, how much of its subscriptions counts."""


class Purpose(IntEnum):
    """What a question is for. It decides which answers will do."""

    DELIVERY = 0
    """To go on delivering. Ticks that no broker below needs any more are final."""

    CATCH_UP = 1
    """For a durable subscription that was away. Events that are no longer kept are lost."""

    WHOLE = 2
    """For a durable subscription that this broker did not know before. Silence that a relay made by
    filtering does not count, so the pubend's own broker answers, and no relay filters the
    answer."""


# --- knowledge streams (DSN 2002) ---------------------------------------------------------------


class Knowledge(Message, frozen=True):
    """All there is to know about `span`: events at `ticks`, and silence at every other tick.

    Ticks below `final_below` are final: no broker behind the receiver needs them any more, so the
    receiver may take them for silence. Ticks from there to `lost_below` are no longer kept: they
    are lost to a subscription that catches up. `lost_below` may lie before the span: then it says
    how far the pubend has released. It may lie behind the span in an answer to a catch-up.
    `requested` marks an answer to a nack: a relay passes it on only to the brokers that asked.
    `more`: the answer does not hold all that was asked for; ask again for the rest.
    `scattered`: the message holds these events and says nothing about the other ticks of the span.
    `damaged`: the log cannot be read below `lost_below`. These events are lost to everyone, and
    the message says nothing about ticks before the span.
    """

    pubend: PubendName
    span: Span
    ticks: tuple[int, ...] = ()
    events: EventBatch = NO_EVENTS
    final_below: AnyTick = 0
    lost_below: AnyTick = 0
    requested: bool = False
    more: bool = False
    digest: int = 0  # stands for the message vector; 0: no propagation
    vector: Vector | None = None  # with the first message of a new digest on a link
    base: int = 0  # `vector` has only what differs from that of this digest; 0: it has all
    purpose: Purpose = Purpose.DELIVERY  # of the question that this answers
    scattered: bool = False
    damaged: bool = False

    def __post_init__(self) -> None:
        ticks, span = self.ticks, self.span
        if len(ticks) != len(self.events):
            raise ValueError(f"{len(ticks)} ticks for {len(self.events)} events")
        start = max(span.start, self.final_below, self.lost_below)
        if ticks and not (start <= ticks[0] and ticks[-1] < span.end):
            raise ValueError(f"events outside {span}, or among the final or the lost")
        if not all(map(lt, ticks, ticks[1:])):
            raise ValueError("the ticks of events must ascend")
        if self.scattered and (start > span.start or self.more or not self.requested):
            raise ValueError("scattered events are an answer, and say nothing else")


class Nack(Message, frozen=True):
    """Tell me about these spans again: I need them and do not know them."""

    pubend: PubendName
    spans: tuple[Span, ...]
    minimum: Vector | None = None  # silence made with less than this vector does not count
    purpose: Purpose = Purpose.DELIVERY
    events_max: AnyCount = 0  # how many the asking broker has room for; 0: no limit


class Ack(Message, frozen=True):
    """Behind `cell`, every tick below `delivered` is no longer needed for delivery.

    Ticks below `released` are not needed for any durable subscription either. Both are facts
    about the cell, whichever member reports them. `epoch` and `sequence` of the reporter put
    reports of `released` in order.
    """

    pubend: PubendName
    cell: CellName
    delivered: AnyTick
    released: AnyTick = 0
    reporter: BrokerName = BrokerName("")
    epoch: AnyCount = 0
    sequence: AnyCount = 0


class AckExpected(Message, frozen=True):
    """You should have all below `tick` by now: acknowledge it, or ask for what is missing."""

    pubend: PubendName
    tick: AnyTick


class StartQuery(Message, frozen=True):
    """Where does the pubend stand? Asked by a subscriber-hosting broker that knows nothing yet."""

    pubend: PubendName
    cell: CellName
    number: AnyCount


class StartReply(Message, frozen=True):
    """From `tick` on, nothing is lost to the asking cell: it may start there."""

    pubend: PubendName
    cell: CellName
    number: AnyCount
    tick: AnyTick
    digest: int = 0
    vector: Vector | None = None


class PromiseTold(Message, frozen=True):
    """The pubend may have spoken of all ticks below `tick`: keep that for it, beyond its own disk.

    `run` is the epoch of its host. Before `silent_below` nothing was ever published, as far as the
    host knows; 0: it does not know that."""

    pubend: PubendName
    cell: CellName
    run: AnyCount
    tick: AnyTick
    silent_below: AnyTick = 0


class PromiseKept(Message, frozen=True):
    """The promise is kept. In runs before this one the pubend had promised all below `before`."""

    pubend: PubendName
    cell: CellName
    run: AnyCount
    before: AnyTick


# --- subscription propagation (Middleware 2004) -------------------------------------------------


class SubscriptionChange(Message, frozen=True):
    """Conditions that a subtree gained and lost; applies if the vector equals `constraint`."""

    cell: CellName
    vector: Vector
    constraint: Vector
    added: tuple[Condition, ...] = ()
    removed: tuple[Condition, ...] = ()
    topic: TopicName = TopicName("")


class SubscriptionState(Message, frozen=True):
    """All conditions of a subtree, as of `vector`."""

    cell: CellName
    vector: Vector
    conditions: tuple[Condition, ...] = ()
    topic: TopicName = TopicName("")


class SubscriptionNack(Message, frozen=True):
    """Send me the state of this cell's subtree, at least as new as `wanted`."""

    cell: CellName
    wanted: Vector = msgspec.field(default_factory=dict)
    topic: TopicName = TopicName("")


Propagated = SubscriptionChange | SubscriptionState | SubscriptionNack
"""What subscription propagation sends; `topic` is filled in on the way out."""


class DigestNack(Message, frozen=True):
    """I do not know the vector behind this digest of that pubend's broker."""

    pubend: PubendName
    digest: int


# --- durable subscriptions (DSN 2003) -----------------------------------------------------------


class ReleaseHold(Message, frozen=True):
    """Release nothing at or above `tick` behind the sender's cell, from now on. It counts among the
    reporter's acknowledgements, and is answered by an echo to `cell`, where it began."""

    pubend: PubendName
    cell: CellName
    tick: AnyTick
    number: AnyCount
    reporter: BrokerName = BrokerName("")
    epoch: AnyCount = 0
    sequence: AnyCount = 0


class ReleaseEcho(Message, frozen=True):
    """The hold has reached the pubend."""

    pubend: PubendName
    cell: CellName
    number: AnyCount


class HandOver(Message, frozen=True):
    """The subscription lives at `sender` now, after `moves` moves; `receiver` may forget it.

    `done`: the receiver has forgotten it, durably. `elsewhere`: the subscription had already moved
    on to that broker. `owner`: the principal that owns it; a subscription of another owner is
    another subscription, and stays. `over`: the sender has ended it, so the receiver ends it too.
    `released`: how far the sender has it acknowledged, durably, at every pubend that it knows;
    None: the receiver need not compare. `ahead`: the receiver has not forgotten it yet, because
    more is acknowledged there, or its condition was changed there more often, to `condition`; both
    count at the other broker. `altered`: how often the condition was changed at the sender."""

    subscription: SubscriptionName
    topic: TopicName = TopicName("")
    sender: BrokerName = BrokerName("")
    receiver: BrokerName = BrokerName("")
    moves: AnyCount = 0
    done: bool = False
    elsewhere: BrokerName | None = None
    owner: Name = ""
    over: bool = False
    released: dict[LongName, AnyTick] | None = None
    ahead: bool = False
    altered: AnyCount = 0
    condition: Condition = ""


class TakeOver(Message, frozen=True):
    """A broker that is drained asks another one to take a subscription over: what its client would
    say that came with its token, and the principal that owns the subscription."""

    sender: BrokerName
    receiver: BrokerName
    subscribe: Subscribe
    owner: Name = ""


# --- on the way ---------------------------------------------------------------------------------

Routed = (
    Knowledge
    | Nack
    | Ack
    | AckExpected
    | StartQuery
    | StartReply
    | ReleaseHold
    | ReleaseEcho
    | PromiseTold
    | PromiseKept
)
"""Messages to a cell: routing picks the member that gets them."""


Addressed = (
    HandOver | TopicQuestion | NameQuestion | NameAnswer | NamesQuestion | NamesTold | TakeOver
)
"""Messages to one broker, by name; they travel hop by hop."""


class Sideways(Message, frozen=True):
    """A message for a neighbouring cell to which the sender has no live link; hops once only."""

    cell: CellName
    message: Routed | Propagated | Addressed
