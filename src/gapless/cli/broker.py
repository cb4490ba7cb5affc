"""`gapless broker`: one broker of a network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gapless.cli.serve import DATA, Data, Insecure, LogJson, LogLevel, none_or

if TYPE_CHECKING:
    from gapless.node.network import Network

NetworkFile = Annotated[
    Path, typer.Argument(metavar="NETWORK.toml", help="The network file; see `gapless up --help`.")
]


def broker(
    network: NetworkFile,
    name: Annotated[str, typer.Argument(help="Which broker of it to run.")],
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Instead of what the network file says."),
    ] = None,
    admin: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="For /health, /statistics, /metrics; or: none."),
    ] = "127.0.0.1:0",
    data: Data = DATA,
    insecure: Insecure = False,
    with_parent: Annotated[
        bool, typer.Option("--with-parent", help="Stop when standard input is closed.")
    ] = False,
    log_json: LogJson = False,
    log_level: LogLevel = "info",
) -> None:
    """Run one broker of a network: start each on its machine with the same file.

    It keeps its data in FOLDER/NAME and writes its addresses to FOLDER/NAME/address.json. One
    broker uses one core: for more, run more brokers.
    """
    from gapless.broker.process import run
    from gapless.broker.settings import Settings
    from gapless.core.identity import BrokerName

    settings = Settings(
        data=data,
        listen=listen,
        admin=none_or(admin),
        insecure=insecure,
        security_folder=network.parent,
    )
    run(
        BrokerName(name),
        read_network(network),
        settings,
        log_json=log_json,
        log_level=log_level,
        tell=typer.echo,
        with_parent=with_parent,
    )


def read_network(path: Path) -> Network:
    from gapless.core.errors import UsageError
    from gapless.node.network import parse_network

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}", "Give a network file.") from None
    return parse_network(text)
