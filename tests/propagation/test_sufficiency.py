"""Sufficiency: what is kept is what the test says; unknown digests let everything pass."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.identity import CellName
from gapless.propagation.sufficiency import Sufficiency, is_sufficient
from gapless.propagation.vector import join
from tests.propagation.decision import Reason, decide

ONE, TWO = CellName("one"), CellName("two")
LEAVES = {ONE: ["a"], TWO: ["b", "c"]}
VECTORS = st.dictionaries(st.sampled_from("abc"), st.integers(0, 3))


@pytest.mark.parametrize(
    ("sufficient", "matched", "passes", "reason"),
    [
        (True, True, True, Reason.MATCHED),
        (True, False, False, Reason.FILTERED),
        (False, True, True, Reason.MATCHED),
        (False, False, True, Reason.INSUFFICIENT),
        (None, True, True, Reason.MATCHED),
        (None, False, True, Reason.UNKNOWN_DIGEST),
    ],
)
def test_only_a_sufficient_broker_filters(
    sufficient: bool | None, matched: bool, passes: bool, reason: Reason
) -> None:
    assert decide(sufficient, matched) == (passes, reason)


@given(st.lists(st.tuples(st.booleans(), VECTORS), max_size=20))
def test_the_kept_results_are_those_of_the_test(steps: list[tuple[bool, dict[str, int]]]) -> None:
    sufficiency, digest = Sufficiency(LEAVES), 0
    broker, message = dict[str, int](), dict[str, int]()
    for is_broker, more in steps:
        if is_broker:
            broker = join(broker, more)
            sufficiency.advance(broker)
        else:
            digest, message = digest + 1, join(message, more)
            said = (message, 0) if digest % 3 == 1 else (more, digest - 1)
            assert sufficiency.learn("P", digest, *said)
        sufficiency.check()
        for cell, leaves in LEAVES.items():
            wanted = is_sufficient(broker, message, leaves) if digest else None
            assert sufficiency.test("P", max(digest, 1), cell) == wanted
            assert sufficiency.test("P", digest + 1, cell) is None
            assert sufficiency.test("P", 0, cell) is None


def test_only_the_leaves_behind_the_child_count() -> None:
    assert is_sufficient({"a": 2}, {"a": 2, "b": 9}, ["a"])
    assert not is_sufficient({"a": 2}, {"a": 2, "b": 9}, ["a", "b"])


def test_an_unknown_digest_wants_a_nack() -> None:
    assert not Sufficiency(LEAVES).learn("P", 3, None)
