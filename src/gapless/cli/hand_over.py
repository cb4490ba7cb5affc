"""`gapless hand-over`: let a standby take a broker's name over, in order."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from gapless.cli.terminal import say

WAIT_S = 30.0
LOOK_S = 0.05
FRESH_S = 5.0
"""A standby that was not heard of for so long does not count."""


def hand_over(
    name: Annotated[str, typer.Argument(help="The name of the broker, as in serve --name.")],
    store: Annotated[
        str, typer.Option(metavar="URL", envvar="GAPLESS_STORE", help="The store of the broker.")
    ],
) -> None:
    """Ask the holder of a broker's name to let its standby take over; it stands by itself then.

    \b
    gapless hand-over prices --store postgresql://broker@db/gapless

    For maintenance of the holder's machine. The exit code is 1 if nothing stands by.
    """
    from gapless.core.errors import UsageError
    from gapless.storage.replica.postgres import PostgresStore

    connection = PostgresStore(store)
    state = connection.state(name)
    if state is None or state.lease_s <= 0:
        raise UsageError(f"nothing holds {name!r} in this store", "Start it: gapless serve --store")
    if not any(each.seen_s < FRESH_S for each in state.standbys):
        raise UsageError(f"nothing stands by for {name!r}", "Start a second one with --store.")
    connection.ask_for_hand_over(name, state.term)
    end_s = time.monotonic() + WAIT_S
    while time.monotonic() < end_s:
        now = connection.state(name)
        if now is not None and now.term > state.term:
            say(f"{now.holder} holds {name!r} under term {now.term}")
            connection.close()
            return
        time.sleep(LOOK_S)
    raise UsageError(f"{name!r} was not handed over within {WAIT_S:.0f} s", "See the holder's log.")
