"""The minimum of many positions, against looking at all of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapless.durable.least_position import LeastPosition

changes = st.lists(
    st.tuples(st.integers(0, 5), st.one_of(st.none(), st.integers(0, 20))), max_size=60
)


@given(changes)
def test_the_least_is_the_least_whatever_moves_up_down_or_away(
    steps: list[tuple[int, int | None]],
) -> None:
    minimum, truth = LeastPosition(), dict[int, int]()
    for key, position in steps:
        if position is None:
            minimum.remove(key)
            truth.pop(key, None)
        else:
            minimum.set(key, position)
            truth[key] = position
        minimum.check()
        assert minimum.least == min(truth.values(), default=None)
        assert len(minimum) == len(truth)


def test_moving_up_and_down_again_and_again_takes_no_more_room() -> None:
    minimum = LeastPosition()
    for key in range(3):
        minimum.set(key, 0)
    for position in [5, 4, 3, 2, 1] * 100:
        minimum.set(1, position)
        minimum.check()
