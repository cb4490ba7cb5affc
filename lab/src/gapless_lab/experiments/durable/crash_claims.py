"""The claims of figures 7 and 8: a host of subscribers that crashed. Bounds as in `claims`."""

from __future__ import annotations

from itertools import pairwise
from statistics import mean
from typing import TYPE_CHECKING

from gapless_lab.experiments.durable.processor import SLOWNESS
from gapless_lab.experiments.verdict import Verdict

if TYPE_CHECKING:
    from gapless_lab.experiments.durable.crash import Crash
    from gapless_lab.experiments.durable.setting import Position

RECOVERY_MIN = 5.0
SLOPE = (0.9, 1.1)
RELEASE_SLOPE = (1.0, 2.0)
PUBENDS_BUSIER_MAX = 0.1
LOCAL_MIN = 3.0
SENT_AGAIN_MAX = 1.1
LOAD_MIN = 0.4
MODEL_MAX = 1.5


def crash(found: Crash, peak_per_s: float) -> list[Verdict]:
    return [
        *positions(found),
        *rates(found, peak_per_s),
        *processors(found),
    ]


def between(found: Crash, begin_s: float, end_s: float) -> list[Position]:
    return [each for each in found.positions.rows if begin_s <= each.second <= end_s]


def positions(found: Crash) -> list[Verdict]:
    name = "7: positions"
    first, slope = recovery(found)
    away = between(found, found.down_s, found.recovered_s)
    behind = between(found, found.recovered_s, found.level_s)
    moved_ms = away[-1].released_ms - away[0].released_ms
    span_ms = 1000 * (behind[-1].second - behind[0].second)
    latest = (behind[-1].latest_ms - behind[0].latest_ms) / span_ms
    released = (behind[-1].released_ms - behind[0].released_ms) / span_ms
    lag_s = max(each.second - each.latest_ms / 1000 for each in behind)
    took = [each.caught_up_s for each in found.returns]
    return [
        Verdict(
            name,
            f"latestDelivered recovers quickly (at least {RECOVERY_MIN:g} times as fast as time)",
            "about 5 times",
            f"{slope:.1f} times, beginning {first - found.up_s:.1f} s after the restart, done "
            f"{found.recovered_s - found.up_s:.1f} s after it",
            slope >= RECOVERY_MIN,
        ),
        Verdict(
            name,
            "released stands still until subscribers return",
            "does not change",
            f"moved by {moved_ms:.0f} ms in {found.recovered_s - found.down_s:.0f} s",
            not moved_ms,
        ),
        Verdict(
            name,
            f"while they catch up, latestDelivered keeps its slope ({SLOPE[0]} to {SLOPE[1]})",
            "normal",
            f"{latest:.2f}, up to {lag_s:.1f} s behind time",
            SLOPE[0] <= latest <= SLOPE[1],
        ),
        Verdict(
            name,
            "while they catch up, released is a little faster than time "
            f"({RELEASE_SLOPE[0]:g} to {RELEASE_SLOPE[1]:g} times)",
            "slightly higher than normal",
            f"{released:.2f} times; {mean(took):.0f} s to be level on average (the paper: 116)",
            RELEASE_SLOPE[0] <= released <= RELEASE_SLOPE[1],
        ),
    ]


def recovery(found: Crash) -> tuple[float, float]:
    """When the consolidated stream begins to move, and how fast it then is, on average."""
    rows = between(found, found.up_s, found.recovered_s + 1)
    begin = next(sooner for sooner, later in pairwise(rows) if later.latest_ms > sooner.latest_ms)
    end = next(each for each in rows if each.second >= found.recovered_s)
    advanced_s = (end.latest_ms - begin.latest_ms) / 1000
    return begin.second, advanced_s / (end.second - begin.second)


def rates(found: Crash, peak_per_s: float) -> list[Verdict]:
    name = "8: rates"
    normal = found.mean(found.deliveries, found.begin, found.down_s)
    catching_up = found.mean(found.deliveries, found.recovered_s, found.level_s)
    ratio, load = peak_per_s / catching_up, normal / peak_per_s
    return [
        Verdict(
            name,
            "while they catch up, subscribers get more than usual",
            "higher than 1,600 events/s a machine",
            f"{catching_up / len(found.machines):.0f} events/s a machine, usually "
            f"{normal / len(found.machines):.0f}",
            catching_up > normal,
        ),
        Verdict(
            name,
            "one stream for all does more than one for each",
            "20,000 against 10,000 events/s",
            f"{peak_per_s:,.0f} against {catching_up:,.0f} events/s: {ratio:.1f} times; by "
            "the cost model, in which an event alone is dearer",
            None,
        ),
        Verdict(
            name,
            f"a host as loaded as the paper's can catch up (at least {LOAD_MIN:.0%} of its peak)",
            "40 of 100 subscribers",
            f"played with {found.subscribers}, {load:.0%} of the peak",
            load >= LOAD_MIN,
        ),
        Verdict(
            name,
            f"the pubend host sends each event again once ({SENT_AGAIN_MAX} times at most)",
            "nacks are consolidated",
            f"{found.sent_again / found.missed:.2f} times; {found.wanted / found.missed:.1f} "
            "deliveries were made of each",
            found.sent_again <= SENT_AGAIN_MAX * found.missed,
        ),
    ]


def processors(found: Crash) -> list[Verdict]:
    name = "8: processors"
    usual = {
        broker: found.mean(values, found.begin, found.down_s) for broker, values in busy(found)
    }
    then = {
        broker: found.mean(values, found.recovered_s, found.level_s)
        for broker, values in busy(found)
    }
    more = {broker: then[broker] - usual[broker] for broker in then}
    fits = [found.model_s[each] / SLOWNESS / found.measured_s[each] for each in found.measured_s]
    return [
        Verdict(
            name,
            f"the pubend host is hardly busier (at most {PUBENDS_BUSIER_MAX:.0%} of the time)",
            "only slightly",
            f"{usual['p']:.0%}, then {then['p']:.0%}",
            more["p"] <= PUBENDS_BUSIER_MAX,
        ),
        Verdict(
            name,
            f"it is the subscribers' host that is (at least {LOCAL_MIN:g} times as much more)",
            "largely local",
            f"{usual['s1']:.0%}, then {then['s1']:.0%}",
            more["s1"] >= LOCAL_MIN * more["p"] and more["s1"] > 0,
        ),
        Verdict(
            name,
            f"the cost model agrees with what played nodes took (within {MODEL_MAX} times)",
            "–",
            f"{min(fits):.2f} to {max(fits):.2f} of it",
            min(fits) >= 1 / MODEL_MAX and max(fits) <= MODEL_MAX,
        ),
    ]


def busy(found: Crash) -> list[tuple[str, list[float]]]:
    return list(found.busy.items())
