"""How the demo is shown: a live view on a terminal, a line for each happening in a pipe."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from gapless.cli.audit import verdict_lines, verdict_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.table import Table

    from gapless_lab.demo.story import Story

REFRESH_PER_S = 8
TABLES_LINES = 21
TOLD_COUNT = 4
"""Happenings on screen, at least; as many as there is room for."""

AUDIT = "Audit by Spark, of the journals and the lake"
COLOURS = {
    "ready": "green",
    "connected": "green",
    "killed": "bold red",
    "starting": "yellow",
    "down": "dim",
}


class View:
    """Plain lines, to standard error where the result is for a program."""

    def __init__(self, story: Story, *, quiet: bool) -> None:
        self.story = story
        self._quiet = quiet

    def tell(self, happening: str) -> None:
        typer.echo(f"{self._clock()}  {happening}", err=self._quiet)

    def _clock(self) -> str:
        return f"{time.monotonic() - self.story.begin_s:5.1f} s"

    def show_result(self) -> None:
        for name, account in self.story.accounts().items():
            pairs = (f"{key}={count}" for key, count in account._asdict().items())
            typer.echo(f"{name}: {' '.join(pairs)}")
        if self.story.verdicts:
            for line in verdict_lines(self.story.verdicts):
                typer.echo(f"audit: {line}")
        typer.echo(verdict(self.story))


class LiveView(View):
    """The network, the subscribers and what happened, always up to date."""

    def __init__(self, story: Story, console: Console) -> None:
        super().__init__(story, quiet=False)
        self._told: list[str] = []
        self._live: Live
        self._console = console

    def tell(self, happening: str) -> None:
        self._told.append(f"[dim]{self._clock()}[/]  {happening}")
        self._live.refresh()

    @contextmanager
    def shown(self) -> Iterator[View]:
        from rich.live import Live

        with Live(
            get_renderable=self._draw, console=self._console, refresh_per_second=REFRESH_PER_S
        ) as self._live:
            yield self

    def _draw(self) -> RenderableType:
        from rich.console import Group

        return Group(
            brokers_table(self.story),
            desks_table(self.story),
            *self._told[-max(TOLD_COUNT, self._console.height - TABLES_LINES) :],
        )

    def show_result(self) -> None:
        colour = "green" if self.story.is_right else "bold red"
        self._console.print(result_table(self.story))
        if self.story.verdicts:
            self._console.print(verdict_table(self.story.verdicts, AUDIT))
        self._console.print(verdict(self.story), style=colour)


@contextmanager
def make_view(story: Story, *, quiet: bool) -> Iterator[View]:
    from rich.console import Console

    console = Console(highlight=False)
    if quiet or not sys.stdout.isatty():
        yield View(story, quiet=quiet)
    else:
        with LiveView(story, console).shown() as view:
            yield view


def brokers_table(story: Story) -> Table:
    from rich.table import Table

    from gapless_lab.demo.story import ROLES

    table = Table("broker", "what it does", "state")
    table.columns[2].min_width = len("starting")
    for name, role in ROLES.items():
        state = story.states[name]
        table.add_row(name, role, f"[{COLOURS[state]}]{state}")
    table.caption = f"{len(story.feed.trades):,} trades published"
    return table


def desks_table(story: Story) -> Table:
    from rich.table import Table

    from gapless_lab.demo.story import LAKE_BROKER

    table = Table("subscriber", "wants", "at", "state", "received")
    for desk in story.desks:
        state = "[green]connected" if desk.is_here else "[yellow]away"
        if story.is_over:
            state = "done"
        elif desk.is_here and story.states[desk.broker] != "ready":
            state = "[red]cut off"
        table.add_row(desk.name, desk.condition, desk.broker, state, f"{desk.received:,}")
    if (lake := story.lake) is not None:
        state = "done" if story.is_over else f"[{COLOURS[lake.state]}]{lake.state}"
        table.add_row("lake", "everything, with Spark", LAKE_BROKER, state, f"{lake.archived:,}")
    table.columns[3].min_width = len("connected")
    table.columns[4].justify = "right"
    return table


def result_table(story: Story) -> Table:
    from rich.table import Table

    columns = "matched", "delivered", "missing", "duplicate", "out of order", "gaps"
    table = Table("subscriber", *columns, title="What was published, and what each got")
    for name, found in story.accounts().items():
        wrong = found.missing, found.duplicate, found.out_of_order, found.gaps
        shown = [f"[bold red]{count:,}" if count else "[green]0" for count in wrong]
        table.add_row(name, f"{found.matched:,}", f"{found.delivered:,}", *shown)
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def verdict(story: Story) -> str:
    killed = ", ".join(story.killed[:-1]) + f" and {story.killed[-1]}" if story.killed else ""
    if story.is_right:
        return (
            f"Every subscriber got every matching trade, once and in order, though {killed} "
            "were killed with -9."
        )
    unwanted = sum(account.unwanted for account in story.accounts().values())
    also = f" {unwanted:,} deliveries were not what was published and wanted." if unwanted else ""
    return f"A promise is broken: please report this, with --seed {story.seed}.{also}"
