"""The machines of the variants of section 3.7, one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapless.core.broker_messages import SubscriptionChange, SubscriptionState
from gapless.core.outgoing import ToSiblings
from gapless.propagation.digest import Announcement
from gapless.propagation.vector import join
from tests.propagation.stand import TIMING
from tests.propagation.test_branch import DEEP, NOW, ONE, OWN, TWO, UP, deep_state, step, ups
from tests.propagation.test_digest import PEER
from tests.propagation.test_sufficiency import LEAVES
from tests.propagation.variants import (
    FrugalBranch,
    LifeAnnouncer,
    LifeDictionary,
    LifeKnown,
    LifeStart,
    LifeSufficiency,
    SoftStamp,
    knows_exactly,
)

# --- empty changes that stay below ----------------------------------------------------------------


def frugal(history_max: int = 64) -> FrugalBranch:
    below = {ONE: ["a"], TWO: ["b"], DEEP: ["x", "y"]}
    return FrugalBranch(OWN, UP, below, TIMING, history_max=history_max)


def of_b(time: int, added: str = "", removed: str = "") -> SubscriptionChange:
    gone = (removed,) if removed else ()
    return SubscriptionChange(TWO, {"b": time}, {"b": time - 1}, (added,) if added else (), gone)


def test_a_change_that_changes_no_root_stays_below_and_raises_what_passes() -> None:
    branch = frugal()
    assert ups(branch.receive_change(step(1, "p > 0"), NOW)) == [
        SubscriptionChange(OWN, {"a": 1}, {"a": 0}, ("p > 0",))
    ]
    empty = of_b(1, "p > 5")
    assert branch.receive_change(empty, NOW) == [ToSiblings(empty)]
    branch.check()
    assert branch.raised({"a": 1, "elsewhere": 7}) == {"a": 1, "b": 1, "elsewhere": 7}
    assert branch.raised({"b": 1}) == {"b": 1}


def test_what_is_told_next_tells_of_all_that_stayed_below() -> None:
    branch = frugal()
    branch.receive_change(step(1, "p > 0"), NOW)
    branch.receive_change(of_b(1, "p > 5"), NOW)
    assert ups(branch.receive_change(step(2, "s = 'x'"), NOW)) == [
        SubscriptionChange(OWN, {"a": 2, "b": 1}, {"a": 1, "b": 0, "x": 0, "y": 0}, ("s = 'x'",))
    ]
    assert ups(branch.receive_change(step(3, "s = 'y'"), NOW)) == [
        SubscriptionChange(OWN, {"a": 3}, {"a": 2}, ("s = 'y'",))
    ]


def test_after_so_many_an_empty_change_is_told_after_all() -> None:
    branch, told = frugal(4), list[object]()
    branch.receive_change(step(1, "p > 0"), NOW)
    for time in range(1, 5):
        told += ups(branch.receive_change(of_b(time, f"p > {time}"), NOW))
        branch.check()
    assert told == [SubscriptionChange(OWN, {"a": 1, "b": 3}, {"a": 1, "b": 0, "x": 0, "y": 0})]


def test_a_sibling_remembers_too_and_a_state_may_stay_below_as_well() -> None:
    branch = frugal()
    branch.receive_change(step(1, "p > 0"), NOW, from_sibling=True)
    branch.receive_change(of_b(1, "p > 5"), NOW, from_sibling=True)
    assert branch.raised({"a": 1})["b"] == 1
    state = SubscriptionState(TWO, {"b": 4}, ("p > 6", "p = 2"))
    assert ups(branch.receive_state(state, NOW)) == []
    assert branch.raised({"a": 1})["b"] == 4
    assert ups(branch.receive_state(state, NOW)) == [
        SubscriptionState(OWN, {"a": 1, "b": 4}, ("p > 0",))
    ]  # it is repeated because something did not come


def test_what_is_not_exact_raises_nothing() -> None:
    branch = frugal()
    branch.receive_change(step(1, "p > 0"), NOW)
    branch.receive_change(of_b(1, "p > 5"), NOW)
    branch.receive_state(deep_state(2, 1, "p = 2"), NOW)
    branch.receive_state(deep_state(1, 2, "p = 1"), NOW)
    branch.check()
    assert branch.raised({"a": 1}) == {"a": 1}


def test_a_root_of_the_tree_tells_nobody_and_raises_nothing() -> None:
    root = FrugalBranch(OWN, None, {ONE: ["a"], TWO: ["b"]}, TIMING, history_max=64)
    root.receive_change(step(1, "p > 0"), NOW)
    root.receive_change(of_b(1, "p > 5"), NOW)
    assert root.raised({"a": 1}) == {"a": 1}


def test_to_know_more_is_not_to_know_exactly() -> None:
    assert knows_exactly({"a": 2, "b": 1}, {"a": 2, "b": 9}, ["a"])
    assert not knows_exactly({"a": 3}, {"a": 2}, ["a"])
    assert not knows_exactly({"a": 1}, {"a": 2}, ["a"])


# --- vectors that go back -------------------------------------------------------------------------


def test_a_stamp_that_persists_nothing_goes_back_in_its_vector_but_not_in_its_digest() -> None:
    stamp = SoftStamp("P", first=100)
    assert stamp.advance({"a": 1}) == []
    assert (*stamp.known, stamp.known.since) == (101, {"a": 1}, 100)
    assert stamp.advance({"a": 1}) == []
    assert stamp.digest == 101
    stamp.advance({"b": 3})  # a minimum that somebody requires
    assert (*stamp.known, stamp.known.since) == (102, {"a": 1, "b": 3}, 100)
    stamp.check()
    again = SoftStamp("P", first=200)
    assert (*again.known, again.known.since) == (200, {}, 200)


def test_between_two_lives_of_a_stamp_no_difference_is_announced() -> None:
    """It would leave elements as they were that have gone back."""
    announcer, dictionary = LifeAnnouncer(), LifeDictionary()
    lives = [
        LifeKnown(5, {"a": 3, "b": 1}, 4),
        LifeKnown(6, {"a": 3, "b": 2}, 4),
        LifeKnown(9, {"a": 3}, 8),
    ]
    for known in lives:
        assert dictionary.learn("P", known.digest, *announcer.announce(PEER, "P", known))
        assert dictionary.known["P"][:2] == known[:2]
    last = dictionary.known["P"]
    assert isinstance(last, LifeKnown)
    assert last.since == 9


def test_a_relay_that_cannot_tell_lives_apart_announces_all_after_all_was_announced_to_it() -> None:
    """It missed the message between, so it cannot know that the vector was lower meanwhile."""
    dictionary, announcer = LifeDictionary(), LifeAnnouncer()
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
    stamped = [LifeKnown(1, {}, 1)]
    for is_crash, more in growth:
        digest = stamped[-1].digest + 1
        vector, since = ({}, digest) if is_crash else (stamped[-1].vector, stamped[-1].since)
        stamped.append(LifeKnown(digest, join(vector, more), since))
    announcers, dictionary = (LifeAnnouncer(), LifeAnnouncer()), LifeDictionary()
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
            assert isinstance(got, LifeKnown)
            truth = stamped[got.digest - 1]
            assert got.vector == truth.vector
            assert got.since >= truth.since


def test_a_digest_from_before_vectors_went_back_lets_everything_pass() -> None:
    """The older vector may be the higher one."""
    sufficiency = LifeSufficiency(LEAVES)
    sufficiency.advance({"a": 1})
    assert sufficiency.learn("P", 5, {"a": 2})
    assert sufficiency.test("P", 5, ONE) is False
    assert sufficiency.learn("P", 9, {})
    assert sufficiency.test("P", 9, ONE) is True
    assert sufficiency.test("P", 5, ONE) is None
    assert sufficiency.learn("P", 11, {"a": 1}, 9)
    assert sufficiency.test("P", 10, ONE) is True
    sufficiency.check()


def test_nothing_is_known_of_digests_from_before_vectors_went_back() -> None:
    starts = LifeStart("l")
    assert not starts.learn_life("P", LifeKnown(5, {"l": 3}, 5))
    assert not starts.learn_life("P", LifeKnown(7, {"l": 4}, 5))
    assert starts.time_of("P", 6) == 3
    assert starts.learn_life("P", LifeKnown(20, {"l": 1}, 20))
    assert starts.time_of("P", 20) == 1
    for digest in (5, 7, 19):  # 19 may be of either life
        assert starts.time_of("P", digest) is None
    starts.check()


def test_what_a_broker_adopts_from_its_own_stamp_is_tested_at_once() -> None:
    sufficiency = LifeSufficiency(LEAVES)
    sufficiency.adopt("P", LifeKnown(3, {"a": 1}, 2))
    assert sufficiency.test("P", 3, ONE) is False
    assert sufficiency.test("P", 1, ONE) is None
    sufficiency.adopt("P", LifeKnown(4, {}, 4))
    assert sufficiency.test("P", 4, ONE) is True
