"""A loop of a test ends when it should, or fails."""

from __future__ import annotations

import pytest

from tests.bounds import so_long_as


def test_a_loop_goes_on_so_long_as_its_condition_holds() -> None:
    rest = [3, 2, 1]
    assert [(step, rest.pop()) for step in so_long_as(lambda: rest)] == [(0, 1), (1, 2), (2, 3)]


def test_a_loop_without_end_is_a_failure() -> None:
    steps = list[int]()
    with pytest.raises(AssertionError, match="no end after 5 steps"):
        steps.extend(so_long_as(lambda: True, 5))
    assert steps == [0, 1, 2, 3, 4]
