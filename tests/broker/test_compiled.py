"""The loop never waits for compiled code: it does without until that is there."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from gapless.broker.compiled import Compiled
from gapless.broker.reader import Reader
from gapless.core.errors import WireError
from gapless.core.events import EventBatch
from gapless.wire.attribute_rows import AttributeRows
from gapless.wire.events import encode_event

if TYPE_CHECKING:
    from threading import Thread


def test_what_cannot_be_loaded_is_done_without_and_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def load() -> int:
        raise ImportError("no numba")

    with caplog.at_level(logging.WARNING):
        compiled = Compiled(load, "a broker without")
        assert compiled.get() is None
        assert compiled.loading is not None
        compiled.loading.join()
        assert compiled.get() is None
    assert [record.message for record in caplog.records] == ["a broker without"]


def test_a_reader_decodes_until_it_has_seen_enough_and_reads_the_same_after() -> None:
    reader, batch = Reader(decoded_max=3), EventBatch((encode_event({"a": 1}),) * 2)
    reader.check(batch)
    assert reader.attributes_of(batch) == [{"a": 1}, {"a": 1}]
    assert not reader.compiled.loading
    reader.check(batch)
    loading: Thread | None = reader.compiled.loading
    assert loading is not None
    loading.join()
    reader.check(batch)
    rows = reader.attributes_of(batch)
    assert isinstance(rows, AttributeRows)
    assert list(rows) == [{"a": 1}, {"a": 1}]
    with pytest.raises(WireError):
        reader.check(EventBatch((b"\x93",)))
