"""`--set NAME=VALUE`: limits and timers of a broker that are not to be the default."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from gapless.node.config import Config

Limits = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Another limit or timer than the default (see docs: configuration); several.",
    ),
]
PLACES = ("data", "listen", "admin", "admin_hosts", "security_folder", "insecure", "join")
"""Settings of a process that have options of their own."""


def read_limits(pairs: list[str] | None) -> tuple[Config, dict[str, Any]]:
    """The node's limits, and those of the process as `Settings` takes them."""
    from gapless.broker.settings import Settings
    from gapless.node.config import Config

    of_node = {each.name: str(each.type) for each in fields(Config)}
    of_process = {each.name: str(each.type) for each in fields(Settings)}
    for name in (*PLACES, *of_node):  # of two with the same name the node's is meant
        of_process.pop(name, None)
    node: dict[str, Any] = {}
    process: dict[str, Any] = {}
    for pair in pairs or ():
        name, equals, text = pair.partition("=")
        kind = of_node.get(name) or of_process.get(name)
        if not equals or kind is None:
            known = "docs/reference/configuration.md lists all"
            raise UsageError(f"{pair!r} sets no limit", f"Write NAME=VALUE; {known}.")
        if name in node or name in process:
            raise UsageError(f"{name} is set twice", "Give it one value.")
        (node if name in of_node else process)[name] = read_value(name, kind, text)
    own, twin = node.get("client_queue_bytes_max", 0), "client_queue_bytes_max"
    if 2 * own > next(each.default for each in fields(Settings) if each.name == twin):
        process[twin] = 2 * own  # a link must bear more than the node lets wait for it
    Settings(data=Path(), **process)  # refuses what cannot be
    return Config(**node), process


def read_value(name: str, kind: str, text: str) -> bool | int | float:
    try:
        if kind == "bool":
            return {"true": True, "false": False}[text.lower()]
        return float(text) if kind == "float" else int(text)
    except (ValueError, KeyError):
        wanted = {"bool": "true or false", "float": "a number"}.get(kind, "a whole number")
        raise UsageError(f"{name} is not {text!r}", f"Give it {wanted}.") from None
