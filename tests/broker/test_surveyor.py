"""The loop never waits for compiled code: it does without until that is there."""

from __future__ import annotations

import numpy as np

from gapless.broker.surveyor import Surveyor
from gapless.node.log_part import Piece
from gapless.wire.events import encode_event
from gapless.wire.survey import survey


def test_a_surveyor_knows_nothing_until_a_thread_has_loaded_it_once() -> None:
    surveyor, event = Surveyor(), encode_event({"a": 1})
    pieces = [Piece(event, np.array([0, len(event)]))]
    assert surveyor(pieces, ["a"]) is None
    loading = surveyor.compiled.loading
    assert loading is not None
    loading.join()
    assert str(surveyor(pieces, ["a"])) == str(survey(pieces, ["a"])) != "None"
    assert surveyor.compiled.loading is loading
