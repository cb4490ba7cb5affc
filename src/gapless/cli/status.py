"""`gapless status`: what the brokers of a data folder say about themselves."""

from __future__ import annotations

import json
import time
from pathlib import Path  # noqa: TC003 - typer reads it
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from gapless.cli.connection import check_unused, credentials
from gapless.cli.serve import DATA
from gapless.cli.terminal import add_row, json_text, make_table, pairs, say, show_size, visible
from gapless.cli.where import AdminPorts, DataOrNone, UrlOrNone, places, told_in
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from http.client import HTTPResponse

    from rich.console import Console, Group, RenderableType
    from rich.table import Table

Found = dict[str, Any]
"""By broker: its figures, None where nobody answers, or a word for why there are none."""

ANSWER_S = 5.0
WATCH_S = 1.0
COLUMNS = (
    "broker", "state", "address", "clients", "subscriptions", "delivered", "neighbours", "sync",
    "disk",
)  # fmt: skip
HEADINGS = {"subscriptions": "subs", "neighbours": "links", "unreachable": "cut off"}
"""Shorter ones, for a terminal of 80 columns."""
STORE_COLUMNS = ("term", "standbys", "store")
"""Of brokers with a store: under which term they serve, what stands by, how many commits behind."""
RATE_COLUMNS = ("in", "out")
"""While it is watched: events a second that became durable, and that were delivered."""
TREE_COLUMNS = ("near", "sessions", "unreachable")
"""Of brokers with reliable topics: how many they know nearby, whom they send to, whom they miss."""
RING_COLUMNS = ("ring", "leaves", "table", "trees")
"""Of brokers with multicast topics: how far they are in the ring, how many they know next to them
and in their routing table, and their trees: of how many they are root, forwarder, or leaf."""


def status(
    url: UrlOrNone = None,
    data: DataOrNone = None,
    admin: AdminPorts = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all figures as JSON.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh every second.")] = False,
) -> None:
    """Show brokers: their connections, their deliveries, their disks.

    \b
    gapless status                          the brokers that keep their data here
    gapless status --url 10.0.0.7           one elsewhere
    gapless status --watch                  with rates, topics and the subscriptions that lag
    gapless status --watch --json           an object a second, for a program

    With a store it also shows the term, and each standby with the number of commits that it lacks.
    With reliable topics: how many brokers a broker knows nearby, to which of them it sends, and
    which it cannot reach. With multicast topics: its leaf set, its routing table, and its trees as
    root/forwarder/leaf.

    Brokers with security answer principals that may administer: give --ca and --access-token. The
    exit code is 1 if no broker answers.
    """
    from rich.console import Console

    from gapless.cli.watch import Watch

    console = Console()
    seen = Watch(lambda what: ask_all(admin, data, url, what))
    if watch and console.is_terminal and not as_json:
        watch_live(console, lambda: whole_table(seen.look()))
    while True:
        found = seen.look() if watch else ask_all(admin, data, url)
        if as_json:
            say(json_text(found, indent=None if watch else 2))
        elif console.is_terminal:
            console.print(brokers_table(found))
        else:
            for row in rows(found):
                say(pairs(row))
        if not watch and not any(isinstance(each, dict) for each in found.values()):
            if not any(found.values()):
                say("Start a broker with `gapless serve`, a network with `gapless up`.", err=True)
            raise typer.Exit(1)
        if not watch:
            return
        time.sleep(WATCH_S)


def whole_table(found: Found) -> Group:
    """Brokers, topics and the subscriptions that lag, for `--watch`."""
    from rich.console import Group

    from gapless.cli.watch import lagging_table, topics_table

    parts: list[Table | str] = [brokers_table(found)]
    for made in (topics_table(found), lagging_table(found)):
        parts += [made, ""] if made.row_count else []
    return Group(*parts)


def watch_live(console: Console, draw: Callable[[], RenderableType]) -> NoReturn:
    from rich.live import Live

    with Live(draw(), console=console, auto_refresh=False) as live:
        while True:
            time.sleep(WATCH_S)
            live.update(draw(), refresh=True)


def ask_all(
    admin: list[str] | None, data: Path | None, url: str | None, what: str = "statistics"
) -> dict[str, Any | None]:
    """By broker or address: what it answers, or None where nobody does."""
    found: dict[str, Any | None] = {}
    for name, address in places(admin, data, url).items():
        told = told_in(data or DATA).get(name, {}) if address is None else {}
        found[name] = ask(address, what) if address else missing_port(told)
    if not found:
        from gapless.client.errors import LinkError

        raise LinkError(
            f"no broker keeps its data in {data}",
            "Start one with `gapless serve`, or say where to ask with --url.",
        )
    return found


def missing_port(told: dict[str, Any]) -> str | None:
    """Why a broker that runs cannot be asked; None if it does not run."""
    import os

    try:
        os.kill(int(told["process"]), 0)
    except PermissionError:
        pass  # it is somebody else's, and runs
    except (KeyError, ValueError, OSError):
        return None
    problem = f"no admin port ({told.get('admin_problem') or 'it tells none'})"
    return told.get("state") or problem


def open_answer(address: str, what: str, *, is_command: bool = False) -> HTTPResponse:
    """The answer of an admin port. A command changes something."""
    from urllib.request import Request, urlopen

    from gapless.client.credentials import find_credentials

    options, address = credentials.get(), address.removeprefix("http://")
    is_tls = address.startswith("https://") or bool(options.get("ca"))
    if not is_tls:
        check_unused("https:// before the address, or give --ca")
    shown = find_credentials(is_tls=True, **options) if is_tls else None
    scheme, address = "https" if is_tls else "http", address.removeprefix("https://")
    headers = {"Authorization": f"Bearer {shown.token}"} if shown and shown.token else {}
    headers |= {"X-Gapless": "command"} if is_command else {}
    method = "POST" if is_command else "GET"
    request = Request(f"{scheme}://{address}/{what}", headers=headers, method=method)
    context = shown.context() if shown is not None else None
    answer: HTTPResponse = urlopen(request, timeout=ANSWER_S, context=context)
    return answer


def ask(address: str, what: str = "statistics", *, is_command: bool = False) -> Any | None:
    """What an admin port answers, as JSON; None if nobody answers there."""
    from http.client import HTTPException
    from ssl import SSLCertVerificationError
    from urllib.error import HTTPError, URLError

    shown = address.removeprefix("http://").removeprefix("https://")
    try:
        with open_answer(address, what, is_command=is_command) as answer:
            found = json.load(answer)
        return found if is_answer(found, what) else None  # something else listens there
    except UsageError:
        raise
    except HTTPError as error:
        with error:
            if error.code in (401, 403):
                raise UsageError(
                    f"{shown} does not admit you",
                    "Give --access-token with a token that has the right to administer.",
                ) from None
        return None
    except (URLError, HTTPException, OSError, ValueError) as error:
        reason = getattr(error, "reason", None)
        if isinstance(reason, SSLCertVerificationError):
            raise UsageError(
                f"the certificate of {shown} is not good: {reason.verify_message}",
                "Give the brokers' authority with --ca.",
            ) from None
        return None


def is_answer(found: Any, what: str) -> bool:
    """Does a broker say such things?"""
    if what.startswith(("reload", "drain")):
        return isinstance(found, dict)
    if what == "statistics":
        return isinstance(found, dict) and {"ready", "links", "disk", "address"} <= found.keys()
    return isinstance(found, list) and all(isinstance(each, dict) for each in found)


def rows(found: Found) -> list[dict[str, str]]:
    """What matters most of each broker, as text."""
    shown = []
    for name, figures in found.items():
        row = {"broker": name, "state": figures if isinstance(figures, str) else "no answer"}
        shown.append(row)
        if figures is None or isinstance(figures, str):
            continue
        links, disk = figures["links"], figures["disk"]
        up, down = len(links["brokers_up"]), len(links["brokers_down"])
        row |= {
            "state": "ready" if figures["ready"] else "not ready",
            "address": figures["address"],
            "clients": f"{links['clients']:,}",
            "subscriptions": f"{figures['subscriptions']:,}",
            "delivered": f"{figures['delivered']:,}",
            "neighbours": f"{up}/{up + down}",
            "sync": f"{disk['sync_us'] / max(1, disk['syncs']) / 1000:.2f}ms",
            "disk": show_size(disk["bytes_on_disk"], "exact"),
            **rate_row(figures.get("rates", {})),
            **store_row(figures.get("store")),
            **tree_row(figures.get("services", {}).get("reliable")),
            **ring_row(figures.get("services", {}).get("multicast")),
        }
    return shown


def rate_row(rates: dict[str, float | None]) -> dict[str, str]:
    """What a broker takes and delivers each second; nothing on the first look."""
    return {key: f"{rate:,.0f}/s" for key, rate in rates.items() if rate is not None}


def store_row(store: dict[str, Any] | None) -> dict[str, str]:
    """The term of a broker with a store, and its standbys with their lag; nothing without one."""
    if not store:
        return {}
    lags = [f"{each['process']} -{each['lag']}" for each in store["standbys"]]
    return {
        "term": str(store["term"]),
        "standbys": ",".join(lags) or "none",
        "store": "unreachable" if store["problem"] else "reached",
    }


def tree_row(tree: dict[str, Any] | None) -> dict[str, str]:
    """Where a broker stands in the tree of the reliable service; nothing if it has no topics."""
    if not tree:
        return {}
    missed = sorted({broker for path in tree["unreachable"] for broker in path})
    return {
        "near": str(tree["neighbours"]),
        "sessions": ",".join(tree["active"]) or "-",
        "unreachable": ",".join(missed) or "-",
    }


def ring_row(ring: dict[str, Any] | None) -> dict[str, str]:
    """Where a broker stands in the ring of the multicast service; nothing if it has no topics."""
    if not ring:
        return {}
    root, forwarding = ring["root_of"], ring["forwarding"]
    return {
        "ring": ring["phase"],
        "leaves": str(len(ring["leaf_set"])),
        "table": str(ring["routing_table"]),
        "trees": f"{root}/{forwarding}/{ring['trees'] - root - forwarding}",
    }


def brokers_table(found: Found, restarts: dict[str, int] | None = None) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.text import Text

    lines = rows(found)
    columns = [*COLUMNS, *(RATE_COLUMNS if any("in" in row for row in lines) else ())]
    columns += STORE_COLUMNS if any("term" in row for row in lines) else ()
    columns += [*(TREE_COLUMNS if any("near" in row for row in lines) else ())]
    columns += RING_COLUMNS if any("ring" in row for row in lines) else ()
    headings = [HEADINGS.get(each, each) for each in columns]
    shown = make_table(*headings, *(["restarts"] if restarts else []), box=SIMPLE_HEAD, padding=0)
    for column in shown.columns:  # on a narrow screen headings break, what they head does not
        column.overflow = "fold"
    for number in (0, 1, 2, columns.index("sync")):
        shown.columns[number].no_wrap = True
    colours = {"ready": "green", "no answer": "red"}
    for row in lines:
        cells: list[object] = [row.get(column, "") for column in columns]
        cells[1] = Text(visible(row["state"]), colours.get(row["state"], "yellow"))
        add_row(shown, [*cells, *([restarts[row["broker"]]] if restarts else [])])
    return shown
