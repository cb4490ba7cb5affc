"""Many times in few figures: none is left out, and the longest is exact."""

from __future__ import annotations

from gapless.broker.clock import BUCKETS, DurationMeter


def test_each_time_is_in_the_bucket_of_its_power_of_two_and_the_longest_is_kept() -> None:
    meter = DurationMeter()
    for elapsed_us in (0, 1, 2, 3, 4, 50_000):
        meter.add(elapsed_us * 1_000)
    assert meter.buckets[:4] == [1, 1, 2, 1]
    assert meter.buckets[16] == 1, "below 65,536 us"
    assert sum(meter.buckets) == 6
    assert meter.statistics()["longest_s"] == 0.05
    assert meter.total_ns == 50_010_000


def test_what_is_longer_than_all_buckets_is_in_the_last() -> None:
    meter = DurationMeter()
    meter.add(1 << 62)
    assert meter.buckets[BUCKETS - 1] == 1
