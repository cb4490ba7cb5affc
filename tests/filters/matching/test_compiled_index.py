"""The compiled engine: it prepares for columns when that is worth it, and leaves no garbage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gapless.core.events import EventBatch
from gapless.filters.constraint import strings
from gapless.filters.like import parse_pattern
from gapless.filters.matcher import Matcher
from gapless.filters.matching import compiled_index
from gapless.filters.matching.attribute_columns import MEMO_TEXT_MAX, Truth
from gapless.filters.matching.compiled_index import GARBAGE_MIN, WRITTEN_AFTER
from gapless.filters.matching.encoder import make_encoder
from gapless.filters.matching.expression_column import TERMS_MAX, read_comparison
from gapless.filters.parse import parse
from gapless.wire.attribute_rows import AttributeRows
from gapless.wire.events import encode_event

if TYPE_CHECKING:
    from gapless.core.events import Attributes


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many functions were written for columns."""
    made: list[int] = []

    def count(columns: Any) -> Any:
        made.append(columns.version)
        return make_encoder(columns)

    monkeypatch.setattr(compiled_index, "make_encoder", count)
    return made


def test_filters_that_change_with_every_event_write_no_function(written: list[int]) -> None:
    """Writing one takes as long as some dozen events for each attribute."""
    matcher = Matcher[Any]({n: f"a{n} > 1" for n in range(20)}, engine="compiled")
    for step in range(200):
        matcher.add("new", f"b{step} > 1")
        assert matcher.match({f"b{step}": 2}) == ["new"]
        assert matcher.match_batch([{"a7": 2}, {}]) == [(0, 7)]
        matcher.remove("new")
    assert written == []


def test_a_function_is_written_once_it_is_worth_it(written: list[int]) -> None:
    matcher = Matcher({n: f"a{n} > 1" for n in range(4)}, engine="compiled")
    for _ in range(4 * WRITTEN_AFTER - 1):
        assert matcher.match({"a3": 2}) == [3]
    assert written == []
    for _ in range(3):
        assert matcher.match({"a3": 2}) == [3]
    assert len(written) == 1
    matcher.add(9, "a3 > 0")  # no column changes
    assert matcher.match({"a3": 2}) == [3, 9]
    assert len(written) == 1


def test_garbage_counts_by_rows() -> None:
    """A filter of many alternatives that comes and goes leaves as much behind as many filters."""
    matcher = Matcher[Any]({"kept": "a = 'kept'"}, engine="compiled")
    sizes = []
    for step in range(30):
        alternatives = (f"a = 'x{step}-{n}' AND b > {n}" for n in range(500))
        matcher.add("many", " OR ".join(alternatives))
        matcher.remove("many")
        sizes.append(int(matcher.statistics()["bytes"]))
    assert max(sizes) < 2 * max(sizes[: 2 + GARBAGE_MIN // 500])
    assert matcher.match({"a": "kept"}) == ["kept"]


class Decoded(AttributeRows):
    """Counts the events that were decoded one by one."""

    decoded = 0

    def __getitem__(self, index: Any) -> Any:
        Decoded.decoded += 1
        return super().__getitem__(index)


def test_an_event_is_decoded_once_for_all_that_is_checked_on_it() -> None:
    matcher = Matcher({n: f"a > {2**53 + 2 * n} AND b > {n}" for n in range(30)}, engine="compiled")
    events: list[Attributes] = [{"a": 2**60, "b": n} for n in range(20)]
    batch = Decoded(EventBatch.join(map(encode_event, events)))
    assert matcher.match_batch(batch) == matcher.match_batch(events)
    assert 0 < Decoded.decoded <= 20


def test_only_short_texts_are_remembered() -> None:
    truth = Truth(strings(like=[parse_pattern("%b%")]), 0)  # type: ignore[arg-type]
    for text in ("ab", "a" * MEMO_TEXT_MAX, "a" * MEMO_TEXT_MAX + "b"):
        assert truth.of_string(text) == float("b" in text)
    assert len(truth._memo) == 2


def test_only_short_expressions_are_computed_for_every_event() -> None:
    assert read_comparison(parse("a" + " + a" * (TERMS_MAX - 1) + " > 1")) is not None
    assert read_comparison(parse("a" + " + a" * TERMS_MAX + " > 1")) is None
    assert read_comparison(parse("(a + b) * (" + "a + " * TERMS_MAX + "b) > 1")) is None
    matcher = Matcher({1: "a" + " + a" * 100 + " > 100"}, engine="compiled")
    assert matcher.match({"a": 1}) == [1]
    assert matcher.match({"a": 0.5}) == []


@pytest.mark.parametrize("engine", ["python", "compiled"])
def test_what_passes_is_what_anybody_wants(engine: Any) -> None:
    matcher = Matcher[Any](engine=engine)
    events: list[Attributes] = [{"a": n % 5} for n in range(20)]
    assert matcher.passing(events) == []
    for number, condition in enumerate(("a = 1", "a > 0 AND a < 2", "a + a = 6")):
        matcher.add(number, condition)
    assert matcher.passing(events) == sorted({index for index, _ in matcher.match_batch(events)})
    matcher.add("all", "")
    assert matcher.passing(events) == list(range(20))
    everything = Matcher({"all": ""}, engine=engine)
    assert everything.passing(events) == list(range(20))
