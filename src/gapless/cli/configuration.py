"""How a broker is configured: options, `--set NAME=VALUE`, and the settings file `gapless.toml`.

Theory of operation
    A settings file has the values of options and of settings, by name, without tables. `--set`
    counts before the file, and an option on the command line before both. Options get the values of
    the file as their defaults, so that each command takes those that it has. A name that is not
    known is refused with the nearest one, a value of another type with what to write.
    Which settings there are, and which of them most operators need, is in `node/config.py` and
    `broker/settings.py`.
"""

from __future__ import annotations

from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gapless.cli.terminal import say
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.broker.configuration import Configuration
    from gapless.broker.settings import Settings
    from gapless.node.config import Config
    from gapless.node.network import Network

FILE = Path("gapless.toml")
OPTIONS = {
    "data": "data",
    "listen": "listen",
    "admin": "admin",
    "admin_hosts": "admin_host",
    "metrics_open": "metrics_open",
    "http": "http",
    "http_hosts": "http_host",
    "http_origins": "http_origin",
    "insecure": "insecure",
    "security": "security",
    "topics": "topic",
    "mqtt": "mqtt",
    "mqtt_ws": "mqtt_ws",
    "mqtt_json": "mqtt_json",
    "log_level": "log_level",
    "log_json": "log_json",
}
"""By name in a settings file: the option that it is the default of."""

PATHS = ("data", "security")
"""Options whose values are relative to the folder of the settings file."""

PLACES = (
    "data", "listen", "admin", "admin_hosts", "metrics_open", "http", "http_hosts", "http_origins",
    "mqtt", "mqtt_ws", "mqtt_json", "security_folder", "insecure", "join", "shared_listen",
)  # fmt: skip
"""Settings of a process that have options of their own."""

BASIC_MARK = "{basic}"
"""In a help text: the names of the basic settings."""

ALL = "docs/reference/configuration.md lists all settings."

Limits = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help=f"A setting, such as {BASIC_MARK}; repeatable. {ALL}",
    ),
]


def use_file(context: typer.Context, path: Path | None) -> Path | None:
    """The settings file; what it has are the defaults of the command's options."""
    if path is None and not FILE.exists():
        return None
    if path is None:
        say(f"settings are read from ./{FILE}", err=True)
    found = path or FILE
    options = {each.name for each in context.command.params}
    named = {name: option for name, option in OPTIONS.items() if option in options}
    values = read_file(found)
    for name in values:
        if name in OPTIONS and name not in named:
            problem = f"{found}: {name!r} is no setting of `gapless {context.info_name}`"
            raise UsageError(problem, "Leave it out, or give another file with --config.")
    context.default_map = {
        **(context.default_map or {}),
        **{
            option: str(found.parent / values[name]) if name in PATHS else values[name]
            for name, option in named.items()
            if name in values
        },
    }
    return found


SettingsFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        callback=use_file,
        is_eager=True,  # before the options whose defaults it has
        help="A settings file; --set and options count before it.",
        show_default="./gapless.toml, if it is there",
    ),
]


def read_file(path: Path) -> dict[str, Any]:
    """All values of a settings file, checked."""
    import tomllib

    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"cannot read {path}: {reason}", "Give a settings file.") from None
    kinds = {**option_kinds(), **kinds_of_settings()}
    for name, value in values.items():
        if name not in kinds:
            raise unknown(f"{path}: there is no setting {name!r}", name, kinds)
        if not is_a(value, kinds[name]):
            raise UsageError(f"{path}: {name} is not {value!r}", f"Give it {WANTED[kinds[name]]}.")
    return values


def option_kinds() -> dict[str, str]:
    flags = ("insecure", "log_json", "metrics_open", "mqtt_json")
    lists = ("admin_hosts", "http_hosts", "http_origins", "topics")
    return {
        name: "bool" if name in flags else "list" if name in lists else "str" for name in OPTIONS
    }


def kinds_of_settings() -> dict[str, str]:
    """By name: the type of each limit and timer. Of two with the same name the node's is meant."""
    from gapless.broker.settings import Settings
    from gapless.node.config import Config

    return {
        each.name: str(each.type)
        for each in (*fields(Settings), *fields(Config))
        if each.name not in PLACES
    }


def basic_settings() -> list[str]:
    """The settings that most operators need, but for those that are options."""
    from gapless.broker.settings import Settings
    from gapless.node.config import Config

    found = [each.name for each in (*fields(Settings), *fields(Config)) if each.metadata]
    return [name for name in found if name not in PLACES]


WANTED = {
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "list": 'a list of texts, such as ["one", "two"]',
    "str": "a text in quotes",
}


def is_a(value: object, kind: str) -> bool:
    match kind:
        case "bool":
            return isinstance(value, bool)
        case "float":
            return isinstance(value, float | int) and not isinstance(value, bool)
        case "int":
            return isinstance(value, int) and not isinstance(value, bool)
        case "list":
            return isinstance(value, list) and all(isinstance(each, str) for each in value)
        case _:
            return isinstance(value, str)


def unknown(problem: str, name: str, known: dict[str, str]) -> UsageError:
    near = get_close_matches(name, known, 1)
    return UsageError(problem, f"Did you mean {near[0]}? {ALL}" if near else ALL)


def rereader(
    network: Callable[[], Network], settings: Settings, pairs: list[str] | None, file: Path | None
) -> Callable[[], Configuration]:
    """For a reload: reads the network and all settings anew; options stay what they were."""

    def read() -> Configuration:
        from gapless.broker.configuration import Configuration
        from gapless.broker.settings import Settings

        node, process = read_limits(pairs, file)
        places = {each: getattr(settings, each) for each in PLACES}
        return Configuration(network(), Settings(**places, **process), node)

    return read


def read_limits(pairs: list[str] | None, file: Path | None = None) -> tuple[Config, dict[str, Any]]:
    """The node's limits, and those of the process as `Settings` takes them: of `--set`, else of a
    settings file."""
    from gapless.broker.settings import Settings
    from gapless.node.config import Config

    kinds = kinds_of_settings()
    given: dict[str, Any] = {}
    for pair in pairs or ():
        name, equals, text = pair.partition("=")
        if option := OPTIONS.get(name):
            remedy = f"Write --{option.replace('_', '-')}."
            raise UsageError(f"--set: {name} is an option of its own", remedy)
        if name not in kinds:
            raise unknown(f"--set: there is no setting {name!r}", name, kinds)
        if not equals:
            raise UsageError(f"--set: {name} has no value", "Write NAME=VALUE.")
        if name in given:
            raise UsageError(f"{name} is set twice", "Give it one value.")
        given[name] = read_value(name, kinds[name], text)
    values = read_file(file) if file is not None else {}
    given = {name: value for name, value in values.items() if name in kinds} | given
    of_node = {each.name for each in fields(Config)}
    node = {name: value for name, value in given.items() if name in of_node}
    process = {name: value for name, value in given.items() if name not in of_node}
    twin = "client_queue_bytes_max"
    own = 2 * node.get(twin, 0)  # a link must bear more than the node lets wait for it
    if own > next(each.default for each in fields(Settings) if each.name == twin):
        process[twin] = own
    Settings(data=Path(), **process)  # refuses what cannot be
    return Config(**node), process


def read_value(name: str, kind: str, text: str) -> bool | int | float:
    try:
        if kind == "bool":
            return {"true": True, "false": False}[text.lower()]
        return float(text) if kind == "float" else int(text)
    except (ValueError, KeyError):
        raise UsageError(f"{name} is not {text!r}", f"Give it {WANTED[kind]}.") from None
