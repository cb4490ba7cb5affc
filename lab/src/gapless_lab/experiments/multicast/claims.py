"""What the literature says of multicast trees, each with our value and whether it holds.

"About" is a choice: at most half as much again. The figures are of another network with 100,000
nodes and 1,500 topics, and are recalled, not verified; our largest ring is compared with them.

Source: Scribe (JSAC 2002) for delays and stress, Pastry (Middleware 2001) for hops.
"""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING

from gapless_lab.experiments.verdict import Verdict

if TYPE_CHECKING:
    from gapless_lab.experiments.multicast.experiment import Results

ABOUT = 1.5
RECALLED = {
    "maximal_delay": 1.69,
    "average_delay": 1.68,
    "stress, mean": 2.4 / 0.7,
    "stress, max": 4031 / 950,
    "tables": 2.4,
    "entries": 6.2,
    "entries, max": 1059,
}


def judge(results: Results) -> list[Verdict]:
    """Every claim: of routes, of trees, of repair."""
    return [
        *(_hops(results, *ring) for ring in results.rings),
        *_delays(results),
        *_link_stress(results),
        *_node_stress(results),
        _repaired(results),
        _ordered(results),
    ]


def _hops(results: Results, nodes: int, topics: int) -> Verdict:
    hops, bound = results.mean_of(nodes, topics, "hops"), math.ceil(math.log(nodes, 16))
    claim = f"{nodes:,} nodes: a route has at most ⌈log16 N⌉ hops on average"
    return Verdict("hops", claim, str(bound), f"{hops:.2f}", hops <= bound)


def _about(experiment: str, claim: str, recalled: float, ours: float, shown: str = "") -> Verdict:
    return Verdict(
        experiment,
        claim,
        f"{recalled:,.4g} (recalled)",
        shown or f"{ours:,.4g}",
        ours <= ABOUT * recalled,
    )


def _delays(results: Results) -> list[Verdict]:
    found = []
    for name, whom in (("maximal_delay", "to the last member"), ("average_delay", "on average")):
        ours = median(results.values(*results.size.structure, name))
        claim = f"delay {whom}, median over topics: about as many times IP multicast's"
        found.append(_about("delay", claim, RECALLED[name], ours))
    return found


def _link_stress(results: Results) -> list[Verdict]:
    ring = results.size.structure
    ours, ip = results.copies(*ring)
    routers, ip_routers = (results.mean_of(*ring, name) for name in ("stress", "ip_stress"))
    most, ip_most = (results.max_of(*ring, name) for name in ("stress", "ip_stress"))
    return [
        _about(
            "link stress",
            "copies of events on a link, hosts' too, mean: about as many times IP multicast's",
            RECALLED["stress, mean"],
            ours / ip,
            f"{ours / ip:.2f} ({ours:,.1f}, IP {ip:,.1f}); between routers "
            f"{routers / ip_routers:.2f}",
        ),
        _about(
            "link stress",
            "copies of events on a link, max: about as many times IP multicast's",
            RECALLED["stress, max"],
            most / ip_most,
            f"{most / ip_most:.2f} ({most:,.1f}, IP {ip_most:,.1f})",
        ),
    ]


def _node_stress(results: Results) -> list[Verdict]:
    ring = results.size.structure
    return [
        _about(
            "node stress",
            "topics in which a node has children, mean",
            RECALLED["tables"],
            results.mean_of(*ring, "tables"),
        ),
        _about(
            "node stress",
            "children of a node over all topics, mean",
            RECALLED["entries"],
            results.mean_of(*ring, "entries"),
        ),
        _about(
            "node stress",
            "children of a node over all topics, max",
            RECALLED["entries, max"],
            results.max_of(*ring, "entries"),
        ),
    ]


def _repaired(results: Results) -> Verdict:
    shares = results.size.failed_shares
    found = [each["repaired_after_s"] for share in shares for each in results.repairs(share)]
    healed = [seconds for seconds in found if seconds is not None]
    return Verdict(
        "repair",
        f"up to {shares[-1]:.0%} of the nodes fail: plain topics reach all members again",
        "no figures",
        f"{len(healed)} of {len(found)} runs, after at most {max(healed, default=0)} s",
        len(healed) == len(found),
    )


def _ordered(results: Results) -> Verdict:
    shares = results.size.failed_shares
    least = min(min(each["ordered"]) for share in shares for each in results.repairs(share))
    return Verdict(
        "repair",
        "ordered topics that keep a majority of their group lose nothing",
        "no figures",
        f"{least:.2%} delivered in the worst second",
        least == 1.0,
    )
