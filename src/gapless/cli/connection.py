"""Where the commands that talk to a broker find it, and how they prove who they are.

`with_credentials` gives a command the options for TLS; what they say is at hand in `credentials`
while the command runs, for connections and for the admin port.
"""

from __future__ import annotations

import inspect
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from gapless.client.channel import ConnectionChange
    from gapless.client.client import Client
    from gapless.client.credentials import CredentialOptions

URL = "gapless://127.0.0.1:7117"
ANSWER_S = 2.0
"""How long the first answer of a broker may take. Once connected, more patience is in place."""

TLS_ANSWER_S = 5.0
"""The same with security: it may be a refusal, which is slow on purpose."""

Url = Annotated[
    str,
    typer.Option(
        metavar="URL",
        envvar="GAPLESS_URL",
        help="The address of a broker, or several separated by commas.",
    ),
]


OPTIONS: dict[str, Any] = {
    "access_token": Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="GAPLESS_TOKEN_FILE",
            help="TLS: a file with your token. GAPLESS_TOKEN may hold the token itself.",
        ),
    ],
    "ca": Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="GAPLESS_CA",
            help="TLS: the certificate of the authority to trust.",
        ),
    ],
    "certificate": Annotated[
        Path | None,
        typer.Option(metavar="FILE", envvar="GAPLESS_CERTIFICATE", help="TLS: your certificate."),
    ],
    "key": Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", envvar="GAPLESS_KEY", help="TLS: the key of your certificate."
        ),
    ],
}

credentials: ContextVar[CredentialOptions] = ContextVar("credentials", default={})  # noqa: B039 - not changed
written: ContextVar[tuple[str, ...]] = ContextVar("written", default=())
"""Which of them are on the command line, and not in the environment."""


def with_credentials(command: Callable[..., None]) -> Callable[..., None]:
    """The same command with the options for TLS."""

    @wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        given = {name: options.pop(name) for name in OPTIONS}
        context = options.pop("context")
        written.set(tuple(filter(lambda name: is_written(context, name), given)))
        given["token"] = read_token(given.pop("access_token"))
        credentials.set(cast("CredentialOptions", given))
        command(*arguments, **options)

    signature = inspect.signature(command, eval_str=True)
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in OPTIONS.items()
    ]
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    everything = [*signature.parameters.values(), *more, context]
    run.__signature__ = signature.replace(parameters=everything)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in everything}
    del run.__wrapped__
    return run


def is_written(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def check_unused(where: str) -> None:
    """Nobody is to believe that a token was shown, or a certificate looked at, where none was."""
    if written.get():
        from gapless.core.errors import UsageError

        named = ", ".join(f"--{name.replace('_', '-')}" for name in written.get())
        remedy = f"Write {where}, or leave out what is for TLS."
        raise UsageError(f"{named} would have no effect: this is not TLS", remedy)


def read_token(path: Path | None) -> str | None:
    if path is None:
        return None  # the environment may have it
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        from gapless.core.errors import UsageError

        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"cannot read {path}: {reason}", "Give the file of a token.") from None


def waiting_teller() -> Callable[[ConnectionChange], None]:
    """Tells on standard error that a command waits for a broker, and when it no longer does."""
    from gapless.cli.terminal import say, visible

    is_waiting = False

    def tell(change: ConnectionChange) -> None:
        nonlocal is_waiting
        if change.kind in ("lost", "failed") and not is_waiting:
            say(f"gapless: waiting for a broker at {visible(change.address)}", err=True)
            is_waiting = True
        elif change.kind == "connected" and is_waiting:
            say(f"gapless: connected to {visible(change.address)}", err=True)
            is_waiting = False

    return tell


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Client]:
    from gapless.client.address import is_tls
    from gapless.client.client import connect

    tell = waiting_teller()
    if is_tls(url):
        client = connect(url, patience_s=TLS_ANSWER_S, on_change=tell, **credentials.get())
    else:
        check_unused("gapless+tls:// in the address")
        client = connect(url, patience_s=ANSWER_S, on_change=tell)
    async with client:
        client.channel.patience_s = 30.0
        yield client
