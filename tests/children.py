"""Processes that tests start: none outlives its test, and none hangs it.

A child is killed and waited for, and its pipes are closed, however the test ends: what one test
leaves behind is warned of in another, which then fails for no reason of its own. One that has not
ended after `PATIENCE_S` is killed too, so that whoever reads from it comes to the end of it.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PATIENCE_S = 180.0
"""Long enough for any machine; a test that waits for it has failed."""

PROGRAM = [sys.executable, "-c", "from gapless.cli import main; main()"]


@contextmanager
def child(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process with `options` of `Popen`; what it says is text, in pipes unless told otherwise."""
    wanted = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    with subprocess.Popen(command, **wanted) as process:  # closes its pipes, and waits for it
        watchdog = threading.Timer(PATIENCE_S, process.kill)
        watchdog.start()
        try:
            yield process
        finally:
            watchdog.cancel()
            process.kill()


def told(process: subprocess.Popen[str]) -> str:
    """The next line of its standard output."""
    assert process.stdout is not None
    return process.stdout.readline()


def rest(process: subprocess.Popen[str]) -> str:
    """All that follows there; `communicate` knows nothing of what `told` has read ahead."""
    assert process.stdout is not None
    return process.stdout.read()


def warned(process: subprocess.Popen[str]) -> str:
    """The next line of its standard error."""
    assert process.stderr is not None
    return process.stderr.readline()
