"""Portions of a collection are all of it, together."""

from __future__ import annotations

import pytest

from gapless.core.portion import WHOLE, Portion


@pytest.mark.parametrize("step", [1, 2, 7, 20])
def test_all_portions_together_have_each_item_once(step: int) -> None:
    items = range(13)
    found = [item for first in range(step) for item in Portion(first, step).of(items)]
    assert sorted(found) == [*items]
    assert Portion(0, step).is_whole == (step == 1)


def test_the_whole_is_one_portion() -> None:
    assert [*WHOLE.of("abc")] == ["a", "b", "c"]
    assert WHOLE.is_whole
