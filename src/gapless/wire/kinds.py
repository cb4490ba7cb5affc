"""Every kind of message that crosses a link. A peer can send no other."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from gapless.core.broker_messages import (
    Ack,
    AckExpected,
    DigestNack,
    HandOver,
    Knowledge,
    Nack,
    PromiseKept,
    PromiseTold,
    ReleaseEcho,
    ReleaseHold,
    Sideways,
    StartQuery,
    StartReply,
    SubscriptionChange,
    SubscriptionNack,
    SubscriptionState,
    TakeOver,
)
from gapless.core.client_messages import (
    Acknowledge,
    AlterationNoted,
    AlterSubscription,
    CaughtUp,
    Consumed,
    Deliveries,
    Done,
    Ended,
    FellBehind,
    Forget,
    Lost,
    Publish,
    PublisherPosition,
    PublisherQuery,
    Receipt,
    Refused,
    RetireBroker,
    Subscribe,
    Subscribed,
    SubscriptionAltered,
    Unreached,
    Unsubscribe,
)
from gapless.core.group_messages import Finish, Handed, Reject, TakenBack
from gapless.core.messages import Addresses, Goodbye, Hello, Ping, Pong
from gapless.core.name_messages import NameAnswer, NameQuestion, NamesQuestion, NamesTold
from gapless.core.range_messages import Positions, PositionsQuery, RangeRead, ReadRange
from gapless.core.roster_messages import Roster, RosterQuery, Strike
from gapless.core.topic_messages import (
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    TopicList,
    TopicNews,
    TopicQuestion,
    TopicsQuery,
)
from gapless.core.transaction_messages import (
    Abort,
    Commit,
    Committed,
    ProducerPosition,
    ProducerQuery,
    Stage,
)
from gapless.wire.codec import Codec

if TYPE_CHECKING:
    from gapless.core.messages import Message

LINK: tuple[type[Message], ...] = (Hello, Goodbye, Ping, Pong, Addresses)

BROKERS: tuple[type[Message], ...] = (
    Knowledge,
    Nack,
    Ack,
    AckExpected,
    StartQuery,
    StartReply,
    Sideways,
    SubscriptionChange,
    SubscriptionState,
    SubscriptionNack,
    DigestNack,
    ReleaseHold,
    ReleaseEcho,
    HandOver,
    NameQuestion,
    NameAnswer,
    PromiseTold,
    PromiseKept,
    NamesQuestion,
    NamesTold,
    TakeOver,
)

CLIENTS: tuple[type[Message], ...] = (
    Publish,
    Receipt,
    PublisherQuery,
    PublisherPosition,
    Refused,
    Subscribe,
    Subscribed,
    Unreached,
    Unsubscribe,
    Ended,
    Deliveries,
    Lost,
    CaughtUp,
    FellBehind,
    Acknowledge,
    Done,
    Forget,
    RetireBroker,
    Consumed,
    AlterSubscription,
    SubscriptionAltered,
    AlterationNoted,
)

TOPICS: tuple[type[Message], ...] = (
    CreateTopic,
    DeleteTopic,
    TopicsQuery,
    TopicList,
    TopicNews,
    TopicQuestion,
    AlterTopic,
)

TRANSACTIONS: tuple[type[Message], ...] = (
    Stage,
    Commit,
    Committed,
    Abort,
    ProducerQuery,
    ProducerPosition,
)

RANGES: tuple[type[Message], ...] = (ReadRange, RangeRead, PositionsQuery, Positions)

ROSTERS: tuple[type[Message], ...] = (RosterQuery, Roster, Strike)

GROUPS: tuple[type[Message], ...] = (Handed, Finish, Reject, TakenBack)

KINDS = (*LINK, *BROKERS, *CLIENTS, *TOPICS, *TRANSACTIONS, *RANGES, *ROSTERS, *GROUPS)


@cache
def codec(*more: type[Message]) -> Codec:
    """The codec of all kinds, and of more kinds between brokers; made once a process."""
    return Codec(*KINDS, *more)
