"""The filtered log against brute force: a dictionary from tick to takers."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gapless.core.effects import Append, Persist, Put, Write
from gapless.durable import filtered_log
from gapless.durable.filtered_log import HEADS, FilteredLog, LogReading, Trail
from gapless.testing.memory_volume import MemoryVolume
from tests.durable.stand import PUBEND, Disk, Limits

if TYPE_CHECKING:
    from collections.abc import Sequence

LIMITS = Limits()


def states(reading: LogReading, start: int) -> str:
    """One letter for each tick from `start` on: wanted or unknown Q, silent S, lost L."""
    letters = ""
    for tick in range(start, reading.through):
        if tick < reading.unknown_below or tick >= reading.unknown_from:
            letters += "Q"
        elif tick < reading.lost_below:
            letters += "L"
        else:
            letters += "Q" if tick in reading.wanted else "S"
    return letters


def write(
    log: FilteredLog, volume: MemoryVolume, takers: dict[int, list[int]], through: int
) -> None:
    writes = log.write(sorted(takers), [takers[tick] for tick in sorted(takers)], through)
    if writes:
        volume.commit(writes)
        log.persisted()
    log.check()


class LogMachine(RuleBasedStateMachine):
    """Batches in flight, syncs, crashes, chops; every read equals filtering by hand."""

    @initialize(read=st.integers(1, 4), walk=st.integers(1, 6), replay=st.integers(1, 8))
    def begin(self, read: int, walk: int, replay: int) -> None:
        self.limits = replace(
            LIMITS, filtered_read_max=read, filtered_walk_max=walk, filtered_replay_max=replay
        )
        self.disk = Disk()
        self.truth: dict[int, set[int]] = {}  # durable or not
        self.restart()

    def restart(self) -> None:
        self.log = FilteredLog(PUBEND, self.disk.volume, self.limits)
        self.truth = {tick: some for tick, some in self.truth.items() if tick < self.log.end}
        self.trails = {taker: Trail() for taker in range(4)}

    @rule(batch=st.lists(st.sets(st.integers(0, 3)), max_size=5), back=st.integers(0, 3))
    def write(self, batch: list[set[int]], back: int) -> None:
        """A batch may repeat what was written before."""
        start = max(self.log.written - back, 0)
        through = max(start + len(batch), self.log.written) + (len(batch) % 2)
        takers = [
            sorted(self.truth.get(tick, ())) if tick < self.log.written else list(some)
            for tick, some in enumerate(batch, start)
        ]
        for tick, some in enumerate(takers, start):
            self.truth[tick] = set(some)
        writes = self.log.write(range(start, start + len(batch)), takers, through)
        if writes:
            self.disk.take([Persist(writes)])
        for each in writes:
            if isinstance(each, Append):
                for tick, record in zip(each.indices, each.records, strict=True):
                    count = len(self.truth[tick])
                    assert len(record) in (4 + 12 * count, 12 + 4 * count)

    @precondition(lambda self: self.disk.waiting)
    @rule()
    def sync(self) -> None:
        self.disk.sync()
        self.log.persisted()

    @rule()
    def crash(self) -> None:
        self.disk.crash()
        self.restart()

    @rule(tick=st.integers(0, 40))
    def chop(self, tick: int) -> None:
        chop = self.log.chop(tick)
        if chop:
            self.disk.volume.commit([chop])

    @rule(tick=st.integers(0, 40))
    def release_early(self, tick: int) -> None:
        """The pubend gives up events that subscriptions have not acknowledged."""
        self.log.lost_below = max(self.log.lost_below, tick)

    @rule(taker=st.integers(0, 3), start=st.integers(0, 60), more=st.integers(1, 60))
    def read(self, taker: int, start: int, more: int) -> None:
        self.compare(taker, start, start + more, 0)

    @rule(taker=st.integers(0, 3), since=st.integers(0, 60))
    def read_on(self, taker: int, since: int) -> None:
        self.compare(taker, 0, self.log.end + 3, since)

    @rule(
        taker=st.integers(0, 3),
        start=st.integers(0, 60),
        since=st.integers(0, 60),
        released=st.integers(0, 60),
    )
    def read_released(self, taker: int, start: int, since: int, released: int) -> None:
        self.compare(taker, start, max(start, self.log.end) + 3, since, released)

    def compare(self, taker: int, start: int, end: int, since: int, released: int = 0) -> None:
        got, at, log = "", start, self.log
        for _ in range(200):
            before = log.reads
            reading = log.read(
                taker, at, end, since=since, released=released, trail=self.trails[taker]
            )
            assert len(reading.wanted) <= self.limits.filtered_read_max
            assert log.reads - before <= self.limits.filtered_walk_max
            got += states(reading, at)
            at = reading.through
            if at == end:
                break
        takes = [
            tick
            for tick in range(max(start, since, log.acknowledged_below), log.end)
            if self.is_taken(tick, taker)
        ]
        lost = [tick for tick in takes if tick < max(released, log.start)]
        lost_below = lost[-1] + 1 if lost else 0  # in one piece, with the silence before it
        wanted = "".join(
            "Q"
            if tick < since or tick >= log.end
            else "L"
            if tick < max(log.acknowledged_below, lost_below)
            else "Q"
            if tick in takes
            else "S"
            for tick in range(start, end)
        )
        assert got == wanted
        self.trails[taker] = Trail()

    def is_taken(self, tick: int, taker: int) -> bool:
        return taker in self.truth.get(tick, ())

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "log"):
            self.log.check()


LogMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLogMachine = LogMachine.TestCase


def test_an_event_with_n_takers_costs_at_most_sixteen_n_bytes_and_its_index() -> None:
    log = FilteredLog(PUBEND, MemoryVolume(), LIMITS)
    [put, append] = log.write([3, 4, 5], [[7], [], [8, 9]], 6)
    assert isinstance(put, Put)
    assert isinstance(append, Append)
    assert append.indices == (3, 5), "nobody took the event at 4"
    assert [len(record) for record in append.records] == [16, 20]
    [_, append] = log.write([7], [[7, 8, 9]], 8)
    assert isinstance(append, Append)
    assert [len(record) for record in append.records] == [4 + 12 * 3], "they took others before"


def test_what_all_takers_took_before_is_written_once() -> None:
    volume = MemoryVolume()
    log = FilteredLog(PUBEND, volume, LIMITS)
    write(log, volume, {tick: list(range(25)) for tick in range(0, 40, 4)}, 40)
    assert [len(volume.read(log.stream, tick)) for tick in (0, 36)] == [112, 112]
    assert all(log.read(n, 0, 40).wanted == list(range(0, 40, 4)) for n in range(25))
    assert log.read(25, 0, 40).wanted == []
    again = FilteredLog(PUBEND, volume, LIMITS)
    write(again, volume, {40: [0, 24]}, 41)
    assert again.read(24, 30, 41).wanted == [32, 36, 40]


@pytest.mark.parametrize("backs_max", [3, 100])
def test_who_follows_another_through_shared_records_parts_from_him_where_they_differ(
    monkeypatch: pytest.MonkeyPatch, backs_max: int
) -> None:
    monkeypatch.setattr(filtered_log, "BACKS_MAX", backs_max)
    volume = MemoryVolume()
    log = FilteredLog(PUBEND, volume, LIMITS)
    takers = {0: [1], 2: [3], 4: [1, 2], 8: [1, 2], 12: [1, 2, 3], 16: [1, 2, 3], 20: [1, 2, 3]}
    write(log, volume, takers, 24)
    for _ in range(2):
        assert log.read(1, 0, 24).wanted == [0, 4, 8, 12, 16, 20]
        assert log.read(2, 0, 24).wanted == [4, 8, 12, 16, 20]
        assert log.read(3, 0, 24).wanted == [2, 12, 16, 20]


def test_what_is_not_durable_is_not_read_but_is_pointed_back_to() -> None:
    volume = MemoryVolume()
    log = FilteredLog(PUBEND, volume, LIMITS)
    batches: list[tuple[Write, ...]] = [log.write([t], [[1]], t + 1) for t in (2, 5, 8)]
    assert states(log.read(1, 0, 9), 0) == "QQQQQQQQQ"
    volume.commit(batches[0])
    log.persisted()
    assert states(log.read(1, 0, 9), 0) == "SSQQQQQQQ"
    volume.commit(batches[1])
    volume.commit(batches[2])
    log.persisted()
    log.persisted()
    log.check()
    assert states(log.read(1, 0, 9), 0) == "SSQSSQSSQ"


def test_a_read_touches_the_records_of_its_subscription_only() -> None:
    volume = MemoryVolume()
    log = FilteredLog(PUBEND, volume, LIMITS)
    write(log, volume, {tick: [1 if tick % 100 else 2] for tick in range(1_000)}, 1_000)
    assert log.read(2, 0, 1_000).wanted == list(range(0, 1_000, 100))
    assert log.reads == 10


def test_a_long_chain_is_walked_about_twice_however_many_reads_it_takes() -> None:
    volume = MemoryVolume()
    log = FilteredLog(PUBEND, volume, replace(LIMITS, filtered_read_max=10))
    write(log, volume, {tick: [1] for tick in range(1_000)}, 1_000)
    trail, at, wanted = Trail(), 0, list[int]()
    for _ in range(1_000):
        if at == 1_000:
            break
        reading = log.read(1, at, 1_000, trail=trail)
        wanted += reading.wanted
        at = reading.through
    assert wanted == list(range(1_000))
    assert log.reads <= 2_100


def test_a_restart_reads_only_what_was_logged_since_the_last_snapshot() -> None:
    volume, limits = MemoryVolume(), replace(LIMITS, filtered_replay_max=50)
    log = FilteredLog(PUBEND, volume, limits)
    snapshots = set()
    for tick in range(500):
        write(log, volume, {tick: [tick % 7]}, tick + 1)
        snapshots.add(volume.get(HEADS, PUBEND))
    assert len(snapshots - {None}) == 500 // 51, "and not one for each batch"
    for tick in range(400):
        volume.corrupt(log.stream, tick)  # would be noticed if it were read
    again = FilteredLog(PUBEND, volume, limits)
    assert [again.read(n, 480, 500).wanted for n in range(7)] == [
        [tick for tick in range(480, 500) if tick % 7 == n] for n in range(7)
    ]


def test_heads_of_those_who_were_chopped_away_are_not_kept() -> None:
    volume, limits = MemoryVolume(), replace(LIMITS, filtered_replay_max=3)
    log = FilteredLog(PUBEND, volume, limits)
    write(log, volume, {tick: [tick] for tick in range(100)}, 100)
    before = volume.get(HEADS, PUBEND)
    log.chop(99)
    write(log, volume, {tick: [1] for tick in range(100, 110)}, 110)
    after = volume.get(HEADS, PUBEND)
    assert before
    assert after
    assert (len(before), len(after)) == (8 + 16 * 101, 8 + 16 * 3)


def test_a_subscription_that_is_away_for_good_does_not_keep_what_is_released() -> None:
    volume, limits = MemoryVolume(), replace(LIMITS, filtered_replay_max=10)
    log = FilteredLog(PUBEND, volume, limits)
    for low in range(0, 1_000, 10):
        takers = {tick: [1] if tick != 5 else [1, 2] for tick in range(low, low + 10)}
        write(log, volume, takers, low + 10)
        log.lost_below = low  # nobody has acknowledged anything
    assert log.start >= 900
    assert volume.bounds(log.stream)[0] == log.start
    for each in (log, FilteredLog(PUBEND, volume, limits)):
        assert states(each.read(1, 0, 1_000), 0) == log.start * "L" + (1_000 - log.start) * "Q"
        assert states(each.read(2, 0, 1_000), 0) == 6 * "L" + 994 * "S", "just what it took"
        assert states(each.read(2, 6, 1_000), 6) == 994 * "S", "it has lost nothing"


def test_events_with_the_very_same_takers_have_the_records_that_they_would_have_anyway() -> None:
    dice = Random(7)
    for _ in range(30):
        some = [sorted(dice.sample(range(6), dice.randint(0, 4))) for _ in range(4)]
        alike, apart = (FilteredLog(PUBEND, MemoryVolume(), LIMITS) for _ in range(2))
        for start in (0, 20, 40):
            ticks = sorted(dice.sample(range(start, start + 20), 12))
            takers = [dice.choice(some) for _ in ticks]
            writes = alike.write(ticks, takers, start + 20)
            assert writes == apart.write(ticks, [list(each) for each in takers], start + 20)
            for log in (alike, apart):
                log.persisted()
                log.check()


@pytest.mark.parametrize("count", [1, 2, 5])
def test_one_write_of_events_that_all_the_same_take_is_what_many_would_be(count: int) -> None:
    together, singly = (FilteredLog(PUBEND, MemoryVolume(), LIMITS) for _ in range(2))
    for log in (together, singly):
        log.write([1, 2], [[3], [3, 5]], 3)  # so that their chains part
    for start, takers in ((3, [5, 3]), (30, [3]), (60, [3, 5])):
        ticks = list(range(start, start + 4 * count, 4))
        at_once = appended(together.write(ticks, [takers] * count, ticks[-1] + 1))
        one_by_one = [appended(singly.write([tick], [takers], tick + 1)) for tick in ticks]
        assert at_once == [record for some in one_by_one for record in some]


def appended(writes: Sequence[Write]) -> list[tuple[int, bytes]]:
    found = [write for write in writes if isinstance(write, Append)]
    return [each for one in found for each in zip(one.indices, one.records, strict=True)]


def test_of_what_was_released_no_record_is_looked_at_however_many_there_are() -> None:
    volume = MemoryVolume()
    log = FilteredLog(PUBEND, volume, LIMITS)
    write(log, volume, {tick: [1, 2] if tick < 900 else [1] for tick in range(1_000)}, 1_000)
    reading = log.read(1, 0, 1_000, released=990)
    assert states(reading, 0) == 990 * "L" + 10 * "Q"
    assert log.reads == 10
    assert states(log.read(2, 0, 1_000, released=990), 0) == 900 * "L" + 100 * "S"
    assert states(log.read(2, 900, 1_000, released=990), 900) == 100 * "S", "it has lost nothing"
    assert log.reads == 10, "its head said so"


def test_what_is_released_after_a_read_is_lost_in_one_piece() -> None:
    reading = LogReading(2, 4, [5, 7, 9], 12, 12)
    assert reading.lose_below(5) is reading
    assert reading.lose_below(8) == LogReading(2, 8, [5, 7, 9], 12, 12)
    assert reading.lose_below(8).lose_below(6) == reading.lose_below(8)
    assert reading.lose_below(100) == LogReading(2, 10, [5, 7, 9], 12, 12)
