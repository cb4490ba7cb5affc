"""A broker's figures as Prometheus metrics, made anew at every scrape; nothing is counted twice.

`statistics()` has more: what is a tick, a name or a list is there and not here. Each pubend has its
own series; a name that ends in `_total` only grows, until the process ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gapless.broker import clock
from gapless.core.ticks import instant_of
from gapless.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client import Metric
    from prometheus_client.core import HistogramMetricFamily

Table = dict[str, tuple[str, str]]
"""By metric: the figure that it shows, and what it means."""

COUNTERS: Table = {
    "published": ("published", "events that became durable here"),
    "delivered": ("delivered", "events delivered to clients, as they came or by catch-up"),
    "matching_seconds": ("matching_s", "spent on matching events against subscriptions"),
    "matching_slices": (
        "matching_slices",
        "times that a part of a batch was left for another turn, for matching takes long",
    ),
    "ended_slow": ("ended_slow", "subscriptions ended because their client was too slow"),
    "failovers": ("failovers", "messages sent to another member of a cell than the first choice"),
    "sideways": ("sideways", "messages sent by way of a member of the own cell"),
    "neighbour_changes": ("neighbour_changes", "changes of the set of live neighbours"),
    "steps": ("steps", "calls of the node"),
    "failed_requests": ("failed_requests", "requests that failed inside the broker: a fault of it"),
}
GAUGES: Table = {
    "ready": ("ready", "1 while it serves, 0 while it stops or after it failed"),
    "uptime_seconds": ("uptime_s", "since the start"),
    "clients": ("clients", "connected clients"),
    "subscriptions": ("subscriptions", "subscriptions, durable ones included"),
    "durable_subscriptions": ("durable_subscriptions", "durable subscriptions, attached or not"),
    "waiting_subscriptions": (
        "waiting_subscriptions",
        "subscriptions that have been asked for and have not begun",
    ),
    "catch_up_streams": ("catch_up_streams", "streams of subscriptions that are behind"),
}
LINK_COUNTERS: Table = {
    "link_accepted": ("accepted", "connections accepted"),
    "link_refused": ("refused", "connections refused: too many, or it was stopping"),
    "link_unsent": ("unsent", "messages for peers that were not connected"),
    "link_dropped": ("dropped", "messages dropped because the queue to a broker was full"),
    "link_unknown": ("unknown", "messages of a kind that this version does not know"),
    "link_received_bytes": ("bytes_in", "bytes received"),
    "link_sent_bytes": ("bytes_out", "bytes sent"),
    "link_received_messages": ("messages_in", "messages received"),
    "link_sent_messages": ("messages_out", "messages sent"),
    "refused_logins": ("refused_logins", "security: clients that did not prove who they are"),
    "refused_requests": ("refused_requests", "security: requests beyond what their sender may do"),
    "failed_handshakes": ("failed_handshakes", "security: TLS handshakes that failed"),
    "refused_handshakes": ("refused_handshakes", "security: TLS handshakes beyond their limit"),
}
LINK_GAUGES: Table = {
    "waiting_links": ("waiting_turns", "clients whose input waits for its turn"),
    "neighbours_up": ("brokers_up", "other brokers to which there is a link"),
    "neighbours_down": ("brokers_down", "neighbours to which there is none"),
    "link_input_bytes": (
        "input_bytes",
        "room set aside for large frames of clients that are being read",
    ),
    "link_output_bytes": ("output_bytes", "bytes sent to clients and not taken yet"),
}
DISK_COUNTERS: Table = {
    "disk_full": ("full", "writes for which there was no room: publishers were told to try again"),
    "disk_commits": ("commits", "writes made durable"),
    "disk_damaged": ("damaged", "stretches of records that did not read back: told as gaps"),
}
DISK_GAUGES: Table = {
    "disk_bytes": ("bytes_on_disk", "size of the volume, what is set aside included"),
    "disk_live_bytes": ("bytes_live", "of which is in use"),
    "disk_pending_writes": ("pending", "writes that are not durable yet"),
}
TIMES = {
    "step": "how long calls of the node took; no other client is served meanwhile",
    "turn": "how long turns of the loop took, from the first call of the node to the last write",
}
PUBEND_COUNTERS: Table = {
    "pubend_published": ("published", "at its host: events that became durable"),
    "pubend_nacks": ("nacks_sent", "questions asked for events, of others or of the own log"),
}
PUBEND_GAUGES: Table = {
    "pubend_horizon_lag_seconds": (
        "horizon_lag_s",
        "how long ago the doubt horizon was: all before it is settled here",
    ),
    "pubend_waiting_events": ("waiting_events", "events that wait here behind a gap"),
    "pubend_asking_ticks": ("asking", "ticks that are asked for and not answered"),
    "pubend_cached_events": ("cached_events", "events kept in memory to answer questions"),
    "pubend_pending_events": ("pending_events", "at its host: accepted and not durable yet"),
    "pubend_publishers": ("publishers", "at its host: named publishers remembered"),
    "pubend_producers": ("producers", "at its host: producers of transactions remembered"),
    "pubend_open_transactions": ("open_transactions", "at its host: staged and not committed"),
    "pubend_lost_spans": ("lost_spans", "at its host: spans lost with earlier disks: told as gaps"),
    "pubend_staged_bytes": ("staged_bytes", "at its host: on disk for them"),
}
SUBSCRIPTION_GAUGES: Table = {
    "subscription_pending_events": (
        "pending",
        "events that it has still to get; a bound where gapless_subscription_exact is 0",
    ),
    "subscription_pending_bytes": (
        "pending_bytes",
        "their bytes, by the mean size where the pubend is elsewhere",
    ),
    "subscription_oldest_pending_seconds": (
        "oldest_pending_s",
        "the age of the oldest of them; 0 without any",
    ),
    "subscription_unacknowledged_events": ("unacknowledged", "events that are kept for it"),
    "subscription_exact": ("is_exact", "1 if the pending events are counted exactly"),
    "subscription_attached": (
        "is_active",
        "1 while a client is attached to it, or reads it as Spark does",
    ),
}
SUBSCRIPTION_COUNTERS: Table = {
    "subscription_gaps": ("gaps", "gaps that its clients were told"),
}


def written(statistics: dict[str, Any], subscriptions: list[dict[str, Any]]) -> bytes:
    """All metrics as Prometheus reads them, those of the process included where they are known.
    50 microseconds for each pubend: not for the event loop."""
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

    registry = CollectorRegistry()
    registry.register(Collector(statistics, subscriptions))
    ProcessCollector(registry=registry)  # memory, processor time, open files
    return generate_latest(registry)


class Collector:
    """What `prometheus_client` asks for metrics; `statistics` is nobody else's any more."""

    def __init__(
        self, statistics: dict[str, Any], subscriptions: list[dict[str, Any]] | None = None
    ) -> None:
        """`subscriptions`: those durable ones that have series of their own."""
        self._statistics = statistics
        self._subscriptions = subscriptions or []

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import InfoMetricFamily

        found = self._statistics
        who = {"broker": found["broker"], "cell": found["cell"], "version": __version__}
        yield InfoMetricFamily("gapless_broker", "which broker this is", value=who)
        links, disk = found["links"], found["disk"]
        for table, figures in ((COUNTERS, found), (LINK_COUNTERS, links), (DISK_COUNTERS, disk)):
            yield from single(table, figures, is_counter=True)
        for table, figures in ((GAUGES, found), (LINK_GAUGES, links), (DISK_GAUGES, disk)):
            yield from single(table, figures, is_counter=False)
        yield sync_times(disk)
        for kind, what in TIMES.items():
            yield from times(kind, what, found[f"{kind}_times"])
        yield batch_sizes(found["batch_sizes"])
        now_us = clock.read()
        for figures in found["pubends"].values():
            if "horizon" in figures:
                figures["horizon_lag_s"] = max(0, now_us - instant_of(figures["horizon"])) / 1e6
        yield from by_pubend(PUBEND_COUNTERS, found["pubends"], is_counter=True)
        yield from by_pubend(PUBEND_GAUGES, found["pubends"], is_counter=False)
        for each in self._subscriptions:
            each["is_exact"] = each["pending_is"] == "exact"
            each["is_active"] = each["state"] != "away"
            each["oldest_pending_s"] = each["oldest_pending_s"] or 0
        yield from by_subscription(SUBSCRIPTION_GAUGES, self._subscriptions, is_counter=False)
        yield from by_subscription(SUBSCRIPTION_COUNTERS, self._subscriptions, is_counter=True)
        yield unlisted(found["durable_subscriptions"] - len(self._subscriptions))


def single(table: Table, figures: Mapping[str, Any], *, is_counter: bool) -> Iterator[Metric]:
    """One series for each figure that there is: without security some are not."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    kind = CounterMetricFamily if is_counter else GaugeMetricFamily
    for name, (figure, what) in table.items():
        if figure in figures:
            value = figures[figure]
            yield kind(
                f"gapless_{name}", what, value=len(value) if isinstance(value, list) else value
            )


def by_pubend(
    table: Table, pubends: Mapping[str, Mapping[str, float]], *, is_counter: bool
) -> Iterator[Metric]:
    """One series for each pubend that has the figure."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    kind = CounterMetricFamily if is_counter else GaugeMetricFamily
    for name, (figure, what) in table.items():
        family = kind(f"gapless_{name}", what, labels=["pubend"])
        for pubend, figures in pubends.items():
            if figure in figures:
                family.add_metric([pubend], figures[figure])
        yield family


def by_subscription(
    table: Table, subscriptions: list[dict[str, Any]], *, is_counter: bool
) -> Iterator[Metric]:
    """One series for each of these subscriptions that has the figure."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    kind = CounterMetricFamily if is_counter else GaugeMetricFamily
    for name, (figure, what) in table.items():
        family = kind(f"gapless_{name}", what, labels=["subscription", "topic"])
        for each in subscriptions:
            if each[figure] is not None:
                family.add_metric([each["name"], each["topic"]], each[figure])
        yield family


def unlisted(count: int) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    what = "durable subscriptions beyond metrics_subscriptions_max, without series of their own"
    return GaugeMetricFamily("gapless_subscriptions_unlisted", what, value=max(0, count))


def sync_times(disk: Mapping[str, Any]) -> HistogramMetricFamily:
    from prometheus_client.core import HistogramMetricFamily

    buckets, total = [], 0
    for power, count in enumerate(disk["sync_buckets"]):
        total += count
        buckets.append((str((1 << power) / 1e6), total))
    return HistogramMetricFamily(
        "gapless_disk_sync_seconds",
        "how long syncs took",
        buckets=[*buckets, ("+Inf", total)],
        sum_value=disk["sync_us"] / 1e6,
    )


def times(kind: str, what: str, found: Mapping[str, Any]) -> Iterator[Metric]:
    """How long things of a kind took, and the longest of all."""
    from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily

    buckets, total = [], 0
    for power, count in enumerate(found["buckets"]):
        total += count
        buckets.append((str((1 << power) / 1e6), total))
    yield HistogramMetricFamily(
        f"gapless_{kind}_seconds",
        what,
        buckets=[*buckets, ("+Inf", total)],
        sum_value=found["total_s"],
    )
    longest = f"the longest {kind} since the start"
    yield GaugeMetricFamily(f"gapless_{kind}_longest_seconds", longest, value=found["longest_s"])


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
