"""Every figure of every contestant: a table for each workload, and one plot of all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.peers.verdict import OURS
from benchmarks.report import RESULTS, Report

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.peers.verdict import Results

SHOWN = {
    "W1-1": ("deliveries/s", "CPU µs/delivery", "broker µs/delivery", "subscriber µs/delivery"),
    "W2": ("published/s", "CPU µs/event", "broker µs/event", "subscriber µs/delivery", "missing"),
    "W3": (
        "deliveries/s",
        "CPU µs/delivery",
        "broker µs/delivery",
        "disk bytes/event",
        "catch-up/s",
        "level after s",
        "missing at the end",
    ),
    "W4": ("confirmed/s, 1", "confirmed/s, 16", "broker µs/event", "disk bytes/event"),
    "W5": ("lost", "doubled", "confirmed", "in doubt", "restart s"),
    "latency": ("receipt ms", "delivery ms"),
}
PLOTTED = {
    "W1-10": "deliveries/s",
    "W1-100": "deliveries/s",
    "W2": "published/s",
    "W3": "deliveries/s",
    "W4": "confirmed/s, 1",
}


def tables(results: Results) -> list[Report]:
    found = []
    for workload in dict.fromkeys(each for each, _ in results.figures):
        names = next(names for start, names in SHOWN.items() if workload.startswith(start))
        table = Report(f"peers-{workload}", workload, ("broker, client", *names, "others' cores"))
        for each, who in results.figures:
            if each == workload:
                values = (results.of(workload, who, name) for name in (*names, "others' cores"))
                table.add(who, *map(_show, values))
        if any(results.limit(workload, name) for name in names):
            table.add("bare", *(_show(results.limit(workload, name)) for name in names), "")
        found.append(table)
    return found


def _show(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.2f}"


def plot(results: Results) -> Path | None:
    """Rates as bars, on a logarithmic scale."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    shown = [each for each in PLOTTED if (each, OURS) in results.figures]
    if not shown:
        return None
    figure, axes = pyplot.subplots(1, len(shown), figsize=(3.4 * len(shown), 4), squeeze=False)
    for axis, workload in zip(axes[0], shown, strict=True):
        name = PLOTTED[workload]
        rates = {
            str(who): value
            for each, who in results.figures
            if each == workload and (value := results.of(workload, who, name))
        }
        bare = results.limit(workload, name)
        if bare is not None:
            rates["bare"] = bare
        colours = {str(OURS): "tab:orange", "bare": "tab:gray"}
        axis.barh(
            list(rates),
            list(rates.values()),
            color=[colours.get(who, "tab:blue") for who in rates],
        )
        axis.set_xscale("log")
        axis.invert_yaxis()
        axis.set_title(f"{workload}: {name}", fontsize=10)
        axis.tick_params(labelsize=8)
    figure.tight_layout()
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / "peers.png"
    figure.savefig(path, dpi=110)
    return path
