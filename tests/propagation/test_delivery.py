"""Delivery start: never before the leaf's time is in the vector, for each source by itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapless.propagation.delivery import STEPS_MAX, DeliveryStart, may_start


@given(st.lists(st.integers(0, 2), min_size=1, max_size=10), st.integers(0, 6), st.data())
def test_a_subscription_starts_exactly_when_the_vector_allows(
    growth: list[int], start: int, data: st.DataObject
) -> None:
    starts = DeliveryStart("l")
    starts.add("P", "s", start)
    times = [sum(growth[: number + 1]) for number in range(len(growth))]
    for digest, time in enumerate(times, start=1):
        starts.learn("P", digest, {"l": time, "other": 9})
    starts.check()
    digest = data.draw(st.integers(1, len(times)))
    allowed = may_start({"l": times[digest - 1]}, "l", start)
    assert starts.see("P", digest) == (["s"] if allowed else [])


def test_each_source_starts_by_itself() -> None:
    starts = DeliveryStart("l")
    for source in ("P", "Q"):
        starts.add(source, "s", 1)
    starts.learn("P", 1, {"l": 1})
    starts.learn("Q", 1, {})
    assert starts.see("P", 1) == ["s"]
    assert starts.see("Q", 1) == []
    starts.remove("Q", "s")
    starts.learn("Q", 2, {"l": 1})
    assert starts.see("Q", 2) == []


def test_what_is_older_than_the_kept_steps_starts_nothing() -> None:
    starts = DeliveryStart("l")
    starts.add("P", "s", 0)
    for digest in range(1, STEPS_MAX + 3):
        starts.learn("P", digest, {"l": digest})
    starts.check()
    assert starts.time_of("P", 1) is None
    assert starts.see("P", 1) == []
    assert starts.see("P", STEPS_MAX) == ["s"]
