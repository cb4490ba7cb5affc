"""Conditions of strangers: the dearest to read and to match, very many names, constant change.

A figure that grows from one row to the next where its note says it must not is a hole: one client
could hold up a broker.
"""

from __future__ import annotations

import random
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.hostile_clients import waits
from benchmarks.report import Report, cpu_seconds
from gapless.core.errors import FilterError
from gapless.core.events import EventBatch
from gapless.filters.filter import Filter
from gapless.filters.lexer import FILTER_BYTES_MAX
from gapless.filters.matcher import Matcher
from gapless.wire.attribute_rows import AttributeRows
from gapless.wire.events import encode_event

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.core.events import Attributes

ROOM = FILTER_BYTES_MAX - 1_000
TEXT = 1_000_000


def filled(prefix: str, unit: str, suffix: str = "") -> str:
    """As many units as one condition has room for."""
    return prefix + unit * ((ROOM - len(prefix) - len(suffix)) // len(unit)) + suffix


READ = {
    "hexadecimal digits": filled("0x", "a"),
    "comments that never end": filled("", "/*a"),
    "signs": filled("a = ", "- ", "1"),
    "a sum": filled("a", "+a", " > 1"),
    "2^9 alternatives": " AND ".join(f"(a{n} = 1 OR b{n} = 1)" for n in range(9)),
    "a list and ranges": f"a NOT IN ({','.join(map(str, range(10_000, 15_000)))}) OR "
    + " OR ".join(f"a < {n}" for n in range(990)),
    "a list and patterns": f"a IN ({','.join(map(repr, map(str, range(3_000))))}) AND "
    + " AND ".join(f"a NOT LIKE '%{n}_x%'" for n in range(1_000)),
}
MATCHED: dict[str, tuple[str, Attributes]] = {
    "LIKE '%ab%'": ("a LIKE '%ab%'", {"a": "a" * TEXT}),
    "LIKE '%a_b%'": ("a LIKE '%a_b%'", {"a": "ab" * (TEXT // 2)}),
    "LIKE, 2,000 _": ("a LIKE '%" + "a_" * 2_000 + "a%'", {"a": ("a" * 1_998 + "b") * 500}),
    "LIKE, 30,000 _": ("a LIKE '%" + "a_" * 30_000 + "a%'", {"a": ("a" * 29_998 + "b") * 33}),
    "LIKE, 15,000 segments": (
        "a LIKE '" + "%a_b" * 15_000 + "%'",
        {"a": ("ab" * 32 + "axb") * 15_000},
    ),
    "a sum": ("a" + "+a" * 1_000 + " > 1", {"a": 1 << 61}),
    "comparisons": (" AND ".join(["a < b"] * 1_000), {"a": 1, "b": 2}),
    "ranges": (" OR ".join(f"a BETWEEN {2 * n} AND {2 * n}.5" for n in range(1_000)), {"a": -1}),
}
NAMED = {
    "equality": "n{0} = 1",
    "two equalities": "a = 1 AND n{0} = 2",
    "range": "n{0} > 1",
    "expression": "n{0} + a > 1",
    "pattern": "n{0} LIKE '%ab%'",
    "missing": "a = 2 AND n{0} IS NULL",
}
CHANGED = {
    "equality": "symbol = 'S{0}' AND price > 5",
    "number": "device = {0} AND price > 5",
    "prefix": "symbol LIKE 'S{0}%'",
    "names": "n{0} > 5",
}
EVENT: Attributes = {"a": 1, "b": "x", "n5": 2, "n77": "ab", "symbol": "S5", "price": 9}


def run(quick: bool) -> list[Report]:
    sizes = (1_000, 10_000) if quick else (1_000, 10_000, 100_000)
    return [read(), matched(), named(sizes), changed(sizes), waits(quick)]


def read() -> Report:
    report = Report(
        "hostile_read",
        "Conditions that are dear to read, with their normal form",
        ("condition", "bytes", "ms", "µs/byte", ""),
    )
    for name, text in READ.items():
        seconds = cpu_seconds(partial(outcome, text), repeats=1)
        cost = (f"{seconds * 1e3:.1f}", f"{seconds / len(text) * 1e6:.2f}")
        report.add(name, f"{len(text):,}", *cost, outcome(text))
    return report


def outcome(text: str) -> str:
    try:
        return f"{len(Filter.parse(text).conjunctions)} alternatives"
    except FilterError:
        return "refused"


def matched() -> Report:
    report = Report(
        "hostile_match",
        "Conditions that are dear to match, each with one event",
        ("condition", "bytes", "characters of text", "ms", "ns/character"),
        notes=["Where there is no text, of a condition as long as may be."],
    )
    for name, (text, event) in MATCHED.items():
        condition, length = Filter.parse(text), len(str(event["a"]))
        seconds = cpu_seconds(partial(condition.matches, event), repeats=1)
        each = f"{seconds / length * 1e9:.2f}" if length > 1_000 else ""
        report.add(name, f"{len(text):,}", f"{length:,}", f"{seconds * 1e3:.2f}", each)
    return report


def named(sizes: tuple[int, ...]) -> Report:
    report = Report(
        "hostile_names",
        "An event of six attributes, and filters that name very many: µs",
        ("test", "names", "one event", "of a batch", "a new name, and one event"),
        notes=["Must not grow with the number of names."],
    )
    batch = AttributeRows(EventBatch((encode_event(EVENT),) * 100))
    for kind, test in NAMED.items():
        for size in sizes:
            matcher = Matcher[Any]({n: test.format(n) for n in range(size)}, engine="compiled")
            one = cpu_seconds(partial(matcher.match, EVENT))
            many = cpu_seconds(partial(matcher.match_handles, batch)) / 100
            change = cpu_seconds(partial(add_and_match, matcher))
            report.add(kind, f"{size:,}", *(f"{each * 1e6:.1f}" for each in (one, many, change)))
    return report


def add_and_match(matcher: Matcher[Any]) -> None:
    matcher.add("new", "new > 1")
    matcher.match(EVENT)
    matcher.remove("new")


def changed(sizes: tuple[int, ...]) -> Report:
    report = Report(
        "hostile_changes",
        "A filter is exchanged, four times for each event: µs, and the longest in ms",
        ("test", "filters", "add", "remove", "longest", "event", "batch of 8"),
        notes=[
            "Must not grow, but for the longest: at times all is moved together, in proportion."
        ],
    )
    batch = AttributeRows(EventBatch((encode_event(EVENT),) * 8))
    for kind, test in CHANGED.items():
        for size in sizes:
            report.add(kind, f"{size:,}", *exchange(test, size, batch))
    return report


def exchange(test: str, size: int, batch: AttributeRows) -> list[str]:
    matcher = Matcher({n: test.format(n) for n in range(size)}, engine="compiled")
    keys, dice, longest = list(range(size)), random.Random(1), 0.0
    spent = dict.fromkeys(("add", "remove", "event", "batch"), 0.0)
    steps = 2_000
    for step in range(size, size + steps):
        place = dice.randrange(size)
        work: list[tuple[str, Callable[[], object]]] = [
            ("remove", partial(matcher.remove, keys[place])),
            ("add", partial(matcher.add, step, test.format(step))),
        ]
        if step % 4 == 0:
            work += [("event", partial(matcher.match, EVENT))]
            work += [("batch", partial(matcher.match_handles, batch))]
        for what, do in work:
            begin = time.process_time()
            do()
            taken = time.process_time() - begin
            spent[what] += taken
            longest = max(longest, taken)
        keys[place] = step
    times = {"add": steps, "remove": steps, "event": steps / 4, "batch": steps / 4}
    cells = {what: f"{spent[what] / times[what] * 1e6:.1f}" for what in spent}
    return [cells["add"], cells["remove"], f"{longest * 1e3:.1f}", cells["event"], cells["batch"]]
