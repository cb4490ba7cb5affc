"""One topic at one node: recognising what came before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapless.scribe.identifiers import Identifier, NodeId, TopicId
from gapless.scribe.messages import Ballot
from gapless.scribe.topic import ERAS_MAX, SEEN_WIDTH, TreeTopic

ROOT = NodeId(Identifier(1))


def topic() -> TreeTopic:
    return TreeTopic(TopicId(Identifier(5)))


@given(st.lists(st.integers(1, SEEN_WIDTH), max_size=60))
def test_every_number_of_one_root_is_new_once(numbers: list[int]) -> None:
    one, era, seen = topic(), Ballot(1, ROOT), set[int]()
    for number in numbers:
        assert one.is_new(era, number) == (number not in seen)
        seen.add(number)


def test_what_is_too_old_to_be_told_apart_counts_as_seen() -> None:
    one, era = topic(), Ballot(1, ROOT)
    assert one.is_new(era, 1_000_000_000)
    assert not one.is_new(era, 1_000_000_000 - SEEN_WIDTH)
    assert one.is_new(era, 1_000_000_001 - SEEN_WIDTH)


def test_two_roots_may_go_on_side_by_side() -> None:
    """After a split: what either sends is new once."""
    one, left, right = topic(), Ballot(9, ROOT), Ballot(3, ROOT)
    assert [one.is_new(era, number) for era in (left, right) for number in (4, 5, 4)] == [
        *(True, True, False),
        *(True, True, False),
    ]
    assert one.is_new(left, 6)
    assert not one.is_new(right, 5)


def test_of_how_many_roots_events_are_remembered_is_bounded() -> None:
    one = topic()
    for instant in range(10):
        one.is_new(Ballot(instant, ROOT), 1)
    assert len(one.seen) == ERAS_MAX
