"""`gapless pipeline`: jobs over whole logs; one module per job."""

from __future__ import annotations

import typer

from gapless.cli.archive import archive
from gapless.cli.audit import audit
from gapless.cli.connection import with_credentials
from gapless.cli.match import match
from gapless.cli.replay import replay

pipeline = typer.Typer(
    name="pipeline",
    help="Jobs over whole logs: archive, match, replay, audit.",
    no_args_is_help=True,
)
for job in (archive, match, replay, audit):
    pipeline.command()(with_credentials(job))
