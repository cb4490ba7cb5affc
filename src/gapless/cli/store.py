"""`gapless store`: prepare a database for brokers that outlive their machine, and look into it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from gapless.cli.terminal import json_text, say

store = typer.Typer(
    name="store",
    help="A database that keeps brokers' commits: prepare it, see who holds what.",
    no_args_is_help=True,
)

StoreUrl = Annotated[
    str, typer.Argument(metavar="URL", help="Such as postgresql://user@host:5432/database.")
]


@store.command()
def init(
    url: StoreUrl,
    role: Annotated[
        str, typer.Option(metavar="ROLE", help="Let this role of the database use it, too.")
    ] = "",
) -> None:
    """Create what brokers need in a PostgreSQL database; fine if it is there.

    \b
    gapless store init postgresql://admin@db/gapless --role broker
    gapless serve --name prices --store postgresql://broker@db/gapless

    The role gets the right to call the functions of the schema `gapless`, and no other.
    TLS, passwords and several hosts go into the URL, as for psql.
    """
    from gapless.storage.replica.postgres import init as create

    is_new = create(url, role)
    say("the store is ready" if is_new else "the store was ready already")


@store.command()
def status(
    url: StoreUrl,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Show for each name of a broker who holds it and who stands by."""
    from gapless.storage.replica.postgres import PostgresStore

    connection = PostgresStore(url)
    states = {name: connection.state(name) for name in connection.names()}
    connection.close()
    if as_json:
        say(json_text({name: asdict(state) for name, state in states.items() if state}))
        return
    for name, state in states.items():
        if state is None:
            continue
        lease = f"lease {state.lease_s:.1f} s" if state.lease_s > 0 else "no lease"
        say(
            f"{name}: term {state.term}, {state.position} commits, "
            f"held by {state.holder or 'nobody'} at {state.address or '-'}, {lease}"
        )
        for each in state.standbys:
            lag = state.position - each.position
            say(f"  standby {each.process}, {lag} commits behind, seen {each.seen_s:.1f} s ago")
