"""Digests: whatever gets lost, no receiver takes a digest for another vector."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapless.core.identity import BrokerName
from gapless.propagation.digest import Announcement, Announcer, Dictionary, KnownVector
from gapless.propagation.vector import join

PEER = BrokerName("q")


def test_the_first_message_of_a_digest_carries_what_is_new() -> None:
    announcer = Announcer()
    first, second = KnownVector(1, {"a": 1, "b": 1}), KnownVector(4, {"a": 1, "b": 2})
    assert announcer.announce(PEER, "P", first) == Announcement({"a": 1, "b": 1})
    assert announcer.announce(PEER, "P", first) == Announcement(None)
    assert announcer.announce(PEER, "P", second) == Announcement({"b": 2}, 1)
    assert announcer.announce(PEER, "P", first) == Announcement(None)
    assert announcer.announce(PEER, "Q", first).vector is not None
    announcer.forget_peer(PEER)
    assert announcer.announce(PEER, "P", second) == Announcement({"a": 1, "b": 2})


def test_a_receiver_that_knows_too_little_says_so_and_gets_all() -> None:
    announcer, dictionary = Announcer(), Dictionary()
    announcer.announce(PEER, "P", KnownVector(1, {"a": 1}))  # lost
    second = KnownVector(2, {"a": 1, "b": 1})
    assert not dictionary.learn("P", 2, *announcer.announce(PEER, "P", second))
    announcer.receive_nack(PEER, "P")
    assert dictionary.learn("P", 2, *announcer.announce(PEER, "P", second))
    assert dictionary.known["P"] == second
    assert dictionary.learn("P", 1, None)  # an older one is no news


def test_a_difference_to_what_was_lost_is_not_used() -> None:
    announcer, dictionary = Announcer(), Dictionary()
    assert dictionary.learn("P", 1, *announcer.announce(PEER, "P", KnownVector(1, {"a": 1})))
    announcer.announce(PEER, "P", KnownVector(2, {"a": 2}))  # lost
    assert not dictionary.learn(
        "P", 3, *announcer.announce(PEER, "P", KnownVector(3, {"a": 2, "b": 1}))
    )
    assert dictionary.known["P"] == KnownVector(1, {"a": 1})


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
        said = announcer.announce(PEER, "P", KnownVector(digest, vectors[digest - 1]))
        late += [(digest, said)] if not is_lost else []
        while late and not is_late:
            digest, said = late.pop()
            if not dictionary.learn("P", digest, *said):
                announcer.receive_nack(PEER, "P")
        for known in dictionary.known.values():
            assert known.vector == vectors[known.digest - 1]
