"""`gapless filter`: try a condition on events before subscribing with it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from gapless.cli.event_file import read_line, utf8_lines
from gapless.cli.terminal import say
from gapless.core.errors import EventError, UsageError

if TYPE_CHECKING:
    from gapless.core.events import Attributes
    from gapless.filters.filter import Filter


def condition(
    text: Annotated[str, typer.Argument(metavar="CONDITION", help="A SQL condition.")],
    events: Annotated[
        typer.FileText | None,
        typer.Argument(
            metavar="FILE",
            encoding="utf-8-sig",
            errors="surrogateescape",
            help="Events as JSON objects, one a line; - for standard input.",
        ),
    ] = None,
    count: Annotated[
        bool, typer.Option("--count", help="Print the number of matches only.")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show how the condition is indexed.")
    ] = False,
) -> None:
    """Check a condition; with FILE, print the events that match it.

    \b
    gapless filter "symbol = 'IBM' AND price > 90"
    gapless filter "price BETWEEN 5 AND 9" events.jsonl
    echo '{"price": 7}' | gapless filter "price > 5" -
    """
    from gapless.filters.filter import Filter

    if count and events is None:
        raise UsageError("--count is for events", "Give a FILE of them, or - for standard input.")
    parsed = Filter.parse(text)
    for note in notes(parsed):
        say(note, err=True)
    if explain:
        show_conjunctions(parsed)
    if events is None:
        say(f"ok: {parsed}" if text.strip() else "ok: matches everything")
        return
    matched = 0
    try:
        for number, line in enumerate(utf8_lines(events), start=1):
            if line.strip() and parsed.matches(attributes_of(line, number)):
                matched += 1
                if not count:
                    say(line.rstrip("\n"))
    except EventError as error:
        raise typer.BadParameter(error.problem) from None
    if count:
        say(matched)


def notes(parsed: Filter) -> list[str]:
    """What is sound, and most likely not what was meant."""
    from gapless.filters.syntax import Attribute, Compare

    if not parsed.conjunctions:
        return ["note: no event can match this condition"]
    return [
        f"note: {each.left.name} and {each.right.name} are both taken for attributes here;"
        " text stands in single quotes"
        for conjunction in parsed.conjunctions
        for each in conjunction.residuals
        if isinstance(each, Compare)
        and isinstance(each.left, Attribute)
        and isinstance(each.right, Attribute)
        and each.sign in ("=", "<>")
    ]


def attributes_of(line: str, number: int) -> Attributes:
    """The attributes on one line; a usage error that names the line if there are none."""
    read = read_line(number, line)
    for name, value in read.items():
        if not isinstance(value, bool | int | float | str | datetime | bytes | None):
            raise typer.BadParameter(
                f"line {number}: attribute {name!r} must be a boolean, number, string, timestamp, "
                "bytes or null"
            )
    return {name: value for name, value in read.items() if value is not None}


def show_conjunctions(parsed: Filter) -> None:
    """One line per conjunction of the normal form, as the matcher sees it."""
    for number, conjunction in enumerate(parsed.conjunctions, start=1):
        say(f"conjunction {number}:")
        for attribute, constraint in conjunction.constraints:
            say(f"  {attribute}: {constraint}")
        for residual in conjunction.residuals:
            say(f"  checked afterwards: {residual}")
