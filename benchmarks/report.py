"""One table of figures: printed, and kept in `benchmarks/results/` with the command that made it.

Machines are shared and noisy, so a figure is a ratio of two things measured in the same run; the
absolute columns only help to read it.
"""

from __future__ import annotations

import platform
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable

RESULTS = Path(__file__).parent / "results"


@dataclass
class Report:
    """A titled table that can be printed and kept."""

    name: str
    title: str
    columns: tuple[str, ...]
    notes: list[str] = field(default_factory=list)
    rows: list[tuple[str, ...]] = field(default_factory=list)

    def add(self, *cells: object) -> None:
        assert len(cells) == len(self.columns), (cells, self.columns)
        self.rows.append(tuple(map(str, cells)))

    def show(self) -> None:
        table = Table(*self.columns, title=self.title)
        for row in self.rows:
            table.add_row(*row)
        console = Console()
        console.print(table)
        for note in self.notes:
            console.print(note, style="dim")

    def keep(self, command: str) -> None:
        """Write the table as Markdown, with the command and the kind of machine."""
        RESULTS.mkdir(exist_ok=True)
        lines = [
            f"# {self.title}",
            "",
            f"`{command}` on Python {platform.python_version()}, {platform.machine()}. "
            "Machines differ and are noisy: read the ratios.",
            "",
            "| " + " | ".join(self.columns) + " |",
            "|" + "---|" * len(self.columns),
            *("| " + " | ".join(row) + " |" for row in self.rows),
            "",
            *(f"- {note}" for note in self.notes),
        ]
        text = "\n".join(lines).rstrip() + "\n"
        (RESULTS / f"{self.name}.md").write_text(text, encoding="utf-8")


def cpu_seconds(work: Callable[[], object], *, at_least: float = 0.2, repeats: int = 3) -> float:
    """CPU seconds of one call of `work`: the best of `repeats`, each long enough to be timed."""
    count = 1
    while True:
        begin = time.process_time()
        for _ in range(count):
            work()
        spent = time.process_time() - begin
        if spent >= at_least / 4:
            break
        count *= 4
    best = spent / count
    count = max(1, round(at_least / best))
    for _ in range(repeats):
        begin = time.process_time()
        for _ in range(count):
            work()
        best = min(best, (time.process_time() - begin) / count)
    return best


def rate(per_second: float) -> str:
    """A rate for people: 1.5 M/s, 98 k/s, 12 /s."""
    for size, unit in ((1e6, "M/s"), (1e3, "k/s")):
        if per_second >= size:
            return f"{per_second / size:.3g} {unit}"
    return f"{per_second:.3g} /s"
