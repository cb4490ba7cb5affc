"""Audience: a table of subscriptions, made into a matcher that every worker opens once.

Theory of operation
    The driver adds each condition to a matcher and writes it to a folder that the workers see, with
    the table of names beside it, by handle. A worker maps both when it first needs them and keeps
    them, so that workers of one host share the pages. A few conditions need no matcher on disk.
    A condition that is refused, or a name that came before, is reported and left out; it is no
    reason to stop.

Invariants
    I1  the handle of a filter is the row of its name

Cost: `python -m benchmarks pipelines`. A saved matcher holds a pickle: trust the folder.
"""

from __future__ import annotations

import gc
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from gapless.core.errors import FilterError, UsageError
from gapless.filters.matcher import SMALL_MAX, Matcher

if TYPE_CHECKING:
    from collections.abc import Iterable

MATCHER, TABLE = "matcher", "subscriptions.arrow"
OPEN_MAX = 2
"""Audiences that one worker keeps open; beyond it the one used longest ago is opened anew."""


class Audience(NamedTuple):
    """A matcher, and by handle the names of its subscriptions."""

    matcher: Matcher[int]
    names: Any


class Refusal(NamedTuple):
    """A subscription that was left out, and why."""

    name: str
    condition: str
    reason: str


def write_audience(
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
    new = target / f"{TABLE}.new"
    with pa.OSFile(str(new), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)
    new.replace(target / TABLE)
    return len(kept), refusals


def _add(matcher: Matcher[int], handle: int, condition: str) -> str:
    """Why it was refused, if it was."""
    try:
        matcher.add(handle, condition)
    except FilterError as error:
        return error.problem
    assert matcher.handle_of(handle) == handle, "I1"
    return ""


def open_audience(folder: str) -> Audience:
    """Opened once a process, and anew when it was written anew."""
    try:
        stamp = (Path(folder) / TABLE).stat().st_mtime_ns
    except OSError as error:
        problem = f"no audience in {folder}: {error.strerror}"
        raise UsageError(problem, "Write it to a folder that all workers see.") from None
    return _open(folder, stamp)


@lru_cache(OPEN_MAX)
def _open(folder: str, stamp: int) -> Audience:
    with pa.memory_map(str(Path(folder) / TABLE)) as file:
        table = pa.ipc.open_file(file).read_all().combine_chunks()
    names = table["name"].combine_chunks()
    if len(names) > SMALL_MAX:
        matcher = Matcher[int].open(Path(folder) / MATCHER)
    else:
        conditions = enumerate(table["condition"].to_pylist())
        matcher = Matcher[int](conditions, engine="python")
    matcher.match_batch(pa.record_batch({"": pa.nulls(1)}))  # loads all that matching needs
    gc.freeze()  # Spark's workers look for garbage after each task: not in what is here to stay
    return Audience(matcher, names)
