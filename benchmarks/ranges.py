"""Range reads: filtering a step of the log in the broker, and making columns in the client.

Events have 4 attributes and a body of 250 bytes. A step of the broker is `range_bytes_max` of its
log. All figures are CPU time of one core, in rows a second.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.report import Report, cpu_seconds, rate
from gapless.client.columns import to_arrow
from gapless.core.events import EventBatch
from gapless.filters.filter import Filter
from gapless.filters.matcher import Matcher
from gapless.node.config import Config
from gapless.wire.events import decode_attributes, decode_contents, encode_event

if TYPE_CHECKING:
    from collections.abc import Callable

BODY = bytes(range(250))
CONDITION = "symbol = 'S7' AND price > 90"


def run(quick: bool) -> list[Report]:
    count = 5_000 if quick else 50_000
    encoded = tuple(
        encode_event(
            {"symbol": f"S{i % 100}", "price": i % 97 + 0.5, "volume": i, "halted": i % 5 == 0},
            BODY,
        )
        for i in range(count)
    )
    batch, ticks = EventBatch(encoded), range(0, count << 10, 1 << 10)
    condition, matcher = Filter.parse(CONDITION), Matcher[str]()
    matcher.add("it", condition)
    step = EventBatch(encoded[: Config().range_bytes_max // len(encoded[0])])

    def filtered(events: EventBatch) -> list[int]:
        rows = decode_attributes(events)
        return [i for i, row in enumerate(rows) if condition.matches(row)]

    def matched(events: EventBatch) -> object:
        return matcher.match_batch(decode_attributes(events))

    works: dict[str, tuple[Callable[[], object], int]] = {
        "decode attributes": (partial(decode_attributes, batch), count),
        "decode and filter (the broker)": (partial(filtered, batch), count),
        "decode and match with an index": (partial(matched, batch), count),
        "one step of the broker": (partial(filtered, step), len(step)),
        "decode whole events": (partial(decode_contents, batch), count),
        "decode into columns (the client)": (partial(to_arrow, "t", "t/0", ticks, encoded), count),
    }
    report = Report("ranges", "Range reads", ("work", "rows/s", "ms", "to decoding attributes"))
    seconds = {name: cpu_seconds(work) for name, (work, _) in works.items()}
    bare = seconds["decode attributes"] / count
    for name, (_, rows) in works.items():
        took = seconds[name]
        report.add(name, rate(rows / took), f"{took * 1e3:.1f}", f"{took / rows / bare:.1f}×")
    report.notes.append(f"condition: {CONDITION}; a step is {len(step)} rows")
    return [report]
