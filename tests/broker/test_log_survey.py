"""The loop never waits for compiled code: it does without until that is there."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from gapless.broker.log_survey import IDLE_S, LogSurvey, LookAhead, has_time, rest_s
from gapless.core.errors import StorageCorruptError, StorageError, StorageFilesError
from gapless.core.events import Piece
from gapless.wire.events import encode_event
from gapless.wire.survey import survey
from tests.broker.stage import run, wait_until
from tests.node.reads.test_look_ahead import Scene

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from gapless.core.store import RecordRun, Store


class Torn:
    """A store that cannot be read for as often as there are errors left."""

    def __init__(self, store: Store, *errors: StorageError) -> None:
        self._store = store
        self.errors = list(errors)

    def scan_runs(self, *arguments: Any, **limits: Any) -> list[RecordRun]:
        if self.errors:
            raise self.errors.pop()
        return self._store.scan_runs(*arguments, **limits)


def loaded() -> LogSurvey:
    log_survey, event = LogSurvey(), encode_event({"a": 1})
    log_survey([Piece(event, np.array([0, len(event)]))], ["a"])
    assert log_survey.compiled.loading is not None
    log_survey.compiled.loading.join()
    return log_survey


def test_a_surveyor_knows_nothing_until_a_thread_has_loaded_it_once() -> None:
    log_survey, event = LogSurvey(), encode_event({"a": 1})
    pieces = [Piece(event, np.array([0, len(event)]))]
    assert log_survey(pieces, ["a"]) is None
    loading = log_survey.compiled.loading
    assert loading is not None
    loading.join()
    assert str(log_survey(pieces, ["a"])) == str(survey(pieces, ["a"])) != "None"
    assert log_survey.compiled.loading is loading


def test_logs_are_looked_at_beside_the_loop_and_not_after_it_was_closed() -> None:
    scene = Scene()
    scene.publish(2_000, b"x" * 2_000)
    log_survey = loaded()

    async def main() -> None:
        ahead = LookAhead(scene.outlook, log_survey)
        await wait_until(lambda: scene.search.digests is not None)
        assert any(each.name.startswith("look ahead") for each in threading.enumerate())
        await ahead.close()
        assert not any(each.name.startswith("look ahead") for each in threading.enumerate())

    run(main())


def test_a_process_that_does_something_else_is_looked_at_less_than_an_idle_one() -> None:
    assert rest_s(0.01, share=0.02) == 0.03
    assert rest_s(0.01, share=0.1) == 0.49
    assert rest_s(1.0, share=0.0) == rest_s(0.0, share=0.0) == IDLE_S


def test_a_process_that_has_much_to_do_is_not_looked_at() -> None:
    assert has_time(0.02)
    assert has_time(0.1)
    assert not has_time(0.5)


def look_at_torn(error: StorageError, until: Callable[[Scene], bool]) -> tuple[Scene, Torn]:
    """Look at a log whose first reading ends with this error, until so much is seen."""
    scene, log_survey = Scene(), loaded()
    scene.publish(2_000, b"x" * 2_000)
    torn: Any = Torn(scene.pubend.store, error)
    scene.pubend.store = torn

    async def main() -> None:
        ahead = LookAhead(scene.outlook, log_survey)
        await wait_until(lambda: until(scene))
        await ahead.close()

    run(main())
    return scene, torn


def test_a_log_that_cannot_be_read_for_a_while_is_looked_at_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    error = StorageFilesError("too many are open")
    _, torn = look_at_torn(error, lambda scene: scene.search.digests is not None)
    assert not torn.errors
    [line] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "ulimit -n" in line.__dict__["reason"]


def test_a_log_that_is_damaged_is_passed_over() -> None:
    error = StorageCorruptError("it was cut")
    scene, _ = look_at_torn(error, lambda scene: scene.outlook.next_part() is None)
    assert scene.search.digests is None
