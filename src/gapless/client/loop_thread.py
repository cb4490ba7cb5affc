"""An event loop in a thread of its own, for those who have none."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from gapless.client.errors import LinkError

if TYPE_CHECKING:
    from collections.abc import Coroutine

Result = TypeVar("Result")


class LoopThread:
    """An event loop in a thread; `run` gives it work and waits for the result."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="gapless-client", daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        if self._loop.is_closed():
            work.close()
            raise LinkError("the client is closed", "Connect again with gapless.sync.connect.")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:  # also when the waiting thread is interrupted
            future.cancel()
            raise

    def close(self) -> None:
        self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
