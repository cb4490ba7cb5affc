"""Vectors: what messages say of them, what is asked, and what each neighbour must be told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gapless.core.broker_messages import DigestNack, Knowledge
from gapless.core.effects import Send
from gapless.core.errors import ProtocolError
from gapless.core.identity import BrokerName, CellName, Instant, PubendName
from gapless.core.ticks import Span
from gapless.node.config import Config
from gapless.node.durable.vectors import Vectors
from gapless.node.network import BrokerEntry, Cell, Network, Topic
from gapless.node.parts import Parts
from gapless.propagation.stamp import Stamp
from gapless.testing.memory_volume import MemoryVolume
from tests.node.town import NEWS

if TYPE_CHECKING:
    from gapless.core.broker_messages import Vector

HERE, WEST, NORTH, SOUTH = (CellName(name) for name in ("here", "west", "north", "south"))
N, N2, S, M, A, B = (BrokerName(name) for name in ("n", "n2", "s", "m", "a", "b"))
FIRST, SECOND, THIRD, OWN = (PubendName(f"news/{number}") for number in range(4))
NOW = Instant(1_000)
PATIENCE = Config().lag_patience


def vectors() -> Vectors:
    """Of a broker with two pubends in the north, one in the south, one here; leaves in the west
    and in the south."""
    cells = (
        Cell(HERE, (BrokerEntry(M),), (NORTH, SOUTH, WEST)),
        Cell(NORTH, (BrokerEntry(N),)),
        Cell(SOUTH, (BrokerEntry(S),), subscribers=True),
        Cell(WEST, (BrokerEntry(A),), subscribers=True),
    )
    topic = Topic(NEWS, (N, N, S, M))
    network = Network(cells, (topic,))
    upstream = {each.name: network.upstream(each, HERE) for each in topic.pubends}
    leaves = {SOUTH: (S,), WEST: (A,)}
    return Vectors(topic, M, upstream, leaves, Config(), Parts())


def news(
    digest: int, vector: Vector | None = None, base: int = 0, pubend: PubendName = FIRST
) -> Knowledge:
    return Knowledge(pubend, Span(10, 20), digest=digest, vector=vector, base=base)


# --- in -------------------------------------------------------------------------------------------


def test_a_message_without_a_digest_teaches_nothing_and_asks_nothing() -> None:
    machine = vectors()
    learnt = machine.learn(N, news(0), NOW)
    assert (learnt.vector, learnt.is_news, learnt.question) == (None, False, ())


def test_the_first_message_of_a_digest_is_news_and_the_next_is_not() -> None:
    machine = vectors()
    assert machine.learn(N, news(3, {"a": 1}), NOW) == ({"a": 1}, True, ())
    assert machine.learn(N, news(3), NOW) == ({"a": 1}, False, ())
    assert machine.learn(N, news(5, {"s": 2}, base=3), NOW) == ({"a": 1, "s": 2}, True, ())
    assert machine.learn(N, news(4), NOW) == ({"a": 1, "s": 2}, False, ())


def test_a_vector_that_is_not_known_is_asked_for_once_in_a_while() -> None:
    machine = vectors()
    assert machine.learn(N, news(3), NOW).question == (Send(N, DigestNack(FIRST, 3)),)
    for _ in range(3):
        assert machine.learn(N, news(4), NOW).question == ()
        assert machine.learn(N, news(4, pubend=SECOND), NOW).question == ()
    later = Instant(NOW + PATIENCE)
    assert machine.learn(N2, news(4), later).question == (Send(N2, DigestNack(FIRST, 4)),)


def test_each_source_is_asked_about_by_itself() -> None:
    machine = vectors()
    assert machine.learn(N, news(3), NOW).question
    assert machine.learn(S, news(3, pubend=THIRD), NOW).question


def test_a_difference_to_what_is_not_known_is_no_use() -> None:
    machine = vectors()
    learnt = machine.learn(N, news(5, {"a": 1}, base=4), NOW)
    assert learnt == (None, False, (Send(N, DigestNack(FIRST, 5)),))


def test_pubends_of_one_broker_share_their_vectors() -> None:
    machine = vectors()
    machine.learn(N, news(3, {"a": 1}), NOW)
    assert machine.learn(N, news(3, pubend=SECOND), NOW).vector == {"a": 1}
    assert machine.learn(S, news(3, pubend=THIRD), NOW).vector is None


@pytest.mark.parametrize("message", [news(-1), news(-1, {"a": 1}), news(3, {"a": 1}, base=-2)])
def test_a_digest_below_zero_is_refused_and_changes_nothing(message: Knowledge) -> None:
    machine = vectors()
    with pytest.raises(ProtocolError):
        machine.learn(N, message, NOW)
    assert machine.learn(N, news(1), NOW).vector is None


# --- may we filter? -------------------------------------------------------------------------------


def test_only_a_broker_that_knows_what_counts_may_filter() -> None:
    machine = vectors()
    machine.learn(N, news(3, {"a": 1}), NOW)
    assert machine.test(FIRST, 3, SOUTH)
    assert not machine.test(FIRST, 3, WEST)
    machine.sufficiency[NORTH].advance({"a": 1})
    assert machine.test(FIRST, 3, WEST)
    assert machine.test(FIRST, 2, WEST), "an older one counts on less"
    assert not machine.test(FIRST, 4, WEST), "what a newer one counts on is not known"
    assert not machine.test(FIRST, 0, WEST)


def test_a_broker_filters_what_it_says_itself_only_once_the_stamp_is_in_use() -> None:
    machine = vectors()
    stamp = Stamp("news@m", MemoryVolume(), first=7)
    machine.learn_own(stamp)
    assert not machine.test(OWN, 7, WEST)
    [write] = stamp.begin()
    machine.learn_own(stamp)
    assert not machine.test(OWN, 7, WEST)
    stamp.persisted(write.then[0].message)  # type: ignore[union-attr,arg-type]
    machine.learn_own(stamp)
    assert machine.test(OWN, 7, WEST)


# --- where something may start --------------------------------------------------------------------


def test_something_may_start_where_our_own_time_has_grown() -> None:
    machine = vectors()
    machine.learn(N, news(3, {"a": 1}), NOW)
    assert machine.see(news(3)), "the first message ever"
    assert machine.time_of(news(3)) == 0
    machine.learn(N, news(4, {"a": 2}, base=3), NOW)
    assert not machine.see(Knowledge(FIRST, Span(20, 30), digest=4))
    machine.learn(N, news(5, {"m": 9}, base=4), NOW)
    assert machine.see(Knowledge(FIRST, Span(30, 40), digest=5))
    assert machine.time_of(news(5)) == 9
    assert machine.time_of(news(6)) is None
    assert machine.starts.start_of(FIRST, 9) == 30


# --- out ------------------------------------------------------------------------------------------


def test_every_neighbour_is_told_a_vector_once_and_then_what_has_changed() -> None:
    machine = vectors()
    machine.learn(N, news(3, {"a": 1, "s": 1}), NOW)
    for peer in (A, B):
        assert machine.announce(peer, news(3)) == news(3, {"a": 1, "s": 1})
        assert machine.announce(peer, news(3)) == news(3)
        assert machine.announce(peer, news(3, pubend=SECOND)) == news(3, pubend=SECOND)
    machine.learn(N, news(6, {"a": 2}, base=3), NOW)
    assert machine.announce(A, news(6)) == news(6, {"a": 2}, base=3)
    machine.announcer.forget_peer(B)
    assert machine.announce(B, news(6)) == news(6, {"a": 2, "s": 1})


def test_who_has_missed_a_vector_gets_all_of_it_with_the_next_message() -> None:
    machine = vectors()
    machine.learn(N, news(3, {"a": 1}), NOW)
    machine.announce(A, news(3))
    machine.receive_digest_nack(A, DigestNack(SECOND, 3))
    assert machine.announce(A, news(3)) == news(3, {"a": 1})
    machine.receive_digest_nack(B, DigestNack(SECOND, 3))
    assert machine.announce(B, news(3)) == news(3, {"a": 1}), "who was told nothing yet"


def test_a_message_whose_own_vector_is_not_known_goes_as_it_came() -> None:
    machine = vectors()
    for passes in (machine.in_full, lambda each: machine.announce(A, each)):
        assert passes(news(3)) == news(3)
    machine.learn(N, news(5, {"a": 1}), NOW)
    for passes in (machine.in_full, lambda each: machine.announce(A, each)):
        assert passes(news(3)) == news(3)
        assert passes(news(6)) == news(6)
    assert machine.announce(A, news(5)) == news(5, {"a": 1}), "none of them counted as told"


def test_what_someone_else_is_to_pass_on_has_all_of_its_vector_every_time() -> None:
    machine = vectors()
    machine.learn(N, news(3, {"a": 1}), NOW)
    machine.learn(N, news(4, {"s": 1}, base=3), NOW)
    for _ in range(2):
        assert machine.in_full(news(4)) == news(4, {"a": 1, "s": 1})
    machine.check()
