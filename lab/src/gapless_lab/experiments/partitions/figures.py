"""The figures of `gapless experiment partitions`. Imports matplotlib: import it late.

A colour is a number of failures tolerated: light for few, dark for many.
"""

from __future__ import annotations

from itertools import accumulate
from statistics import mean
from typing import TYPE_CHECKING

from gapless_lab.experiments.exactly_once.figures import STRUCK, make_figure
from gapless_lab.experiments.partitions.claims import DELIVERED_MIN, FEW_SESSIONS
from gapless_lab.experiments.partitions.experiment import (
    ACTIVE_FAILED,
    FANOUTS,
    GRAPHS_A_RUN,
    TOLERATED,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gapless_lab.experiments.partitions.experiment import Results

COLOURS = dict(zip(TOLERATED, ("#c0392b", "#e69f00", "#0072b2", "#111111"), strict=True))
FAILED_COLOURS = dict(zip(ACTIVE_FAILED, ("#0072b2", "#111111"), strict=True))
GRID = "#e5e5e5"


def connectivity(results: Results) -> Figure:
    """Figure 9: pairs cut off, by how many failed."""
    size = results.size
    figure = make_figure(
        f"Pairs of live brokers cut off, {size.brokers:,} brokers: fewer, the more is tolerated",
        12,
        5,
    )
    places = figure.subplots(1, 2, sharey=True)
    for axes, fanout in zip(places, FANOUTS, strict=True):
        for tolerated in TOLERATED:
            shares = [results.disconnected(fanout, tolerated, n) for n in size.failed_counts]
            axes.plot(
                size.failed_counts,
                [100 * share for share in shares],
                marker="o",
                color=COLOURS[tolerated],
                label=f"δ = {tolerated}",
            )
        axes.set_title(f"fanout {fanout}")
        axes.set_xlabel(f"failed brokers (means of {GRAPHS_A_RUN * size.runs} draws)")
        axes.set_xlim(0, None)
        axes.set_ylim(0, 100)
        finish(axes)
    places[0].set_ylabel("pairs that cannot reach each other (%)")
    return figure


def delivery(results: Results) -> Figure:
    """Figure 10: what is delivered, by how many failed; bars from the worst run to the best."""
    networks = results.networks or [results.size.deliveries[0]]
    title = "Delivered between live brokers while others are away"
    figure = make_figure(title, 7 * len(networks) + 1, 5.5)
    for axes, network in zip(
        figure.subplots(1, len(networks), squeeze=False)[0], networks, strict=True
    ):
        _draw_delivery(axes, results, *network)
    return figure


def _draw_delivery(
    axes: Axes, results: Results, brokers: int, failed_counts: tuple[int, ...]
) -> None:
    draws = 0
    for tolerated in TOLERATED:
        found = [[100 * s for s in results.delivered(brokers, tolerated, n)] for n in failed_counts]
        means = [mean(shares) for shares in found]
        below = [middle - min(shares) for middle, shares in zip(means, found, strict=True)]
        above = [max(shares) - middle for middle, shares in zip(means, found, strict=True)]
        draws = min(map(len, found))
        axes.errorbar(
            failed_counts,
            means,
            (below, above),
            marker="o",
            capsize=3,
            color=COLOURS[tolerated],
            label=f"δ = {tolerated}",
        )
    axes.axhline(
        100 * DELIVERED_MIN, color=STRUCK, linewidth=0.8, label="the paper's headline, δ = 3: 97 %"
    )
    axes.set_title(f"{brokers} brokers")
    axes.set_xticks(failed_counts)
    axes.set_ylim(0, 105)
    axes.set_xlabel(f"failed brokers (means of {draws} draws; bars: worst and best)")
    axes.set_ylabel("delivered (%)")
    finish(axes)


def neighbourhoods(results: Results) -> Figure:
    """Figure 11: which share of brokers knows at most so many."""
    brokers = results.size.brokers
    figure = make_figure(f"What a broker has to know, {brokers:,} brokers", 12, 5)
    for axes, fanout in zip(figure.subplots(1, 2, sharey=True), FANOUTS, strict=True):
        for tolerated in TOLERATED:
            counts = results.known(fanout, tolerated)
            shares = [(index + 1) / len(counts) for index in range(len(counts))]
            label = f"δ = {tolerated}: at most {counts[-1]:,}"
            cumulative(axes, counts, shares, COLOURS[tolerated], label)
        axes.set_xscale("log")
        axes.set_title(f"fanout {fanout}")
        axes.set_xlabel("brokers within δ+1 steps")
        axes.set_ylabel("share of brokers that know at most so many (%)")
        axes.label_outer()
        finish(axes)
    return figure


def sessions(results: Results) -> Figure:
    """Figure 12: which share of brokers has at most so many active sessions."""
    figure = make_figure(
        f"Active sessions with δ = 3, {results.size.brokers:,} brokers: few for most", 12, 5
    )
    for axes, fanout in zip(figure.subplots(1, 2, sharey=True), FANOUTS, strict=True):
        for failed, colour in FAILED_COLOURS.items():
            shares = list(accumulate(results.active(fanout, failed)))
            label = f"{failed} failed: at most {len(shares) - 1}"
            cumulative(axes, range(len(shares)), shares, colour, label)
        axes.axvline(FEW_SESSIONS, color=STRUCK, linestyle=":", label=f"{FEW_SESSIONS} sessions")
        axes.set_title(f"fanout {fanout}")
        axes.set_xlim(0, None)
        axes.set_xlabel(f"active sessions ({results.size.runs} runs together)")
        axes.set_ylabel("share of brokers with at most so many (%)")
        axes.label_outer()
        finish(axes)
    return figure


def cumulative(
    axes: Axes, values: Sequence[int], shares: Sequence[float], colour: str, label: str
) -> None:
    axes.step(
        values, [100 * share for share in shares], where="post", color=colour, label=label, lw=1.6
    )
    axes.set_ylim(0, 103)


def finish(axes: Axes) -> None:
    axes.grid(visible=True, color=GRID)
    axes.set_axisbelow(True)
    axes.legend(loc="best", fontsize="small")
