"""Terminal: how commands print text that others chose: names, conditions, attributes, errors.

Theory of operation
    Whoever publishes or subscribes chooses names, and somebody else's terminal shows them. A
    control character there could move the cursor, rename the window or hide what stands beside it;
    square brackets are markup to Rich, which makes links of it, or fails. So characters that cannot
    be seen are shown as JSON has them, such as \\u001b, and cells of tables are text, not markup.
    JSON stays JSON, with the same meaning.

Commands print with `say` and make tables with `make_table`, and in no other way.
"""

from __future__ import annotations

import json
import shutil
import sys
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.table import Table


BOUNDS = {"exact": "", "at least": "≥ ", "at most": "≤ ", "about": "≈ "}
"""How a figure that is not exact is marked."""


def say(text: object = "", *, err: bool = False) -> None:
    """A line, or several, to standard output or standard error."""
    typer.echo(visible_lines(text), err=err)


def fail(problem: object) -> None:
    """Why a command has failed."""
    say(f"gapless: {problem}", err=True)


def visible(text: object) -> str:
    """On one line, with nothing in it that a terminal would obey."""
    text = str(text)
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each == "\t" else _escaped(each) for each in text)


def visible_lines(text: object) -> str:
    """The same for text whose line breaks are ours."""
    return "\n".join(map(visible, str(text).split("\n")))


def _escaped(character: str) -> str:
    return "\\u007f" if character == "\x7f" else json.dumps(character)[1:-1]


def json_text(value: object, indent: int | None = None) -> str:
    """A value as JSON, with its characters as they are."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def counted(count: int, what: str) -> str:
    """`1 event`, `2,000 events`."""
    return (
        f"{count:,} {what}" if count == 1 else f"{count:,} {what}{'es' if what[-1] == 'h' else 's'}"
    )


def pairs(row: dict[str, Any]) -> str:
    """`key=value  key=value`, for a pipe."""
    return "  ".join(f"{visible(key)}={visible(value)}" for key, value in row.items())


def make_table(*headings: str, rows: Iterable[Iterable[object]] = (), **options: Any) -> Table:
    """A table whose cells are shown as they are; a cell with a colour is a `Text` already."""
    from rich.table import Table

    made = Table(*headings, **options)
    for row in rows:
        add_row(made, row)
    return made


def add_row(made: Table, cells: Iterable[object]) -> None:
    from rich.text import Text

    made.add_row(*(each if isinstance(each, Text) else Text(visible(each)) for each in cells))


def show_table(made: Table) -> None:
    from rich.console import Console

    Console().print(made)


def is_terminal() -> bool:
    from rich.console import Console

    return Console().is_terminal


def screen_width() -> int | None:
    """How many characters a line of the screen has; None where output goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def show_size(size: int | None, accuracy: str) -> str:
    if size is None:
        return "?"
    shown = float(size)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if shown < 1_000 or unit == "TB":
            break
        shown /= 1_000
    text = f"{shown:.0f} {unit}" if unit == "B" else f"{shown:.1f} {unit}"
    return f"{BOUNDS[accuracy] if size else ''}{text}"


def show_span(seconds: float | None) -> str:
    """A time in the unit that fits; None: there is none."""
    if seconds is None:
        return "-"
    for name, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {name}"
    return f"{seconds:.1f} s"
