"""Compiled code that a broker can do without: loaded beside its loop, compiled once for a machine.

Theory of operation
    Loading compiled code takes half a second. Compiling it takes some 45 s of CPU, once for each
    machine. A loop that waited for that would serve nobody. So the first caller that needs the code
    starts a thread that loads it, and does without until it is there. Where the code cannot be
    loaded, all callers do without, and the log says why. The same holds where compiled code cannot
    be kept (`machine_code`): a broker does not spend a minute of CPU at each start.

    python -m gapless.broker.compiled_code

    compiles everything that a broker may load; it takes two seconds when there is nothing to do. A
    broker that finds code missing runs this as a process of its own (`broker.event_reader`).
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Generic, TypeVar

from gapless import machine_code
from gapless.broker.logs import logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.filters.matching.kernels import EntryPoint

CodeT = TypeVar("CodeT")

_one_at_a_time = threading.Lock()
"""numba that begins in two threads at once may not know some of its own types yet."""


class NotKeptError(Exception):
    """Compiled code cannot be kept on this machine."""


def require_kept() -> None:
    """`NotKeptError` if each process would have to compile for itself."""
    if not machine_code.is_kept():
        raise NotKeptError(machine_code.COMPLAINT)


class Compiled(Generic[CodeT]):
    """What `load` returns, some time after it was first asked for; `without`: what the log says
    where that fails."""

    def __init__(self, load: Callable[[], CodeT], without: str) -> None:
        self.loading: threading.Thread | None = None
        self._load = load
        self._without = without
        self._code: CodeT | None = None

    @property
    def is_loaded(self) -> bool:
        return self._code is not None

    @property
    def has_failed(self) -> bool:
        """It will never be loaded."""
        return self._code is None and self.loading is not None and not self.loading.is_alive()

    def get(self) -> CodeT | None:
        """The first time it is not there yet, however quickly it is loaded."""
        code = self._code
        if self.loading is None:
            self.loading = threading.Thread(target=self._run, name="compiled", daemon=True)
            self.loading.start()
        return code

    def _run(self) -> None:
        try:
            with _one_at_a_time:
                self._code = self._load()
        except NotKeptError as error:
            logger.warning(self._without, extra={"reason": str(error)})
        except Exception:  # whatever numba makes of this machine: the broker can do without
            logger.warning(self._without, exc_info=True)


def find_uncompiled() -> list[EntryPoint]:
    """The functions that a broker may load and that are not compiled on this machine yet."""
    from numba import float64, int64, uint8

    from gapless.filters.matching import kernels
    from gapless.filters.matching.kernels import FIXED_BYTES, WORDS, EntryPoint
    from gapless.wire import parse

    places = int64[:, ::1]
    columns = (uint8[:, ::1], float64[:, ::1], places, places)
    reading = (  # as `wire.attribute_rows` calls them
        EntryPoint(parse.is_plain, (FIXED_BYTES, WORDS, int64, int64)),
        EntryPoint(parse.locate, (FIXED_BYTES, WORDS, FIXED_BYTES, WORDS, *columns)),
    )
    return [entry for entry in (*kernels.ENTRIES, *reading) if not entry.is_ready()]


def main() -> None:
    if problem := machine_code.complaint():
        sys.exit(f"gapless: {problem}")
    entries = find_uncompiled()
    if entries:
        print("Compiling what a broker needs; this takes less than a minute, once.", flush=True)
    for entry in entries:
        entry.compile()
    print("All is compiled." if entries else "All is compiled already.")


if __name__ == "__main__":
    main()
