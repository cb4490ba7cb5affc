"""Whose turn it is to ask, of many that catch up."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from gapless.core.identity import PubendName, SubscriptionName
from gapless.node.subscriptions.turns import Turns
from tests.bounds import so_long_as

if TYPE_CHECKING:
    from gapless.node.subscriptions.turns import Key

WINDOW = 4


def key(name: str, pubend: str = "p") -> Key:
    return SubscriptionName(name), PubendName(pubend)


def go_on(turns: Turns, who: Key, wanted: int) -> int:
    """One that has all it asked for asks for a window more, if it may."""
    count = min(turns.room_of(who), WINDOW, wanted)
    turns.update(who, count, waits=wanted > 0 and not count)
    turns.check(WINDOW)
    return count


def test_all_share_what_may_be_open() -> None:
    turns = Turns(6)
    assert [go_on(turns, key(name), 9) for name in "abc"] == [4, 2, 0]
    assert turns.next() is None
    assert go_on(turns, key("a"), 0) == 0  # it has got everything
    assert turns.next() == key("c")


def test_one_that_stands_in_line_goes_before_one_that_has_just_had_its_turn() -> None:
    turns = Turns(8)
    assert [go_on(turns, key(name), 9) for name in "abc"] == [4, 4, 0]
    turns.update(key("a"), 0, waits=False)  # it was sent all
    assert go_on(turns, key("a"), 5) == 0
    assert turns.next() == key("c")
    assert go_on(turns, key("c"), 9) == 4
    assert turns.next() is None
    turns.leave(key("b"))
    assert turns.next() == key("a")


def test_one_that_leaves_makes_room_for_the_next() -> None:
    turns = Turns(4)
    assert [go_on(turns, key(name), 9) for name in "abc"] == [4, 0, 0]
    turns.leave(key("b"))
    turns.leave(key("a"))
    assert turns.next() == key("c")


def test_a_pubend_out_of_reach_holds_up_nobody_elsewhere() -> None:
    turns = Turns(6)
    assert [go_on(turns, key(name), 9) for name in "abc"] == [4, 2, 0]
    assert go_on(turns, key("d", "q"), 9) == 3  # half of all, though the other has more
    assert [turns.is_busy(key(name)) for name in "abc"] == [True, True, True]
    assert not turns.is_busy(key("a", "q"))
    assert set(turns.in_the_way()) == {key("a"), key("b")}
    turns.leave(key("b"))
    assert turns.next() is None, "there are two now, and half is in use"


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from("pq")), max_size=60),
    st.integers(1, 9),
)
def test_everyone_gets_everything_in_turns_whoever_is_stirred(
    stirred: list[tuple[str, str]], total: int
) -> None:
    turns, wanted = Turns(total), Counter({key(n, p): 10 for n in "abcdef" for p in "pq"})
    for who in wanted:
        go_on(turns, who, wanted[who])
    for name, pubend in stirred:
        who = key(name, pubend)
        wanted[who] -= turns.open.get(who[1], {}).get(who[0], 0)
        go_on(turns, who, wanted[who])
    for _ in range(1_000):
        for pubend, some in list(turns.open.items()):
            for name, count in list(some.items()):
                wanted[name, pubend] -= count
                go_on(turns, (name, pubend), wanted[name, pubend])
        for _ in so_long_as(lambda: turns.next() is not None):
            first = turns.next()
            assert first is not None
            assert go_on(turns, first, wanted[first]), "whose turn it is gets something"
    assert not +wanted
    assert not turns.open
