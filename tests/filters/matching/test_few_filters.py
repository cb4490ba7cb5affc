"""Few filters have two indexes, one for few events and one for many: both say the same."""

from __future__ import annotations

import random

import pytest

from gapless.core.events import EventBatch
from gapless.filters.matcher import BATCH_MIN, SMALL_MAX, Matcher
from gapless.filters.matching import kernels
from gapless.wire.attribute_rows import AttributeRows
from gapless.wire.events import encode_event

SIZES = (1, BATCH_MIN - 1, BATCH_MIN, 3 * BATCH_MIN)


def rows(size: int, dice: random.Random) -> AttributeRows:
    events = [
        encode_event({"a": dice.randrange(8), "b": dice.choice("xyz")}, b"") for _ in range(size)
    ]
    return AttributeRows(EventBatch(tuple(events)))


@pytest.fixture(scope="module", autouse=True)
def _loaded() -> None:
    kernels.prepare()


def test_whatever_comes_and_goes_few_events_and_many_match_as_one_by_one() -> None:
    dice = random.Random(7)
    matcher, plain, present = Matcher[int](), Matcher[int](engine="python"), list[int]()
    for key in range(SMALL_MAX + 40):
        condition = dice.choice((f"a = {key % 8}", f"a > {key % 8} AND b = 'x'", "b <> 'y'", ""))
        for each in (matcher, plain):
            each.add(key, condition)
        present.append(key)
        if key % 3 == 0:
            gone = present.pop(dice.randrange(len(present)))
            for each in (matcher, plain):
                each.remove(gone)
        if key % 8 == 0:
            for size in SIZES:
                events = rows(size, dice)
                assert matcher.match_batch(events) == plain.match_batch(list(events))
                assert matcher.passing(events) == plain.passing(list(events))
                assert matcher.match(events[0]) == plain.match(events[0])


def test_many_events_are_matched_by_compiled_code_and_a_lone_one_is_not() -> None:
    matcher = Matcher({1: "a = 1", 2: "b = 'x'"})
    dice = random.Random(3)
    assert matcher.match_handles(rows(BATCH_MIN - 1, dice)) is None
    assert matcher.match_handles(rows(BATCH_MIN, dice)) is not None
    assert matcher.match_handles(rows(1, dice)) is None
    assert isinstance(matcher.match({"a": 1}), list)


def test_filters_that_ask_for_nothing_look_at_no_event() -> None:
    matcher = Matcher({1: "a = 1", 2: ""})
    dice = random.Random(5)
    assert matcher.match_handles(rows(BATCH_MIN, dice)) is not None
    matcher.remove(1)
    assert matcher.match_handles(rows(BATCH_MIN, dice)) is None
    assert matcher.match_any() == [2]
