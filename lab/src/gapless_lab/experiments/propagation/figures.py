"""The figures of `gapless experiment propagation`. Imports matplotlib: import it late.

Propagation is drawn in red, flooding in grey; where roles share axes, a role has its mark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.ticker import MaxNLocator

from gapless_lab.experiments.exactly_once.figures import BAND, SPARED, STRUCK, make_figure
from gapless_lab.experiments.propagation.failure import CRASHES_S, END_S, LATE, LATE_S
from gapless_lab.experiments.propagation.load import PUBLISHERS, SUBSCRIBERS
from gapless_lab.experiments.propagation.setting import FLOODING, PROPAGATION, SCHEMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gapless_lab.experiments.propagation.experiment import Results
    from gapless_lab.experiments.propagation.failure import TimeLine

COLOURS = {PROPAGATION: STRUCK, FLOODING: "#555555"}
KIND_COLOURS = ("#111111", "#0072b2", "#e69f00", "#009e73")
GRID = "#e5e5e5"


def load(results: Results) -> Figure:
    """Figure 4: share of a processor by publishers, at the brokers of both kinds."""
    figure = make_figure(
        f"Load with {results.size.publisher_counts[0]:,} subscriptions to one publisher each: "
        "propagation should stay flat at sb and rise slowly at pb",
        12,
        5,
    )
    places = figure.subplots(1, 2)
    rows = (((SUBSCRIBERS,), "sb: subscribers"), (PUBLISHERS, "pb1 to pb4: publishers, averaged"))
    counts = results.size.publisher_counts
    for axes, (machines, title) in zip(places, rows, strict=True):
        for scheme in SCHEMES:
            measured = [results.points[scheme, count].measured(machines) for count in counts]
            axes.plot(
                counts,
                results.loads(scheme, machines),
                marker="o",
                color=COLOURS[scheme],
                label=f"{scheme}: cost model",
            )
            axes.plot(
                counts,
                measured,
                marker="x",
                linestyle=":",
                color=COLOURS[scheme],
                label=f"{scheme}: played nodes, timed",
            )
        axes.set_title(title)
        axes.set_xlabel("publishers, 2 events/s each")
        axes.set_ylabel("share of one processor")
        axes.set_xlim(0, counts[-1] * 1.05)
        finish(axes)
    return figure


def latency(results: Results) -> Figure:
    """Figure 5: medians by hops, under churn."""
    figure = make_figure("Latency while subscriptions come and go: a covered start is flat", 8, 5)
    axes = figure.subplots()
    names = {
        "global_start": "start that must go to pb",
        "delivery": "delivery",
        "local_start": "start covered at sb",
    }
    hops = [each.hops for each in results.latencies]
    for (name, label), colour in zip(names.items(), KIND_COLOURS, strict=False):
        values = [each.medians_ms()[name] for each in results.latencies]
        axes.plot(hops, values, marker="o", color=colour, label=label)
        for place, value in zip(hops, values, strict=True):
            axes.annotate(
                f"{value:.1f}", (place, value), (0, 6), textcoords="offset points", ha="center"
            )
    axes.set_xticks(hops)
    axes.set_xlabel("hops between pb and sb")
    axes.set_ylabel("median (ms)")
    finish(axes)
    return figure


def vectors(results: Results) -> Figure:
    """Figure 6: bytes and processor time for each event, by the length of vectors."""
    figure = make_figure("Longer vectors, every event wanted everywhere: flat is free", 14, 5)
    volume, *others = figure.subplots(1, 4)
    counts = results.size.leaf_counts
    for scheme in SCHEMES:
        found = [results.vectors[scheme, count] for count in counts]
        volume.plot(
            counts, [each.bytes for each in found], marker="o", color=COLOURS[scheme], label=scheme
        )
        for axes, role in zip(others, found[0].cpu_us, strict=True):
            took = [each.cpu_us[role] for each in found]
            axes.plot(counts, took, marker="o", color=COLOURS[scheme], label=scheme)
            axes.set_title(f"processor time of {role}")
            axes.set_ylabel("µs an event")
    volume.set_title("from pb to ib")
    volume.set_ylabel("bytes an event")
    for axes in (volume, *others):
        axes.set_xscale("log")
        axes.set_xticks(counts, map(str, counts))
        axes.minorticks_off()
        axes.set_xlabel("brokers with subscribers")
        finish(axes)
    return figure


def failure(results: Results) -> Figure:
    """Figure 7: deliveries, what relays carry, and what is filtered or let pass, by second."""
    line = results.time_line
    assert line is not None
    figure = make_figure("Three relays, two of which crash and come back: no client notices", 11, 9)
    rates, relays, passing = figure.subplots(3, 1, sharex=True)
    seconds = [second + 0.5 for second in range(int(END_S))]
    first, *_ = (counts for name, counts in line.delivered.items() if name != LATE)
    rates.plot(seconds, first, color=KIND_COLOURS[0], label="group 1 (2 and 3 are alike)")
    rates.plot(seconds, line.delivered[LATE], color=STRUCK, label="group 4: new subscriptions")
    rates.set_ylabel("deliveries/s")
    for (name, counts), colour in zip(line.carried.items(), KIND_COLOURS, strict=False):
        relays.plot(seconds, counts, color=colour, label=name)
    relays.set_ylabel("events/s taken in")
    passing.bar(seconds, line.filtered, 1.0, color=SPARED, label="filtered, by pb and relays")
    passing.bar(seconds, line.flooded, 1.0, color=STRUCK, label="let pass: too little known")
    passing.set_ylabel("events/s")
    passing.set_xlabel("time (s)")
    for axes in (rates, relays, passing):
        mark_faults(axes)
        axes.set_xlim(0, END_S)
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        finish(axes)
    name_faults(rates, line)
    return figure


def mark_faults(axes: Axes) -> None:
    for begin_s, end_s in CRASHES_S.values():
        axes.axvspan(begin_s, end_s, color=BAND, alpha=0.6, zorder=0)
    axes.axvline(LATE_S, color=STRUCK, linestyle=":", zorder=1)


def name_faults(axes: Axes, line: TimeLine) -> None:
    top = max(max(counts) for counts in line.delivered.values())
    axes.set_ylim(0, 2 * top)
    for row, (relay, (begin_s, end_s)) in enumerate(CRASHES_S.items()):
        height = (1.15 + 0.2 * row) * top
        axes.annotate("", (begin_s, height), (end_s, height), arrowprops={"arrowstyle": "<->"})
        axes.text(begin_s + 0.3, height + 0.03 * top, f"{relay} is down", fontsize="small")


def finish(axes: Axes) -> None:
    axes.set_ylim(0, 1.4 * axes.get_ylim()[1])
    axes.grid(visible=True, color=GRID)
    axes.set_axisbelow(True)
    axes.legend(loc="upper left", fontsize="small")
