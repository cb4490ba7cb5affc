"""All commands, put together. Heavy imports stand inside them, so that `--help` answers at once."""

from __future__ import annotations

from importlib.metadata import entry_points

import typer

from gapless.cli.alter import subscription
from gapless.cli.backup import adopt, backup, restore
from gapless.cli.bench import bench
from gapless.cli.broker import broker
from gapless.cli.check import check
from gapless.cli.condition import condition
from gapless.cli.config import config
from gapless.cli.connection import with_credentials
from gapless.cli.console import console
from gapless.cli.hand_over import hand_over
from gapless.cli.help import lay_out
from gapless.cli.pipeline import pipeline
from gapless.cli.publish import publish
from gapless.cli.read import read
from gapless.cli.reload import drain, reload
from gapless.cli.retire import retire
from gapless.cli.roster import producers, publishers, transactions
from gapless.cli.security import security
from gapless.cli.serve import serve
from gapless.cli.simulate import simulate, swarm
from gapless.cli.soak import soak
from gapless.cli.spark import spark
from gapless.cli.status import status
from gapless.cli.store import store
from gapless.cli.subscribe import subscribe
from gapless.cli.subscriptions import subscriptions
from gapless.cli.topic import topic
from gapless.cli.unsubscribe import unsubscribe
from gapless.cli.up import up
from gapless.cli.where import use_profile
from gapless.cli.why import why
from gapless.version import __version__

app = typer.Typer(
    name="gapless",
    help="Content-based publish/subscribe that never leaves a silent gap.",
    epilog="Each command explains itself: gapless COMMAND --help.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (serve, broker):
    app.command()(command)
for connecting in (
    publish, subscribe, subscriptions, unsubscribe, read, status, console, why, retire, reload,
    drain, backup, bench, up,
):  # fmt: skip
    app.command()(with_credentials(connecting))
for local in (check, restore, adopt):
    app.command()(local)
app.command(name="hand-over")(hand_over)
for roster in (publishers, producers, transactions):
    app.command()(with_credentials(roster))
app.add_typer(security, name="security")
app.add_typer(topic)
app.add_typer(subscription)
app.add_typer(store)
app.add_typer(config)
app.add_typer(pipeline)
app.add_typer(spark)
app.command(name="filter")(condition)
app.command()(simulate)
app.command()(swarm)
app.command()(soak)
for extension in sorted(entry_points(group="gapless.commands"), key=lambda each: each.name):
    app.command(name=extension.name)(extension.load())  # of packages that are installed beside us
lay_out(app)


@app.callback(invoke_without_command=True)
def root(
    version: bool = typer.Option(False, "--version", help="Show the version and exit."),
    profile: str = typer.Option(
        None,
        metavar="NAME",
        envvar="GAPLESS_PROFILE",
        help="Where the brokers are, and who you are: a table of ~/.config/gapless/profiles.toml.",
    ),
) -> None:
    use_profile(profile)
    if version:
        typer.echo(f"gapless {__version__}")
        raise typer.Exit
