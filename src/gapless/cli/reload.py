"""`gapless reload` and `gapless drain`: brokers come and go while the network runs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gapless.cli.status import ask
from gapless.cli.terminal import counted, json_text, say, visible
from gapless.cli.where import AdminPorts, DataOrNone, UrlOrNone, places
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

BACK_S = 30.0
"""How long a broker may take to be back with the new files."""

LOOK_S = 0.2
TELL_S = 5.0


def reload(
    url: UrlOrNone = None,
    data: DataOrNone = None,
    admin: AdminPorts = None,
    look: Annotated[
        bool, typer.Option("--look", help="Only say what would change, and what is refused.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what each broker said.")] = False,
) -> None:
    """Let running brokers read their network file, settings and certificates anew.

    \b
    gapless reload --look          what would change
    gapless reload                 the brokers that keep their data here
    gapless reload --url a,b,c     brokers elsewhere

    Change the network file first, at every broker. First all brokers compare it with what they
    have; if one of them refuses something, by name, none applies anything. Then each broker begins
    anew with it, in its process: clients connect again by themselves. SIGHUP does the same for one
    broker, or for all of `gapless up`. The exit code is 1 if something was refused.
    """
    found = answering(admin, data, url)
    looked = {name: command(at, name, "reload?look=1") for name, at in found.items()}
    is_refused = any(each["refused"] for each in looked.values())
    for name, answer in looked.items() if not as_json else ():
        for line in answer["differences"]:
            say(f"{visible(name)}: {visible(line)}")
        for line in answer["refused"]:
            say(f"{visible(name)}: refused: {visible(line)}")
        if not answer["differences"] and not answer["refused"]:
            say(f"{visible(name)}: network and settings are what they were")
    if as_json:
        say(json_text(looked, indent=2))
    if is_refused:
        if not look:
            say("gapless: nothing was applied", err=True)
        raise typer.Exit(1)
    if look:
        return
    for name, at in found.items():
        command(at, name, "reload")
    wait_until_back({name: at for name, at in found.items() if looked[name]["differences"]}, looked)


def drain(
    name: Annotated[str, typer.Argument(help="The broker that is to be removed.")],
    url: UrlOrNone = None,
    data: DataOrNone = None,
    admin: AdminPorts = None,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="Give up waiting after so long.")
    ] = 600.0,
) -> None:
    """Give all named subscriptions of a broker to other brokers, so that it can be removed.

    \b
    gapless drain s2

    The broker sends new subscribers elsewhere and serves the others until they have moved; nothing
    is lost or delivered twice. Groups first finish what their members have in hand. At the end the
    command says which pubends the broker still hosts: `gapless adopt` gives them to another broker
    once this one is stopped. A broker that is restarted is no longer drained: drain it again.
    """
    found = answering(admin, data, url)
    if name not in found:
        raise UsageError(f"there is no broker {name!r} here", f"There are: {', '.join(found)}.")
    end_s, told_s = time.monotonic() + timeout, 0.0
    while True:
        answer = command(found[name], name, "drain")
        if answer["problem"]:
            raise UsageError(f"{name!r} cannot be drained: {answer['problem']}", "Add a broker.")
        remaining = answer["remaining"]
        if answer["finished"]:
            break
        if remaining and time.monotonic() - told_s > TELL_S:
            told_s = time.monotonic()
            first = next(iter(remaining))
            shown = f"{visible(first)}: {remaining[first]}"
            left = counted(len(remaining), "named subscription")
            say(f"still at {visible(name)}: {left} ({shown})")
        if time.monotonic() > end_s:
            raise UsageError(f"{name!r} still has {len(remaining)} subscriptions", "Try again.")
        time.sleep(LOOK_S)
    say(f"{visible(name)} has no named subscription any more")
    if answer["pubends"]:
        say(f"it hosts {', '.join(map(visible, answer['pubends']))}: stop it, then `gapless adopt`")
    else:
        say("stop it, take it out of the network file, and `gapless reload` the others")


def answering(admin: list[str] | None, data: Path | None, url: str | None) -> dict[str, str]:
    """By broker: the admin ports of those that answer; a line for each other."""
    found: dict[str, str] = {}
    for place, address in places(admin, data, url).items():
        figures = ask(address) if address else None
        if figures is None or address is None:
            say(f"gapless: {visible(place)} does not answer", err=True)
        else:
            found[str(figures["broker"])] = address
    if not found:
        raise typer.Exit(1)
    return found


def command(address: str, name: str, what: str) -> dict[str, Any]:
    answer = ask(address, what, is_command=True)
    if not isinstance(answer, dict):
        raise UsageError(f"{name!r} does not understand `{what}`", "Is it of an earlier version?")
    return answer


def wait_until_back(found: dict[str, str], looked: dict[str, dict[str, Any]]) -> None:
    """Until each broker is ready again, with a line for each."""
    end_s = time.monotonic() + BACK_S
    waiting = dict(found)
    while waiting:
        for name, address in list(waiting.items()):
            figures = ask(address)
            if figures is None and f"broker {name!r} goes" in looked[name]["differences"]:
                del waiting[name]
                say(f"{visible(name)} has ended: it is not in the new file")
            elif isinstance(figures, dict) and figures["ready"] and figures["uptime_s"] < BACK_S:
                del waiting[name]
                problems = figures["links"].get("problems", {})
                shown = "".join(f"; {visible(each)}" for each in problems.values())
                say(f"{visible(name)} is ready with the new files{shown}")
        if time.monotonic() > end_s:
            raise UsageError(f"{', '.join(waiting)}: not back yet", "See the log.")
        time.sleep(LOOK_S)
