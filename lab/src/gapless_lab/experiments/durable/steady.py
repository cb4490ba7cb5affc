"""Summary 1 and figure 4: latency, and the most that a network can deliver.

Theory of operation
    Latency is played over a chain of five brokers, whose disks all take 44 ms for a write, as the
    paper's did; a durable and an anonymous subscriber stand side by side.
    For the peak a network is played near its limit. What its busiest broker's processor would do
    if it were never free is the peak: deliveries per second over the busy share. It is measured
    with durable subscribers that stay, with ones that now and then are away, and with anonymous
    ones that stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from gapless.core.identity import BrokerName
from gapless_lab.experiments.durable.clients import Subscriber, close_books, feeds, join
from gapless_lab.experiments.durable.processor import REAL
from gapless_lab.experiments.durable.setting import (
    HOST,
    Setting,
    chain,
    star,
    subscriber_hosts,
)

HOPS = 5
SLOW_SYNC_US = 44_000
"""How long the paper's disk took to log an event."""

WARM_S = 2
REST_S = 5
EVENTS_PER_S = 80
"""A tenth of the paper's; a subscriber gets a quarter of them."""

PERIOD_S = 300
AWAY_S = 5
"""Each subscriber is away that long, once in that time."""

STAYING, LEAVING, ANONYMOUS = "durable", "durable, now and then away", "not durable"
WAYS = (STAYING, LEAVING, ANONYMOUS)


@dataclass(frozen=True, kw_only=True)
class Latency:
    """From a publisher over five brokers to a subscriber."""

    durable_ms: float
    """Median, as the others."""
    anonymous_ms: float
    logging_ms: float
    """Until the publisher knows that the event is durable."""
    events: int


@dataclass(frozen=True, kw_only=True)
class Peak:
    """One network under one way of using it."""

    way: str
    host_count: int
    """0: the one broker hosts pubends and subscribers."""
    subscribers: int
    per_s: float
    """Deliveries to all subscribers, as played."""
    busy: dict[str, float]
    """By broker: share of the time."""
    lost: int
    doubled: int

    @property
    def peak_per_s(self) -> float:
        return self.per_s / max(self.busy.values())


def play_latency(*, seconds: float, seed: int) -> Latency:
    setting = Setting(chain(HOPS), seed=seed, sync_us=SLOW_SYNC_US, costs=REAL)
    durable = join(setting, [BrokerName("s1")], 1)[0]
    anonymous = Subscriber(setting, BrokerName("s1"), 1, 0, is_durable=False)
    anonymous.connect()
    setting.play(WARM_S)
    (feed,) = feeds(setting, 5)
    for each in (durable, anonymous):
        each.made_of = feed.published.__getitem__
    setting.play(seconds)
    feed.stop()
    setting.play(REST_S)
    made = list(feed.published.values())
    logged = [instant - made[number] for number, instant in feed.receipts.items()]
    return Latency(
        durable_ms=median(durable.latencies_us) / 1000,
        anonymous_ms=median(anonymous.latencies_us) / 1000,
        logging_ms=median(logged) / 1000,
        events=len(durable.latencies_us),
    )


def play_peak(way: str, host_count: int, *, per_host: int, seconds: int, seed: int) -> Peak:
    setting = Setting(star(host_count), seed=seed)
    hosts = subscriber_hosts(host_count) or [HOST]
    subscribers = join(setting, hosts, per_host, is_durable=way != ANONYMOUS)
    published = feeds(setting, EVENTS_PER_S)
    if way == LEAVING:
        schedule(setting, subscribers)
    setting.play(WARM_S)
    begin, before = setting.second, count(subscribers)
    setting.play(seconds)
    end, after = setting.second, count(subscribers)
    busy = {str(name): setting.busy(name, begin, end) for name in setting.nodes}
    for feed in published:
        feed.stop()
    setting.play(AWAY_S + REST_S)
    books = close_books(subscribers, published)
    return Peak(
        way=way,
        host_count=host_count,
        subscribers=len(subscribers),
        per_s=(after - before) / seconds,
        busy=busy,
        lost=books.lost,
        doubled=books.doubled,
    )


def schedule(setting: Setting, subscribers: list[Subscriber]) -> None:
    """Each leaves once in every period, evenly spread."""
    world, places = setting.world, list(range(len(subscribers)))
    world.dice.shuffle(places)
    for place, subscriber in zip(places, subscribers, strict=True):
        first_us = int((place + 0.5) / len(subscribers) * PERIOD_S * 1_000_000)
        world.after(first_us, subscriber.leave, AWAY_S)


def count(subscribers: list[Subscriber]) -> int:
    return sum(len(each.taken) for each in subscribers)
