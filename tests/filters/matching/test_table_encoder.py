"""AttributeTable attributes match as the same attributes do as maps."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapless.core.events import EventBatch
from gapless.filters.matcher import SMALL_MAX, Matcher
from gapless.filters.matching import kernels, table_encoder
from gapless.filters.matching.columns import ColumnLayout
from gapless.filters.matching.table_encoder import make_table_encoder
from gapless.filters.show import show
from gapless.wire.attribute_rows import AttributeRows
from gapless.wire.events import encode_event
from tests.filters.strategies import BYTES, MOMENTS, attribute_maps, conditions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gapless.core.events import Attributes, Value
    from gapless.filters.syntax import Condition

VALUES: list[Any] = [
    *(None, True, False, 0, 1, 2, 5, 100, -3, 2**53, 2**53 + 1, 2**62 + 1, -(2**63)),
    *(0.5, -0.0, 2.0, float("nan"), float("inf"), 1e300, "", "a", "ab", "é", "a" * 40, "1"),
    *(*MOMENTS, *BYTES),
]
SIMPLE = [
    *("{} = 1", "{} > 0", "{} BETWEEN 0 AND 2", "{} = TRUE", "{} <> TRUE", "{} = 0.5", "{} = 100"),
    *("{} = 'ab'", "{} <> 'ab'", "{} = ''", "{} IS NULL", "{} IS NOT NULL", "{} = 'é'"),
    *("{} > 9007199254740992", "{} = -3", "{} = 0", "{} IN (1, 2, 5)"),
    "{} > TIMESTAMP '1970-01-01T00:00:00Z'",
    "{} <= TIMESTAMP '2026-11-17T09:00:00Z'",
]
ODD = [
    *("{} = TIMESTAMP '1970-01-01T00:00:00Z'", "{} = X'61'", "{} <> X'61'"),
    "{} LIKE 'a%'",
    "{} LIKE '%b%'",
    "{} + 1 > 2",
    "{} = 9007199254740993",
]


class AttributeTable(AttributeRows):
    """Counts what was decoded after all."""

    decoded = 0

    def __iter__(self) -> Iterator[Attributes]:
        AttributeTable.decoded += len(self)
        return super().__iter__()


def located(rows: Sequence[Attributes]) -> AttributeTable:
    AttributeTable.decoded = 0
    return AttributeTable(EventBatch.join(encode_event(row) for row in rows))


def random_rows(count: int, names: Sequence[str]) -> list[Attributes]:
    dice = random.Random(5)
    rows = [{name: dice.choice(VALUES) for name in names} for _ in range(count)]
    return [{n: value for n, value in row.items() if value is not None} for row in rows]


@pytest.mark.parametrize("engine", ["python", "compiled"])
def test_all_that_is_simple_matches_without_decoding(engine: Any) -> None:
    names = "abcd"
    matcher = Matcher[tuple[str, str]](engine=engine)
    for name in names:
        for test in SIMPLE:
            matcher.add((name, test), test.format(name))
    matcher.add(("a", "b"), "a = 'ab' AND b = 1 AND c > 0")
    rows = random_rows(299, [*names, "other"])
    rows.append({"a": "ab", "b": 1, "c": 2})
    batch = located(rows)
    pairs = matcher.match_batch(batch)
    assert pairs == matcher.match_batch(rows)
    assert len({key for _, key in pairs}) == len(matcher)
    assert AttributeTable.decoded == (0 if engine == "compiled" else 300)


@pytest.mark.parametrize("odd", ODD)
def test_what_needs_the_values_themselves_is_decoded(odd: str) -> None:
    matcher = Matcher({odd: odd.format("a"), "b": "b = 1"}, engine="compiled")
    rows = random_rows(100, "ab")
    assert matcher.match_batch(located(rows)) == matcher.match_batch(rows)
    assert AttributeTable.decoded == 100


def test_an_event_in_a_strange_form_makes_its_batch_be_decoded() -> None:
    matcher = Matcher({"one": "a = 1", "x": "a > 0.5"}, engine="compiled")
    half = b"\x91\x81\xa1a\xca\x3f\x80\x00\x00"
    batch = AttributeRows(EventBatch((encode_event({"a": 1}), half)))
    assert matcher.match_batch(batch) == [(0, "one"), (0, "x"), (1, "one"), (1, "x")]


def test_filters_that_come_and_go_count_at_once() -> None:
    dice = random.Random(3)
    matcher = Matcher[int](engine="compiled")
    rows = random_rows(40, "abc")
    for step in range(200):
        number = dice.randrange(30)
        if number in matcher:
            matcher.remove(number)
        else:
            test = dice.choice(SIMPLE[:13]).format(dice.choice("abc"))
            matcher.add(number, f"{test} AND b <> 'v{step}'")
        assert matcher.match_batch(located(rows)) == matcher.match_batch(rows)


def test_many_numbers_are_looked_up_and_too_many_are_left_to_decoding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    matcher = Matcher({n: f"a = {n}" for n in range(50)}, engine="compiled")
    rows: list[Attributes] = [{"a": n} for n in range(60)]
    assert matcher.match_batch(located(rows)) == [(n, n) for n in range(50)]
    assert AttributeTable.decoded == 0
    monkeypatch.setattr(table_encoder, "NUMBERS_NAMED_MAX", 50)
    matcher.add(50, "a = 50")
    assert matcher.match_batch(located(rows)) == [(n, n) for n in range(51)]
    assert AttributeTable.decoded == 60


def test_filters_that_ask_for_nothing_look_at_no_event() -> None:
    matcher = Matcher({"all": "", "too": "TRUE"}, engine="python")
    assert matcher.match_batch(located([{"a": 1}] * 2)) == [
        *((0, "all"), (0, "too")),
        *((1, "all"), (1, "too")),
    ]
    assert AttributeTable.decoded == 0
    matcher.add("some", "a = 1")
    assert len(matcher.match_batch(located([{"a": 1}] * 2))) == 6
    assert AttributeTable.decoded == 2


def test_an_encoder_of_no_columns_makes_empty_rows() -> None:
    encoder = make_table_encoder(ColumnLayout())
    assert encoder is not None
    found = located([{"a": 1}]).locate(encoder.names)
    assert found is not None
    rows = encoder.rows(found)
    assert rows is not None
    assert len(rows) == 0


def is_fit(value: Value) -> bool:
    if isinstance(value, str):
        return value.isprintable() or not any("\ud800" <= c <= "\udfff" for c in value)
    return not isinstance(value, int) or -(1 << 63) <= value < 1 << 63


@settings(max_examples=60)
@given(
    st.lists(conditions(), min_size=1, max_size=8),
    st.lists(attribute_maps(), min_size=1, max_size=8),
)
def test_any_conditions_match_located_events_as_maps(
    some: list[Condition], rows: list[Attributes]
) -> None:
    rows = [{n: value for n, value in row.items() if is_fit(value)} for row in rows]
    matcher = Matcher(enumerate(map(show, some)), engine="compiled")
    assert matcher.match_batch(located(rows)) == matcher.match_batch(rows)


def test_kernels_that_became_ready_are_taken_over_with_the_next_located_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as before:
        before.setattr(kernels, "are_ready", lambda: False)
        matcher = Matcher({number: f"a = {number}" for number in range(SMALL_MAX + 2)})
    rows: list[Attributes] = [{"a": 1}]
    assert matcher.match_batch(rows) == [(0, 1)]
    assert matcher.statistics()["engine"] == "python"
    assert matcher.match_batch(located(rows)) == [(0, 1)]
    assert matcher.statistics()["engine"] == "compiled"
