"""Compiled code that a broker can do without, loaded beside its loop.

Loading it takes half a second, compiling it some seconds once a machine, and a loop that waits for
that serves nobody. So the first who needs it makes a thread load it, and does without until it is
there. Where it cannot be loaded, all do without, and the log says why. So it is where compiled code
cannot be kept (`machine_code`): a broker does not spend a minute of its loop's core at each start.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

from gapless import machine_code
from gapless.broker.logs import logger

if TYPE_CHECKING:
    from collections.abc import Callable

CodeT = TypeVar("CodeT")


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
            self._code = self._load()
        except NotKeptError as error:
            logger.warning(self._without, extra={"reason": str(error)})
        except Exception:  # whatever numba makes of this machine: the broker can do without
            logger.warning(self._without, exc_info=True)
