"""The claims of the paper's evaluation of the tree, each with our value and whether it holds.

What "most" and "very low" mean is our choice, as the paper's words are not numbers: nine of ten
brokers, and at most ten sessions.

Source: SRDS 2011, abstract and sec. IX.
"""

from __future__ import annotations

from itertools import pairwise
from statistics import mean
from typing import TYPE_CHECKING

from gapless_lab.experiments.partitions.experiment import ACTIVE_FAILED, FANOUTS, TOLERATED, spread
from gapless_lab.experiments.verdict import Verdict

if TYPE_CHECKING:
    from gapless_lab.experiments.partitions.experiment import Results

DELIVERED_MIN = 0.97
LITTLE = 0.5
"""With less than this delivered, most is lost."""
STEP, STEP_RANGE = 0.04, (0.02, 0.06)
LACKING_MAX = 1e-9
FEW_SESSIONS = 10
MOST = 0.9
SMALL_MAX = 100


def judge(results: Results) -> list[Verdict]:
    """Every claim, in the order of the figures."""
    return [*_connectivity(results), *_delivery(results), *_known(results), *_sessions(results)]


def _connectivity(results: Results) -> list[Verdict]:
    most = results.size.failed_counts[-1]
    found = []
    for fanout in FANOUTS:
        row = [results.disconnected(fanout, tolerated, most) for tolerated in TOLERATED]
        claim = f"fanout {fanout}, {most} failed: the more tolerated, the fewer cut off, or none"
        value = " ".join(f"{share:.2%}" for share in row)
        falls = all(one > other or one == other == 0 for one, other in pairwise(row))
        found.append(Verdict("figure 9", claim, "falls with δ", value, falls))
    narrow, wide = (results.disconnected(fanout, 1, most) for fanout in FANOUTS)
    claim = f"{most} failed, 1 tolerated: fanout 3 cuts off more than fanout 7"
    value = f"{narrow:.1%}, {wide:.1%}"
    return [*found, Verdict("figure 9", claim, "more", value, narrow > wide)]


def _delivery(results: Results) -> list[Verdict]:
    return [
        verdict
        for brokers, failed in results.networks
        for verdict in _of_network(results, brokers, failed[-1])
    ]


def _of_network(results: Results, brokers: int, failed: int) -> list[Verdict]:
    shares = [results.delivered(brokers, tolerated, failed) for tolerated in TOLERATED]
    row, draws = [mean(each) for each in shares], len(shares[-1])
    name, runs = f"figure 10, {brokers} brokers", results.size.runs
    steps = [after - before for before, after in pairwise(row[1:])]
    lacking = [
        allowed - made
        for tolerated in TOLERATED
        for count in dict(results.networks)[brokers]
        for made, allowed in zip(
            results.delivered(brokers, tolerated, count),
            results.reachable(brokers, tolerated, count),
            strict=True,
        )
    ]
    return [
        Verdict(
            name,
            f"{failed} of {brokers} failed, 3 tolerated: at least {DELIVERED_MIN:.0%} delivered",
            "97 %",
            f"{spread(shares[-1])}, {draws} of {runs} draws",
            row[-1] >= DELIVERED_MIN,
        ),
        Verdict(
            name,
            f"from 1 to 3 tolerated, steps of about {STEP:.0%} (by {STEP_RANGE[0]:.0%} to "
            f"{STEP_RANGE[1]:.0%})",
            "about 4 % a step",
            ", ".join(f"{step:+.1%}" for step in steps)
            + f"; delivered {', '.join(map(spread, shares[1:]))}",
            all(STEP_RANGE[0] <= step <= STEP_RANGE[1] for step in steps),
        ),
        Verdict(
            name,
            "with none tolerated most is lost",
            "vast loss",
            f"{1 - row[0]:.1%} lost; delivered {spread(shares[0])}",
            row[0] < LITTLE,
        ),
        Verdict(
            name,
            "all that is connected is delivered, in every draw",
            "no figures",
            f"{len(lacking)} draws, at most {max(lacking):.2%} less than connected",
            max(lacking) < LACKING_MAX,
        ),
    ]


def _known(results: Results) -> list[Verdict]:
    narrow, wide = (results.known(fanout, TOLERATED[-1])[-1] for fanout in FANOUTS)
    return [
        Verdict(
            "figure 11",
            f"fanout 3, 3 tolerated: every neighbourhood is below {SMALL_MAX} brokers",
            f"< {SMALL_MAX}",
            str(narrow),
            narrow < SMALL_MAX,
        ),
        Verdict(
            "figure 11",
            "fanout 7, 3 tolerated: a neighbourhood may be the whole network",
            "1000 of 1000",
            f"{wide + 1} of {results.size.brokers}",
            wide + 1 >= MOST * results.size.brokers,
        ),
    ]


def _sessions(results: Results) -> list[Verdict]:
    found = []
    for fanout in FANOUTS:
        for failed in ACTIVE_FAILED:
            few = sum(results.active(fanout, failed)[: FEW_SESSIONS + 1])
            claim = f"fanout {fanout}, {failed} failed: most have at most {FEW_SESSIONS} sessions"
            value = f"{few:.1%}"
            found.append(Verdict("figure 12", claim, "very low for most", value, few >= MOST))
    return found
