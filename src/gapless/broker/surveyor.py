"""Surveyor: compiled code that looks through logs, loaded and used beside the broker's loop.

Theory of operation
    A search does without it until it is loaded (`broker.compiled`).
    `LookAhead` surveys logs before anybody searches them (`node.outlook`): in a thread, one part of
    a few milliseconds at a time, with a rest after each: as long as it took where the broker does
    nothing else, and fifty times as long where it does. What it sees is handed over on the loop.

Invariants
    I1  nothing is read any more once `close` has returned
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from gapless.broker.compiled import Compiled
from gapless.broker.logs import logger
from gapless.node.outlook import look
from gapless.wire.events import decode_attributes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gapless.node.log_part import Piece
    from gapless.node.log_search import Survey
    from gapless.node.outlook import Outlook
    from gapless.wire.survey import Surveyed

IDLE_S = 2.0
"""How long to wait when there is nothing to look at."""

REST, REST_BUSY = 1, 49
"""Rest after each part, to the time that it took."""

BUSY_STEPS_PER_S = 50
"""More steps of the node in a second, and the broker is busy."""


class Surveyor:
    """A `Survey`, which knows nothing (None) until it is loaded."""

    def __init__(self) -> None:
        self.compiled = Compiled(_load, "logs are searched without compiled code")

    def __call__(self, pieces: Sequence[Piece], names: Sequence[str]) -> Sequence[Surveyed] | None:
        survey = self.compiled.get()
        return None if survey is None else survey(pieces, names)


def _load() -> Survey:
    from gapless.wire.survey import prepare, survey

    prepare()
    return survey


class LookAhead:
    """Surveys the logs of one broker while it has little else to do. `count_steps`: of its node."""

    def __init__(
        self, outlook: Outlook, surveyor: Surveyor, count_steps: Callable[[], int]
    ) -> None:
        self._outlook = outlook
        self._surveyor = surveyor
        self._count_steps = count_steps
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="look ahead")
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while not self._surveyor.compiled.has_failed:
                steps, begin_s = self._count_steps(), loop.time()
                if not await self._look():
                    await asyncio.sleep(IDLE_S)
                    continue
                took_s = loop.time() - begin_s
                is_busy = self._count_steps() - steps > 1 + BUSY_STEPS_PER_S * took_s
                await asyncio.sleep(took_s * (REST_BUSY if is_busy else REST))
        except Exception:  # a part that cannot be read: who searches it will be told
            logger.warning("logs are not looked at ahead of searches any more", exc_info=True)

    async def _look(self) -> bool:
        """At the next part; was there one, and has it been seen?"""
        part, was_loaded = self._outlook.next_part(), self._surveyor.compiled.is_loaded
        if part is None:
            return False
        loop = asyncio.get_running_loop()
        view = await loop.run_in_executor(
            self._thread, look, part, self._surveyor, decode_attributes
        )
        if view is None or was_loaded:
            self._outlook.take(part, view)
        return view is not None and was_loaded

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        await asyncio.to_thread(self._thread.shutdown)
