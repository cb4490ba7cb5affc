"""The paper's claims on propagation, each with our value and whether it holds.

The bounds stand here, and in the text of the claim. The paper's processors were six of 500 MHz and
its brokers in Java: what is compared is shapes and ratios, never values.

Source: Middleware 2004, sec. 5.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless_lab.experiments.propagation.failure import CRASHES_S, END_S, LATE, LATE_S, RELAYS
from gapless_lab.experiments.propagation.load import MACHINES, PUBLISHERS, SUBSCRIBERS
from gapless_lab.experiments.propagation.setting import FLOODING, PROPAGATION, SCHEMES
from gapless_lab.experiments.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gapless_lab.experiments.propagation.experiment import Results
    from gapless_lab.experiments.propagation.failure import TimeLine

SAME_MAX = 1.15
"""What makes no difference differs by no more than this."""

CONSTANT_MAX = 1.25
"""Largest over smallest of what is constant."""

BEND_MAX = 0.1
"""What is linear departs from the best line by no more than this share of its largest value."""

STEEPER_MIN = 2.0
VECTOR_BYTES_MAX = 1.02
OVERHEAD_MAX = 1.1
ROUND_TRIP_MAX = 3.1
"""The paper's own: the start over more hops grows 3.1 times as fast as delivery."""

DIP_MIN = 0.9
LATE_START_MAX_MS = 1_000
MODEL_MAX = 1.5
DOUBLE = (1.6, 2.4)
SHARE_MIN = 0.15
FLOODED_AFTER_S = 3


def judge(results: Results) -> list[Verdict]:
    """Every claim, in the order of the figures."""
    return [*load(results), *latency(results), *vectors(results), *failure(results)]


# --- figure 4 -------------------------------------------------------------------------------------


def load(results: Results) -> list[Verdict]:
    name, counts = "4: load", results.size.publisher_counts
    here, sources = (SUBSCRIBERS,), PUBLISHERS
    sb = {scheme: results.loads(scheme, here) for scheme in SCHEMES}
    pb = {scheme: results.loads(scheme, sources) for scheme in SCHEMES}
    first = sb[PROPAGATION][0] / sb[FLOODING][0]
    extra = {s: [results.points[s, n].to_subscribers for n in counts] for s in SCHEMES}
    wanted = {s: [results.points[s, n].delivered for n in counts] for s in SCHEMES}
    unwanted = {s: extra[s][-1] / wanted[s][-1] for s in SCHEMES}
    slopes = {s: slope(counts, pb[s]) for s in SCHEMES}
    steeper = slopes[FLOODING] / slopes[PROPAGATION]
    return [
        Verdict(
            name,
            f"with {counts[0]:,} publishers, all wanted, sb takes the same (within {SAME_MAX})",
            "difference negligible",
            f"{first:.2f} times that of flooding",
            1 / SAME_MAX <= first <= SAME_MAX,
        ),
        Verdict(
            name,
            f"more publishers cost sb nothing under propagation (within {SAME_MAX})",
            "constant",
            f"{rise(sb[PROPAGATION])} of a processor for {counts[0]:,} to {counts[-1]:,}; "
            f"{unwanted[PROPAGATION]:.2f} events reach it for each delivered",
            sb[PROPAGATION][-1] <= SAME_MAX * sb[PROPAGATION][0],
        ),
        linear(name, "sb, under flooding,", "linear increase", counts, sb[FLOODING]),
        linear(name, "pb, under flooding,", "linear, > 90 % at 10,000", counts, pb[FLOODING]),
        linear(name, "pb, under propagation,", "linear, 31 % at 12,000", counts, pb[PROPAGATION]),
        Verdict(
            name,
            f"pb grows much faster under flooding (at least {STEEPER_MIN} times)",
            "90 % at 10,000 against 31 % at 12,000: 3.5 times",
            f"{steeper:.2f} times as fast; with {counts[-1]:,} publishers "
            f"{pb[FLOODING][-1] / pb[PROPAGATION][-1]:.2f} times the load",
            steeper >= STEEPER_MIN,
        ),
        model_fit(results, name),
    ]


def linear(
    name: str, what: str, paper: str, counts: Sequence[float], values: Sequence[float]
) -> Verdict:
    return Verdict(
        name,
        f"{what} grows linearly (off the line by at most {BEND_MAX:.0%})",
        paper,
        f"{rise(values)} of a processor; off the line by {bend(counts, values):.1%}",
        values[-1] > values[0] and bend(counts, values) <= BEND_MAX,
    )


def model_fit(results: Results, name: str) -> Verdict:
    assert results.costs is not None
    ratios = [
        results.factor() * point.utilisation((machine,), results.costs) / point.measured((machine,))
        for point in results.points.values()
        for machine in MACHINES
    ]
    return Verdict(
        name,
        f"the cost model agrees with the time the played nodes took (within {MODEL_MAX} times)",
        "–",
        f"{min(ratios):.2f} to {max(ratios):.2f} of it",
        min(ratios) >= 1 / MODEL_MAX and max(ratios) <= MODEL_MAX,
    )


# --- figure 5 -------------------------------------------------------------------------------------


def latency(results: Results) -> list[Verdict]:
    name, hops = "5: latency", [each.hops for each in results.latencies]
    medians = [each.medians_ms() for each in results.latencies]
    values = {key: [each[key] for each in medians] for key in medians[0]}
    delivery, local, wide = values["delivery"], values["local_start"], values["global_start"]
    more = [one - other for one, other in zip(wide, local, strict=True)]
    trips = slope(hops, wide) / slope(hops, delivery)
    return [
        milliseconds(name, "delivery", "3, 6, 9 ms", hops, delivery),
        Verdict(
            name,
            f"a start that is covered at sb does not depend on hops (within {CONSTANT_MAX})",
            "about 17 ms",
            f"{listed(local)} ms",
            max(local) <= CONSTANT_MAX * min(local),
        ),
        milliseconds(name, "a start that must go to pb", "26.5, 36, 45 ms", hops, wide),
        Verdict(
            name,
            "a further hop costs such a start little more than the way there and back "
            f"(at most {ROUND_TRIP_MAX} times what it costs delivery)",
            "9.5, 20, 28 ms beyond a covered one: 3.1 times",
            f"{listed(more)} ms beyond a covered one: {trips:.1f} times",
            trips <= ROUND_TRIP_MAX,
        ),
    ]


def milliseconds(
    name: str, what: str, paper: str, hops: Sequence[int], values: Sequence[float]
) -> Verdict:
    return Verdict(
        name,
        f"{what} grows linearly with hops (off the line by at most {BEND_MAX:.0%})",
        paper,
        f"{listed(values)} ms over {', '.join(map(str, hops))} hops; "
        f"off the line by {bend(hops, values):.1%}",
        values[-1] > values[0] and bend(hops, values) <= BEND_MAX,
    )


# --- figure 6 -------------------------------------------------------------------------------------


def vectors(results: Results) -> list[Verdict]:
    name, counts = "6: vectors", results.size.leaf_counts
    found = [results.vectors[PROPAGATION, count] for count in counts]
    sizes = [each.bytes for each in found]
    return [
        Verdict(
            name,
            f"vectors of {counts[-1]} cost at most 2 % more bytes an event than of {counts[0]}",
            "constant (to 7)",
            f"{listed(sizes)} bytes an event from pb with {', '.join(map(str, counts))} leaves: "
            f"{sizes[-1] / sizes[0] - 1:+.1%}",
            sizes[-1] <= VECTOR_BYTES_MAX * sizes[0],
        ),
        *(constant_cpu(results, name, role) for role in ("pb", "sb")),
        *(overhead(results, name, role, said) for role, said in SAID.items()),
    ]


SAID = {"pb": "3 % more", "ib, for each sb": "very small difference", "sb": "very small difference"}


def constant_cpu(results: Results, name: str, role: str) -> Verdict:
    counts = results.size.leaf_counts
    took = [results.vectors[PROPAGATION, count].cpu_us[role] for count in counts]
    theirs = [results.vectors[FLOODING, count].cpu_us[role] for count in counts]
    return Verdict(
        name,
        f"processor time of {role} does not depend on the leaves (within {CONSTANT_MAX})",
        "constant (1 to 7)",
        f"{listed(took)} µs an event (flooding {listed(theirs)})",
        max(took) <= CONSTANT_MAX * min(took),
    )


def overhead(results: Results, name: str, role: str, paper: str) -> Verdict:
    ratios = [
        results.vectors[PROPAGATION, count].cpu_us[role]
        / results.vectors[FLOODING, count].cpu_us[role]
        for count in results.size.leaf_counts
    ]
    return Verdict(
        name,
        f"where nothing is filtered, {role} takes hardly more than under flooding "
        f"(at most {OVERHEAD_MAX} times)",
        paper,
        f"{min(ratios):.2f} to {max(ratios):.2f} times",
        max(ratios) <= OVERHEAD_MAX,
    )


# --- figure 7 -------------------------------------------------------------------------------------


def failure(results: Results) -> list[Verdict]:
    line = results.time_line
    assert line is not None
    name = "7: failure"
    worst = max(line.worst_latency_ms.values())
    return [
        steady_rate(name, line),
        Verdict(
            name,
            f"with one relay left, new subscriptions start (within {LATE_START_MAX_MS / 1000:g} s) "
            "and are served",
            "makes progress and starts to deliver",
            f"all started within {line.late_start_ms:.0f} ms; "
            f"{mean(late_rates(line)):.0f} deliveries/s before another relay is back",
            line.late_start_ms <= LATE_START_MAX_MS and min(late_rates(line)) > 0,
        ),
        load_moves(name, line),
        return_floods(name, line),
        Verdict(
            name,
            "nothing lost, doubled or out of order",
            "no interruption",
            f"{line.expected:,} deliveries owed: {line.lost} lost, {line.duplicated} doubled, "
            f"{line.out_of_order} out of order; latest {worst:.0f} ms",
            not line.lost and not line.duplicated and not line.out_of_order,
        ),
    ]


def steady_rate(name: str, line: TimeLine) -> Verdict:
    dips = [min(counts) / mean(counts) for group, counts in line.delivered.items() if group != LATE]
    rates = [mean(counts) for group, counts in line.delivered.items() if group != LATE]
    return Verdict(
        name,
        f"clients' rate is not affected (no second below {DIP_MIN} of the mean)",
        "not affected",
        f"{listed(rates)} deliveries/s; worst second {min(dips):.2f} of the mean",
        min(dips) >= DIP_MIN,
    )


def late_rates(line: TimeLine) -> list[int]:
    """By second, from the first whole one after the start to when a relay is back."""
    back_s = min(back for _, back in CRASHES_S.values())
    return line.delivered[LATE][int(LATE_S) + 2 : int(back_s)]


def load_moves(name: str, line: TimeLine) -> Verdict:
    (first, _), (second, _) = CRASHES_S.values()
    last = line.carried[RELAYS[-1]]
    alone, shared = (
        mean(last[int(second) + 1 : int(LATE_S)]),
        mean(last[int(first) + 1 : int(second)]),
    )
    ends = [mean(line.carried[relay][-5:]) for relay in RELAYS]
    share = min(ends) / sum(ends)
    return Verdict(
        name,
        f"the third relay's load doubles when it is alone ({DOUBLE[0]} to {DOUBLE[1]} times), "
        f"and all share again in the end (at least {SHARE_MIN:.0%} each)",
        "4 % to 8 %; shared again",
        f"{shared:.0f} to {alone:.0f} events/s: {alone / shared:.2f} times; "
        f"least share in the end {share:.0%}",
        DOUBLE[0] <= alone / shared <= DOUBLE[1] and share >= SHARE_MIN,
    )


def return_floods(name: str, line: TimeLine) -> Verdict:
    allowed = {
        int(back_s) + more for _, back_s in CRASHES_S.values() for more in range(FLOODED_AFTER_S)
    }
    elsewhere = sum(n for second, n in enumerate(line.flooded) if second not in allowed)
    return Verdict(
        name,
        f"a relay lets pass what it cannot judge only when it is back (for {FLOODED_AFTER_S} s)",
        "–",
        f"{sum(line.flooded)} events let pass, {elsewhere} of them at other times; "
        f"{sum(line.filtered):,} filtered in {END_S:g} s",
        not elsewhere,
    )


# --- figures --------------------------------------------------------------------------------------


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def slope(places: Sequence[float], values: Sequence[float]) -> float:
    """Of the best line, by least squares."""
    middle, height = mean(places), mean(values)
    rises = sum((x - middle) * (y - height) for x, y in zip(places, values, strict=True))
    return rises / sum((x - middle) ** 2 for x in places)


def bend(places: Sequence[float], values: Sequence[float]) -> float:
    """How far the values are off the best line, at most, as a share of the largest."""
    steepness, middle, height = slope(places, values), mean(places), mean(values)
    line: Callable[[float], float] = lambda x: height + steepness * (x - middle)  # noqa: E731
    return max(abs(y - line(x)) for x, y in zip(places, values, strict=True)) / max(values)


def listed(values: Sequence[float]) -> str:
    return ", ".join(f"{each:.1f}" if each < 100 else f"{each:,.0f}" for each in values)


def rise(values: Sequence[float]) -> str:
    return f"{values[0]:.2f} to {values[-1]:.2f}"
