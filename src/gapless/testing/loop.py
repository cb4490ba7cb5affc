"""An event loop whose time is the simulated world's: asyncio programs, played instead of run.

Theory of operation
    The loop runs what is ready, as any other. When nothing is, a real loop would sleep; this one
    plays the world's next step, which may make something ready, or moves the world's clock to the
    loop's next timer, whichever comes first. So a program that sleeps for an hour is done at once,
    and nothing in it depends on how fast the machine is.
    `create_connection` leads to simulated brokers (`gapless.testing.lines`); there are no sockets,
    no files, no threads. `draw` gives the world's dice to a client that wants a random number.

Invariants
    I1  the world's clock never passes a timer of the loop that has not run
    I2  the same seed and the same program give the same steps in the same order

Cost: about 20 microseconds for a wake-up, beside the steps of the world.
"""

from __future__ import annotations

import asyncio
from math import ceil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gapless.testing.stage import Stage

    Dial = Callable[[Callable[[], asyncio.Protocol], str], Awaitable[Any]]


class VirtualLoop(asyncio.BaseEventLoop):
    """See the module docstring. `dial` makes a connection to the broker of a name."""

    def __init__(self, stage: Stage, dial: Dial) -> None:
        super().__init__()
        self._stage = stage
        self._dial = dial
        self._selector = self  # what BaseEventLoop waits with
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self._stage.now / 1e6

    def draw(self, limit: int) -> int:
        """A number below `limit`, from the world's dice."""
        return self._stage.dice.randrange(limit)

    async def create_connection(  # type: ignore[override]  # what a client uses of it
        self, protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int, **_: Any
    ) -> Any:
        return await self._dial(protocol_factory, host)

    # --- what BaseEventLoop wants of a loop ------------------------------------------------------

    def select(self, timeout: float | None) -> list[Any]:
        """Wait for at most `timeout` seconds: play the world meanwhile."""
        stage = self._stage
        end = None if timeout is None else stage.now + ceil(timeout * 1e6)
        while not self._ready:  # type: ignore[attr-defined]  # the queue of BaseEventLoop
            if not stage.step(end):
                if end is None:
                    raise RuntimeError("nothing will ever happen again: every broker is down")
                break
        return []

    def _process_events(self, _: Any) -> None:
        pass

    def _write_to_self(self) -> None:
        raise RuntimeError("a simulated network has one thread")

    def run_in_executor(self, *_: Any) -> Any:  # type: ignore[override]  # nobody is served
        raise RuntimeError("a simulated network has one thread: nothing runs in an executor")
