"""The terminal that a process was started in, if there is one.

SIGHUP means "read your files anew" to a process without a terminal, and "your terminal is gone" to
one that has one. A terminal that has hung up cannot be opened any more, which tells the two apart.
Who starts a process with SIGHUP ignored, as `nohup` does, wants it to outlive its terminal.
"""

from __future__ import annotations

import os
import signal

NAME = "/dev/tty"


class Terminal:
    """Make one before a handler for SIGHUP is set."""

    def __init__(self) -> None:
        self._counts = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and can_open()

    def is_gone(self) -> bool:
        """Whether we were to live no longer than the terminal, and it has hung up."""
        return self._counts and not can_open()


def can_open() -> bool:
    try:
        os.close(os.open(NAME, os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
