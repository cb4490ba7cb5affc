"""Where the commands that talk to a broker find it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gapless.client.client import Client

URL = "gapless://127.0.0.1:7117"
ANSWER_S = 1.0
"""How long the first answer of a broker may take. Once connected, more patience is in place."""

Url = Annotated[
    str,
    typer.Option(
        metavar="URL", envvar="GAPLESS_URL", help="The broker; several with commas in between."
    ),
]


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Client]:
    from gapless.client.client import connect

    client = connect(url, patience_s=ANSWER_S)
    async with client:
        client.patience_s = 30.0
        yield client
