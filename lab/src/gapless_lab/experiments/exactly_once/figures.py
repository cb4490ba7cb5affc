"""The figures of `gapless experiment exactly-once`. Imports matplotlib: import it late.

One look per figure: what is behind a fault is drawn in colour, what is not in grey; a shaded band
is the time of the fault. Latency has a logarithmic axis: it is milliseconds, and then seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from gapless_lab.experiments.exactly_once.claims import cpu_us
from gapless_lab.experiments.exactly_once.overhead import PROTOCOLS, ROLES

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes

    from gapless_lab.experiments.exactly_once.experiment import Results
    from gapless_lab.experiments.exactly_once.fault_run import Course
    from gapless_lab.experiments.exactly_once.overhead import Load

STRUCK, SPARED = "#c0392b", "#9aa3ab"
LEVELS = {"hosts → lower": "#e69f00", "lower → upper": "#0072b2", "upper → p": "#111111"}
PROTOCOL_COLOURS = {"exactly once": STRUCK, "best effort": "#555555"}
ROLE_COLOURS = dict(zip(ROLES, ("#111111", "#0072b2", "#e69f00"), strict=True))
BAND = "#f3e3c3"


def stalls(results: Results) -> Figure:
    """Link stall: latency and nacks by time at both places, and nacks by number of hosts."""
    figure = make_figure(
        "Link stall: only red should rise, and nacks should merge on their way up to p", 15
    )
    axes = figure.subplots(2, 3, gridspec_kw={"height_ratios": (3, 2)})
    for column, name in enumerate(("stall to a host", "stall between cells")):
        time_lines(results.courses[name], axes[0][column], axes[1][column])
    gridspec = axes[0][2].get_gridspec()
    axes[0][2].remove()
    axes[1][2].remove()
    fan_in(results, figure.add_subplot(gridspec[:, 2]))
    return figure


def crashes(results: Results) -> Figure:
    """Relay crash and pubend host crash: latency and nacks by time."""
    title = "Crash: red should fall long before a relay is back, and when a pubend host is"
    figure = make_figure(title, 11)
    axes = figure.subplots(2, 2, gridspec_kw={"height_ratios": (3, 2)})
    for column, name in enumerate(("relay crash", "pubend host crash")):
        time_lines(results.courses[name], axes[0][column], axes[1][column])
    return figure


def make_figure(title: str, width: float, height: float = 6.5) -> Figure:
    figure = Figure(figsize=(width, height), dpi=75, layout="constrained")
    figure.suptitle(title, fontweight="bold")
    return figure


def time_lines(course: Course, latency: Axes, nacks: Axes) -> None:
    latency.set_title(f"{course.fault} for {course.end_s - course.begin_s:g} s")
    counts = {True: 0, False: 0}
    lines = sorted(course.time_line().items(), key=lambda item: item[0] in course.behind)
    for stream, line in lines:
        struck = stream in course.behind
        counts[struck] += 1
        latency.plot(
            [published_s for published_s, _ in line],
            [latency_s * 1000 for _, latency_s in line],
            color=STRUCK if struck else SPARED,
            linewidth=1.4 if struck else 0.9,
        )
    latency.set_yscale("log")
    latency.set_ylim(1, 60_000)
    latency.set_ylabel("worst latency (ms)")
    for struck, label in ((True, "behind the fault"), (False, "not behind it")):
        if counts[struck]:
            colour = STRUCK if struck else SPARED
            latency.plot([], [], color=colour, label=f"streams {label}: {counts[struck]}")
    end_s = max(line[-1][0] for _, line in lines)
    heights = dict.fromkeys(range(int(end_s) + 1), 0)
    for level, colour in LEVELS.items():
        seconds = course.nacks_by_level.get(level, {})
        counted = [seconds.get(second, 0) for second in heights]
        bottoms, label = list(heights.values()), f"{level}: {sum(seconds.values())} in all"
        nacks.bar(
            list(heights), counted, 1.0, bottoms, align="edge", color=colour, label=label, zorder=2
        )
        for second, count in zip(heights, counted, strict=True):
            heights[second] += count
    nacks.set_ylabel("nacks per second (stacked)")
    nacks.set_ylim(0, max(4, 1.6 * max(heights.values())))
    nacks.yaxis.set_major_locator(MaxNLocator(integer=True))
    nacks.set_xlabel("time of publication, or of the nack (s)")
    for each in (latency, nacks):
        each.axvspan(course.begin_s, course.end_s, color=BAND, zorder=0)
        each.set_xlim(0, end_s)
        each.legend(loc="upper right", fontsize="small")


def fan_in(results: Results, axes: Axes) -> None:
    axes.set_title("stall between cells: nacks by number of hosts")
    counts = [each.host_count for each in results.fan_in]
    places = range(len(counts))
    rows = (
        ("hosts → lower", [each.from_hosts for each in results.fan_in]),
        ("lower → upper", [each.from_lower for each in results.fan_in]),
        ("upper → p", [each.to_pubend_host for each in results.fan_in]),
    )
    for number, (level, values) in enumerate(rows):
        bars = axes.bar(
            [place + (number - 1) * 0.27 for place in places],
            values,
            width=0.27,
            color=LEVELS[level],
            label=level,
        )
        axes.bar_label(bars)
    axes.set_xticks(list(places), [str(count) for count in counts])
    axes.set_xlabel("subscriber hosts that miss the same range")
    axes.set_ylabel("nack messages in the whole run")
    axes.legend(loc="upper left")


def overhead(results: Results) -> Figure:
    """Overhead: messages between brokers, processor time, and its difference by role."""
    figure = make_figure("What exactly-once costs beyond best effort, per published event", 15, 5)
    messages, times, more = figure.subplots(1, 3)
    by_protocol(results, messages, lambda load: load.link_messages / load.published)
    messages.set_title("messages between brokers")
    messages.set_ylabel("messages per event")
    by_protocol(results, times, cpu_us(*ROLES))
    times.set_title("processor time of all brokers")
    times.set_ylabel("µs per event")
    for role in ROLES:
        ours, theirs = (values(results, protocol, cpu_us(role)) for protocol in PROTOCOLS)
        more.plot(
            results.size.subscription_counts,
            [mine - other for mine, other in zip(ours, theirs, strict=True)],
            marker="o",
            color=ROLE_COLOURS[role],
            label=role,
        )
    more.set_title("processor time beyond best effort: flat is constant")
    more.set_ylabel("µs more per event")
    for axes in (messages, times, more):
        axes.set_xscale("log")
        axes.set_xticks(
            results.size.subscription_counts, map(str, results.size.subscription_counts)
        )
        axes.minorticks_off()
        axes.set_ylim(0, 1.3 * axes.get_ylim()[1])
        axes.set_xlabel("subscriptions")
        axes.grid(visible=True, color="#e5e5e5")
        axes.legend(loc="upper left")
    return figure


def by_protocol(results: Results, axes: Axes, of: Callable[[Load], float]) -> None:
    for protocol in PROTOCOLS:
        axes.plot(
            results.size.subscription_counts,
            values(results, protocol, of),
            marker="o",
            color=PROTOCOL_COLOURS[protocol],
            label=protocol,
        )


def values(results: Results, protocol: str, of: Callable[[Load], float]) -> list[float]:
    return [of(results.loads[protocol, count]) for count in results.size.subscription_counts]
