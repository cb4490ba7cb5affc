"""Surveyor: compiled code that looks through a log, loaded beside the broker's loop.

Theory of operation
    Loading it takes half a second, compiling it some seconds once a machine, and a loop that waits
    for that serves nobody. So the first who needs it makes a thread load it, and does without
    until it is there. Where it cannot be loaded, all do without, and the log says why.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from gapless.broker.logs import logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.node.log_part import Piece
    from gapless.node.log_search import Survey
    from gapless.wire.survey import Surveyed


class Surveyor:
    """A `Survey`, which knows nothing (None) until it is loaded."""

    def __init__(self) -> None:
        self._survey: Survey | None = None
        self.loading: threading.Thread | None = None

    def __call__(self, pieces: Sequence[Piece], names: Sequence[str]) -> Sequence[Surveyed] | None:
        if self._survey is not None:
            return self._survey(pieces, names)
        if self.loading is None:
            self.loading = threading.Thread(target=self._load, name="surveyor", daemon=True)
            self.loading.start()
        return None

    def _load(self) -> None:
        try:
            from gapless.wire.survey import prepare, survey

            prepare()
        except Exception:  # whatever numba makes of this machine: the broker can do without
            logger.warning("logs are searched without compiled code", exc_info=True)
        else:
            self._survey = survey
