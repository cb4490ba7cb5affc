"""The paper's evaluation of the tree, played again: figures 9 to 12, and which claims hold.

Theory of operation
    Figures 9, 11 and 12 are about graphs; figure 10 is played with the whole protocol. Every point
    is a mean over runs, each with its own failed brokers. Runs share nothing but their seed, so
    they may be spread over machines.

Invariant: the same seed and size give the same results.

Source: SRDS 2011, sec. IX. The shape of the paper's trees is not stated; trends are compared, and
the headline of its abstract.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import mean
from typing import TYPE_CHECKING, NamedTuple

from gapless.sim.experiments.partitions_delivery import delivered_share
from gapless.sim.experiments.partitions_graph import Graph, active_counts, draw_failed, tree

if TYPE_CHECKING:
    from collections.abc import Callable

Job = tuple[str, "Callable[[], None]"]
"""What is played, and the call that plays it and keeps the result."""

TOLERATED = (0, 1, 2, 3)
FANOUTS = (3, 7)
ACTIVE_FAILED = (16, 60)
FAILED_SHARE = 0.17
DELIVERED_MIN = 0.97
FEW_SESSIONS = 10
MOST = 0.9


class Verdict(NamedTuple):
    """One line of the table."""

    experiment: str
    claim: str
    paper: str
    value: str
    holds: bool


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is played."""

    brokers: int
    """Of the graphs."""
    failed_counts: tuple[int, ...]
    runs: int
    delivery_brokers: int
    delivery_runs: int


FULL = Size(
    brokers=1_000,
    failed_counts=(20, 60, 100, 140, 170),
    runs=100,
    delivery_brokers=500,
    delivery_runs=1,
)
QUICK = Size(brokers=200, failed_counts=(10, 34), runs=10, delivery_brokers=60, delivery_runs=1)


@dataclass(slots=True)
class Results:
    """All that was measured. Keys are (fanout, failures tolerated, how many failed)."""

    seed: int
    size: Size
    disconnected: dict[tuple[int, int, int], float] = field(default_factory=dict)
    delivered: dict[tuple[int, int], float] = field(default_factory=dict)
    """By failures tolerated and how many failed."""
    reachable: dict[tuple[int, int], float] = field(default_factory=dict)
    """What the graphs of the same runs would allow."""
    known: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    """By fanout and failures tolerated."""
    active: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    """By fanout and how many failed; three failures are tolerated."""


def jobs(results: Results, _clock: Callable[[], float]) -> list[Job]:
    """Everything, in the order of the figures."""
    return [
        *((f"disconnected pairs, fanout {f}", _bound(play_graph, results, f)) for f in FANOUTS),
        *((f"delivery, δ = {t}", _bound(play_delivery, results, t)) for t in TOLERATED),
        *((f"known and active, fanout {f}", _bound(play_sizes, results, f)) for f in FANOUTS),
    ]


def _bound(play: Callable[[Results, int], None], results: Results, at: int) -> Callable[[], None]:
    return lambda: play(results, at)


def play_graph(results: Results, fanout: int) -> None:
    """Figure 9: the same failed brokers for every number of failures tolerated."""
    size, graph = results.size, Graph(tree(results.size.brokers, fanout))
    for failed_count in size.failed_counts:
        dice = random.Random(f"{results.seed} {fanout} {failed_count}")
        draws = [draw_failed(dice, graph, failed_count) for _ in range(size.runs)]
        for tolerated in TOLERATED:
            shares = [graph.disconnected_share(failed, tolerated) for failed in draws]
            results.disconnected[fanout, tolerated, failed_count] = mean(shares)


def play_delivery(results: Results, tolerated: int) -> None:
    """Figure 10, at the largest share of failed brokers."""
    size, edges = results.size, tree(results.size.delivery_brokers, FANOUTS[0])
    graph = Graph(edges)
    failed_count = int(FAILED_SHARE * size.delivery_brokers)
    dice = random.Random(f"{results.seed} delivery")
    delivered, reachable = [], []
    for run in range(size.delivery_runs):
        failed = draw_failed(dice, graph, failed_count)
        delivered.append(delivered_share(edges, sorted(failed), tolerated, results.seed + run))
        reachable.append(1 - graph.disconnected_share(failed, tolerated))
    results.delivered[tolerated, failed_count] = mean(delivered)
    results.reachable[tolerated, failed_count] = mean(reachable)


def play_sizes(results: Results, fanout: int) -> None:
    """Figures 11 and 12."""
    edges = tree(results.size.brokers, fanout)
    graph = Graph(edges)
    for tolerated in TOLERATED:
        results.known[fanout, tolerated] = sorted(graph.known_counts(tolerated + 1))
    dice = random.Random(f"{results.seed} {fanout} sessions")
    for failed_count in ACTIVE_FAILED:
        failed = draw_failed(dice, graph, failed_count)
        results.active[fanout, failed_count] = sorted(active_counts(edges, failed, TOLERATED[-1]))


def judge(results: Results) -> list[Verdict]:
    """Every claim, in the order of the figures."""
    return [*_connectivity(results), *_delivery(results), *_sizes(results)]


def _connectivity(results: Results) -> list[Verdict]:
    most = results.size.failed_counts[-1]
    found = []
    for fanout in FANOUTS:
        row = [results.disconnected[fanout, tolerated, most] for tolerated in TOLERATED]
        found.append(
            Verdict(
                "figure 9",
                f"fanout {fanout}, {most} failed: the more tolerated, the fewer pairs cut off",
                "falls with δ",
                " ".join(f"{share:.1%}" for share in row),
                all(one > other for one, other in pairwise(row)),
            )
        )
    narrow, wide = (results.disconnected[fanout, 1, most] for fanout in FANOUTS)
    claim = f"{most} failed, 1 tolerated: fanout 3 cuts off more than fanout 7"
    value = f"{narrow:.1%}, {wide:.1%}"
    return [*found, Verdict("figure 9", claim, "more", value, narrow > wide)]


def _delivery(results: Results) -> list[Verdict]:
    [failed_count] = {count for _, count in results.delivered}
    of = results.size.delivery_brokers
    row = [results.delivered[tolerated, failed_count] for tolerated in TOLERATED]
    return [
        Verdict(
            "figure 10",
            f"{failed_count} of {of} failed, 3 tolerated: at least {DELIVERED_MIN:.0%} delivered",
            "97%",
            f"{row[-1]:.2%}",
            row[-1] >= DELIVERED_MIN,
        ),
        Verdict(
            "figure 10",
            "every failure more that is tolerated delivers more, or as much",
            "about 4% a step",
            " ".join(f"{share:.1%}" for share in row),
            all(one <= other for one, other in pairwise(row)),
        ),
        Verdict(
            "figure 10",
            "with none tolerated most is lost",
            "vast loss",
            f"{1 - row[0]:.1%} lost",
            row[0] < 0.5,
        ),
    ]


def notes(results: Results) -> list[str]:
    """What the graph allows and the legitimacy rule holds back."""
    return [
        f"δ = {tolerated}: {results.delivered[tolerated, failed]:.2%} delivered, "
        f"{allowed:.2%} connected; the difference is held where more than δ of 2δ+1 brokers in a "
        "row have failed, with all behind it"
        for (tolerated, failed), allowed in results.reachable.items()
    ]


def _sizes(results: Results) -> list[Verdict]:
    narrow, wide = (results.known[fanout, 3][-1] for fanout in FANOUTS)
    found = [
        Verdict(
            "figure 11",
            "fanout 3, 3 tolerated: every neighbourhood is below 100 brokers",
            "< 100",
            str(narrow),
            narrow < 100,
        ),
        Verdict(
            "figure 11",
            "fanout 7, 3 tolerated: a neighbourhood may be the whole network",
            "1000 of 1000",
            f"{wide + 1} of {results.size.brokers}",
            wide + 1 >= MOST * results.size.brokers,
        ),
    ]
    for (fanout, failed_count), counts in results.active.items():
        few = sum(count <= FEW_SESSIONS for count in counts) / len(counts)
        claim = f"fanout {fanout}, {failed_count} failed: most have at most {FEW_SESSIONS} sessions"
        found.append(Verdict("figure 12", claim, "very low for most", f"{few:.1%}", few >= MOST))
    return found
