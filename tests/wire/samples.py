"""Messages and events that the tests of this package share."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from gapless.core.broker_messages import (
    Ack,
    AckExpected,
    DigestNack,
    HandOver,
    Knowledge,
    Nack,
    PromiseKept,
    PromiseTold,
    Purpose,
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
    Former,
    Lost,
    Publish,
    PublisherPosition,
    PublisherQuery,
    Receipt,
    Refused,
    RetireBroker,
    Sharing,
    Subscribe,
    Subscribed,
    SubscriptionAltered,
    Unreached,
    Unsubscribe,
)
from gapless.core.events import EventBatch, EventRun
from gapless.core.group_messages import Finish, Handed, Reject, TakenBack
from gapless.core.identity import (
    BrokerName,
    CellName,
    ProducerName,
    PubendName,
    PublisherName,
    SubscriptionName,
    TopicName,
)
from gapless.core.messages import Addresses, Goodbye, Hello, Message, Ping, Pong
from gapless.core.name_messages import (
    NameAnswer,
    NameEntry,
    NameQuestion,
    NamesQuestion,
    NamesTold,
)
from gapless.core.range_messages import Positions, PositionsQuery, RangeRead, ReadRange
from gapless.core.roster_messages import Roster, RosterEntry, RosterQuery, Strike
from gapless.core.ticks import Span, Tick
from gapless.core.timestamps import FIRST, LAST
from gapless.core.topic_messages import (
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    TopicEntry,
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
from gapless.scribe.messages import Ringed
from gapless.wire.codec import Codec
from gapless.wire.events import INTEGER_MAX, INTEGER_MIN, encode_event
from gapless.wire.kinds import KINDS
from tests.wire.multicast_samples import RINGED

if TYPE_CHECKING:
    from gapless.core.events import Attributes


class Cargo(Message, frozen=True):
    """A stand-in for the messages of the protocols: nested, checked, with a batch."""

    span: Span
    events: EventBatch
    ticks: tuple[int, ...] = ()
    vector: dict[str, int] | None = None
    urgent: bool = False

    def __post_init__(self) -> None:
        if len(self.ticks) > len(self.events):
            raise ValueError("more ticks than events")


PLAIN = encode_event({})
TRADE = encode_event(
    {"symbol": "IBM", "price": 92.5, "volume": 300, "halted": False},
    b"body",
    PublisherName("feed-1"),
    7,
)
EXTREMES = encode_event(
    {"low": INTEGER_MIN, "high": INTEGER_MAX, "inf": float("inf"), "text": "Łódź 🦉"}
)

MOMENTS = encode_event(
    {
        "second": datetime(2026, 11, 17, 9, tzinfo=UTC),
        "microsecond": datetime(2026, 11, 17, 10, 0, 0, 1, timezone(timedelta(hours=1))),
        "first": FIRST,
        "last": LAST,
        "digest": b"\x00\xff",
        "empty": b"",
    }
)

EVENTS: dict[str, bytes] = {
    "plain": PLAIN,
    "trade": TRADE,
    "extremes": EXTREMES,
    "timestamps and bytes": MOMENTS,
}

LINK_MESSAGES: dict[str, Message] = {
    "hello of a client": Hello(version=1, version_min=1),
    "hello of a broker": Hello(3, 2, BrokerName("broker-1"), "gapless 1.2"),
    "hello of a broker that joins": Hello(1, 1, BrokerName("b"), "", "", "10.0.0.7:7117"),
    "addresses": Addresses({BrokerName("b"): "10.0.0.7:7117"}),
    "hello with a token": Hello(1, 1, None, "gapless 1.2", "desk-7.secret"),
    "goodbye": Goodbye(),
    "goodbye for good": Goodbye("not admitted", "Give a token.", final=True),
    "goodbye with a reason": Goodbye("the link is idle", "Connect again."),
    "ping": Ping(),
    "pong": Pong(1 << 40),
}

JOB = ProducerName("job-1")
PUBEND, CELL, TOPIC = PubendName("trades/0"), CellName("east"), TopicName("trades")
DESK = SubscriptionName("desk-7")
BATCH = EventBatch.join([PLAIN, TRADE])
NAME = NameEntry(BrokerName("b3"), 2, "desk", 1_000, 7)
ENTRY = TopicEntry(TOPIC, 1, (BrokerName("b1"),), "durable", 5_000_000)

PROTOCOL_MESSAGES: dict[str, Message] = LINK_MESSAGES | {
    "knowledge": Knowledge(PUBEND, Span(10, 20), (12, 19), BATCH, digest=3, vector={"s1": 2}),
    "knowledge asked for": Knowledge(
        PUBEND, Span(5, 20), final_below=7, lost_below=9, requested=True, more=True
    ),
    "knowledge scattered": Knowledge(
        PUBEND,
        Span(5, 20),
        (5, 19),
        BATCH,
        requested=True,
        purpose=Purpose.CATCH_UP,
        scattered=True,
    ),
    "nack": Nack(PUBEND, (Span(1, 2), Span(5, 9)), {"s1": 4}),
    "nack to catch up": Nack(PUBEND, (Span(1, 2),), purpose=Purpose.CATCH_UP),
    "ack": Ack(PUBEND, CELL, 20, 10, BrokerName("b1"), 1, 7),
    "ack expected": AckExpected(PUBEND, 20),
    "start query": StartQuery(PUBEND, CELL, 1),
    "start reply": StartReply(PUBEND, CELL, 1, 20, 3, {"s1": 2}),
    "sideways": Sideways(CELL, AckExpected(PUBEND, 20)),
    "subscription change": SubscriptionChange(CELL, {"s1": 2}, {"s1": 1}, ("a > 1",), ("b = 2",)),
    "subscription state": SubscriptionState(CELL, {"s1": 2}, ("a > 1",)),
    "subscription nack": SubscriptionNack(CELL, {"s1": 2}),
    "digest nack": DigestNack(PUBEND, 3),
    "release hold": ReleaseHold(PUBEND, CELL, Tick(20), 1),
    "release echo": ReleaseEcho(PUBEND, CELL, 1),
    "promise told": PromiseTold(PUBEND, CELL, 5, Tick(20), Tick(10)),
    "promise kept": PromiseKept(PUBEND, CELL, 5, Tick(15)),
    "hand over": HandOver(DESK, TOPIC, BrokerName("b2"), BrokerName("b1"), 1, done=True),
    "create topic": CreateTopic(
        1, TOPIC, "durable", 2, (BrokerName("b1"), BrokerName("b2")), 5_000_000, 1_000
    ),
    "delete topic": DeleteTopic(1, TOPIC),
    "create topic that keeps": CreateTopic(1, TOPIC, keep_us=60_000_000, keep_bytes=1_000),
    "alter topic": AlterTopic(1, TOPIC, retention_us=None, keep_us=60_000_000),
    "roster query": RosterQuery(TOPIC, 1, "producers"),
    "roster": Roster(1, (RosterEntry("job", PUBEND, 7, "ann", 5, 9),), more=True),
    "strike": Strike(TOPIC, 1, "transactions", "job", 7),
    "topics query": TopicsQuery(1),
    "topic list": TopicList(1, (ENTRY,)),
    "topic news": TopicNews((ENTRY, TopicEntry(TOPIC, 2, ENTRY.hosts, is_deleted=True))),
    "topic question": TopicQuestion(TOPIC, BrokerName("b2"), BrokerName("b1")),
    "topic answer": TopicQuestion(TOPIC, BrokerName("b1"), BrokerName("b2"), True, ENTRY),
    "name question": NameQuestion(
        DESK, BrokerName("b2"), BrokerName("b1"), "claim", 1_000, 1, NAME, "desk"
    ),
    "take over": TakeOver(
        BrokerName("b1"),
        BrokerName("b2"),
        Subscribe(TOPIC, 0, 0, name=DESK, token={"trades/0": 1}, previous=BrokerName("b1")),
        "anna",
    ),
    "name answer": NameAnswer(DESK, BrokerName("b1"), BrokerName("b2"), 1, NAME),
    "name answer without room": NameAnswer(
        DESK, BrokerName("b1"), BrokerName("b2"), 1, problem="there is no room"
    ),
    "names question": NamesQuestion(BrokerName("b1"), BrokerName("b2"), 1_000),
    "names told": NamesTold(BrokerName("b2"), BrokerName("b1"), 1_000, 3),
    "hand over of one that is over": HandOver(DESK, TOPIC, BrokerName("b2"), moves=3, over=True),
    "hand over of an owner": HandOver(DESK, TOPIC, BrokerName("b2"), owner="desk"),
    "hand over of one that is ahead": HandOver(
        DESK, TOPIC, BrokerName("b2"), released={PUBEND: 20}, ahead=True
    ),
    "publish": Publish(TOPIC, 1, BATCH, PublisherName("feed-1"), 7, 1_700_000_000_000_000),
    "receipt": Receipt(1, PUBEND, (12, 19)),
    "publisher query": PublisherQuery(1, TOPIC, PublisherName("feed-1"), 7),
    "publisher position": PublisherPosition(1, 7, 1_700_000_000_000_000),
    "refused": Refused(1, "the disk is full", "Try again.", retry=True),
    "refused elsewhere": Refused(1, "not here", "Connect to b.", elsewhere=("10.0.0.2:7117",)),
    "subscribe": Subscribe(TOPIC, 2, 1, "price > 90", "total"),
    "subscribe by name": Subscribe(
        TOPIC,
        2,
        1,
        name=DESK,
        token={"trades/0": 20},
        tokens="broker",
        previous=BrokerName("b1"),
        moves=1,
    ),
    "subscribe from the oldest": Subscribe(TOPIC, 2, 1, name=DESK, earliest=True),
    "subscribe to one of several topics": Subscribe(
        TOPIC, 2, 1, name=DESK, topics=(TopicName("orders"), TOPIC)
    ),
    "subscribe from an instant": Subscribe(TOPIC, 2, 1, name=DESK, instant=1_000_000),
    "subscribed": Subscribed(2, 1, {"trades/0": 20}),
    "subscribed, behind": Subscribed(2, 1, {"trades/0": 20}, ("trades/0",), 1),
    "unreached": Unreached(1, (BrokerName("b"), BrokerName("c"))),
    "reached": Unreached(1),
    "unsubscribe": Unsubscribe(1),
    "ended": Ended(1, "too slow", "Consume faster."),
    "ended here": Ended(1, "moved", elsewhere=True),
    "deliveries": Deliveries(TOPIC, 20, PUBEND, (12, 19), BATCH, ((1,), (1, 2))),
    "deliveries to one behind": Deliveries(TOPIC, 20, PUBEND, (12, 19), BATCH, ((1,), (1,)), 1),
    "lost": Lost((1, 2), PUBEND, Span(5, 9)),
    "caught up": CaughtUp(1, PUBEND),
    "fell behind": FellBehind(1, PUBEND),
    "acknowledge": Acknowledge(1, {"trades/0": 20}, 3),
    "acknowledge by name": Acknowledge(0, {"trades/0": 20}, 3, DESK),
    "acknowledge of a run": Acknowledge(0, {"trades/0": 20}, 3, DESK, "run"),
    "lease": Acknowledge(0, {}, 3, DESK, "run", "query"),
    "await a tick": Acknowledge(1, {}, awaited=2048),
    "done": Done(3),
    "done, of several topics": Done(3, (TopicName("orders"), TOPIC)),
    "forget": Forget(4, DESK),
    "alter a subscription": AlterSubscription(5, DESK, "price > 95"),
    "a subscription is altered": SubscriptionAltered(
        5, 0, "price > 95", 1, (Former("price > 90", {"trades/0": 40}),)
    ),
    "an alteration is noted": AlterationNoted(2, 1),
    "subscribe after an alteration": Subscribe(
        TOPIC,
        6,
        2,
        "price > 95",
        name=DESK,
        token={"trades/0": 20},
        altered=1,
        former=(Former("price > 90", {"trades/0": 40}),),
    ),
    "retire a broker": RetireBroker(4, BrokerName("b2")),
    "consumed": Consumed(2),
    "join a group": Subscribe(
        TOPIC, 2, 1, name=DESK, tokens="broker", share=Sharing("symbol", 5, TopicName("dead"))
    ),
    "handed": Handed(1, TOPIC, PUBEND, (12, 19), BATCH),
    "handed again": Handed(1, TOPIC, PUBEND, (12, 19), BATCH, (0, 3)),
    "finish": Finish(1, PUBEND, (12, 19), 4),
    "reject": Reject(1, PUBEND, (12,), 4, 5_000_000, "no such customer"),
    "give back": Reject(1, PUBEND, (19,), counts=False),
    "taken back": TakenBack(1, PUBEND, (12,)),
    "stage": Stage(TOPIC, 5, JOB, 7, "part-1", 3, EventBatch.join([PLAIN, TRADE])),
    "commit": Commit(TOPIC, 6, JOB, 7, ("part-1", "part-2"), (5, 0)),
    "committed": Committed(6, PUBEND, 2048, 5, repeated=True),
    "abort": Abort(TOPIC, 7, JOB, 7, "part-1"),
    "producer query": ProducerQuery(TOPIC, 8, JOB),
    "producer position": ProducerPosition(8, 7),
    "read range": ReadRange(TOPIC, 9, PUBEND, Span(10, 20), "price > 90", 100),
    "read range as it stands": ReadRange(TOPIC, 9, PUBEND, Span(10, 20), whole=True),
    "range read": RangeRead(9, PUBEND, Span(10, 15), (12,), EventBatch.join([TRADE]), 11, True),
    "range read as it stands": RangeRead(
        9, PUBEND, Span(10, 15), run=EventRun.of((12, 14), (TRADE, b""))
    ),
    "positions query": PositionsQuery(TOPIC, 10),
    "positions": Positions(10, {"trades/0": (10, 20)}, {"trades/1": "broker-2"}),
}

MESSAGES: dict[str, Message] = (
    PROTOCOL_MESSAGES
    | RINGED
    | {
        "cargo": Cargo(
            Span(10, 20), EventBatch.join([PLAIN, TRADE]), (10, 19), {"b": 2}, urgent=True
        ),
    }
)

CODEC = Codec(*KINDS, Ringed, Cargo)

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)
values = (
    st.booleans()
    | st.integers(INTEGER_MIN, INTEGER_MAX)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    | st.datetimes(timezones=st.just(UTC)).map(lambda moment: moment.replace(fold=0))
    | st.binary(max_size=20)
)
attributes: st.SearchStrategy[Attributes] = st.dictionaries(names, values, max_size=6)

messages = st.one_of(
    st.builds(Ping, st.integers(-(1 << 63), (1 << 64) - 1)),
    st.builds(Goodbye, names, names),
    st.builds(
        Cargo,
        st.builds(Span, st.integers(0, 9), st.integers(10, 1 << 62)),
        st.lists(st.binary(max_size=30), max_size=5).map(EventBatch.join),
        st.just(()),
        st.none() | st.dictionaries(names, st.integers(0, 9), max_size=3),
        st.booleans(),
    ),
)
