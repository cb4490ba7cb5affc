"""Range reads: searching a log in the broker, and making columns in the client.

Events have 4 attributes and a body of 250 bytes. A search goes through a log on disk step by step,
with what was digested before, or without. All figures are CPU time of one core, in rows a second.
"""

from __future__ import annotations

from functools import partial
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from benchmarks.report import Report, cpu_seconds, rate
from gapless.client.columns import to_arrow
from gapless.core.effects import Append
from gapless.core.events import EventBatch, EventRun
from gapless.core.identity import PubendName
from gapless.core.range_messages import RangeRead
from gapless.core.ticks import Span
from gapless.filters.filter import Filter
from gapless.filters.matcher import Matcher
from gapless.node.config import Config
from gapless.node.context import EventEncoding
from gapless.node.reads.search import LogSearch, Selection
from gapless.storage.disk import DiskVolume
from gapless.wire.codec import Codec
from gapless.wire.events import decode_attributes, decode_contents, encode_event
from gapless.wire.survey import survey

if TYPE_CHECKING:
    from collections.abc import Callable

BODY = bytes(range(250))
CONDITION = "symbol = 'S7' AND price > 90"
COMMIT = 1_000
"""Events of one commit to the log."""

STRIDE = 1_000


def write_log(folder: str, encoded: tuple[bytes, ...], ticks: range) -> Any:
    """As much of a pubend as a search looks at."""
    volume = DiskVolume(folder)
    for low in range(0, len(encoded), COMMIT):
        some = slice(low, low + COMMIT)
        volume.commit([Append("log", tuple(ticks[some]), encoded[some])])
    return SimpleNamespace(name="t/0", stream="log", store=volume, released=0)


def find_all(pubend: Any, end: int, search: LogSearch) -> None:
    at, wanted = 0, Selection(CONDITION)
    while at < end:
        at = search.find(pubend, Span(at, end), wanted)[2]


def read_all(pubend: Any, end: int, search: LogSearch, *, whole: bool) -> None:
    at, wanted = 0, Selection("")
    while at < end:
        span = Span(at, end)
        at = search.read_whole(pubend, span)[1] if whole else search.find(pubend, span, wanted)[2]


def count_all(pubend: Any, end: int, search: LogSearch) -> int:
    """How many events there are, as a driver of Spark asks where batches may end."""
    at, total, wanted = 0, 0, Selection("")
    while at < end:
        places = slice(STRIDE - 1, None, STRIDE)
        found, _, at, _ = search.count(pubend, Span(at, end), wanted, 0, places)
        total += found
    return total


def answer_bytes(run: EventRun) -> tuple[int, int]:
    """What comes over the network of a run of events: to read it, and to count it by places of
    every `STRIDE`-th event."""
    span, name = Span(0, 1 << 60), PubendName("t/0")
    whole = RangeRead(1, name, span, run=run)
    places = RangeRead(1, name, span, run.tick_numbers()[STRIDE - 1 :: STRIDE], count=len(run))
    codec = Codec(RangeRead)
    return len(codec.encode(whole)), len(codec.encode(places))


def run(quick: bool) -> list[Report]:
    with TemporaryDirectory(prefix="gapless-") as folder:
        return [measure(quick, folder)]


def measure(quick: bool, folder: str) -> Report:
    count = 5_000 if quick else 50_000
    encoded = tuple(
        encode_event(
            {"symbol": f"S{i % 100}", "price": i % 97 + 0.5, "volume": i, "halted": i % 5 == 0},
            BODY,
        )
        for i in range(count)
    )
    batch, ticks = EventBatch(encoded), range(0, count << 10, 1 << 10)
    run = EventRun.of(ticks, encoded)
    condition, matcher = Filter.parse(CONDITION), Matcher[str]()
    matcher.add("it", condition)
    pubend, end = write_log(folder, encoded, ticks), ticks.stop
    again = LogSearch(Config(), EventEncoding(decode_attributes))

    def search_first(survey: Any = None) -> None:
        find_all(pubend, end, LogSearch(Config(), EventEncoding(decode_attributes, survey=survey)))

    def filtered(events: EventBatch) -> list[int]:
        rows = decode_attributes(events)
        return [i for i, row in enumerate(rows) if condition.matches(row)]

    def matched(events: EventBatch) -> object:
        return matcher.match_batch(decode_attributes(events))

    works: dict[str, tuple[Callable[[], object], int]] = {
        "decode attributes": (partial(decode_attributes, batch), count),
        "decode and filter": (partial(filtered, batch), count),
        "decode and match with an index": (partial(matched, batch), count),
        "read everything, event by event": (
            partial(read_all, pubend, end, again, whole=False),
            count,
        ),
        "read everything as it stands": (partial(read_all, pubend, end, again, whole=True), count),
        "count everything": (partial(count_all, pubend, end, again), count),
        "search the log (the broker)": (partial(search_first, survey), count),
        "search the log by decoding": (search_first, count),
        "search the log again": (partial(find_all, pubend, end, again), count),
        "decode whole events": (partial(decode_contents, batch), count),
        "decode into columns (the client)": (partial(to_arrow, "t", "t/0", run), count),
    }
    find_all(pubend, end, again)
    report = Report("ranges", "Range reads", ("work", "rows/s", "ms", "to decoding attributes"))
    seconds = {name: cpu_seconds(work) for name, (work, _) in works.items()}
    bare = seconds["decode attributes"] / count
    for name, (_, rows) in works.items():
        took = seconds[name]
        report.add(name, rate(rows / took), f"{took * 1e3:.1f}", f"{took / rows / bare:.1f}×")
    report.notes.append(f"condition: {CONDITION}")
    read, counted = answer_bytes(run)
    report.notes.append(
        f"{count} events over the network: {read} bytes to read, {counted} to count with a place "
        f"for every {STRIDE}"
    )
    return report
