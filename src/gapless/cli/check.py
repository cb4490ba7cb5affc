"""`gapless check`: what is damaged in a data folder, whether its brokers serve or not."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from pathlib import Path  # noqa: TC003 - typer reads it
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gapless.cli.serve import DATA
from gapless.cli.terminal import json_text, say, visible
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.storage.examination import Damage, DamageReport

VOLUME = "volume"
MARK = "volume.json"


def check(
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="A data folder, a broker's folder, or a volume.")
    ] = DATA,
    as_json: Annotated[bool, typer.Option("--json", help="Print what is found as JSON.")] = False,
) -> None:
    """Read everything that brokers have on disk, and report what is damaged.

    \b
    gapless check                       the brokers that keep their data in ./gapless-data
    gapless check gapless-data/serve    one of them
    gapless check --json                for programs

    The report names each damaged range by topic, pubend and ticks, and by file and byte.
    Subscribers that want these events get a gap, and the broker serves everything else; replace the
    disk. The report also says what keeps a broker from starting, and what to do about it.

    The check changes nothing. Brokers may go on serving; what they write later is not checked. The
    exit code is 0 if everything is whole, and 1 if something is damaged.
    """
    from gapless.storage.examination import examine

    found: dict[str, DamageReport] = {}
    for path in volumes(data):
        found[str(path)] = examine(path, progress_of(path, as_json=as_json))
    if as_json:
        say(json_text([as_object(path, each) for path, each in found.items()], indent=2))
    else:
        for name, report in found.items():
            show(name, report)
    if any(report.damages for report in found.values()):
        raise typer.Exit(1)


def volumes(data: Path) -> list[Path]:
    """The volumes of a data folder, of a broker's folder, or a volume itself."""
    for found in ([data], [data / VOLUME], sorted(data.glob(f"*/{VOLUME}"))):
        there = [path for path in found if is_volume(path)]
        if there:
            return there
    raise UsageError(
        f"there is no volume of a broker in {data}",
        "Give the data folder of `gapless serve`, `up` or `broker`, such as gapless-data.",
    )


def is_volume(path: Path) -> bool:
    return (path / MARK).exists() or any(path.glob("*.log"))


def progress_of(path: Path, *, as_json: bool) -> Callable[[int, int], None]:
    """Tells how far it is, on a terminal, at most some times a second."""
    if as_json or not sys.stderr.isatty():
        return lambda done, total: None
    last_s = 0.0

    def tell(done: int, total: int) -> None:
        nonlocal last_s
        now_s = time.monotonic()
        if done >= total:
            sys.stderr.write("\r\x1b[K")
        elif now_s - last_s > 0.2:
            last_s = now_s
            share = 100 * done // max(total, 1)
            sys.stderr.write(f"\r{visible(path)}: {share} % of {total >> 20} MiB")
        sys.stderr.flush()

    return tell


def as_object(path: str, report: DamageReport) -> dict[str, Any]:
    damages = [{**asdict(each), **names_of(each.stream)} for each in report.damages]
    return {**asdict(report), "volume": path, "damages": damages}


def names_of(stream: str) -> dict[str, str]:
    """What a stream of a volume holds, of which topic and pubend."""
    kind, _, name = stream.partition("/")
    if kind == "stage":
        name = name.partition("/")[2]
    holds = {"log": "events", "filtered": "notes", "stage": "staged"}.get(kind, "")
    return {"holds": holds, "topic": name.rpartition("/")[0], "pubend": name}


SAYS = {
    "events": "events are lost; those who want them are told a gap",
    "notes": "it was noted there which named subscription takes what; nothing is lost, all "
    "is asked for anew",
    "staged": "events of a transaction that is not committed; it has to be staged again",
}


def show(path: str, report: DamageReport) -> None:
    what = f"{report.records} records of {report.streams} streams in {report.segments} segments"
    count = len(report.damages)
    say(f"{path}: {what}: {f'{count} DAMAGED' if count else 'all is whole'}")
    for each in report.damages:
        say(f"  {line_of(each)}")


def line_of(damage: Damage) -> str:
    if not damage.stream:
        return f"{damage.problem}. {damage.remedy}"
    names = names_of(damage.stream)
    which = f"topic {names['topic']!r}, pubend {names['pubend']!r}, ticks"
    if not names["holds"]:
        which = f"stream {damage.stream!r}, indices"
    where = f"{which} [{damage.start}, {damage.end}) in {damage.file} at byte {damage.offset}"
    says = SAYS.get(names["holds"], "these records are lost")
    return f"{where}: {says}"
