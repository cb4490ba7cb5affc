"""The stream of an ordered topic against a sorted list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapless.scribe.identifiers import Identifier, TopicId
from gapless.scribe.messages import TreeEvent
from gapless.scribe.stream import Stream

TOPIC = TopicId(Identifier(7))


def event(number: int) -> TreeEvent:
    return TreeEvent(TOPIC, number, b"%d" % number)


def numbers(events: list[TreeEvent]) -> list[int]:
    return [each.number for each in events]


@given(st.permutations(list(range(1, 12))), st.lists(st.integers(1, 11)), st.integers(1, 6))
def test_any_order_with_repeats_is_handed_out_as_numbered(
    order: list[int], repeats: list[int], start: int
) -> None:
    stream, out = Stream(100), []
    for index, number in enumerate([*order, *repeats]):
        if index == 3:
            out += numbers(stream.begin(start))
        out += numbers(stream.take(event(number))[1])
        stream.check()
    assert out == list(range(start, 12))
    assert stream.lacking is None


def test_nothing_past_a_hole_is_handed_out_and_the_hole_is_what_lacks() -> None:
    stream = Stream(100)
    stream.begin(1)
    assert numbers(stream.take(event(1))[1]) == [1]
    assert stream.take(event(4)) == (True, [])
    assert stream.lacking == (2, 4)
    assert stream.take(event(4)) == (False, [])
    stream.take(event(2))
    assert numbers(stream.take(event(3))[1]) == [3, 4]


def test_a_loss_at_the_very_end_is_seen_by_what_others_have() -> None:
    stream = Stream(100)
    stream.begin(5)
    assert stream.lacking is None
    stream.learn(8)
    assert stream.lacking == (5, 8)


def test_what_is_kept_is_bounded_and_what_is_not_kept_is_not_answered() -> None:
    stream = Stream(3)
    stream.begin(1)
    for number in range(1, 8):
        stream.take(event(number))
        stream.check()
    assert stream.within(4, 8) is None
    assert numbers(stream.within(5, 7) or []) == [5, 6]
    assert stream.kept_from == 5


def test_too_early_is_not_held() -> None:
    stream = Stream(3)
    stream.begin(1)
    assert stream.take(event(4)) == (False, [])
    assert stream.take(event(3)) == (True, [])


def test_what_is_gone_is_skipped_and_told_once() -> None:
    stream = Stream(10)
    stream.begin(1)
    stream.take(event(5))
    missed, ready = stream.skip(4)
    assert missed == (1, 4)
    assert ready == []
    assert numbers(stream.take(event(4))[1]) == [4, 5]
    assert stream.skip(4) == (None, [])


def test_a_root_keeps_what_its_log_has_from_before_it_began() -> None:
    stream = Stream(10)
    stream.begin(4)
    stream.keep_older([event(1), event(2), event(3)])
    stream.check()
    assert numbers(stream.within(2, 4) or []) == [2, 3]


def test_what_is_kept_is_bounded_in_bytes_too() -> None:
    stream = Stream(100, bytes_max=10)
    stream.begin(1)
    for number in range(1, 6):
        stream.take(TreeEvent(TOPIC, number, b"four"))
        stream.check()
    assert stream.kept_from == 4
    assert stream.position == 6
    large = TreeEvent(TOPIC, 8, b"x" * 13)
    assert stream.take(large) == (False, [])
    assert stream.lacking == (6, 9)
    assert numbers(stream.take(TreeEvent(TOPIC, 6, b"x" * 30))[1]) == [6]
    stream.check()
