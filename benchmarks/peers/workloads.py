"""The workloads. Each starts a broker afresh, and gives figures by name.

| | |
|---|---|
| W1-10, W1-100 | one publisher, 10 or 100 subscriber connections, everything to all, not durable; at most 20,000 deliveries outstanding |
| W2 | 2,000 subscriptions `symbol = 'S0123' AND price > x` on 4 connections, an event matches one on average; at most 2,000 deliveries outstanding |
| W3 | 100 durable subscribers on connections of their own, each matches a quarter; the publisher gets confirmations, 256 in flight; subscribers acknowledge; then 25 are away for 5 s at half that rate, and catch up while it goes on |
| W4 | one durable subscription that is away; 1 and 16 publishers with 256 events in flight each |
| W5 | W3 at 100 events/s with 25 away; kill -9; restart on the same files; all come back |
| latency | one subscriber, one publisher with confirmations, 200 events/s |

Figures are per second and per event as they are; on a shared machine compare CPU, or ratios of the
same run. kill -9 loses no page cache: W5 says nothing of power failures.
"""  # noqa: E501

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.peers.counters import BY_GROUP, DELIVERED
from benchmarks.peers.model import (
    EXCHANGES,
    Interest,
    durable_quarters,
    everything,
    make_events,
    selective,
)
from benchmarks.peers.session import Session, ask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from benchmarks.peers.adapter import Peer, Setting
    from benchmarks.peers.session import Moment

Figures = dict[str, float]

W1_WINDOW, W2_WINDOW, W3_WINDOW = 20_000, 2_000, 10_000
W1_WINDOW_EACH = 4_000
"""A batch is consumed when the next is asked for: while one of so many is worked on, as many more
may come, and gapless ends a subscription that is 10,000 behind."""

W2_SUBSCRIPTIONS, W2_CONNECTIONS = 2_000, 4
DURABLE_SUBSCRIBERS, AWAY = 100, 25
AWAY_S, LEVEL_S, LEVEL_MAX_S = 5.0, 0.25, 30.0
"""Away for how long; level is who is less than so much behind; and when to give up."""

CRASH_RATE, CRASH_S = 100.0, 4.0
LATENCY_RATE = 200.0


@dataclass(frozen=True)
class Length:
    """How long to warm up, and to measure."""

    warm_s: float
    seconds: float


def figures(first: Moment, last: Moment) -> Figures:
    seconds = last.time_s - first.time_s
    published = last.published - first.published
    delivered = last.delivered - first.delivered
    before, after = first.usage, last.usage
    broker_s = after.broker_s - before.broker_s
    publishers_s = after.publishers_s - before.publishers_s
    subscribers_s = after.subscribers_s - before.subscribers_s
    ours_s = broker_s + publishers_s + subscribers_s
    found = {
        "published/s": published / seconds,
        "confirmed/s": (last.confirmed - first.confirmed) / seconds,
        "deliveries/s": delivered / seconds,
        "others' cores": max(0.0, after.machine_s - before.machine_s - ours_s) / seconds,
    }
    if delivered:
        found |= {
            "broker µs/delivery": broker_s / delivered * 1e6,
            "subscriber µs/delivery": subscribers_s / delivered * 1e6,
            "CPU µs/delivery": ours_s / delivered * 1e6,
        }
    if published:
        found |= {
            "broker µs/event": broker_s / published * 1e6,
            "publisher µs/event": publishers_s / published * 1e6,
            "CPU µs/event": ours_s / published * 1e6,
            "disk bytes/event": (after.disk_bytes - before.disk_bytes) / published,
        }
    return found


def middle(values: Iterable[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else float("nan")


def fan_out(peer: Peer, setting: Setting, length: Length, subscribers: int) -> Figures:
    with Session(peer, setting) as session:
        session.add_subscribers([[each] for each in everything(subscribers)], "count")
        session.add_publishers(1, confirmed=False)
        window = min(W1_WINDOW, W1_WINDOW_EACH * subscribers)
        found = figures(*session.measure(length.warm_s, length.seconds, window=window))
        return found | {"missing": session.drain()}


def filtered(peer: Peer, setting: Setting, length: Length) -> Figures:
    interests = selective(W2_SUBSCRIPTIONS)
    half = W2_CONNECTIONS // 2
    connections: list[list[Interest]] = [[] for _ in range(W2_CONNECTIONS)]
    for each in interests:  # the two of one symbol are on different connections
        connections[each.id % half + half * (each.id >= W2_SUBSCRIPTIONS // 2)].append(each)
    with Session(peer, setting) as session:
        session.add_subscribers(connections, "count")
        session.add_publishers(1, confirmed=False)
        found = figures(*session.measure(length.warm_s, length.seconds, window=W2_WINDOW))
        return found | {"missing": session.drain()}


def durable(peer: Peer, setting: Setting, length: Length) -> Figures:
    interests = durable_quarters(DURABLE_SUBSCRIBERS)
    with Session(peer, setting) as session:
        session.add_subscribers([[each] for each in interests], "count")
        session.add_publishers(1, confirmed=True)
        found = figures(*session.measure(length.warm_s, length.seconds, window=W3_WINDOW))
        found["missing"] = session.drain(20)
        found |= _catch_up(session, rate=max(10.0, found["published/s"] / 2))
        found["missing at the end"] = session.drain(20, quiet_s=7)
    return found


def _catch_up(session: Session, rate: float) -> Figures:
    away = list(range(AWAY))
    allowed = max(5.0, LEVEL_S * rate / len(EXCHANGES))

    def lag(slot: int) -> int:
        due = session.slots[BY_GROUP + slot % len(EXCHANGES)]
        return due - session.slots[DELIVERED + slot]

    def received() -> int:
        return sum(session.slots[DELIVERED : DELIVERED + AWAY])

    session.begin(AWAY_S + LEVEL_MAX_S + 10, rate=rate)
    time.sleep(1)
    ask(session.subscribers, "leave", away)
    time.sleep(AWAY_S)
    before, backlog = received(), sum(map(lag, away))
    first = session.now()
    begin = time.monotonic()
    for process in session.subscribers:
        process.send("connect", away)
    is_level = False
    while not is_level and time.monotonic() - begin < LEVEL_MAX_S:
        time.sleep(0.005)
        is_level = all(lag(slot) <= allowed for slot in away)
    seconds, caught = time.monotonic() - begin, received() - before
    all_of_it = figures(first, session.now())
    for process in session.subscribers:
        process.receive()
    session.finish()
    return {
        "catch-up/s": caught / seconds,
        "backlog": backlog,
        "level after s": seconds if is_level else float("inf"),
        "meanwhile broker µs/delivery": all_of_it["broker µs/delivery"],
        "meanwhile CPU µs/delivery": all_of_it["CPU µs/delivery"],
    }


def confirmed(peer: Peer, setting: Setting, length: Length) -> Figures:
    found: Figures = {}
    for publishers in (1, 16):
        with Session(peer, setting) as session:
            store = Interest(0, durable=True, name="store")
            session.add_subscribers([[store]], "count")
            ask(session.subscribers, "leave", [0])
            session.add_publishers(publishers, confirmed=True)
            one = figures(*session.measure(length.warm_s, length.seconds))
        if publishers == 1:
            found |= one
        found[f"confirmed/s, {publishers}"] = one["confirmed/s"]
    return found


def killed(peer: Peer, setting: Setting, length: Length) -> Figures:
    interests, away = durable_quarters(DURABLE_SUBSCRIBERS), list(range(AWAY))
    with Session(peer, setting) as session:
        session.add_subscribers([[each] for each in interests], "remember")
        session.add_publishers(1, confirmed=True, remember=True)
        session.begin(600, rate=CRASH_RATE)
        time.sleep(CRASH_S / 2)
        ask(session.subscribers, "leave", away)
        time.sleep(CRASH_S / 2)
        at_kill = session.now().published
        session.broker.kill()
        restart_s = session.broker.start()
        ask(session.subscribers, "connect", away)
        limit = time.monotonic() + 30
        while time.monotonic() < limit:
            there = sum(each["there"] for each in ask(session.subscribers, "collect"))
            if there == len(interests) and session.now().published > at_kill + 20:
                break
            time.sleep(0.1)
        time.sleep(CRASH_S)
        session.finish()
        session.drain(30, quiet_s=7)
        seen = {
            number: counts
            for each in ask(session.subscribers, "collect")
            for number, counts in each["seen"].items()
        }
        (published,) = ask(session.publishers, "collect")
    done, events = set(published["done"][0]), make_events()
    lost = doubled = 0
    for each in interests:
        counts = seen[each.id]
        wanted = {one for one in done if events[one % len(events)].exchange == each.exchange}
        lost += len(wanted - counts.keys())
        doubled += counts.total() - len(counts)
    return {
        "lost": lost,
        "doubled": doubled,
        "confirmed": len(done),
        "in doubt": published["sent"][0] - len(done),
        "restart s": restart_s,
    }


def latency(peer: Peer, setting: Setting, length: Length) -> Figures:
    with Session(peer, setting) as session:
        session.add_subscribers([everything(1)], "latency")
        session.add_publishers(1, confirmed=True)
        session.measure(length.warm_s, length.seconds, rate=LATENCY_RATE, in_flight=16)
        (subscriber,) = ask(session.subscribers, "collect")
        (publisher,) = ask(session.publishers, "collect")
    receipt_ms = middle(publisher["latencies_ns"]) / 1e6
    delivery_ms = middle(subscriber["latencies_ns"]) / 1e6
    return {"receipt ms": receipt_ms, "delivery ms": delivery_ms}


WORKLOADS: dict[str, Callable[[Peer, Setting, Length], Figures]] = {
    "W1-1": lambda peer, setting, length: fan_out(peer, setting, length, 1),
    "W1-10": lambda peer, setting, length: fan_out(peer, setting, length, 10),
    "W1-100": lambda peer, setting, length: fan_out(peer, setting, length, 100),
    "W2": filtered,
    "W3": durable,
    "W4": confirmed,
    "W5": killed,
    "latency": latency,
}
