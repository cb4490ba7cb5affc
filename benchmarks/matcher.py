"""The matcher against the linear scan and a peer: events/s, adds, removes, bytes, growth.

All rates are CPU time of one thread. The linear scan is a loop over `Filter.matches`, measured on
a sample of the filters and scaled to all of them: at 100,000 filters nobody waits for it.
"""

from __future__ import annotations

import gc
import json
import time
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from benchmarks import workloads
from benchmarks.report import Report, cpu_seconds, rate
from gapless.filters.constraint import Strings
from gapless.filters.filter import Filter
from gapless.filters.matcher import Matcher

if TYPE_CHECKING:
    from benchmarks.workloads import Workload

SAMPLE = 2_000
SINGLE = 1_000
QUICK = (
    *(("stock", 1_000), ("stock", 20_000), ("ranges", 1_000), ("topics", 1_000)),
    *(("mixed", 1_000), ("eq", 20_000), ("all", 1_000)),
)
FULL = (
    *(("stock", 1_000), ("stock", 100_000), ("stock", 1_000_000)),
    *(("ranges", 1_000), ("ranges", 10_000), ("ranges", 100_000)),
    *(("topics", 1_000), ("topics", 100_000), ("mixed", 1_000), ("mixed", 10_000)),
    *(("eq", 1_000), ("eq", 100_000), ("all", 1_000)),
)
KINDS = {"level": pa.float64(), "latency": pa.float64()}


class Figures(NamedTuple):
    """What was measured of one workload at one size, in seconds of CPU where not said."""

    matches: float
    linear: float
    single: float
    dicts: float
    arrow: float
    add: float
    remove: float
    index_bytes: float
    resident_bytes: float


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def as_batch(load: Workload) -> pa.RecordBatch:
    """The events as columns; values of another kind than their column's become null."""
    names = dict.fromkeys(name for event in load.events for name in event)
    columns = {}
    for name in names:
        values: list[Any] = [event.get(name) for event in load.events]
        if name in KINDS:
            values = [value if isinstance(value, int | float) else None for value in values]
        columns[name] = pa.array(values, KINDS.get(name))
    return pa.record_batch(columns)


def linear_seconds(load: Workload, size: int) -> float:
    """CPU seconds of one event against all filters, one after the other."""
    sample = [Filter.parse(condition) for condition in load.conditions[:SAMPLE]]
    events = cycle(load.events)

    def scan() -> int:
        event = next(events)
        return sum(one.matches(event) for one in sample)

    scan()
    return cpu_seconds(scan) * size / len(sample)


def build(load: Workload) -> tuple[Matcher[int], float, float]:
    """A matcher of all filters, the CPU seconds of one add, and the resident bytes of one."""
    gc.collect()
    before, begin = resident_bytes(), time.process_time()
    matcher = Matcher[int](engine="compiled")
    for number, condition in enumerate(load.conditions):
        matcher.add(number, condition)
    spent = time.process_time() - begin
    size = len(load.conditions)
    return matcher, spent / size, (resident_bytes() - before) / size


def per_event(matcher: Matcher[int], load: Workload) -> tuple[float, float, float]:
    """CPU seconds an event: one at a time, in lists of 256, in record batches of 4,096."""
    singles, batch = load.events[:SINGLE], as_batch(load)

    def one_by_one() -> None:
        for event in singles:
            matcher.match(event)

    single = cpu_seconds(one_by_one) / len(singles)
    dicts = cpu_seconds(lambda: matcher.match_batch(load.events[:256])) / 256
    arrow = cpu_seconds(lambda: matcher.match_batch(batch)) / batch.num_rows
    return single, dicts, arrow


def measure(shape: str, size: int) -> Figures:
    load = workloads.make(shape, size)
    linear = linear_seconds(load, size)
    matcher, add, resident = build(load)
    sample = load.events[:SINGLE]
    matches = sum(len(matcher.match(event)) for event in sample) / len(sample)
    single, dicts, arrow = per_event(matcher, load)
    index_bytes = int(matcher.statistics()["bytes"]) / size
    begin = time.process_time()
    for number in range(0, size, 2):
        matcher.remove(number)
    remove = (time.process_time() - begin) / (size // 2)
    return Figures(matches, linear, single, dicts, arrow, add, remove, index_bytes, resident)


def pattern_of(condition: str) -> str:
    """What the peer can say of a stock condition: the equality. It has no ranges of numbers."""
    [conjunction] = Filter.parse(condition).conjunctions
    constraints = dict(conjunction.constraints)
    symbol = constraints["symbol"]
    assert isinstance(symbol, Strings)
    return json.dumps({"symbol": symbol.values})


def against_peer(quick: bool) -> Report:
    size = 200 if quick else 2_000
    report = Report(
        "matcher-peer",
        f"One event as JSON text against {size:,} stock filters",
        ("engine", "events/s", "× event-ruler"),
    )
    load = workloads.make("stock", size)
    texts = [json.dumps(event) for event in load.events]
    matcher = Matcher[int](engine="compiled")
    for number, condition in enumerate(load.conditions):
        matcher.add(number, condition)
    ours = cpu_seconds(lambda: [matcher.match(json.loads(text)) for text in texts[:500]]) / 500
    try:
        import event_ruler

        patterns = [pattern_of(condition) for condition in load.conditions]
        upcoming = cycle(texts)

        def scan() -> list[int]:
            text = next(upcoming)
            return [n for n, p in enumerate(patterns) if event_ruler.test_event_pattern(text, p)]

        for event in load.events[:20]:
            assert set(scan()) >= set(matcher.match(event)), "the peer misses a match"
        theirs = cpu_seconds(scan)
    except (ImportError, OSError, RuntimeError) as error:
        report.add("gapless, one event at a time", rate(1 / ours), "")
        report.add("event-ruler", f"not available: {error}", "")
        return report
    report.add("gapless, one event at a time", rate(1 / ours), f"{theirs / ours:,.0f}×")
    report.add("event-ruler (PyPI)", rate(1 / theirs), "1×")
    report.notes.append(
        "The package of that name on PyPI tests one pattern a call, without an index, and knows no "
        "ranges of numbers: it is given the equality of each filter only, gapless the whole of it. "
        "Both read the event from JSON text."
    )
    return report


def growth(quick: bool) -> Report:
    small, large = 1_000, (100_000 if quick else 1_000_000)
    report = Report(
        "matcher-growth",
        "Cost per event at equal matches per event, equality-heavy (sparse)",
        ("filters", "matches/event", "single µs", "Arrow 4,096 µs", "same events, Arrow µs"),
        notes=[
            "There are 20 filters a symbol at every size, and events draw from all symbols: with "
            "the filters also grows the number of distinct strings in a batch, and with it what "
            "is not in any cache. The last column takes that out: both sizes match the events of "
            "the smaller one, so that only filters under other keys are added."
        ],
    )
    few = workloads.make("sparse", small).events
    found = []
    for size in (small, large):
        load = workloads.make("sparse", size)
        matcher, _, _ = build(load)
        matches = sum(len(matcher.match(event)) for event in load.events) / len(load.events)
        single, _, arrow = per_event(matcher, load)
        _, _, same = per_event(matcher, load._replace(events=few))
        found.append((single, arrow, same))
        cells = [f"{single * 1e6:.2f}", f"{arrow * 1e6:.3f}", f"{same * 1e6:.3f}"]
        report.add(f"{size:,}", f"{matches:.2f}", *cells)
    ratios = [after / before for before, after in zip(*found, strict=True)]
    report.add("ratio", "", *(f"{ratio:.2f}×" for ratio in ratios))
    return report


def run(quick: bool) -> list[Report]:
    speed = Report(
        "matcher",
        "Matching: events/s, and × the linear scan",
        ("workload", "filters", "matches", "linear", "single", "×", "256 dicts", "×", "Arrow", "×"),
        notes=[
            f"The linear scan is measured on {SAMPLE:,} filters and scaled.",
            "Single gives a list of keys, 256 dicts a list of pairs, Arrow (4,096 rows) two arrays "
            "of event indices and handles.",
        ],
    )
    changes = Report(
        "matcher-changes",
        "Adding and removing filters (SQL text in), and the room they take",
        (
            "workload",
            "filters",
            "build s",
            "add/s",
            "remove/s",
            "index B/filter",
            "process B/filter",
        ),
        notes=[
            "The first row also loads the kernels. Process bytes: what the process grew by, keys "
            "and all; it reuses what earlier rows freed, so only the 1,000,000 row says something."
        ],
    )
    for shape, size in QUICK if quick else FULL:
        print(f"{shape} {size:,} …", flush=True)
        f = measure(shape, size)
        cells = [f"{shape}", f"{size:,}", f"{f.matches:,.1f}", rate(1 / f.linear)]
        for spent in (f.single, f.dicts, f.arrow):
            cells += [rate(1 / spent), f"{f.linear / spent:,.0f}"]
        speed.add(*cells)
        changes.add(
            shape,
            f"{size:,}",
            f"{f.add * size:.1f}",
            rate(1 / f.add),
            rate(1 / f.remove),
            f"{f.index_bytes:.0f}",
            f"{f.resident_bytes:.0f}",
        )
    return [speed, changes, growth(quick), against_peer(quick)]
