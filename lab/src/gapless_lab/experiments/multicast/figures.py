"""The figures of `gapless experiment multicast`. Imports matplotlib: import it late.

A colour is a size of the ring, or a share of nodes that fail; grey is IP multicast, and a red
dotted line what the literature says, as recalled.
"""

from __future__ import annotations

import math
from itertools import accumulate
from statistics import fmean
from typing import TYPE_CHECKING, Any

from gapless_lab.experiments.exactly_once.figures import BAND, SPARED, STRUCK, make_figure
from gapless_lab.experiments.multicast.claims import RECALLED
from gapless_lab.experiments.multicast.repair import BEFORE_SECONDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gapless_lab.experiments.multicast.experiment import Results

COLOURS = ("#e69f00", "#0072b2", "#111111", "#009e73", "#c0392b")
GRID = "#e5e5e5"


def hops(results: Results) -> Figure:
    """Hops of a route by nodes, and how they are distributed."""
    figure = make_figure("A route takes about log16 N hops", 12, 5)
    means, shares = figure.subplots(1, 2)
    counts = [nodes for nodes, _ in results.rings]
    ours = [results.mean_of(*ring, "hops") for ring in results.rings]
    means.plot(counts, ours, marker="o", color=COLOURS[1], label="mean of routes")
    means.plot(
        counts, [math.log(n, 16) for n in counts], ":", color=STRUCK, label="log16 N (literature)"
    )
    for count, value in zip(counts, ours, strict=True):
        means.annotate(
            f"{value:.2f}", (count, value), (0, -16), textcoords="offset points", ha="center"
        )
    means.set_xscale("log")
    means.set_xticks(counts, [f"{count:,}" for count in counts])
    means.minorticks_off()
    means.set_ylim(0, 1.3 * max(ours))
    means.set_xlabel("nodes")
    means.set_ylabel("hops")
    width = 0.8 / len(counts)
    for place, (ring, colour) in enumerate(zip(results.rings, COLOURS, strict=False)):
        found = merged(results, ring, "hops")
        total = sum(found.values())
        shares.bar(
            [value + (place - (len(counts) - 1) / 2) * width for value in found],
            [100 * count / total for count in found.values()],
            width,
            color=colour,
            label=f"{ring[0]:,} nodes",
        )
    shares.set_xlabel("hops")
    shares.set_ylabel("share of routes (%)")
    for axes in (means, shares):
        finish(axes, "upper left")
    return figure


def delay(results: Results) -> Figure:
    """Delay against IP multicast: which share of topics has at most so much."""
    figure = make_figure("Delay down a tree, against the shortest ways of IP multicast", 12, 5)
    titles = {"maximal_delay": "to the last member (RMD)", "average_delay": "on average (RAD)"}
    places = figure.subplots(1, 2, sharey=True, sharex=True)
    for axes, (name, title) in zip(places, titles.items(), strict=True):
        for ring, colour in zip(results.rings, COLOURS, strict=False):
            values = sorted(results.values(*ring, name))
            shares = [100 * (index + 1) / len(values) for index in range(len(values))]
            axes.step(values, shares, where="post", color=colour, label=f"{ring[0]:,} nodes")
        axes.axvline(RECALLED[name], color=STRUCK, ls=":", label="literature: median, recalled")
        axes.axhline(50, color=SPARED, lw=0.8)
        axes.set_title(title)
        axes.set_xlabel("times the delay of IP multicast")
        axes.set_xlim(1, None)
        axes.set_ylim(0, 103)
        finish(axes, "lower right")
    places[0].set_ylabel("share of topics with at most so much (%)")
    return figure


def stress(results: Results) -> Figure:
    """Copies on links and children of nodes in the largest ring: how many have at least so many."""
    ring = results.size.structure
    figure = make_figure(
        f"Work of links and nodes, one event to each of {ring[1]:,} topics, {ring[0]:,} nodes",
        12,
        5,
    )
    links, nodes = figure.subplots(1, 2)
    for name, colour, label in (
        ("stress", COLOURS[1], "our trees"),
        ("ip_stress", SPARED, "IP multicast"),
    ):
        mean = results.mean_of(*ring, name)
        at_least(links, merged(results, ring, name), colour, f"{label}: mean {mean:,.1f}")
    links.set_title("link stress")
    links.set_xlabel("copies of events on a link")
    links.set_ylabel("share of links with at least so many (%)")
    for name, colour, label in (
        ("entries", COLOURS[1], "children"),
        ("tables", COLOURS[2], "topics with children"),
    ):
        mean = results.mean_of(*ring, name)
        text = f"{label}: mean {mean:.1f} (literature {RECALLED[name]:g}, recalled)"
        at_least(nodes, merged(results, ring, name), colour, text)
    nodes.set_title("node stress")
    nodes.set_xlabel("of a node, over all topics")
    nodes.set_ylabel("share of nodes with at least so many (%)")
    for axes in (links, nodes):
        axes.set_ylim(None, 400)
        finish(axes, "upper right")
    return figure


def repair(results: Results) -> Figure:
    """What arrives while nodes are gone and trees heal, by second and in all."""
    size = results.size
    figure = make_figure(
        f"Some of {size.repair_nodes:,} nodes fail at once: trees heal by themselves", 14, 5
    )
    by_second, in_all, healed = figure.subplots(1, 3, gridspec_kw={"width_ratios": (5, 3, 3)})
    places = range(len(size.failed_shares))
    names = [f"{share:.0%}" for share in size.failed_shares]
    for share, colour in zip(size.failed_shares, COLOURS, strict=False):
        rows = [each["plain"] for each in results.repairs(share)]
        line = [100 * fmean(values) for values in zip(*rows, strict=True)]
        seconds = [index - BEFORE_SECONDS for index in range(len(line))]
        by_second.plot(seconds, line, color=colour, label=f"{share:.0%} fail")
    by_second.axvline(0, color=STRUCK, lw=0.8)
    by_second.set_xlim(-BEFORE_SECONDS, 25)
    by_second.set_title("plain topics")
    by_second.set_xlabel("second of publication, from the failure")
    by_second.set_ylabel("arrived at live members (%)")
    for kind, colour in (("plain", COLOURS[1]), ("ordered", COLOURS[2])):
        means = [
            100 * fmean(fmean(r[kind]) for r in results.repairs(s)) for s in size.failed_shares
        ]
        in_all.plot(places, means, marker="o", color=colour, label=kind)
        for place, mean in zip(places, means, strict=True):
            in_all.annotate(
                f"{mean:.1f}", (place, mean), (0, -14), textcoords="offset points", ha="center"
            )
    in_all.set_title("of 45 seconds, in all")
    in_all.set_ylabel("arrived (%)")
    in_all.set_ylim(in_all.get_ylim()[0] - 3, 101)
    spread = [seconds_to_heal(results.repairs(share)) for share in size.failed_shares]
    for place, seconds in zip(places, spread, strict=True):
        if seconds:
            healed.plot([place, place], [min(seconds), max(seconds)], color=SPARED, lw=6, zorder=1)
            healed.plot(place, fmean(seconds), "o", color=COLOURS[1], zorder=2)
    healed.plot([], [], "o", color=COLOURS[1], label="mean; grey: least to most")
    healed.set_title("until all arrives again")
    healed.set_ylabel("seconds")
    healed.set_ylim(0, 1.3 * max((max(s) for s in spread if s), default=1) + 1)
    for axes in (in_all, healed):
        axes.set_xticks(places, names)
        axes.set_xlim(-0.6, len(names) - 0.4)
        axes.set_xlabel("nodes that fail")
        finish(axes, "lower left" if axes is in_all else "upper left")
    by_second.axvspan(-BEFORE_SECONDS, 0, color=BAND, alpha=0.4, zorder=0)
    finish(by_second, "lower right")
    return figure


def seconds_to_heal(found: list[dict[str, Any]]) -> list[int]:
    return [each["repaired_after_s"] for each in found if each["repaired_after_s"] is not None]


def merged(results: Results, ring: tuple[int, int], name: str) -> dict[int, int]:
    """A histogram of all runs together."""
    found: dict[int, int] = {}
    for figures in results.trees(*ring):
        for value, count in figures[name]:
            found[value] = found.get(value, 0) + count
    return dict(sorted(found.items()))


def at_least(axes: Axes, found: dict[int, int], colour: str, label: str) -> None:
    """Of each value, the share that has it or more; both axes logarithmic."""
    total = sum(found.values())
    above = list(accumulate(reversed(found.values())))[::-1]
    points = [(value, 100 * n / total) for value, n in zip(found, above, strict=True) if value]
    axes.step(*zip(*points, strict=True), where="pre", color=colour, label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")


def finish(axes: Axes, place: Any) -> None:
    axes.grid(visible=True, color=GRID)
    axes.set_axisbelow(True)
    axes.legend(loc=place, fontsize="small")
