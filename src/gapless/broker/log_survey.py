"""LogSurvey: compiled code that looks through logs, loaded and used beside the broker's loop.

Theory of operation
    A search does without it until it is loaded (`broker.compiled`).
    `LookAhead` surveys logs before anybody searches them (`node.outlook`): in a thread, one part of
    some milliseconds at a time, with a rest after each, longer where the process has other things
    to do: it takes a quarter of one core at most, or a fiftieth; and nothing while the process has
    much to do, for then every event would pay for searches that may never come. What it sees is
    handed over on the loop. What is damaged is passed over; what cannot be read just now, as while
    no further file may be open, is tried again.

Invariants
    I1  nothing is read any more once `close` has returned
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from gapless.broker.compiled_code import Compiled, require_kept
from gapless.broker.logs import logger
from gapless.core.errors import StorageCorruptError, StorageError
from gapless.node.reads.look_ahead import View, look
from gapless.wire.events import decode_attributes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gapless.core.events import Piece
    from gapless.node.context import Survey
    from gapless.node.reads.look_ahead import Outlook, Preview
    from gapless.wire.survey import Surveyed

IDLE_S = 2.0
"""How long to wait when there is nothing to look at, and the longest rest."""

CLOCK_S = 0.001
"""What a look takes at least; the clock may be coarse."""

REST, REST_BUSY = 3, 49
"""Rest after each part, to the time that it took."""

BUSY_SHARE, FULL_SHARE = 0.05, 0.25
"""The process is busy, or has no time at all, if all else that it does takes more than so much of
one core."""


class LogSurvey:
    """A `Survey`, which knows nothing (None) until it is loaded."""

    def __init__(self) -> None:
        self.compiled = Compiled(_load, "logs are searched without compiled code")

    def __call__(self, pieces: Sequence[Piece], names: Sequence[str]) -> Sequence[Surveyed] | None:
        survey = self.compiled.get()
        return None if survey is None else survey(pieces, names)


def _load() -> Survey:
    require_kept()
    from gapless.wire.survey import prepare, survey

    prepare()
    return survey


def rest_s(took_s: float, share: float) -> float:
    """How long to rest after a look, while all else takes such a share of one core."""
    if not took_s:
        return IDLE_S
    return min(took_s * (REST_BUSY if share > BUSY_SHARE else REST), IDLE_S)


def has_time(share: float) -> bool:
    """Is a look to be taken at all?"""
    return share <= FULL_SHARE


class LookAhead:
    """Surveys the logs of one broker while it has little else to do. `used_s`: CPU time so far, of
    the process."""

    def __init__(
        self, outlook: Outlook, survey: LogSurvey, used_s: Callable[[], float] = time.process_time
    ) -> None:
        self._outlook = outlook
        self._survey = survey
        self._used_s = used_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="look ahead")
        self._has_warned = False  # of what cannot be read
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        before_used_s, before_s, share = self._used_s(), loop.time(), 0.0
        try:
            while not self._survey.compiled.has_failed:
                took_s = await self._look() if has_time(share) else 0.0
                used_s, now_s = self._used_s(), loop.time()
                share = (used_s - before_used_s - took_s) / max(now_s - before_s, CLOCK_S)
                before_used_s, before_s = used_s, now_s
                await asyncio.sleep(rest_s(took_s, share))
        except Exception:  # an error of ours; searches do without
            logger.warning("logs are not looked at ahead of searches any more", exc_info=True)

    async def _look(self) -> float:
        """At the next part; how much CPU time that took. 0: there is none, or it has to wait."""
        part, was_loaded = self._outlook.next_part(), self._survey.compiled.is_loaded
        if part is None:
            return 0.0
        loop = asyncio.get_running_loop()
        try:
            view, took_s = await loop.run_in_executor(self._thread, self._look_beside, part)
        except StorageError as error:  # who searches it will be told
            self._warn(error)
            if isinstance(error, StorageCorruptError):
                self._outlook.take(part, View(part.span.end))
            return 0.0
        self._has_warned = False
        if view is None or was_loaded:
            self._outlook.take(part, view)
        return took_s if view is not None and was_loaded else 0.0

    def _warn(self, error: StorageError) -> None:
        if not self._has_warned:
            logger.warning("a log cannot be looked at", extra={"reason": str(error)})
        self._has_warned = True

    def _look_beside(self, part: Preview) -> tuple[View | None, float]:
        begin_s = time.thread_time()
        view = look(part, self._survey, decode_attributes)
        return view, max(time.thread_time() - begin_s, CLOCK_S)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        await asyncio.to_thread(self._thread.shutdown)
