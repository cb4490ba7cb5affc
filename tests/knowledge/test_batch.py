"""A run of events is cut into batches within limits, in order, and none is lost."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gapless.knowledge.batch import cut


@given(st.lists(st.binary(max_size=6)), st.integers(1, 5), st.integers(1, 12))
def test_batches_are_within_limits_and_cannot_be_fewer(
    events: list[bytes], count_max: int, bytes_max: int
) -> None:
    bounds = cut(events, count_max, bytes_max)
    batches = [events[low:high] for low, high in bounds]
    assert [event for batch in batches for event in batch] == events
    for batch in batches:
        assert len(batch) <= count_max
        assert sum(map(len, batch)) <= bytes_max or len(batch) == 1
    for batch, following in pairwise(batches):
        more = [*batch, following[0]]
        assert len(more) > count_max or sum(map(len, more)) > bytes_max
