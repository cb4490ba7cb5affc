"""The figures of `gapless experiment durable`. Imports matplotlib: import it late.

The consolidated stream and the host of subscribers are drawn in black, release and what catches up
in red, the host of the pubends in grey; a shaded band is the time in which the host is down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.testing.clock import START
from gapless_lab.experiments.durable.steady import ANONYMOUS, LEAVING, STAYING
from gapless_lab.experiments.exactly_once.figures import BAND, SPARED, STRUCK, make_figure
from gapless_lab.experiments.meter import SECOND
from gapless_lab.experiments.propagation.figures import GRID, finish

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gapless_lab.experiments.durable.crash import Crash
    from gapless_lab.experiments.durable.experiment import Results

STEADY = "#111111"
PERCENT_MAX = 135
"""Of an axis of percent, with room for the legend."""
WAY_COLOURS = {STAYING: STEADY, LEAVING: STRUCK, ANONYMOUS: SPARED}


def peaks(results: Results) -> Figure:
    """Figure 4: peak rate by number of hosts, and what it leaves of the processors."""
    figure = make_figure("Peak rate: every host of subscribers should add as much", 12, 5)
    rates, idle = figure.subplots(1, 2, gridspec_kw={"width_ratios": (3, 2)})
    counts = results.size.host_counts
    for number, (way, colour) in enumerate(WAY_COLOURS.items()):
        places = [place for place, count in enumerate(counts) if (way, count) in results.peaks]
        bars = rates.bar(
            [place + (number - 1) * 0.28 for place in places],
            [results.peaks[way, counts[place]].peak_per_s for place in places],
            width=0.27,
            color=colour,
            label=way,
        )
        rates.bar_label(bars, fmt="{:,.0f}", fontsize="small")
    rates.set_ylabel("events/s to all subscribers, at the peak")
    for name, label, colour in (("p", "pubends", SPARED), ("s1", "subscribers", STEADY)):
        found = [count for count in counts if count]
        idle.plot(
            [counts.index(count) for count in found],
            [100 * (1 - results.peaks[STAYING, count].busy[name]) for count in found],
            marker="o",
            color=colour,
            label=f"host of {label}",
        )
    idle.set_ylabel(f"idle time (%), {results.size.per_host} subscribers a host")
    for axes in (rates, idle):
        axes.set_xticks(range(len(counts)), [str(count or "one broker") for count in counts])
        axes.set_xlabel("hosts of subscribers")
        axes.set_xlim(-0.6, len(counts) - 0.4)
        finish(axes)
    idle.set_ylim(0, PERCENT_MAX)
    return figure


def absences(results: Results) -> Figure:
    """Figures 5 and 6, and what returns ask of the pubends."""
    found = results.absences
    assert found is not None
    title = f"{found.subscribers} subscribers, each away for 5 s in 300: the stream should not care"
    figure = make_figure(title, 13, 8)
    grid = figure.add_gridspec(2, 2, width_ratios=(3, 2))
    took, rates = figure.add_subplot(grid[0, 0]), figure.add_subplot(grid[1, 0])
    begin = START + found.begin * SECOND
    took.plot(
        [(each.returned - begin) / SECOND for each in found.returns],
        [each.caught_up_s for each in found.returns],
        "o",
        color=STRUCK,
        label="one return",
    )
    took.set_ylabel("catch-up (s)")
    took.set_xlabel("time of return (s)")
    for name, colour, of in (
        ("released", STRUCK, lambda row: row.released_ms),
        ("latestDelivered", STEADY, lambda row: row.latest_ms),
    ):
        rows = found.positions.rates(of)
        seconds = [second - found.begin for second, _ in rows]
        rates.plot(seconds, [rate for _, rate in rows], color=colour, label=name, linewidth=1.2)
    rates.set_ylabel("advance (ms of ticks each second)")
    rates.set_xlabel("time (s)")
    fan_in(results, figure.add_subplot(grid[:, 1]))
    for axes in (took, rates):
        axes.set_xlim(0, found.end - found.begin + 10)
        finish(axes)
    return figure


def fan_in(results: Results, axes: Axes) -> None:
    axes.set_title("all return together after 5 s")
    places = range(len(results.fan_in))
    for number, (label, colour, values) in enumerate(
        (
            ("deliveries to make up for", SPARED, [each.wanted for each in results.fan_in]),
            ("sent again by the pubends' host", STEADY, [e.sent_again for e in results.fan_in]),
            ("nacks to it", STRUCK, [each.nacks for each in results.fan_in]),
        )
    ):
        bars = axes.bar(
            [place + (number - 1) * 0.27 for place in places],
            values,
            width=0.26,
            color=colour,
            label=label,
        )
        axes.bar_label(bars, fmt="{:,.0f}", fontsize="small")
    axes.set_xticks(list(places), [str(each.subscribers) for each in results.fan_in])
    axes.set_xlabel("subscribers")
    axes.set_ylabel("events, or nacks")
    finish(axes)


def host_crash(results: Results) -> Figure:
    """Figures 7 and 8: positions, rates, processors."""
    found = results.crash
    assert found is not None
    title = "The host of all subscribers crashes; they return when it has recovered"
    figure = make_figure(title, 11, 11)
    where, rates, busy = figure.subplots(3, 1, sharex=True)
    positions = found.positions.rows
    seconds = [row.second - found.begin for row in positions]
    for label, colour, values in (
        ("latestDelivered", STEADY, [row.latest_ms for row in positions]),
        ("released", STRUCK, [row.released_ms for row in positions]),
    ):
        reached = [value / 1000 - found.begin for value in values]
        where.plot(seconds, reached, color=colour, label=label)
    where.plot(seconds, seconds, color=SPARED, linestyle=":", label="time itself")
    where.set_ylabel("position of pubend 0 (s)")
    middles = [second + 0.5 for second in range(found.end - found.begin)]
    for counts in found.machines:
        rates.plot(middles, counts, color=SPARED, linewidth=0.8)
    average = [count / len(found.machines) for count in found.deliveries]
    rates.plot([], [], color=SPARED, label=f"each of {len(found.machines)} client machines")
    rates.plot(middles, average, color=STEADY, label="average")
    rates.set_ylabel("deliveries/s")
    for name, label, colour in (("s1", "subscribers", STEADY), ("p", "pubends", SPARED)):
        idle = [max(0.0, 100 * (1 - share)) for share in found.busy[name]]
        busy.plot(middles, idle, color=colour, label=f"host of {label}")
    busy.set_ylabel("idle time (%)")
    busy.set_xlabel("time (s)")
    for axes in (where, rates, busy):
        mark(axes, found)
        axes.set_xlim(0, found.end - found.begin)
        finish(axes)
    busy.set_ylim(0, PERCENT_MAX)
    return figure


def mark(axes: Axes, found: Crash) -> None:
    axes.axvspan(found.down_s - found.begin, found.up_s - found.begin, color=BAND, zorder=0)
    for second, label in ((found.recovered_s, "they return"), (found.level_s, "all are level")):
        axes.axvline(second - found.begin, color=STRUCK, linestyle=":", linewidth=1)
        axes.annotate(
            label,
            (second - found.begin, 0.03),
            (4, 0),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            color=STRUCK,
            fontsize="small",
        )


def auto_acknowledge(results: Results) -> Figure:
    """The auto-acknowledge table, and the two ways to log."""
    figure = make_figure(
        "Tokens kept by the broker share commits; the filtered log is small", 12, 5
    )
    rates, sizes = figure.subplots(1, 2, gridspec_kw={"width_ratios": (3, 2)})
    counts = [row.subscribers for row in results.rows]
    for label, colour, values in (
        ("events/s, each acknowledged alone", STEADY, [row.events_per_s for row in results.rows]),
        ("commits/s", STRUCK, [row.commits_per_s for row in results.rows]),
    ):
        rates.plot(counts, values, marker="o", color=colour, label=label)
        for place, value in zip(counts, values, strict=True):
            rates.annotate(
                f"{value:,.0f}", (place, value), (0, 7), textcoords="offset points", ha="center"
            )
    rates.set_xscale("log")
    rates.set_yscale("log")
    rates.set_xticks(counts, map(str, counts))
    rates.minorticks_off()
    rates.set_ylim(10, 20 * max(row.events_per_s for row in results.rows))
    rates.set_xlabel("subscribers")
    rates.grid(visible=True, color=GRID)
    rates.legend(loc="upper left", fontsize="small")
    found = results.logging
    assert found is not None
    ratios = (found.copied_bytes / found.filtered_bytes, found.copied_s / found.filtered_s)
    bars = sizes.bar(("bytes", "processor time"), ratios, width=0.5, color=SPARED)
    sizes.bar_label(bars, fmt="{:.1f} times", fontsize="small")
    sizes.axhline(1, color=STRUCK, label="the filtered log")
    sizes.set_title("an event for each subscriber, over the filtered log", fontsize="medium")
    finish(sizes)
    return figure
