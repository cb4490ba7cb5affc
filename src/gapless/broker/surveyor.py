"""Surveyor: looks through a log by compiled code, once that is loaded (`broker.compiled`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.broker.compiled import Compiled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.node.log_part import Piece
    from gapless.node.log_search import Survey
    from gapless.wire.survey import Surveyed


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
