"""Durable subscriptions: the filtered log against a log per subscriber, catch-up, idle ones.

Wall time where the disk is part of what is measured, CPU time elsewhere; all ratios are of one run.
"""

from __future__ import annotations

import random
import tempfile
import time
import tracemalloc
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.report import Report
from gapless.core.broker_messages import Knowledge, Nack
from gapless.core.effects import Append, Persist, Tell
from gapless.core.events import EventBatch
from gapless.core.identity import Instant, PubendName, SubscriptionName, TopicName
from gapless.core.ticks import Span
from gapless.core.token import Token
from gapless.durable.catch_up import CatchUp, CatchUpSource, Taker
from gapless.durable.consolidated import Consolidated, RecordsPersisted, SubscriptionBatch
from gapless.durable.filtered_log import FilteredLog
from gapless.durable.subscriptions import Definition, DurableSubscriptions, SubscriptionPersisted
from gapless.filters.filter import Filter
from gapless.filters.matcher import Matcher
from gapless.knowledge.answers import look_up
from gapless.knowledge.subend import Settled
from gapless.node.config import Config
from gapless.storage.disk import DiskVolume
from gapless.testing.memory_volume import MemoryVolume
from gapless.wire.events import decode_attributes, encode_event
from gapless_lab.experiments.durable.logging_cost import (
    EVENTS_PER_S,
    MATCHES,
    SUBSCRIBERS,
    play_logging,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gapless.core.effects import Effect

PUBEND = PubendName("trades/0")
STEP = 1 << 10
ROUNDS = 5


@dataclass(frozen=True, kw_only=True)
class Limits(Config):
    """The broker's configuration with what durable subscriptions need."""

    catch_up_window: int = 256
    filtered_read_max: int = 5_000
    filtered_walk_max: int = 5_000
    filtered_replay_max: int = 20_000
    filtered_pending_max: int = 10_000
    delivered_flush: int = 250_000
    released_flush: int = 250_000
    storage_retry: int = 1_000_000
    hand_over_repeat: int = 1_000_000
    durable_subscriptions_max: int = 100_000


LIMITS = Limits()


# --- a: logging who matched against logging every event for everyone who matched ------------------


def compare_logging(quick: bool) -> Report:
    """The paper's microbenchmark, as `gapless experiment durable` plays it; here with the disk."""
    found = play_logging(seconds=10 if quick else 100, seed=1, clock=time.perf_counter)
    report = Report(
        "durable-logging",
        f"{EVENTS_PER_S} events/s for {found.seconds} s, {SUBSCRIBERS} subscribers, "
        f"{MATCHES} matches per event",
        ("logging", "bytes", "ratio", "seconds", "ratio"),
    )
    report.add("filtered log", found.filtered_bytes, "1", f"{found.filtered_s:.2f}", "1")
    report.add(
        "every event for each subscriber",
        found.copied_bytes,
        f"{found.copied_bytes / found.filtered_bytes:.1f}",
        f"{found.copied_s:.2f}",
        f"{found.copied_s / found.filtered_s:.1f}",
    )
    report.notes.append("one sync for each second of the workload; the last 5 s are kept")
    report.notes.append("the best of 3 rounds of each, in turns")
    return report


# --- b: catch-up against filtering everything again -----------------------------------------------


def fill(volume: DiskVolume, count: int, rare: int) -> FilteredLog:
    """Events of which one in `rare` is for subscription 1, all for subscription 2."""
    log = FilteredLog(PUBEND, volume, LIMITS)
    size = 200  # events in one commit
    for start in range(0, count, size):
        indices = range(start, start + size)
        events = [
            encode_event({"symbol": "IBM" if i % rare == 0 else "T", "price": i % 97}, bytes(200))
            for i in indices
        ]
        takers = [[1, 2] if i % rare == 0 else [2] for i in indices]
        ticks = tuple(i * STEP for i in indices)
        writes = log.write(ticks, takers, ticks[-1] + STEP)
        volume.commit([*writes, Append("log", ticks, tuple(events))])
        log.persisted()
    return log


def catch_up(volume: DiskVolume, log: FilteredLog, *, refilter: bool) -> tuple[int, int]:
    """How many events came, and how many records of the event log were read for it."""
    taker = Taker(1)
    if refilter:
        matcher = ibm()  # and the filtered log knows nothing
        taker = Taker(1, log.end, lambda _, events: [i for i, _ in match(matcher, events)])
    machine = CatchUp(taker, 0, CatchUpSource(log), LIMITS)
    count, fetched, now = 0, 0, Instant(0)
    while not machine.is_done(log.end):
        pieces, nacks = machine.advance(log.end, 1_000, now)
        count += sum(len(piece.ticks) for piece in pieces if isinstance(piece, SubscriptionBatch))
        while nacks:
            for answer in answers(volume, nacks.pop()):
                fetched += len(answer.ticks)
                nacks += machine.receive_knowledge(answer, now)
    return count, fetched


def answers(volume: DiskVolume, nack: Nack) -> Iterable[Knowledge]:
    """As a pubend answers: single ticks are read, of a longer span what fits one answer."""
    limits = LIMITS.batch_events_max, LIMITS.batch_bytes_max
    scattered, spans, _ = look_up(volume, "log", PUBEND, nack.spans, limits)
    yield from scattered
    for span in spans:
        room = LIMITS.answer_bytes_max
        ticks, events = volume.scan("log", span.start, span.end, bytes_max=room)
        more = ticks[-1] + STEP < span.end
        known = Span(span.start, ticks[-1] + 1 if more else span.end)
        batch = EventBatch(tuple(events))
        yield Knowledge(PUBEND, known, tuple(ticks), batch, requested=True, more=more)


def ibm() -> Matcher[int]:
    matcher: Matcher[int] = Matcher()
    matcher.add(1, Filter.parse("symbol = 'IBM'"))
    return matcher


def match(matcher: Matcher[int], events: Sequence[bytes]) -> Iterable[tuple[int, int]]:
    return matcher.match_batch(decode_attributes(EventBatch(tuple(events))))


def filter_again(volume: DiskVolume) -> tuple[int, int]:
    """Nothing but reading, decoding and matching: what no refiltering can do without."""
    matcher, count, read, start = ibm(), 0, 0, 0
    while True:
        ticks, events = volume.scan("log", start, 1 << 62)
        if not ticks:
            return count, read
        read += len(ticks)
        count += sum(1 for _ in match(matcher, events))
        start = ticks[-1] + 1


def compare_catch_up(quick: bool) -> Report:
    total, rare = (100_000 if quick else 1_000_000), 1_000
    report = Report(
        "durable-catch-up",
        f"Catching up with {total:,} events, one in {rare:,} of them wanted",
        ("way", "events", "log records read", "filtered-log records read", "CPU s", "ratio"),
    )
    with tempfile.TemporaryDirectory() as folder:
        volume = DiskVolume(Path(folder))
        log = fill(volume, total, rare)
        volume.close()
        ways: dict[str, Callable[[], tuple[int, int]]] = {
            "catch-up with the filtered log": lambda: catch_up(volume, log, refilter=False),
            "catch-up that filters all again": lambda: catch_up(volume, log, refilter=True),
            "decode and match alone": lambda: filter_again(volume),
        }
        best = dict.fromkeys(ways, float("inf"))
        reads: dict[str, tuple[int, int]] = {}
        for _ in range(ROUNDS):  # in turns: the machine is noisy
            for way, work in ways.items():
                volume = DiskVolume(Path(folder))  # nothing is remembered
                log = FilteredLog(PUBEND, volume, LIMITS)
                begin = time.process_time()
                count, fetched = work()
                best[way] = min(best[way], time.process_time() - begin)
                assert count == total // rare
                reads[way] = fetched, log.reads
                volume.close()
    base = min(best.values())
    for way, spent in best.items():
        from_events, from_filtered = (f"{number:,}" for number in reads[way])
        ratio = f"{spent / base:.1f}"
        report.add(way, total // rare, from_events, from_filtered, f"{spent:.3f}", ratio)
    report.notes.append(f"the best of {ROUNDS} rounds of each")
    return report


# --- c: many subscriptions, most of them idle -----------------------------------------------------


class Host:
    """A subscriber-hosting broker with so many durable subscriptions, 1 % of them catching up."""

    def __init__(self, count: int) -> None:
        self.volume = MemoryVolume()
        self.stream = Consolidated(PUBEND, self.volume, LIMITS)
        self.subscriptions = DurableSubscriptions(self.volume, LIMITS)
        self.matcher: Matcher[int] = Matcher()
        self.symbols = count // MATCHES
        self.tick = STEP
        self.carry(self.stream.begin(self.tick, Instant(0)))
        for number in range(count):
            self.add(number)
        self.names = [each.definition.name for each in self.subscriptions.all()]
        log = self.stream.log
        self.catch_ups = [
            CatchUp(Taker(number), 0, CatchUpSource(log), LIMITS) for number in range(count // 100)
        ]

    def add(self, number: int) -> None:
        condition = f"symbol = 'S{number % self.symbols:07}'"
        name = SubscriptionName(f"subscription-{number}")
        definition = Definition(name=name, topic=TopicName("trades"), condition=condition)
        since = {str(PUBEND): self.tick}
        self.carry(self.subscriptions.create(definition, Token(since), since))
        self.matcher.add(number, Filter.parse(condition))

    def carry(self, effects: list[Effect]) -> None:
        for effect in effects:
            assert isinstance(effect, Persist)
            self.volume.commit(effect.writes)
            for each in effect.then:
                assert isinstance(each, Tell)
                if isinstance(each.message, RecordsPersisted):
                    self.carry(self.stream.persisted(each.message, Instant(0)))
                elif isinstance(each.message, SubscriptionPersisted):
                    self.carry(self.subscriptions.persisted(each.message, Instant(0)))

    def deliver(self, dice: random.Random, size: int) -> None:
        """One batch through the matcher and the log; its takers acknowledge; what is released."""
        attributes = [{"symbol": f"S{dice.randrange(40):07}", "price": 1} for _ in range(size)]
        takers: list[list[int]] = [[] for _ in range(size)]
        for index, number in self.matcher.match_batch(attributes):
            takers[index].append(number)
        ticks = [self.tick + i * STEP for i in range(size)]
        self.tick = ticks[-1] + STEP
        settled = Settled(ticks, [b""] * size, [])
        self.carry(self.stream.advance(settled, takers, self.tick, Instant(0)))
        token = Token({PUBEND: self.tick})
        for number in takers[0]:
            self.carry(self.subscriptions.acknowledge(self.names[number], token, Instant(0)))
        self.carry(self.subscriptions.fire(Instant(LIMITS.released_flush)))
        assert self.subscriptions.released(PUBEND) is not None


def compare_idle(quick: bool) -> Report:
    counts = (1_000, 5_000 if quick else 50_000)
    report = Report(
        "durable-idle",
        "Durable subscriptions that are idle, 1 % of them catching up",
        ("subscriptions", "CPU us per event", "ratio"),
    )
    Host(MATCHES).deliver(random.Random(), 200)  # what is loaded once is not counted
    hosts, sizes = [], []
    for count in counts:
        tracemalloc.start()
        hosts.append(Host(count))
        sizes.append(tracemalloc.get_traced_memory()[0] / count)
        tracemalloc.stop()
    best, size = [float("inf")] * 2, 200
    for round_number in range(5 if quick else 20):
        for place, host in enumerate(hosts):  # in turns: the machine is noisy
            dice = random.Random(round_number)
            begin = time.process_time()
            for _ in range(5):
                host.deliver(dice, size)
            best[place] = min(best[place], (time.process_time() - begin) / 5 / size)
    for count, cost in zip(counts, best, strict=True):
        report.add(f"{count:,}", f"{cost * 1e6:.1f}", f"{cost / best[0]:.2f}")
    report.notes.append(
        f"each event is matched against all and taken by {MATCHES}; all memory over {counts[1]:,} "
        f"is {sizes[1]:.0f} bytes each, with the matcher and the volume's tables"
    )
    return report


def run(quick: bool) -> list[Report]:
    return [compare_logging(quick), compare_catch_up(quick), compare_idle(quick)]
