"""Post: one message for each broker, the same for those that get the same, never too large."""

from __future__ import annotations

from gapless.core.effects import Send
from gapless.core.identity import BrokerName
from gapless.node.multicast.name_book import SPACE, NameBook
from gapless.node.multicast.post import LETTER_BYTES_MAX, LETTER_MESSAGES_MAX, Post, letters
from gapless.scribe.messages import Accept, LeafPing, Passed, Probe, Ringed, TreeEvent
from tests.node.ring import star
from tests.wire.multicast_samples import STATE, TOPIC

B1, B2, FAR = (SPACE.node_id(name) for name in ("b1", "b2", "far"))


def post(here: str = "b0") -> Post:
    book = NameBook(star(3), 10)
    book.learn([BrokerName("far")])
    return Post(BrokerName(here), book)


def test_all_for_one_broker_goes_in_one_message() -> None:
    effects = post().send({B1: [LeafPing(1), Passed(2)], B2: [LeafPing(1)]})
    assert effects == [
        Send(BrokerName("b1"), Ringed((LeafPing(1), Passed(2)))),
        Send(BrokerName("b2"), Ringed((LeafPing(1),))),
    ]


def test_brokers_that_get_the_same_get_the_very_same_message() -> None:
    event = TreeEvent(TOPIC, 1, b"x")
    one, two, far = post().send({B1: [event], B2: [event], FAR: [event]})
    assert isinstance(one, Send)
    assert isinstance(two, Send)
    assert isinstance(far, Send)
    assert one.message is two.message
    assert far.message is not one.message


def test_a_stranger_is_told_who_is_spoken_of() -> None:
    [to_far] = post().send({FAR: [Probe(1, (B1,))]})
    assert to_far == Send(BrokerName("far"), Ringed((Probe(1, (B1,)),), (BrokerName("b1"),)))
    [from_far] = post("another").send({B1: [Probe(1, (FAR, B2))]})
    told = Ringed((Probe(1, (FAR, B2)),), (BrokerName("far"), BrokerName("b2")))
    assert from_far == Send(BrokerName("b1"), told)


def test_what_is_for_nobody_known_is_counted() -> None:
    made = post()
    assert made.send({SPACE.node_id("nobody"): [LeafPing(1), LeafPing(2)]}) == []
    assert made.unsent == 2


def test_much_goes_in_several_messages_in_order() -> None:
    many = [Passed(n) for n in range(LETTER_MESSAGES_MAX + 1)]
    pieces = list(letters([*many]))
    assert [len(piece) for piece in pieces] == [LETTER_MESSAGES_MAX, 1]
    assert [each for piece in pieces for each in piece] == many
    half = TreeEvent(TOPIC, 1, bytes(LETTER_BYTES_MAX // 2))
    assert [len(piece) for piece in letters([half, half, half])] == [2, 1]
    assert [len(piece) for piece in letters([Accept(STATE), Accept(STATE), half])] == [1, 1, 1]
