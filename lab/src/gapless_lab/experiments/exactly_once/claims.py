"""The paper's claims, each with our value and whether it holds, computed from the results.

The bounds stand here, with their reasons: they come from the timers of `Config` and the delays of
the links where the claim is about time. "Roughly constant" is a choice: the largest value is at
most twice the smallest, while what should not matter grows twenty- or a hundredfold.

Source: DSN 2002, abstract and sec. 1; docs/experiments/exactly-once.md
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from gapless.node.config import Config
from gapless.testing.links import CLEAN
from gapless_lab.experiments.exactly_once.overhead import ROLES
from gapless_lab.experiments.meter import SECOND
from gapless_lab.experiments.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gapless_lab.experiments.exactly_once.experiment import Results
    from gapless_lab.experiments.exactly_once.fault_run import Course
    from gapless_lab.experiments.exactly_once.overhead import Load

DELAYED_S = 0.1
"""A latency that counts as delay: half of `gap_patience`; without faults it is a few ms."""

ROUND_TRIP_S = 2 * 5 * (CLEAN.delay_min + CLEAN.delay_spread) / SECOND
"""From a publisher by three brokers' links to a subscriber and back, at the slowest."""

GROWTH_MAX = 2.0
"""What is roughly constant grows no more than this."""

LOW_MAX = 1.5
"""What "low overhead" is, in all, against best effort."""

NACKS_PER_STREAM_MAX = 2
"""What "few nacks" are, for one topic at one subscriber host."""

RETURN_MARGIN_S = 1.0
"""A disturbance by a return may begin this much before it: with what was under way."""


def judge(results: Results) -> list[Verdict]:
    """Every claim, in the order of the experiments."""
    return [
        delay_is_local(results.courses["stall to a host"]),
        delay_is_local(results.courses["stall between cells"]),
        nacks_do_not_explode(results),
        relay_recovery(results),
        return_is_quiet(results.courses["relay crash"]),
        stall_is_downtime(results.courses["pubend host crash"]),
        few_nacks(results.courses["pubend host crash"]),
        nothing_lost(results),
        *overhead(results),
    ]


def delay_is_local(course: Course) -> Verdict:
    worst = course.worst()
    delayed = sorted(stream for stream, latency_s in worst.items() if latency_s > DELAYED_S)
    behind = [worst[stream] for stream in delayed if stream in course.behind]
    others = [latency_s for stream, latency_s in worst.items() if stream not in course.behind]
    return Verdict(
        course.fault,
        "only subscribers behind the link see delay",
        "delay is local",
        f"delayed streams: {len(delayed)} of {len(worst)}, behind the link: {len(course.behind)}; "
        f"at most {show_s(max(behind, default=0.0))}, the others {show_s(max(others))}",
        set(delayed) <= set(course.behind),
    )


def nacks_do_not_explode(results: Results) -> Verdict:
    tops = [each.to_pubend_host for each in results.fan_in]
    hosts = [each.from_hosts for each in results.fan_in]
    counts = ", ".join(str(each.host_count) for each in results.fan_in)
    return Verdict(
        "stall between cells",
        "upstream nacks do not depend on how many hosts miss the range",
        "nacks are consolidated",
        f"{counts} hosts: {listed(tops)} nacks reach the pubend host, {listed(hosts)} leave hosts",
        0 < max(tops) <= GROWTH_MAX * min(tops),
    )


def relay_recovery(results: Results) -> Verdict:
    config = Config()
    bound_s = (
        (config.dead_after + config.gap_patience) / SECOND
        + 1 / results.size.events_per_s
        + 2 * ROUND_TRIP_S
    )
    found = [*results.recoveries_s, max(results.courses["relay crash"].worst().values())]
    late = sum(latency_s > bound_s for latency_s in found)
    return Verdict(
        "relay crash",
        f"another path within dead_after + gap_patience + round trips ({show_s(bound_s)})",
        "recovery takes another path",
        f"{len(found)} crashes: median {show_s(median(found))}, worst {show_s(max(found))}, "
        f"{late} over the bound",
        not late,
    )


def return_is_quiet(course: Course) -> Verdict:
    before = max(course.worst(0.0, course.begin_s - DELAYED_S).values())
    after = max(course.worst(course.end_s - RETURN_MARGIN_S).values())
    nacks = sum(course.nacks(level, course.end_s) for level in course.nacks_by_level)
    return Verdict(
        "relay crash",
        "its return disturbs nobody",
        "no figures",
        f"worst latency {show_s(after)}, before the crash {show_s(before)}; {nacks} nacks",
        after <= GROWTH_MAX * before and not nacks,
    )


def stall_is_downtime(course: Course) -> Verdict:
    downtime_s, pause_s = course.end_s - course.begin_s, course.longest_pause_s()
    slack_s = Config().gap_patience / SECOND + 2 * ROUND_TRIP_S
    return Verdict(
        "pubend host crash",
        f"the stall equals the downtime ({show_s(downtime_s)})",
        "a pubend is not replicated",
        f"longest pause of a stream {show_s(pause_s)}",
        abs(pause_s - downtime_s) <= slack_s,
    )


def few_nacks(course: Course) -> Verdict:
    nacks, streams = course.nacks("hosts → lower"), len(course.behind)
    return Verdict(
        "pubend host crash",
        "subscriber hosts send few nacks",
        "nacks do not explode",
        f"{nacks} nacks for {streams} streams",
        nacks <= NACKS_PER_STREAM_MAX * streams,
    )


def nothing_lost(results: Results) -> Verdict:
    courses = results.courses.values()
    lost = sum(each.lost for each in courses)
    twice = sum(each.duplicated for each in courses)
    wrong = sum(each.out_of_order for each in courses)
    deliveries = sum(len(each.samples) for each in courses)
    return Verdict(
        "all faults",
        "nothing lost, doubled or out of order",
        "exactly once",
        f"{deliveries:,} deliveries: {lost} lost, {twice} doubled, {wrong} out of order",
        not lost and not twice and not wrong,
    )


# --- overhead -------------------------------------------------------------------------------------


def overhead(results: Results) -> list[Verdict]:
    return [
        constant(
            results,
            "messages between brokers",
            lambda load: load.link_messages / load.published,
            "{:.2f}",
        ),
        constant(
            results,
            "bytes between brokers",
            lambda load: load.link_bytes / load.published,
            "{:,.0f}",
        ),
        constant(
            results,
            "messages to clients",
            lambda load: load.client_messages / load.published,
            "{:.2f}",
        ),
        constant(results, "processor time of all brokers, µs", cpu_us(*ROLES), "{:,.0f}"),
        *(
            constant(results, f"processor time of {role}, µs", cpu_us(role), "{:,.0f}")
            for role in ROLES
        ),
        low(results, "messages between brokers", lambda load: load.link_messages),
        low(results, "bytes between brokers", lambda load: load.link_bytes),
        low(results, "processor time of all brokers", cpu_us(*ROLES)),
    ]


def cpu_us(*roles: str) -> Callable[[Load], float]:
    """Processor time per event of the brokers in these roles, together."""
    return lambda load: sum(load.cpu_s[role] for role in roles) / load.published * 1e6


def constant(results: Results, what: str, of: Callable[[Load], float], shown: str) -> Verdict:
    """Is what exactly-once costs more, for each event, the same for few and many subscriptions?"""
    counts = results.size.subscription_counts
    ours = [of(results.loads["exactly once", count]) for count in counts]
    theirs = [of(results.loads["best effort", count]) for count in counts]
    more = [mine - other for mine, other in zip(ours, theirs, strict=True)]
    return Verdict(
        "overhead",
        f"{what} beyond best effort, per event, roughly constant",
        "roughly constant",
        f"+{listed([shown.format(each) for each in more])} for {listed(counts)} subscriptions "
        f"(largest / smallest {max(more) / min(more):.2f}); in all "
        f"{ours[0] / theirs[0]:.2f} to {ours[-1] / theirs[-1]:.2f} times best effort",
        0 < max(more) <= GROWTH_MAX * min(more),
    )


def low(results: Results, what: str, of: Callable[[Load], float]) -> Verdict:
    """Is exactly once little dearer than best effort, by a bound that was fixed beforehand?"""
    counts = results.size.subscription_counts
    ratios = [
        of(results.loads["exactly once", count]) / of(results.loads["best effort", count])
        for count in counts
    ]
    return Verdict(
        "overhead",
        f"{what}: low (at most {LOW_MAX} times best effort)",
        "low overhead",
        f"{listed([f'{each:.2f}' for each in ratios])} times for {listed(counts)} subscriptions",
        max(ratios) <= LOW_MAX,
    )


def listed(values: Sequence[object]) -> str:
    return ", ".join(map(str, values))


def show_s(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= DELAYED_S else f"{seconds * 1000:.1f} ms"
