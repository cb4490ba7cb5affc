"""What brokers say to each other and cannot be: refused, before anything changes.

The fuzzer draws such messages (`fuzz/node.py`); these are the ones that have ended a broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from fuzz.node import SECOND, World, find, taken
from gapless.core.broker_messages import (
    Ack,
    AckExpected,
    HandOver,
    Knowledge,
    Nack,
    ReleaseHold,
    StartReply,
)
from gapless.core.client_messages import Acknowledge, Refused
from gapless.core.errors import ProtocolError, WireError
from gapless.core.events import EventBatch
from gapless.core.identity import (
    BrokerName,
    CellName,
    Identifier,
    NodeId,
    PubendName,
    SubscriptionName,
    TopicId,
    TopicName,
)
from gapless.core.name_messages import (
    NameAnswer,
    NameEntry,
    NameQuestion,
    NamesQuestion,
    NamesTold,
)
from gapless.core.ticks import TICK_MAX, Span
from gapless.core.topic_messages import TopicEntry, TopicNews, TopicQuestion
from gapless.node.multicast.body import pack
from gapless.node.reliable.service import Reliable
from gapless.node.topics import Topics
from gapless.scribe.messages import (
    Accept,
    Ballot,
    GroupState,
    Lineup,
    LogAppend,
    LogEntry,
    Probe,
    Ringed,
    RootPublication,
    Routed,
    Seat,
    TopicRecord,
    TreeEvent,
)
from gapless.tree.messages import (
    Beat,
    Carried,
    Credit,
    Hop,
    Joined,
    Loss,
    Losses,
    Position,
    PublicationRun,
    RunConfirmed,
    SubscriptionId,
    SubscriptionOffer,
)
from gapless.wire.events import encode_event

if TYPE_CHECKING:
    from gapless.core.messages import Message
    from gapless.tree.broker import TreeBroker
    from gapless.tree.connections import ConnectionEnd
    from gapless.tree.messages import CarriedMessage

A, B, C, E, NOBODY = (BrokerName(each) for each in ("a", "b", "c", "e", ""))
PUBEND, X = PubendName("t/0"), SubscriptionName("x")
AT = Position(1, 1)
SEAT, TOPIC = Seat(NodeId(Identifier(1)), 1), TopicId(Identifier(1))


def world(network: str = "row") -> World:
    """A network whose links and services have begun."""
    made = World(network, 0, is_secure=False, is_forged=True)
    for _ in range(3):
        made.calm(5)
        made.wait(SECOND)
    return made


def told(world: World, sender: BrokerName, to: BrokerName, message: Message) -> None:
    node = world.nodes[to]
    world._do(to, node.receive(sender, taken(message), world.clock(to)))


def refused(made: World, sender: BrokerName, to: BrokerName, message: Message, why: str) -> None:
    node = made.nodes[to]
    with pytest.raises(ProtocolError, match=why):
        node.receive(sender, taken(message), made.clock(to))
    node.check()
    made.calm(3)
    made.wait(SECOND)
    made.restart(to)  # what was noted of it would be read now
    made.calm(3)


def tree_of(made: World, name: BrokerName) -> TreeBroker:
    reliable = made.nodes[name].services.by_name["reliable"]
    assert isinstance(reliable, Reliable)
    assert reliable.tree is not None
    return reliable.tree


def end_of(made: World, sender: BrokerName, to: BrokerName) -> ConnectionEnd:
    return tree_of(made, to)._connections._ends[sender]


def carried(made: World, sender: BrokerName, to: BrokerName, *messages: CarriedMessage) -> Carried:
    """As the next that is due on the connection."""
    end = end_of(made, sender, to)
    assert end.theirs is not None
    assert end.received is not None
    return Carried(end.theirs, end.received, messages)


def entry(name: str, incarnation: int, hosts: tuple[BrokerName, ...], **more: Any) -> TopicEntry:
    return TopicEntry(TopicName(name), incarnation, hosts, **more)


# --- topics -------------------------------------------------------------------------------------

ENTRIES = [
    (entry("t", 2, (), service="reliable"), "of the network file"),
    (entry("t", 2, (A,), is_deleted=True), "was deleted at run time"),
    (entry("s", 1, (A,), is_deleted=True), "deleted before it was created"),
    (entry("s", 1, (B,)), "not alone in its cell"),
    (entry("s", 1, (E,)), "is unknown"),
    (entry("s", 1, (A,), service="multicast"), "has pubends"),
    (entry("s", 1, (A,), ordered=True), "and ordered"),
    (entry("s@2", 1, (A,)), "no name of a topic"),
    (entry("n" * 255, 2, (A,)), "too long a name"),
]


@pytest.mark.parametrize(("told_of", "why"), ENTRIES)
def test_topics_that_nobody_can_have_created_are_refused(told_of: TopicEntry, why: str) -> None:
    refused(world("twins"), B, A, TopicNews((told_of,)), why)
    answer = TopicQuestion(told_of.name, B, A, is_answer=True, entry=told_of)
    refused(world("twins"), B, A, answer, why)


def test_a_topic_of_the_same_incarnation_takes_the_place_of_another_that_is_being_written() -> None:
    made = world()
    for host in (A, B):  # the owner of the name has lost its disk in between
        told(made, A, B, TopicNews((entry("s", 1, (host,)),)))
    made.calm(5)
    assert made.nodes[B].network.topic[TopicName("s")].hosts == (B,)


# --- names and hand-overs -----------------------------------------------------------------------


def question(name: str = "x", known: NameEntry | None = None) -> NameQuestion:
    return NameQuestion(SubscriptionName(name), A, B, "claim", 1, 1, known)


NAMES = [
    (question(""), "no name of a subscription"),
    (question("\U0001f600" * 300), "no name of a subscription"),
    (question(known=NameEntry(A, 5, "", 1, 1)), "as if we had noted it"),
    (NameAnswer(X, A, B, 1, NameEntry(E)), "no broker is called 'e'"),
    (NameAnswer(SubscriptionName(""), A, B, 1), "no name of a subscription"),
    (HandOver(X, sender=B, receiver=B), "to itself"),
    (HandOver(X, sender=A, receiver=B, elsewhere=B), "to itself"),
]


@pytest.mark.parametrize(("message", "why"), NAMES)
def test_what_nobody_can_say_of_a_name_is_refused(message: Message, why: str) -> None:
    refused(world(), A, B, message, why)


@pytest.mark.parametrize("message", [NamesQuestion(A, B, 0), NamesTold(A, B, 0, 1 << 62)])
def test_names_that_nobody_asked_for_change_nothing(message: Message) -> None:
    made = world()
    told(made, A, B, message)
    made.nodes["b"].check()
    refused(made, A, B, replace(message, receiver=E), "no broker is called 'e'")


@pytest.mark.parametrize("name", ["", "\U0001f600" * 300])
def test_no_broker_is_asked_about_a_name_that_nothing_can_have(name: str) -> None:
    made = world()
    made.come("a", "client:1", "")
    made.say("a", "client:1", Acknowledge(1, {}, 7, SubscriptionName(name)))
    assert isinstance(made.heard["client:1"][-1], Refused)
    assert not made.nodes["a"].durable.homes.questions


# --- streams ------------------------------------------------------------------------------------


def test_nobody_knows_a_stream_up_to_the_end_of_time() -> None:
    refused(world(), A, B, Knowledge(PUBEND, Span(1, TICK_MAX + 1)), "the end of time")


BAD = b"\xc1"
NO_EVENT = EventBatch((BAD,))
STATE = GroupState(
    TopicRecord(TOPIC, ordered=True), Lineup(), 0, (LogEntry(SEAT, 1, pack([BAD])),), ()
)
CARRIED_EVENTS: list[Message] = [
    Knowledge(PUBEND, Span(1, 2), (1,), NO_EVENT),
    Ringed((TreeEvent(TOPIC, 1, pack([BAD])),)),
    Ringed((Routed(1, Identifier(1), RootPublication(TOPIC, SEAT, 1, 1, pack([BAD]))),)),
    Ringed((LogAppend(TOPIC, Ballot(), 0, STATE.entries, active=True),)),
    Ringed((Accept(STATE),)),
]


@pytest.mark.parametrize("message", CARRIED_EVENTS)
def test_bytes_that_are_no_event_are_refused_where_they_arrive(message: Message) -> None:
    refused(world(), A, B, message, "an event of another broker")


def test_bytes_that_are_no_event_are_refused_on_a_tree() -> None:
    made = world()
    run = PublicationRun(A, 1, (1,), (Hop(A, AT),), "q", NO_EVENT)
    refused(made, A, B, carried(made, A, B, run), "an event of another broker")


HOME = CellName("one")
NUMBERS: list[Message] = [
    Nack(PUBEND, (), events_max=-1),
    Ack(PUBEND, HOME, -1),
    Ack(PUBEND, HOME, 0, TICK_MAX + 1),
    AckExpected(PUBEND, -1),
    StartReply(PUBEND, HOME, 1, TICK_MAX + 1),
    ReleaseHold(PUBEND, HOME, -1, 1),
    Knowledge(PUBEND, Span(1, 2), lost_below=-1),
    Knowledge(PUBEND, Span(1, 2), events=EventBatch(()), final_below=-1),
    HandOver(X, moves=1 << 63),
    HandOver(X, released={"t/0": -1}),
    question(known=NameEntry(A, 1 << 63)),
    TopicNews((entry("s", 1 << 63, (A,)),)),
    Carried(AT, 0, (Credit(-1),)),
    Beat(AT, None, -1),
    Ringed((Probe(1 << 63, ()),)),
]


@pytest.mark.parametrize("message", NUMBERS, ids=lambda each: type(each).__name__)
def test_numbers_that_are_no_counts_or_ticks_do_not_decode(message: Message) -> None:
    with pytest.raises(WireError, match="Expected `int`"):
        taken(message)


# --- the reliable tree --------------------------------------------------------------------------


def subscription(source: str, *way: str, condition: str = "") -> SubscriptionOffer:
    hops = tuple(Hop(BrokerName(each), AT) for each in way)
    return SubscriptionOffer(SubscriptionId(BrokerName(source), 1, 1), "t", condition, hops)


def publication(source: str, number: int, *way: str, epoch: int = 1) -> PublicationRun:
    hops = tuple(Hop(BrokerName(each), AT) for each in way)
    event = EventBatch((encode_event({}),))
    return PublicationRun(BrokerName(source), epoch, (number,), hops, "t", event)


CLAIMS: list[tuple[CarriedMessage, str]] = [
    (subscription("c"), "does not end there"),
    (subscription("e", "a"), "does not end there"),
    (subscription("c", "a", "c"), "is not the tree's"),
    (subscription("e", "a", "b", "e"), "comes back to here"),
    (subscription("e", "a", "e", condition="c >"), "has no condition"),
    (publication("c", 1), "does not end there"),
    (publication("a", 0, "a"), "do not ascend from 1 on"),
    (replace(publication("a", 1, "a"), numbers=()), "do not ascend from 1 on"),
    (replace(publication("a", 1, "a"), numbers=(1, 2)), "2 publications have 1 events"),
    (replace(publication("a", 1, "a"), life="begins"), "1 publications have 1 events"),
    (RunConfirmed(A, 1, (2, 1)), "do not ascend from 1 on"),
    (Losses((Loss(A, 1, "t", 0, None),)), "is of nothing"),
    (Joined(((A, NOBODY),)), "an end without a name"),
]


@pytest.mark.parametrize(("message", "why"), CLAIMS)
def test_what_cannot_be_in_the_tree_is_refused(message: CarriedMessage, why: str) -> None:
    made = world()
    refused(made, A, B, carried(made, A, B, message), why)


def test_a_publication_does_not_come_back_to_where_it_began() -> None:
    made = world()
    own = publication("b", 1, "b", epoch=tree_of(made, B).epoch)
    refused(made, A, B, carried(made, A, B, own), "comes back to here")


def test_a_subscription_has_one_way_to_its_source() -> None:
    made = world()
    told(made, A, B, carried(made, A, B, subscription("e", "a", "e")))
    other = carried(made, C, B, subscription("e", "c", "e"))
    refused(made, C, B, other, "two ways to its source")


def test_who_knows_of_a_session_before_it_is_told_does_not_have_it() -> None:
    made = world()
    end, connections = end_of(made, A, B), tree_of(made, B)._connections
    assert end.theirs is not None
    ours, theirs = end.session, end.theirs
    guess = ours._replace(number=connections._sessions + 1)
    told(made, A, B, Beat(theirs._replace(number=theirs.number + 1), guess))
    assert end.session == guess
    assert not connections.is_up(A)


# --- the fuzzer finds it ------------------------------------------------------------------------


@pytest.mark.slow
def test_the_fuzzer_finds_what_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Topics, "_check_entries", lambda self, entries: None)
    found = find(1, 60_000, plays_max=20)
    assert found is not None
    assert "\n  lie(" in found
