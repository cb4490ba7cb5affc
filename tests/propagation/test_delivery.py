"""Delivery start: never before the leaf's time is in the vector, for each stream by itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapless.propagation.delivery import STEPS_MAX, DeliveryStart


@given(st.lists(st.integers(0, 2), min_size=1, max_size=10), st.integers(0, 6))
def test_a_subscription_starts_exactly_where_the_vector_allows(
    growth: list[int], start: int
) -> None:
    starts = DeliveryStart("l")
    times = [sum(growth[: number + 1]) for number in range(len(growth))]
    for digest, time in enumerate(times, start=1):
        starts.learn("P", digest, {"l": time, "other": 9})
        starts.see("P", "t/0", 100 * digest, digest)
    starts.check()
    allowed = [100 * digest for digest, time in enumerate(times, start=1) if time >= start]
    assert starts.start_of("t/0", start) == (allowed[0] if allowed else None)


def test_each_stream_starts_by_itself_though_two_share_their_vectors() -> None:
    starts = DeliveryStart("l")
    starts.learn("P", 1, {})
    starts.learn("P", 2, {"l": 1})
    assert starts.see("P", "t/0", 10, 1)
    assert starts.see("P", "t/1", 10, 1)
    assert starts.see("P", "t/0", 20, 2)
    assert starts.start_of("t/0", 1) == 20
    assert starts.start_of("t/1", 1) is None
    assert starts.start_of("t/2", 0) is None


def test_a_message_that_comes_late_moves_no_start() -> None:
    starts = DeliveryStart("l")
    starts.learn("P", 1, {})
    starts.learn("P", 2, {"l": 1})
    assert starts.see("P", "t/0", 30, 2)
    assert not starts.see("P", "t/0", 20, 1)
    assert not starts.see("P", "t/0", 25, 2)
    assert starts.start_of("t/0", 1) == 30
    assert starts.start_of("t/0", 0) == 30  # it could have been 20; later is never wrong


def test_an_unknown_digest_starts_nothing() -> None:
    starts = DeliveryStart("l")
    assert not starts.see("P", "t/0", 10, 1)
    assert starts.start_of("t/0", 0) is None


def test_what_is_older_than_the_kept_steps_starts_with_the_oldest_of_them() -> None:
    starts = DeliveryStart("l")
    for digest in range(1, STEPS_MAX + 3):
        starts.learn("P", digest, {"l": digest})
        starts.see("P", "t/0", 10 * digest, digest)
    starts.check()
    assert starts.time_of("P", 1) is None
    assert starts.start_of("t/0", 1) == 30
