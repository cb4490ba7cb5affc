"""The command line: one module per command, put together in `commands`.

Exit codes: 0 ok, 1 failed, 2 wrong usage (a bad condition too), 130 interrupted, at whichever
moment: `main` loads the commands itself, for that takes long enough to be interrupted.
"""

from __future__ import annotations

import os
import sys
from typing import Any


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module 'gapless.cli' has no attribute {name!r}")
    from gapless.cli.commands import app

    return app


def main() -> None:
    try:
        code: Any = run()
    except KeyboardInterrupt:
        print("gapless: interrupted", file=sys.stderr)
        code = 130
    except SystemExit as end:  # how commands end
        code = end.code
    sys.exit(flushed(code))


def flushed(code: Any) -> Any:
    """The exit code, when all that was printed is written. Python itself would do that too late to
    be told, and end with 120 where it fails."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())  # what is left goes nowhere
        if not isinstance(error, BrokenPipeError):  # else nobody wants to read it
            from gapless.cli.terminal import fail

            fail(f"cannot write: {error.strerror}")
            return code or 1
    return code


def run() -> int:
    """The exit code of the command that is asked for; what it failed of is told."""
    from gapless.cli.commands import app
    from gapless.cli.terminal import fail
    from gapless.core.errors import FilterError, GaplessError, UsageError
    from gapless.core.extras import missing_extra

    try:
        app()
    except GaplessError as error:
        fail(error)
        return 2 if isinstance(error, UsageError | FilterError) else 1
    except ModuleNotFoundError as error:  # a plain installation: the client alone
        lacking = missing_extra(error.name or "", "this command")
        if lacking is None:
            raise
        fail(lacking)
        return 2
    except OSError as error:  # a disk that is full, a terminal that is gone
        where = f" {error.filename}" if error.filename else ""
        fail(f"cannot read or write{where}: {error.strerror or error}")
        return 1
    return 0
