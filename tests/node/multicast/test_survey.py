"""How far brokers are, by the round trips of questions."""

from __future__ import annotations

from gapless.core.identity import BrokerName, Instant, NodeId
from gapless.node.config import Config
from gapless.node.multicast.name_book import SPACE
from gapless.node.multicast.ring import ask_for_row, make_member
from gapless.node.multicast.survey import UNMEASURED, Survey
from gapless.scribe.effects import ToNode
from gapless.scribe.messages import (
    LeafPing,
    Probe,
    ProbeReply,
    RowQuery,
    RowReply,
    Seat,
)
from tests.node.ring import Ring, topic

NEAR, FAR, OWN = (SPACE.node_id(name) for name in ("near", "far", "own"))
PROBE, REPLY = Probe(1, (), active=True), ProbeReply(1, ())


def measure(survey: Survey, node: NodeId, took: int, at: int = 0) -> bool:
    survey.sent(node, PROBE, Instant(at))
    return survey.heard(node, REPLY, Instant(at + took))


def test_the_shortest_round_trip_counts_whatever_the_file_says() -> None:
    survey = Survey({NEAR: 9, FAR: 1}.__getitem__, 10)
    assert survey.distance(FAR) == UNMEASURED + 1 < survey.distance(NEAR)
    assert measure(survey, FAR, 40_000)
    assert survey.distance(FAR) == 40_000
    assert measure(survey, NEAR, 3_000)
    assert survey.distance(NEAR) == 3_000
    assert not measure(survey, NEAR, 9_000)  # it was slow once
    assert measure(survey, NEAR, 2_000)
    assert survey.distance(NEAR) == 2_000


def test_of_two_questions_the_first_counts_and_an_answer_to_none_does_not() -> None:
    survey = Survey(lambda _: 0, 10)
    assert not survey.heard(NEAR, REPLY, Instant(5))
    survey.sent(NEAR, LeafPing(1), Instant(0))
    assert not survey.heard(NEAR, REPLY, Instant(5))
    survey.sent(NEAR, PROBE, Instant(10))
    survey.sent(NEAR, PROBE, Instant(20))
    assert survey.heard(NEAR, REPLY, Instant(25))
    assert survey.distance(NEAR) == 15


def test_one_that_others_name_is_asked_once_and_what_is_kept_is_bounded() -> None:
    survey = Survey(lambda _: 0, 3)
    measure(survey, NEAR, 1)
    survey.heard(NEAR, RowReply((NEAR, FAR)), Instant(0))
    assert survey.take_unmeasured() == FAR
    assert survey.take_unmeasured() is None
    nodes = tuple(SPACE.node_id(str(number)) for number in range(9))
    survey.heard(FAR, RowReply(nodes), Instant(0))
    for node in nodes:
        survey.sent(node, PROBE, Instant(0))
        survey.heard(node, REPLY, Instant(1))
    survey.check()


def test_a_nearer_one_takes_the_cell_of_one_that_answers_later() -> None:
    survey = Survey(lambda _: 0, 10)
    member = make_member(Seat(OWN, 1), survey, Config())
    member.found(Instant(0))
    table = member.pastry.contacts.table
    names = (SPACE.node_id(str(number)) for number in range(1_000))
    one, other = [n for n in names if n >> 120 == (OWN >> 120 ^ 0x10) and n != OWN][:2]
    table.offer(one)
    measure(survey, one, 50_000)
    survey.heard(one, RowReply((other,)), Instant(0))
    [asked] = ask_for_row(member, survey)
    assert isinstance(asked, ToNode)
    assert (asked.node, type(asked.message)) == (other, RowQuery)
    survey.sent(other, asked.message, Instant(0))
    assert survey.heard(other, RowReply(()), Instant(900))
    assert table.offer(other)
    assert other in table
    assert one not in table


def test_brokers_of_a_ring_measure_each_other() -> None:
    ring = Ring(4, topic())
    ring.run(10)
    for name in ring.places:
        others = [SPACE.node_id(BrokerName(each)) for each in ring.places if each != name]
        member = ring[name].member
        assert member is not None
        distances = [member.pastry.contacts.table._proximity(each) for each in others]
        assert max(distances) < UNMEASURED
