"""A broker's figures as Prometheus metrics, made anew at every scrape; nothing is counted twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gapless.broker import clock
from gapless.core.ticks import instant_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client import Metric
    from prometheus_client.core import HistogramMetricFamily

COUNTERS = {
    "published": "events that became durable here",
    "matching_s": "seconds spent on matching events against subscriptions",
    "delivered": "events delivered to clients",
    "ended_slow": "subscriptions ended because their client was too slow",
    "failovers": "messages sent to another member of a cell than the first choice",
    "sideways": "messages sent by way of a member of the own cell",
    "neighbour_changes": "changes of the set of live neighbours",
    "steps": "calls of the node",
}
GAUGES = {
    "durable_subscriptions": "durable subscriptions, attached or not",
    "catch_up_streams": "streams of subscriptions that are behind",
    "clients": "connected clients",
    "subscriptions": "subscriptions",
    "waiting_subscriptions": "subscriptions that wait until their topic is known here",
    "uptime_s": "seconds since the start",
}
LINK_COUNTERS = {
    "accepted": "connections accepted",
    "refused": "connections refused",
    "unsent": "messages for peers that were not connected",
    "dropped": "messages dropped because the queue to a broker was full",
    "bytes_in": "bytes received",
    "bytes_out": "bytes sent",
    "messages_in": "messages received",
    "messages_out": "messages sent",
}


class Collector:
    """What `prometheus_client` asks for metrics."""

    def __init__(self, statistics: Callable[[], dict[str, Any]]) -> None:
        self._statistics = statistics

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        found = self._statistics()
        links, disk = found["links"], found["disk"]
        for name, what in COUNTERS.items():
            yield CounterMetricFamily(f"gapless_{name}", what, value=found[name])
        for name, what in GAUGES.items():
            yield GaugeMetricFamily(f"gapless_{name}", what, value=found[name])
        for name, what in LINK_COUNTERS.items():
            yield CounterMetricFamily(f"gapless_link_{name}", what, value=links[name])
        for name in ("bytes_on_disk", "bytes_live", "pending"):
            yield GaugeMetricFamily(f"gapless_disk_{name}", name, value=disk[name])
        buckets, total = [], 0
        for power, count in enumerate(disk["sync_buckets"]):
            total += count
            buckets.append((str((1 << power) / 1e6), total))
        buckets.append(("+Inf", total))
        yield HistogramMetricFamily(
            "gapless_disk_sync_seconds",
            "how long syncs took",
            buckets=buckets,
            sum_value=disk["sync_us"] / 1e6,
        )
        yield batch_sizes(found["batch_sizes"])
        now_us = clock.read()
        for figures in found["pubends"].values():
            if "horizon" in figures:
                lag_us = now_us - instant_of(figures["horizon"])
                figures["horizon_lag_seconds"] = max(0, lag_us) / 1e6
        yield from self._pubends(found["pubends"])

    def _pubends(self, pubends: dict[str, dict[str, int]]) -> Iterator[Metric]:
        """One gauge for each figure that any pubend has, labelled by pubend."""
        from prometheus_client.core import GaugeMetricFamily

        for name in sorted({name for figures in pubends.values() for name in figures}):
            family = GaugeMetricFamily(f"gapless_pubend_{name}", name, labels=["pubend"])
            for pubend, figures in pubends.items():
                if name in figures:
                    family.add_metric([pubend], figures[name])
            yield family


def batch_sizes(counts: list[int]) -> HistogramMetricFamily:
    """How many events there were in the batches that were delivered."""
    from prometheus_client.core import HistogramMetricFamily

    buckets, total, sizes = [], 0, 0
    for power, count in enumerate(counts):
        total += count
        sizes += count * (3 << power >> 2)  # in the middle of what the bucket holds
        buckets.append((str(max(0, (1 << power) - 1)), total))
    return HistogramMetricFamily(
        "gapless_batch_events",
        "events in a batch that was delivered; the sum is an estimate",
        buckets=[*buckets, ("+Inf", total)],
        sum_value=sizes,
    )
