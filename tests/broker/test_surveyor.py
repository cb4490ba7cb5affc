"""The loop never waits for compiled code: it does without until that is there."""

from __future__ import annotations

import threading

import numpy as np

from gapless.broker.surveyor import LookAhead, Surveyor
from gapless.node.log_part import Piece
from gapless.wire.events import encode_event
from gapless.wire.survey import survey
from tests.broker.stage import run, wait_until
from tests.node.test_outlook import Scene


def test_a_surveyor_knows_nothing_until_a_thread_has_loaded_it_once() -> None:
    surveyor, event = Surveyor(), encode_event({"a": 1})
    pieces = [Piece(event, np.array([0, len(event)]))]
    assert surveyor(pieces, ["a"]) is None
    loading = surveyor.compiled.loading
    assert loading is not None
    loading.join()
    assert str(surveyor(pieces, ["a"])) == str(survey(pieces, ["a"])) != "None"
    assert surveyor.compiled.loading is loading


def test_logs_are_looked_at_beside_the_loop_and_not_after_it_was_closed() -> None:
    scene = Scene()
    scene.publish(2_000, b"x" * 2_000)
    surveyor, event = Surveyor(), encode_event({"a": 1})
    surveyor([Piece(event, np.array([0, len(event)]))], ["a"])
    assert surveyor.compiled.loading is not None
    surveyor.compiled.loading.join()

    async def main() -> None:
        ahead = LookAhead(scene.outlook, surveyor, lambda: 0)
        await wait_until(lambda: scene.search.digests is not None)
        assert any(each.name.startswith("look ahead") for each in threading.enumerate())
        await ahead.close()
        assert not any(each.name.startswith("look ahead") for each in threading.enumerate())

    run(main())
