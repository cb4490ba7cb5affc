"""`gapless backup`, `restore` and `adopt`: a broker's data in a file, in a folder, elsewhere."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path  # noqa: TC003 - typer reads it
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gapless.cli.reload import answering
from gapless.cli.serve import DATA
from gapless.cli.status import open_answer
from gapless.cli.terminal import say, show_size, visible
from gapless.cli.where import AdminPorts, DataOrNone, UrlOrNone  # noqa: TC001 - typer reads them
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

TELL_S = 1.0
MIB = 1 << 20


def backup(
    name: Annotated[str, typer.Argument(help="The broker.")],
    file: Annotated[Path, typer.Argument(help="The file to make; it must not exist.")],
    url: UrlOrNone = None,
    data: DataOrNone = None,
    admin: AdminPorts = None,
    rate: Annotated[
        float, typer.Option(metavar="MIB", help="At most so many MiB a second.")
    ] = 50.0,
) -> None:
    """Copy everything durable of a running broker into one file.

    \b
    gapless backup serve serve.backup
    gapless backup s1 s1.backup --url 10.0.0.7 --rate 10

    The file has the state of one instant: events, subscriptions, positions of publishers. The
    broker serves meanwhile. Whoever has the file can read the events: keep it like the data.
    `gapless restore` makes a data folder of it.
    """
    if file.exists():
        raise UsageError(f"{file} exists", "Give another name, or remove it.")
    if rate <= 0:
        raise UsageError(f"--rate {rate:g} is not above zero", "Give MiB a second, such as 50.")
    found = answering(admin, data, url)
    if name not in found:
        raise UsageError(f"there is no broker {name!r} here", f"There are: {', '.join(found)}.")
    part = file.with_name(f"{file.name}.part")
    size = fetch(found[name], part, rate * MIB)
    from gapless.storage.backup import check_backup

    check_backup(part)
    part.rename(file)
    say(f"{file} has the broker {visible(name)}: {show_size(size, 'exact')}")


def fetch(address: str, part: Path, rate: float) -> int:
    """Write all pieces to the file, no faster than told; how many bytes."""
    tell, number, size, began_s = progress(), 0, 0, time.monotonic()
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
        while True:
            with open_answer(address, f"backup?number={number}") as answer:
                number, data = int(answer.headers["X-Gapless-Backup"]), answer.read()
            if not data:
                break
            out.write(data)
            size += len(data)
            tell(size)
            time.sleep(max(0.0, began_s + size / rate - time.monotonic()))
        out.flush()
        os.fsync(out.fileno())
    return size


def restore(
    file: Annotated[Path, typer.Argument(help="What `gapless backup` made.")],
    data: Annotated[
        Path, typer.Option(metavar="FOLDER", help="The data folder to restore it to.")
    ] = DATA,
    name: Annotated[
        str | None, typer.Option(help="The broker's name, if it is to be another.")
    ] = None,
) -> None:
    """Make a broker's data folder of a backup, in FOLDER/NAME, and check it.

    \b
    gapless restore serve.backup --data /var/lib/gapless

    The broker that starts there knows that its folder is a copy. Whatever came after the backup is
    lost, and everyone who wants it is told a gap; docs/operations/backup.md says who is told what.
    """
    from gapless.storage.backup import check_backup
    from gapless.storage.backup import restore as write
    from gapless.storage.disk import DiskVolume
    from gapless.storage.examination import examine

    try:
        head = check_backup(file)
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}", "Give a backup.") from None
    folder = data / (name or str(head["broker"]))
    if (folder / "volume").exists():
        raise UsageError(f"{folder} has data already", "Give another folder with --data.")
    folder.mkdir(parents=True, exist_ok=True)
    volume = DiskVolume(folder / "volume")
    try:
        write(file, volume, progress())
    finally:
        volume.close()
    report = examine(folder / "volume", lambda *_: None)
    if report.damages:
        raise UsageError(f"{folder} is damaged as it was written", "Use another disk.")
    made = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(head["time"] / 1e6))
    say(f"{folder} has the broker {visible(str(head['broker']))} as it was on {made}")
    say("start it as before; what came later is told as a gap to everyone who wants it")


def adopt(
    source: Annotated[Path, typer.Argument(help="The folder of the broker that is removed.")],
    target: Annotated[Path, typer.Argument(help="The folder of the broker that takes over.")],
) -> None:
    """Give the pubends of a stopped broker to another one, with their events and publishers.

    \b
    gapless drain s2                        first; then stop s2 and e1
    gapless adopt /data/s2 /data/e1
    moved = { s2 = "e1" }                   in [network] of the file, and leave s2 out; start e1
    gapless reload                          the others

    Both brokers are stopped. Publishers and subscribers go on without a loss or a repeat once the
    brokers run with the new file. The old folder is not changed: never start it again.
    """
    from gapless.broker.adoption import adopt as take
    from gapless.broker.adoption import hosted
    from gapless.storage.disk import DiskVolume

    for each in (source, target):
        if not (each / "volume").exists():
            raise UsageError(f"{each} is no folder of a broker", "Give DATA/NAME of a broker.")
    old = DiskVolume(source / "volume")
    try:
        new = DiskVolume(target / "volume")
        try:
            pubends = hosted(old)
            for pubend in pubends:
                say(f"{visible(pubend)}: {take(old, new, pubend):,} events")
        finally:
            new.close()
    finally:
        old.close()
    if not pubends:
        say(f"{source} hosts no pubend: there is nothing to adopt")


def progress() -> Callable[[int], None]:
    """A line that stays up to date, on a terminal."""
    state: dict[str, Any] = {"told_s": 0.0}

    def tell(size: int) -> None:
        if sys.stderr.isatty() and time.monotonic() - state["told_s"] > TELL_S:
            state["told_s"] = time.monotonic()
            sys.stderr.write(f"\r{show_size(size, 'exact')} ")
            sys.stderr.flush()

    return tell
