"""What is kept of logs is bounded, and goes when the log it tells of does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gapless.core.identity import PubendName
from gapless.core.ticks import Span
from gapless.filters.sieve import digest
from gapless.node.reads.digests import ATTRIBUTES_MAX, Digests

if TYPE_CHECKING:
    from gapless.node.reads.digests import Stretch

VALUE_BYTES = 4
EVENT_BYTES = 4 + VALUE_BYTES  # with its tick


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


def test_ticks_that_are_far_apart_are_kept_in_full() -> None:
    digests, log = Digests(10_000), make_log()
    ticks = np.array([5, 7, 1 << 40, (1 << 40) + 9])
    found = digests.learn(log, Span(5, 1 << 41), ticks, {"a": digest([1, 2, 3, 4])})
    digests.check()
    assert found.ticks_of(np.arange(4)) == ticks.tolist()
    assert found.places(Span(6, 1 << 40)) == (1, 2)
    assert found.places(Span(0, 1 << 62)) == (0, 4)


def test_what_is_offered_takes_free_room_alone_and_replaces_nothing() -> None:
    digests, log = Digests(25 * EVENT_BYTES), make_log()
    learn(digests, log, 10, 20)
    for low, high in ((0, 11), (19, 30), (30, 50)):
        ticks = np.arange(low, high)
        digests.offer(log, Span(low, high), ticks, {"a": digest(ticks.tolist())})
    assert spans(digests, log, range(60)) == [(10, 20)]
    digests.offer(log, Span(30, 45), np.arange(30, 45), {"a": digest(list(range(30, 45)))})
    assert spans(digests, log, range(60)) == [(10, 20), (30, 45)]
    digests.check()


def test_the_first_part_that_is_unknown_ends_where_something_is_known() -> None:
    digests, log = Digests(10_000), make_log()
    for low in (10, 20, 40):
        learn(digests, log, low, low + 10)
    asked = [(0, 60), (10, 60), (15, 35), (15, 30), (45, 60), (60, 70)]
    found = [digests.unknown(log, Span(*each)) for each in asked]
    wanted = [(0, 10), (30, 40), (30, 35), None, (50, 60), (60, 70)]
    assert [each and (each.start, each.end) for each in found] == wanted
