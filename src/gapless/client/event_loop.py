"""The event loop of a client: the running one, or one in a thread for callers that have none.

What a caller iterates over is taken in the caller's thread, in chunks: it may be slow, and it may
use the client itself. In the loop it would hold up everything else, heartbeats too, or wait for
itself for ever.
A loop that plays a simulated world draws random numbers itself (`draw`), so that the same seed
takes the same course.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, TypeVar

from gapless.client.errors import LinkError
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator

Result = TypeVar("Result")
Item = TypeVar("Item")

CLOSED = "the client is closed", "Connect again with gapless.sync.connect."

LOOPS = "Use it in the loop where it was made; gapless.sync needs none, and any thread may use it."

CHUNK_EVENTS_MAX = 1_024
CHUNK_S = 0.005
"""How many events are handed over at once, and how long they may wait for others."""


def running_loop() -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        remedy = "Connect in an `async def`; or use gapless.sync.connect."
        raise UsageError("there is no event loop here", remedy) from None


def draw(limit: int) -> int:
    """A random number from 0 to below `limit`: the loop's, or the system's, so that forked
    processes do not draw alike."""
    loop = asyncio.get_running_loop()
    drawn: Callable[[int], int] = getattr(loop, "draw", secrets.randbelow)
    return drawn(limit)


def chunks(events: Iterable[Item]) -> Iterator[list[Item]]:
    """All events in order, also those before an error of their iterator."""
    rest, is_over = iter(events), False
    while not is_over:
        some: list[Item] = []
        try:
            due_s = time.monotonic() + CHUNK_S
            while len(some) < CHUNK_EVENTS_MAX and (not some or time.monotonic() < due_s):
                some.append(next(rest))
        except StopIteration:
            is_over = True
        except BaseException:
            if some:
                yield some
            raise
        if some:
            yield some


class LoopThread:
    """An event loop in a thread; `run` hands it work and waits for the result. All work ends when
    the loop is closed, at the latest: then with `LinkError`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._taking = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="gapless-client", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.run_until_complete(self._end())
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        with self._taking:
            if self._is_closed:
                work.close()
                raise LinkError(*CLOSED)
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise LinkError(*CLOSED) from None
        except BaseException:  # also when the waiting thread is interrupted
            future.cancel()
            raise

    def close(self) -> None:
        """Fine to repeat."""
        with self._taking:
            if not self._is_closed:
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._is_closed = True
        self._thread.join()

    async def _end(self) -> None:
        """Cancel what is left. Work that came just before the end may not even have begun."""
        await asyncio.sleep(0)
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        await self._loop.shutdown_asyncgens()
        await self._loop.shutdown_default_executor()
