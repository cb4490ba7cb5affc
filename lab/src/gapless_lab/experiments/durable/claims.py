"""The paper's claims on durable subscriptions, each with our value and whether it holds.

The bounds stand here, and in the text of the claim. The paper's brokers were Java on six
processors of 500 MHz: what is compared is shapes and ratios, never values.

Source: DSN 2003, sec. 5.
"""

from __future__ import annotations

from statistics import mean, pstdev
from typing import TYPE_CHECKING

from gapless_lab.experiments.durable.crash_claims import crash
from gapless_lab.experiments.durable.steady import ANONYMOUS, LEAVING, STAYING
from gapless_lab.experiments.verdict import Verdict

if TYPE_CHECKING:
    from gapless_lab.experiments.durable.experiment import Results

SAME_MAX = 1.05
LEAVING_MIN = 0.85
ONE_BROKER_MIN = 0.8
IDLE_LOSS_MAX = 0.15
DURABLE_MIN = 0.75
CATCH_UP_MAX_S = 6.0
STEADY_MS = (700, 1_300)
"""The paper's own, and as far above."""
JUMPY_MIN = 3.0
SENT_AGAIN_MAX = 1.1
GROWTH_MAX = 2.0
LESS_DATA_MIN = 20.0
FASTER_MIN = 5.0
COMMITS_MAX = 2.0


def judge(results: Results) -> list[Verdict]:
    """Every claim, in the order of the figures; of a run that did not end, that it did not."""
    peak = results.peaks.get((STAYING, 1))
    has_peaks = not any("hosts" in name for name in results.unended)
    return [
        *(latency(results) if results.latency else []),
        *(peaks(results) if has_peaks else []),
        *(absences(results) if results.absences else []),
        *(fan_in(results) if results.fan_in else []),
        *(crash(results.crash, peak.peak_per_s) if results.crash and peak else []),
        *(unended(name, reason) for name, reason in results.unended.items()),
        nothing_lost(results),
        *logging(results),
        auto_acknowledge(results),
    ]


def unended(name: str, reason: str) -> Verdict:
    return Verdict(name, "the run comes to an end", "it does", reason, False)


def latency(results: Results) -> list[Verdict]:
    found = results.latency
    assert found is not None
    ratio, share = found.durable_ms / found.anonymous_ms, found.logging_ms / found.durable_ms
    return [
        Verdict(
            "latency",
            "over 5 brokers, most of it is logging, once",
            "50 ms, 44 of it logging",
            f"{found.durable_ms:.1f} ms, {found.logging_ms:.1f} of it until it is durable "
            f"({share:.0%}); a write takes 44 ms because we set it so",
            None,
        ),
        Verdict(
            "latency",
            f"a durable subscriber waits no longer than another (within {SAME_MAX})",
            "logged only once",
            f"{ratio:.3f} times {found.anonymous_ms:.1f} ms, with the same disk at its host",
            ratio <= SAME_MAX,
        ),
    ]


# --- figure 4 -------------------------------------------------------------------------------------


def peaks(results: Results) -> list[Verdict]:
    name, most = "4: peak rate", max(results.size.host_counts)
    peak = {key: found.peak_per_s for key, found in results.peaks.items()}
    papers = {STAYING: "20,000 to 79,200 events/s, 1 to 4", LEAVING: "17,600 to 69,600, 1 to 4"}
    away = peak[LEAVING, most] / peak[STAYING, most]
    alone = peak[STAYING, 0] / peak[STAYING, 1]
    durable = peak[STAYING, 1] / peak[ANONYMOUS, 1]
    idle = [1 - results.peaks[STAYING, count].busy["p"] for count in (1, most)]
    return [
        *(linear(way, most, papers[way], peak[way, 1], peak[way, most]) for way in papers),
        Verdict(
            name,
            f"absences cost little of it (at least {LEAVING_MIN:.0%} is left)",
            "88 %",
            f"{away:.0%} with {most} hosts, each subscriber away 5 s in 300",
            away >= LEAVING_MIN,
        ),
        Verdict(
            name,
            f"one broker for everything does about as much (at least {ONE_BROKER_MIN} of it)",
            "similar",
            f"{alone:.2f} of what one host below another does",
            alone >= ONE_BROKER_MIN,
        ),
        Verdict(
            name,
            f"more hosts take little of the pubend host's idle time (at most {IDLE_LOSS_MAX:.0%})",
            "69 % to 59 %, 1 to 4",
            f"{idle[0]:.0%} to {idle[1]:.0%}, 1 to {most}",
            idle[0] - idle[1] <= IDLE_LOSS_MAX,
        ),
        Verdict(
            name,
            f"durable subscribers cost a host little more (at least {DURABLE_MIN} of the peak)",
            "–",
            f"{peak[STAYING, 1]:,.0f} events/s, not durable {peak[ANONYMOUS, 1]:,.0f}: "
            f"{durable:.2f}",
            durable >= DURABLE_MIN,
        ),
    ]


def linear(way: str, most: int, paper: str, one: float, all_of_them: float) -> Verdict:
    ratio = all_of_them / one / most
    return Verdict(
        "4: peak rate",
        f"{way}: grows with the number of hosts",
        paper,
        f"{one:,.0f} to {all_of_them:,.0f} events/s, 1 to {most}: each adds {ratio:.2f} of one; by "
        "the cost model, in which hosts share nothing",
        None,
    )


# --- figures 5 and 6 ------------------------------------------------------------------------------


def absences(results: Results) -> list[Verdict]:
    found = results.absences
    assert found is not None
    took = [each.caught_up_s for each in found.returns]
    latest = [rate for _, rate in found.positions.rates(lambda position: position.latest_ms)]
    released = [rate for _, rate in found.positions.rates(lambda position: position.released_ms)]
    jumps = pstdev(released) / pstdev(latest)
    still = sum(not rate for rate in released) / len(released)
    return [
        Verdict(
            "5: catch-up",
            f"after 5 s away, level again soon (at most {CATCH_UP_MAX_S:g} s)",
            "5 to 6 s",
            f"{mean(took):.2f} s on average, {max(took):.2f} s at most, {len(took)} returns; "
            f"processor {found.busy:.0%} busy",
            max(took) <= CATCH_UP_MAX_S,
        ),
        Verdict(
            "6: positions",
            f"latestDelivered is steady ({STEADY_MS[0]} to {STEADY_MS[1]:,} ms each second)",
            "1,000, now and then 700",
            f"{mean(latest):,.0f} on average, {min(latest):,.0f} to {max(latest):,.0f}",
            STEADY_MS[0] <= min(latest) and max(latest) <= STEADY_MS[1],
        ),
        Verdict(
            "6: positions",
            f"released varies far more (deviation at least {JUMPY_MIN:g} times)",
            "much larger variation",
            f"{jumps:.1f} times; {mean(released):,.0f} on average, it stands still in "
            f"{still:.0%} of the seconds",
            jumps >= JUMPY_MIN,
        ),
    ]


def fan_in(results: Results) -> list[Verdict]:
    again = [each.sent_again / each.missed for each in results.fan_in]
    nacks = [each.nacks / each.missed for each in results.fan_in]
    wanted = [each.wanted / each.missed for each in results.fan_in]
    counts = ", ".join(str(each.subscribers) for each in results.fan_in)
    name, paper = "returns together", "nacks are consolidated"
    return [
        Verdict(
            name,
            f"the pubend host sends nothing twice for many (each event at most {SENT_AGAIN_MAX} "
            "times)",
            paper,
            f"{counts} subscribers: each missed event sent again "
            f"{', '.join(f'{each:.2f}' for each in again)} times, wanted by "
            f"{', '.join(f'{each:.1f}' for each in wanted)}; all level after "
            f"{', '.join(f'{each.level_after_s:.1f}' for each in results.fan_in)} s",
            max(again) <= SENT_AGAIN_MAX,
        ),
        Verdict(
            name,
            f"nacks for each missed event do not grow with them (within {GROWTH_MAX:g} times)",
            paper,
            f"{', '.join(f'{each:.3f}' for each in nacks)}",
            max(nacks) <= GROWTH_MAX * min(nacks),
        ),
    ]


# --- the rest -------------------------------------------------------------------------------------


def nothing_lost(results: Results) -> Verdict:
    found = [*results.peaks.values(), results.absences, results.crash]
    lost = sum(each.lost for each in found if each is not None)
    doubled = sum(each.doubled for each in found if each is not None)
    return Verdict(
        "all runs",
        "nothing is lost or comes twice, whoever was away or down",
        "exactly once",
        f"{lost} lost, {doubled} twice",
        not lost and not doubled,
    )


def logging(results: Results) -> list[Verdict]:
    found = results.logging
    assert found is not None
    less, faster = found.copied_bytes / found.filtered_bytes, found.copied_s / found.filtered_s
    return [
        Verdict(
            "filtered log",
            f"logs far less than an event for each subscriber ({LESS_DATA_MIN:g} times at least)",
            "25 times less",
            f"{less:.1f} times less: {found.filtered_bytes:,} bytes",
            less >= LESS_DATA_MIN,
        ),
        Verdict(
            "filtered log",
            f"takes far less processor time ({FASTER_MIN:g} times at least)",
            "over 5 times faster",
            f"{faster:.1f} times faster: {found.filtered_s:.2f} s for {found.seconds} s of it",
            faster >= FASTER_MIN,
        ),
    ]


def auto_acknowledge(results: Results) -> Verdict:
    first, last = results.rows[0], results.rows[-1]
    commits = [row.commits_per_s for row in results.rows]
    more = last.events_per_s / first.events_per_s
    return Verdict(
        "auto-acknowledge",
        f"more subscribers share a commit (commits within {COMMITS_MAX:g} times, events grow)",
        "4,000 events/s with 25, 7,600 with 200",
        f"{', '.join(f'{row.events_per_s:,.0f}' for row in results.rows)} events/s with "
        f"{', '.join(str(row.subscribers) for row in results.rows)}; "
        f"{min(commits):,.0f} to {max(commits):,.0f} commits/s",
        max(commits) <= COMMITS_MAX * min(commits) and more > max(commits) / min(commits),
    )
