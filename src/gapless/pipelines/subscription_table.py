"""Subscription table: many conditions, made into a matcher that every worker opens once.

Theory of operation
    The driver adds each condition to a matcher and writes it to a folder that the workers see, with
    the table of names beside it, by handle. A worker maps both when it first needs them and keeps
    them, so that workers of one host share the pages. A few conditions need no matcher on disk.
    A condition that is refused, or a name that came before, is reported and left out; the job goes
    on. The attributes that the conditions use are written too, where there are not too many
    conditions to ask: a worker then reads only those columns.

Invariants
    I1  the handle of a filter is the row of its name

Cost: `python -m benchmarks pipelines`. A saved matcher holds a pickle: trust the folder.
"""

from __future__ import annotations

import gc
import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from gapless.core.errors import FilterError, UsageError
from gapless.filters.filter import Filter
from gapless.filters.matcher import SMALL_MAX, Matcher

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

MATCHER, TABLE = "matcher", "subscriptions.arrow"
ATTRIBUTES = b"gapless.attributes"
OPEN_MAX = 4
"""Tables that one worker keeps open; beyond it the one used longest ago is opened anew."""

ASKED_MAX = 20_000
"""Conditions that are asked for their attributes: it takes some 50 µs each."""


class SubscriptionMatcher(NamedTuple):
    """A matcher, by handle the names of its subscriptions, and the attributes that they use; None
    if that is not known."""

    matcher: Matcher[int]
    names: Any
    attributes: frozenset[str] | None


class Refusal(NamedTuple):
    """A subscription that was left out, and why."""

    name: str
    condition: str
    reason: str


def write_subscriptions(
    subscriptions: Iterable[tuple[str, str]], folder: str | Path
) -> tuple[int, list[Refusal]]:
    """Make the matcher of (name, condition) pairs: how many are in it, and which are not."""
    matcher, kept, refusals = Matcher[int](), dict[str, str](), list[Refusal]()
    for name, condition in subscriptions:
        reason = "the name is given twice" if name in kept else _add(matcher, len(kept), condition)
        if reason:
            refusals.append(Refusal(name, condition, reason))
        else:
            kept[name] = condition
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    if len(kept) > SMALL_MAX:
        matcher.save(target / MATCHER)
    texts = pa.array(kept.values(), pa.large_string())
    batch = pa.record_batch({"name": pa.array(kept, pa.large_string()), "condition": texts})
    batch = batch.replace_schema_metadata({ATTRIBUTES: json.dumps(_attributes(kept.values()))})
    new = target / f"{TABLE}.new"
    with pa.OSFile(str(new), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)
    new.replace(target / TABLE)
    return len(kept), refusals


def _attributes(conditions: Collection[str]) -> list[str] | None:
    if len(conditions) > ASKED_MAX:
        return None
    return sorted(frozenset().union(*(Filter.parse(each).attributes for each in set(conditions))))


def _add(matcher: Matcher[int], handle: int, condition: str) -> str:
    """Why it was refused, if it was."""
    try:
        matcher.add(handle, condition)
    except FilterError as error:
        return error.problem
    assert matcher.handle_of(handle) == handle, "I1"
    return ""


def open_subscriptions(folder: str, *, is_long: bool = False) -> SubscriptionMatcher:
    """Opened once a process, and anew when it was written anew.

    `is_long`: a few conditions are compiled, too. That takes a second, and pays from some ten
    thousand events on.
    """
    try:
        stamp = (Path(folder) / TABLE).stat().st_mtime_ns
    except OSError as error:
        problem = f"no table of subscriptions in {folder}: {error.strerror}"
        raise UsageError(problem, "Write it to a folder that all workers see.") from None
    return _open(folder, stamp, is_long=is_long)


@lru_cache(OPEN_MAX)
def _open(folder: str, stamp: int, *, is_long: bool) -> SubscriptionMatcher:
    with pa.memory_map(str(Path(folder) / TABLE)) as file:
        table = pa.ipc.open_file(file).read_all().combine_chunks()
    names = table["name"].combine_chunks()
    if len(names) > SMALL_MAX:
        matcher = Matcher[int].open(Path(folder) / MATCHER)
    else:
        conditions = enumerate(table["condition"].to_pylist())
        matcher = Matcher[int](conditions, engine="auto" if is_long else "python")
    matcher.match_batch(pa.record_batch({"": pa.nulls(1)}))  # loads all that matching needs
    gc.freeze()  # Spark's workers look for garbage after each task: not in what is here to stay
    attributes = json.loads(table.schema.metadata[ATTRIBUTES])
    known = None if attributes is None else frozenset(attributes)
    return SubscriptionMatcher(matcher, names, known)
