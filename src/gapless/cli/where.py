"""Where the brokers are that a command asks: an address, an admin port or a data folder; profiles.

A profile is a table of `~/.config/gapless/profiles.toml`. It has the defaults of the options that
say where the brokers are and how to prove who you are; what is in the environment counts before it,
and what is on the command line before both.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gapless.cli.connection import URL, connected
from gapless.cli.serve import DATA
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

VARIABLES = {
    "url": "GAPLESS_URL",
    "access_token": "GAPLESS_TOKEN_FILE",
    "ca": "GAPLESS_CA",
    "certificate": "GAPLESS_CERTIFICATE",
    "key": "GAPLESS_KEY",
}
"""By name in a profile: the variable whose default it is."""

FILES = frozenset(VARIABLES) - {"url"}
DEFAULT_PROFILE = "default"
STANDBYS = "standbys"
"""The folder, in that of `gapless up`, of processes that stand by for its brokers."""

AdminPorts = Annotated[
    list[str] | None,
    typer.Option(metavar="HOST:PORT", help="Ask this admin port; repeatable."),
]
DataOrNone = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER", help="Ask the brokers of this data folder.", show_default=str(DATA)
    ),
]
UrlOrNone = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        envvar="GAPLESS_URL",
        help="Ask the brokers at this address, or at several separated by commas.",
    ),
]


def profiles_file() -> Path | None:
    """Where profiles are; None for a user without a home."""
    folder = os.environ.get("XDG_CONFIG_HOME")
    try:
        return (Path(folder) if folder else Path.home() / ".config") / "gapless" / "profiles.toml"
    except RuntimeError:
        return None


def use_profile(name: str | None) -> None:
    """Make the values of a profile defaults: of the one with this name, else of `default`."""
    import tomllib

    path, wanted = profiles_file(), name or DEFAULT_PROFILE
    try:
        text = path.read_text(encoding="utf-8") if path is not None else ""
        profiles: dict[str, Any] = tomllib.loads(text)
    except FileNotFoundError:
        profiles = {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        if name is None:
            return  # nobody asked for one
        raise UsageError(f"cannot read {path}: {error}", "Correct it, or leave it out.") from None
    if wanted not in profiles:
        if name is None:
            return
        known = ", ".join(sorted(profiles)) or "none"
        raise UsageError(f"there is no profile {name!r} in {path}", f"There are: {known}.")
    values = profiles[wanted]
    if not isinstance(values, dict) or values.keys() - VARIABLES.keys():
        raise UsageError(
            f"profile {wanted!r} in {path} is wrong", f"It may have {', '.join(VARIABLES)}."
        )
    for key, value in values.items():
        shown = str(Path(str(value)).expanduser()) if key in FILES else str(value)
        os.environ.setdefault(VARIABLES[key], shown)


def places(admin: list[str] | None, data: Path | None, url: str | None) -> dict[str, str | None]:
    """By broker: the address of its admin port, or None where it tells none. The folder counts if
    nothing is given, and the usual address where there is no folder."""
    is_url_given = url is not None and url != os.environ.get("GAPLESS_URL")
    given = [("--admin", bool(admin)), ("--data", data is not None), ("--url", is_url_given)]
    named = [option for option, is_given in given if is_given]
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)} contradict each other", "Give one of them.")
    if admin:
        return dict(zip(admin, admin, strict=True))
    if data is None and url is not None:
        return ports_of(url)
    found = ports_in(data or DATA)
    if found or data is not None:
        return found
    return ports_of(URL)


def ports_in(data: Path) -> dict[str, str | None]:
    return {name: admin_of(told) for name, told in told_in(data).items()}


def told_in(data: Path) -> dict[str, dict[str, str]]:
    """By broker: the addresses that it has told in this data folder; standbys are numbered."""
    from gapless.broker.addresses import FILE, read_addresses

    found: dict[str, dict[str, str]] = {}
    for path in [*sorted(data.glob(f"*/{FILE}")), *sorted(data.glob(f"{STANDBYS}/*/*/{FILE}"))]:
        folder = path.parent
        is_standby = folder.parent.parent.name == STANDBYS
        name = f"{folder.name} ({folder.parent.name})" if is_standby else folder.name
        found[name] = read_addresses(folder)
    return found


def admin_of(told: dict[str, str]) -> str | None:
    """Where to ask a broker that has told these addresses."""
    from gapless.client.address import is_tls

    address = told.get("admin")
    return f"https://{address}" if address and is_tls(told.get("url", "")) else address


def ports_of(url: str) -> dict[str, str | None]:
    """Ask the broker at each address where its admin port is."""
    import asyncio

    from gapless.client.address import SCHEME, TLS_SCHEME, is_tls, parse_addresses

    scheme = TLS_SCHEME if is_tls(url) else SCHEME
    return asyncio.run(ask_each([f"{scheme}{each}" for each in parse_addresses(url)]))


async def ask_each(urls: Iterable[str]) -> dict[str, str | None]:
    from gapless.client.address import is_tls, parse_addresses

    found: dict[str, str | None] = {}
    for url in urls:
        async with connected(url) as client:
            broker, told = str(client.broker or url), client.channel.admin
        if not told:
            found[broker] = None
            continue
        host, _, port = told.rpartition(":")
        if host in ("0.0.0.0", "[::]"):
            host = str(parse_addresses(url)[0]).rpartition(":")[0]
        found[broker] = f"{'https://' if is_tls(url) else ''}{host}:{port}"
    return found
