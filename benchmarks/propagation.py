"""Subscription propagation: a new subscription among many, and what vectors cost a message."""

from __future__ import annotations

import random
import time
import tracemalloc
from typing import TYPE_CHECKING

from benchmarks.report import Report
from gapless.core.broker_messages import Knowledge, SubscriptionChange
from gapless.core.effects import Persist
from gapless.core.events import EventBatch
from gapless.core.identity import BrokerName, CellName, Instant, PubendName
from gapless.core.ticks import Span
from gapless.filters.filter import Filter
from gapless.filters.matcher import Matcher
from gapless.propagation.branch import Branch
from gapless.propagation.digest import Announcer, Known
from gapless.propagation.leaf import ClockPersisted, Leaf
from gapless.storage.memory import MemoryVolume
from gapless.wire.codec import Codec
from tests.propagation.stand import Limits, messages

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = Instant(0)
encode = Codec(Knowledge).encode
LIMITS = Limits(virtual_time_step=1_000_000)


def stock(dice: random.Random) -> str:
    """20 a symbol, on average, where there are 100,000."""
    return f"symbol = 'S{dice.randrange(5_000)}' AND price > {dice.random() * 100:.5f}"


def ranges(dice: random.Random) -> str:
    """No equality to go by; hardly any covers another."""
    tests = []
    for name in dice.sample("abcdefghij", dice.randint(2, 4)):
        low = dice.random() * 80
        tests.append(f"{name} BETWEEN {low:.3f} AND {low + 20:.3f}")
    return " AND ".join(tests)


def make_leaf() -> Leaf:
    """A leaf whose clock has room for everything."""
    volume = MemoryVolume()
    leaf = Leaf(BrokerName("l"), CellName("L"), (CellName("m"),), volume, LIMITS)
    for action in leaf.begin({}, NOW):
        assert isinstance(action, Persist)
        volume.commit(action.writes)
    leaf.persisted(ClockPersisted("l", LIMITS.virtual_time_step), NOW)
    return leaf


def subscribe(make: Callable[[random.Random], str], count: int, probes: int) -> tuple[float, ...]:
    """Microseconds of CPU for one more subscription among `count`: at the leaf, and at the
    broker above it; and bytes for each subscription at both together (stock only: it is slow)."""
    dice = random.Random(1)
    leaf = make_leaf()
    branch = Branch(CellName("m"), CellName("u"), {CellName("L"): ["l"]}, LIMITS)
    conditions = {f"s{number}": Filter.parse(make(dice)) for number in range(count)}
    Matcher(enumerate(stock(dice) for _ in range(300)))  # what is loaded once is no one's
    if make is stock:
        tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for message in messages(leaf.update(conditions, [], NOW)):
        assert isinstance(message, SubscriptionChange)
        branch.receive_change(message, NOW)
    size = (tracemalloc.get_traced_memory()[0] - before) / count
    tracemalloc.stop()
    fresh = [{f"t{number}": Filter.parse(make(dice))} for number in range(probes)]
    for one in fresh:
        _ = next(iter(one.values())).conjunctions
    changes: list[SubscriptionChange] = []
    begin = time.process_time()
    for one in fresh:
        changes += messages(leaf.update(one, [], NOW))  # type: ignore[arg-type]
    at_leaf = (time.process_time() - begin) / probes
    begin = time.process_time()
    for change in changes:
        branch.receive_change(change, NOW)
    above = (time.process_time() - begin) / max(len(changes), 1)
    return at_leaf * 1e6, above * 1e6, size


def message_bytes(leaves: int, message_count: int, per_second: int) -> float:
    """Bytes of a message on average, each leaf's time moving on once a second."""
    announcer, dice = Announcer(), random.Random(1)
    names = [f"broker-{number}" for number in range(leaves)]
    known, total = Known(1, dict.fromkeys(names, 1_000_000)), 0
    body = EventBatch.join([bytes(418)])
    for number in range(message_count):
        if dice.random() < leaves / per_second:
            name = dice.choice(names)
            known = Known(known.digest + 1, {**known.vector, name: known.vector[name] + 1})
        vector, base = announcer.announce(BrokerName("peer"), "source", known)
        message = Knowledge(
            PubendName("trades/0"),
            Span(number * 1024, number * 1024 + 1024),
            (number * 1024,),
            body,
            digest=known.digest,
            vector=vector,
            base=base,
        )
        total += len(encode(message))
    return total / message_count


def run(quick: bool) -> list[Report]:
    small, large, probes = (1_000, 10_000, 100) if quick else (1_000, 100_000, 300)
    subscriptions = Report(
        "propagation-subscribe",
        "one more subscription, applied and its change computed",
        ("workload", "among", "at the leaf", "above it", "ratio of the sums", "bytes each, both"),
    )
    for name, make in (("stock", stock), ("ranges", ranges)):
        first = 0.0
        for count in (small, large):
            at_leaf, above, size = subscribe(make, count, probes)
            first = first or at_leaf + above
            subscriptions.add(
                name,
                f"{count:,}",
                f"{at_leaf:.0f} µs",
                f"{above:.0f} µs",
                f"{(at_leaf + above) / first:.1f}x",
                f"{size:,.0f}" if size else "",
            )
    subscriptions.notes.append("CPU time; target: below 1,000 µs on average at the larger size.")
    vectors = Report(
        "propagation-vectors",
        "bytes of a message of one event, 2,000 a second, each leaf changing once a second",
        ("leaves", "bytes a message", "against 2 leaves", "with the whole vector each time"),
    )
    count = 4_000 if quick else 20_000
    base = message_bytes(2, count, 2_000)
    for leaves in (2, 20, 200):
        size = message_bytes(leaves, count, 2_000)
        whole = size + len(encode_vector(leaves))
        vectors.add(leaves, f"{size:.1f}", f"{size / base - 1:+.2%}", f"{whole / base - 1:+.0%}")
    vectors.notes.append("Target: at most 2 % more with 200 leaves than with 2.")
    return [subscriptions, vectors]


def encode_vector(leaves: int) -> bytes:
    """A vector as it would stand in every message, were there no digests."""
    vector = {f"broker-{number}": 1_000_000 for number in range(leaves)}
    empty = Knowledge(PubendName("p"), Span(0, 1))
    full = Knowledge(PubendName("p"), Span(0, 1), vector=vector)
    return encode(full)[len(encode(empty)) :]
