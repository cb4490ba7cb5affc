"""Subscription propagation: a new subscription among many, and what vectors cost a message."""

from __future__ import annotations

import random
import time
import tracemalloc
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.report import Report
from gapless.core.broker_messages import Knowledge, SubscriptionChange
from gapless.core.effects import Persist
from gapless.core.events import EventBatch
from gapless.core.identity import BrokerName, CellName, Instant, PubendName
from gapless.core.ticks import Span
from gapless.filters.filter import Filter
from gapless.filters.matcher import Matcher
from gapless.propagation.branch import Branch
from gapless.propagation.digest import Announcer, KnownVector
from gapless.propagation.leaf import ClockPersisted, Leaf
from gapless.propagation.sufficiency import Sufficiency
from gapless.testing.memory_volume import MemoryVolume
from gapless.wire.codec import Codec
from tests.propagation.stand import Limits, messages

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = Instant(0)
CODEC = Codec(Knowledge)
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


class MessageCost(NamedTuple):
    """What a message costs on average."""

    size_bytes: float
    cpu_us: float


def message_cost(leaves: int, message_count: int, per_second: int) -> MessageCost:
    """Announced, encoded, decoded, learnt and tested for four children; each leaf's time moves on
    once a second, and so does the receiver's vector, a moment later."""
    announcer, dice = Announcer(), random.Random(1)
    names = [f"broker-{number}" for number in range(leaves)]
    below = {CellName(f"cell-{number}"): names[number::4] for number in range(4)}
    receiver = Sufficiency(below)
    vectors = [KnownVector(1, dict.fromkeys(names, 1_000_000))]
    receiver.advance(vectors[0].vector)
    total, body = 0, EventBatch.join([bytes(418)])
    begin = time.process_time()
    for number in range(message_count):
        if dice.random() < leaves / per_second:
            name, known = dice.choice(names), vectors[-1]
            vectors.append(
                KnownVector(known.digest + 1, {**known.vector, name: known.vector[name] + 1})
            )
            receiver.advance(known.vector)
        known = vectors[-1]
        vector, base = announcer.announce(BrokerName("peer"), "source", known)
        span = Span(number * 1024, number * 1024 + 1024)
        message = Knowledge(
            PubendName("trades/0"),
            span,
            (number * 1024,),
            body,
            digest=known.digest,
            vector=vector,
            base=base,
        )
        frame = CODEC.encode(message)
        total += len(frame)
        came = CODEC.decode(frame)
        assert isinstance(came, Knowledge)
        assert receiver.learn("source", came.digest, came.vector, came.base)
        for cell in below:
            receiver.test("source", came.digest, cell)
    cpu = time.process_time() - begin
    return MessageCost(total / message_count, cpu / message_count * 1e6)


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
        ("leaves", "bytes a message", "against 2", "whole vectors", "CPU a message", "against 2"),
    )
    count = 4_000 if quick else 20_000
    fewest: MessageCost | None = None
    for leaves in (2, 20, 200):
        cost = message_cost(leaves, count, 2_000)
        fewest = fewest or cost
        whole = cost.size_bytes + len(encode_vector(leaves))
        vectors.add(
            leaves,
            f"{cost.size_bytes:.1f}",
            f"{cost.size_bytes / fewest.size_bytes - 1:+.2%}",
            f"{whole / fewest.size_bytes - 1:+.0%}",
            f"{cost.cpu_us:.1f} µs",
            f"{cost.cpu_us / fewest.cpu_us:.2f}x",
        )
    vectors.notes.append(
        "Target: at most 2 % more bytes with 200 leaves than with 2. 'Whole vectors': were there "
        "no digests. CPU: sender and receiver together, and four tests."
    )
    return [subscriptions, vectors]


def encode_vector(leaves: int) -> bytes:
    """A vector as it would stand in every message, were there no digests."""
    vector = {f"broker-{number}": 1_000_000 for number in range(leaves)}
    empty = Knowledge(PubendName("p"), Span(0, 1))
    full = Knowledge(PubendName("p"), Span(0, 1), vector=vector)
    return CODEC.encode(full)[len(CODEC.encode(empty)) :]
