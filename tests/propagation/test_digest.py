"""Digests: whatever gets lost, no receiver takes a digest for another vector."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapless.core.identity import BrokerName
from gapless.propagation.digest import Announcement, Announcer, Dictionary, Known
from gapless.propagation.vector import join

PEER = BrokerName("q")


def test_the_first_message_of_a_digest_carries_what_is_new() -> None:
    announcer = Announcer()
    first, second = Known(1, {"a": 1, "b": 1}), Known(4, {"a": 1, "b": 2})
    assert announcer.announce(PEER, "P", first) == Announcement({"a": 1, "b": 1})
    assert announcer.announce(PEER, "P", first) == Announcement(None)
    assert announcer.announce(PEER, "P", second) == Announcement({"b": 2}, 1)
    assert announcer.announce(PEER, "P", first) == Announcement(None)
    assert announcer.announce(PEER, "Q", first).vector is not None
    announcer.forget_peer(PEER)
    assert announcer.announce(PEER, "P", second) == Announcement({"a": 1, "b": 2})


def test_a_receiver_that_knows_too_little_says_so_and_gets_all() -> None:
    announcer, dictionary = Announcer(), Dictionary()
    announcer.announce(PEER, "P", Known(1, {"a": 1}))  # lost
    second = Known(2, {"a": 1, "b": 1})
    assert not dictionary.learn("P", 2, *announcer.announce(PEER, "P", second))
    announcer.receive_nack(PEER, "P")
    assert dictionary.learn("P", 2, *announcer.announce(PEER, "P", second))
    assert dictionary.known["P"] == second
    assert dictionary.learn("P", 1, None)  # an older one is no news


def test_a_difference_to_what_was_lost_is_not_used() -> None:
    announcer, dictionary = Announcer(), Dictionary()
    assert dictionary.learn("P", 1, *announcer.announce(PEER, "P", Known(1, {"a": 1})))
    announcer.announce(PEER, "P", Known(2, {"a": 2}))  # lost
    assert not dictionary.learn("P", 3, *announcer.announce(PEER, "P", Known(3, {"a": 2, "b": 1})))
    assert dictionary.known["P"] == Known(1, {"a": 1})


@given(
    st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(1, 9)), max_size=8),
    st.lists(st.tuples(st.integers(0, 7), st.booleans(), st.booleans()), max_size=30),
)
def test_a_known_vector_is_the_one_behind_its_digest(
    growth: list[dict[str, int]], sent: list[tuple[int, bool, bool]]
) -> None:
    vectors, announcer, dictionary = [dict[str, int]()], Announcer(), Dictionary()
    for more in growth:
        vectors.append(join(vectors[-1], more))
    late = list[tuple[int, Announcement]]()
    for number, is_late, is_lost in sent:
        digest = min(number, len(vectors) - 1) + 1
        said = announcer.announce(PEER, "P", Known(digest, vectors[digest - 1]))
        late += [(digest, said)] if not is_lost else []
        while late and not is_late:
            digest, said = late.pop()
            if not dictionary.learn("P", digest, *said):
                announcer.receive_nack(PEER, "P")
        for known in dictionary.known.values():
            assert known.vector == vectors[known.digest - 1]


def test_between_two_lives_of_a_stamp_no_difference_is_announced() -> None:
    """It would leave elements as they were that have gone back."""
    announcer, dictionary = Announcer(), Dictionary(goes_back=True)
    lives = [Known(5, {"a": 3, "b": 1}, 4), Known(6, {"a": 3, "b": 2}, 4), Known(9, {"a": 3}, 8)]
    for known in lives:
        assert dictionary.learn("P", known.digest, *announcer.announce(PEER, "P", known))
        assert dictionary.known["P"][:2] == known[:2]
    assert dictionary.known["P"].since == 9


def test_a_relay_that_cannot_tell_lives_apart_announces_all_after_all_was_announced_to_it() -> None:
    """It missed the message between, so it cannot know that the vector was lower meanwhile."""
    dictionary, announcer = Dictionary(goes_back=True), Announcer()
    assert dictionary.learn("P", 5, {"a": 1})
    announcer.announce(PEER, "P", dictionary.known["P"])
    assert dictionary.learn("P", 6, {"b": 1}, 5)
    assert announcer.announce(PEER, "P", dictionary.known["P"]) == ({"b": 1}, 5)
    assert dictionary.learn("P", 20, {"a": 2, "b": 1})
    assert announcer.announce(PEER, "P", dictionary.known["P"]) == ({"a": 2, "b": 1}, 0)


@given(
    st.lists(st.tuples(st.booleans(), st.dictionaries(st.sampled_from("ab"), st.integers(1, 9)))),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 1), st.sampled_from("kdl")), max_size=40),
)
def test_a_known_vector_is_the_one_behind_its_digest_though_vectors_go_back(
    growth: list[tuple[bool, dict[str, int]]], sent: list[tuple[int, int, str]]
) -> None:
    """Two senders announce to one receiver; announcements are kept back, dropped or let go."""
    stamped = [Known(1, {}, 1)]
    for is_crash, more in growth:
        digest = stamped[-1].digest + 1
        vector, since = ({}, digest) if is_crash else (stamped[-1].vector, stamped[-1].since)
        stamped.append(Known(digest, join(vector, more), since))
    announcers, dictionary = (Announcer(), Announcer()), Dictionary(goes_back=True)
    late = list[tuple[int, Announcement]]()
    for number, sender, fate in sent:
        known = stamped[min(number, len(stamped) - 1)]
        said = announcers[sender].announce(PEER, "P", known)
        late += [(known.digest, said)] if fate != "d" else []
        while late and fate == "l":
            digest, said = late.pop()
            if not dictionary.learn("P", digest, *said):
                for announcer in announcers:
                    announcer.receive_nack(PEER, "P")
        for got in dictionary.known.values():
            truth = stamped[got.digest - 1]
            assert got.vector == truth.vector
            assert got.since >= truth.since
