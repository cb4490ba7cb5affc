"""What the paper says of propagation, judged by what real processes did. Bounds are in the text.

Source: Middleware 2004, sec. 5.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless_lab.experiments.propagation.claims import listed
from gapless_lab.experiments.propagation.real import FLOODING, LEAVES, PROPAGATION, SCHEMES
from gapless_lab.experiments.real_clients import HOST
from gapless_lab.experiments.verdict import Verdict

if TYPE_CHECKING:
    from gapless_lab.experiments.propagation.real import Failure, Results

CONSTANT_MAX = 1.25
"""Largest over smallest of what is constant."""

LESS_MAX = 0.9
"""What is less is at most this much of the other."""

LATE_START_MAX_MS = 1_000


def judge(results: Results) -> list[Verdict]:
    """Every claim, in the order of the figures; load only where processor time is known."""
    assert results.failure is not None
    has_times = all(each.busy for each in results.loads)
    return [
        *(load(results) if has_times else []),
        *latency(results),
        *failure(results.failure),
        nothing_lost(results),
    ]


def load(results: Results) -> list[Verdict]:
    name = "4: load"
    leaf, host = busy(results, LEAVES[: results.size.leaves]), busy(results, (HOST,))
    slow, quick = min(results.size.rates_per_s), max(results.size.rates_per_s)
    rates = f"{slow:,} to {quick:,} events/s"
    steady = leaf[PROPAGATION][-1] / leaf[PROPAGATION][0]
    grown = leaf[FLOODING][-1] / leaf[FLOODING][0]
    less = leaf[PROPAGATION][-1] / leaf[FLOODING][-1]
    rises = {scheme: values[-1] - values[0] for scheme, values in host.items()}
    return [
        Verdict(
            name,
            "more publications that it does not want cost a leaf nothing under propagation "
            f"(within {CONSTANT_MAX})",
            "constant",
            f"{shares(leaf[PROPAGATION])} of a processor, {rates}: {steady:.2f} times",
            steady <= CONSTANT_MAX,
        ),
        Verdict(
            name,
            f"under flooding they do (more than {CONSTANT_MAX} times)",
            "linear increase",
            f"{shares(leaf[FLOODING])}: {grown:.2f} times; at {quick:,} events/s propagation "
            f"takes {less:.2f} of it",
            grown > CONSTANT_MAX,
        ),
        Verdict(
            name,
            f"the host's load grows less under propagation (at most {LESS_MAX} of it)",
            "31 % at 12,000 publishers, flooding 90 % at 10,000",
            f"{shares(host[PROPAGATION])}, flooding {shares(host[FLOODING])}",
            rises[PROPAGATION] <= LESS_MAX * rises[FLOODING],
        ),
    ]


def busy(results: Results, names: tuple[str, ...]) -> dict[str, list[float]]:
    """By scheme, for each rate: processor time over time, on average over these brokers."""
    return {
        scheme: [
            sum(each.busy[name] for name in names) / len(names)
            for each in results.loads
            if each.scheme == scheme
        ]
        for scheme in SCHEMES
    }


def shares(values: list[float]) -> str:
    return " to ".join(f"{each:.1%}" for each in values)


def latency(results: Results) -> list[Verdict]:
    name = "5: latency"
    found = results.latencies
    hops = " and ".join(str(each.hops) for each in found)
    medians = [each.medians() for each in found]
    delivery, covered, wide = map(list, zip(*medians, strict=True))
    further = found[-1].hops - found[0].hops
    hop_ms = (delivery[-1] - delivery[0]) / further
    start_ms = (wide[-1] - wide[0]) / further
    return [
        Verdict(
            name,
            "delivery takes longer over more hops",
            "3, 6 ms",
            f"{listed(delivery)} ms over {hops} hops: {hop_ms:.2f} ms a hop",
            hop_ms > 0,
        ),
        Verdict(
            name,
            f"a start that is covered at its leaf does not depend on hops (within {CONSTANT_MAX})",
            "about 17 ms",
            f"{listed(covered)} ms",
            max(covered) <= CONSTANT_MAX * min(covered),
        ),
        Verdict(
            name,
            "a start that must go to the host takes longer, and more so over more hops",
            "26.5, 36 ms",
            f"{listed(wide)} ms: {start_ms:.2f} ms a hop",
            start_ms > 0 and min(wide) > max(covered),
        ),
    ]


def failure(found: Failure) -> list[Verdict]:
    name = "7: failure"
    return [
        Verdict(
            name,
            "with two of three relays killed a new subscription starts "
            f"(within {LATE_START_MAX_MS / 1000:g} s) and is served",
            "makes progress and starts to deliver",
            f"started after {found.late_start_ms:.0f} ms, first event after "
            f"{found.late_first_ms:.0f} ms",
            found.late_first_ms < float("inf") and found.late_start_ms <= LATE_START_MAX_MS,
        ),
        Verdict(
            name,
            "nothing lost, doubled or out of order",
            "no interruption",
            found.account.show(),
            found.account.is_right,
        ),
    ]


def nothing_lost(results: Results) -> Verdict:
    return Verdict(
        "4: load",
        "nothing lost, doubled or out of order, in either way and at each rate",
        "–",
        "; ".join(f"{each.scheme} {each.events_per_s:,}/s: {each.account.show()}"
                  for each in results.loads if not each.account.is_right)
        or f"{sum(each.account.owed for each in results.loads):,} deliveries owed, all right",
        all(each.account.is_right for each in results.loads),
    )  # fmt: skip
