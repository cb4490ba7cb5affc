"""What is kept of logs is bounded, and goes when the log it tells of does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gapless.core.identity import PubendName
from gapless.core.ticks import Span
from gapless.filters.sieve import digest
from gapless.node.digests import ATTRIBUTES_MAX, Digests

if TYPE_CHECKING:
    from gapless.node.digests import Stretch

VALUE_BYTES = 4
EVENT_BYTES = 8 + VALUE_BYTES  # with its tick


@dataclass(eq=False)
class Log:
    """As much of a pubend as is looked at."""

    name: PubendName
    released: int = 0


def make_log(name: str = "t/0") -> Any:
    return Log(PubendName(name))


def learn(digests: Digests, log: Any, low: int, high: int, *names: str) -> Stretch:
    names = names or ("a",)
    ticks, span = np.arange(low, high), Span(low, high)
    known = digests.names(log, span, names)
    stretch = digests.learn(log, span, ticks, dict.fromkeys(known, digest(ticks.tolist())))
    digests.check()
    return stretch


def spans(digests: Digests, log: Any, ticks: range, *names: str) -> list[tuple[int, int]]:
    """The stretches that are found at these ticks."""
    found = [digests.find(log, tick, names or ("a",))[0] for tick in ticks]
    return [(each.start, each.end) for each in dict.fromkeys(found) if each is not None]


def test_a_stretch_is_found_at_all_of_its_ticks_and_at_no_other() -> None:
    digests, log = Digests(10_000), make_log()
    stretch = learn(digests, log, 10, 20)
    assert [digests.find(log, tick, "a")[0] is stretch for tick in (9, 10, 19, 20)] == [
        False, True, True, False,
    ]  # fmt: skip
    assert digests.find(log, 0, "a") == (None, 10)
    assert digests.find(log, 0, "b")[1] > 20
    assert digests.find(log, 10, "b")[0] is None
    assert digests.find(make_log("t/1"), 10, "a")[0] is None


def test_a_new_stretch_takes_the_place_of_what_it_overlaps_with_its_attributes() -> None:
    digests, log = Digests(10_000), make_log()
    for low in (0, 10, 20):
        learn(digests, log, low, low + 10, "a")
    learn(digests, log, 5, 20, "b")
    assert spans(digests, log, range(30), "a") == [(5, 20), (20, 30)]
    assert spans(digests, log, range(30), "a", "b") == [(5, 20)]
    assert digests.nbytes == 15 * (EVENT_BYTES + VALUE_BYTES) + 10 * EVENT_BYTES


def test_too_many_attributes_of_one_stretch_are_forgotten_for_the_newest() -> None:
    digests, log = Digests(1_000_000), make_log()
    for number in range(ATTRIBUTES_MAX + 1):
        learn(digests, log, 0, 10, f"a{number}")
    assert not spans(digests, log, range(10), "a0")
    assert spans(digests, log, range(10), f"a{ATTRIBUTES_MAX}") == [(0, 10)]


def test_what_was_used_longest_ago_makes_room() -> None:
    digests, log = Digests(25 * EVENT_BYTES), make_log()
    learn(digests, log, 0, 10)
    learn(digests, log, 10, 20)
    assert spans(digests, log, range(10)) == [(0, 10)]
    learn(digests, log, 20, 30)
    assert spans(digests, log, range(30)) == [(0, 10), (20, 30)]
    learn(digests, log, 100, 200)  # too large for itself
    assert spans(digests, log, range(200)) == [(100, 200)]


def test_what_is_released_and_what_another_log_had_under_the_name_is_forgotten() -> None:
    digests, log = Digests(10_000), make_log()
    learn(digests, log, 0, 10)
    learn(digests, log, 10, 20)
    log.released = 10
    assert spans(digests, log, range(20)) == [(10, 20)]
    assert digests.nbytes == 10 * EVENT_BYTES
    assert not spans(digests, make_log(), range(20))
    assert digests.nbytes == 0
    digests.check()
