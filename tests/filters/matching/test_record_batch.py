"""Record batches: every Arrow type an attribute may have, against the same events as maps."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from gapless.core.timestamps import EPOCH, LAST
from gapless.filters.matcher import Matcher
from tests.filters.strategies import BYTES, MOMENTS

if TYPE_CHECKING:
    from gapless.filters.matcher import Engine

BOTH = pytest.mark.parametrize("engine", ["python", "compiled"])

NUMBERS = [None, 0, 1, 2, 5, 100, -3, 0.5, -0.0, float("nan"), float("inf"), 1e300]
INTEGERS = [None, 0, 1, 2, 5, 100, -3, 2**53 + 1, 2**62 + 1]
TEXTS = [None, "", "a", "ab", "abc", "abd", "é", "x%", "a" * 40]
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "flag": (pa.bool_(), [None, True, False]),
    "tiny": (pa.int8(), [None, 0, 1, 2, 5, 100, -3]),
    "large": (pa.int64(), INTEGERS),
    "whole": (pa.uint64(), [None, 0, 1, 2, 5, 2**53 + 1, 2**64 - 1]),
    "half": (pa.float32(), [None, 0.5, 1.0, 2.0, float("nan")]),
    "price": (pa.float64(), NUMBERS),
    "text": (pa.string(), TEXTS),
    "note": (pa.large_string(), TEXTS),
    "view": (pa.string_view(), TEXTS),
    "code": (pa.dictionary(pa.int32(), pa.string()), TEXTS),
    "rank": (pa.dictionary(pa.int8(), pa.int64()), [None, 0, 1, 2, 5]),
    "at": (pa.timestamp("us", "UTC"), [None, *MOMENTS]),
    "second": (pa.timestamp("s", "Europe/Oslo"), [None, EPOCH, LAST.replace(microsecond=0)]),
    "raw": (pa.binary(), [None, *BYTES]),
    "blob": (pa.large_binary(), [None, *BYTES]),
    "fixed": (pa.binary(1), [None, b"a", b"\xff"]),
    "seal": (pa.dictionary(pa.int8(), pa.binary()), [None, *BYTES]),
    "void": (pa.null(), [None]),
}
TESTS = [
    *("{} = 1", "{} <> 1", "{} > 0", "{} BETWEEN 0 AND 2", "{} IN (1, 2, 100)", "{} = TRUE"),
    *("{} = 'ab'", "{} <> 'ab'", "{} LIKE 'ab%'", "{} LIKE '%b%'", "{} < 'ab'", "{} NOT IN ('a')"),
    *(
        "{} IS NULL",
        "{} IS NOT NULL",
        "{} + 1 > 2",
        "{} > 9007199254740992",
        "{} <= 4611686018427387905",
    ),
    *(f"{{}} {sign} TIMESTAMP '1970-01-01T00:00:00Z'" for sign in ("=", "<>", "<", ">=")),
    "{} BETWEEN TIMESTAMP '1970-01-01T00:00:00.000001Z' AND TIMESTAMP '2026-11-17T09:00:00Z'",
    "{} IN (TIMESTAMP '1970-01-01T00:00:00Z', TIMESTAMP '9999-12-31T23:59:59.999999Z', X'61')",
    "{} > TIMESTAMP '2255-06-05T23:47:34.740992Z'",
    *("{} = X'61'", "{} <> X'61'", "{} >= X'6100'", "{} IN (X'', X'FF')", "{} NOT IN (X'61')"),
    *("{} = 9007199254740993", "{} NOT LIKE 'a%'", "{} NOT IN (1, 2, 5)", "{} = ''"),
]


def make_events(count: int) -> tuple[list[dict[str, Any]], pa.RecordBatch]:
    dice = random.Random(11)
    columns = {
        name: [dice.choice(some) for _ in range(count)] for name, (_, some) in COLUMNS.items()
    }
    arrays = {name: pa.array(values, COLUMNS[name][0]) for name, values in columns.items()}
    events = [
        {name: values[row] for name, values in columns.items() if values[row] is not None}
        for row in range(count)
    ]
    return events, pa.record_batch(arrays)


@BOTH
@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_of_each_type_matches_like_its_values(name: str, engine: Engine) -> None:
    matcher = Matcher({test: test.format(name) for test in TESTS}, engine=engine)
    events, batch = make_events(90)
    assert list(matcher.match_batch(batch)) == matcher.match_batch(events)


@BOTH
def test_columns_are_matched_together(engine: Engine) -> None:
    dice = random.Random(2)
    matcher = Matcher[int](engine=engine)
    for number in range(250):
        parts = [dice.choice(TESTS).format(name) for name in dice.sample(list(COLUMNS), 2)]
        matcher.add(number, dice.choice([" AND ", " OR "]).join(parts))
    events, batch = make_events(120)
    pairs = matcher.match_batch(events)
    matches = matcher.match_batch(batch)
    assert len(matches) == len(pairs) > 1_000
    assert list(matches) == pairs
    assert list(zip(matches.event_indices.tolist(), matches.keys(), strict=True)) == pairs
    rows = [index for index, _ in pairs]
    assert matches.counts.tolist() == [rows.count(index) for index in range(len(events))]
    part = matcher.match_batch(batch.slice(37, 20))
    assert list(part) == [(index - 37, key) for index, key in pairs if 37 <= index < 57]


@BOTH
def test_a_column_that_is_no_attribute_is_refused_by_name_if_a_filter_uses_it(
    engine: Engine,
) -> None:
    batch = pa.record_batch({"when": pa.array([1], pa.date32()), "x": [1]})
    assert list(Matcher({1: "x = 1"}, engine=engine).match_batch(batch)) == [(0, 1)]
    for condition in ("when = 1", "when + x > 0"):
        with pytest.raises(TypeError, match="'when' is of type date32"):
            Matcher({1: condition}, engine=engine).match_batch(batch)


@BOTH
def test_a_null_in_a_dictionary_is_missing(engine: Engine) -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 1]), pa.array(["a", None]))
    matcher = Matcher({1: "x IS NULL", 2: "x = 'a'", 3: "x IS NOT NULL"}, engine=engine)
    found = list(matcher.match_batch(pa.record_batch({"x": column})))
    assert found == [(0, 2), (0, 3), (1, 1), (2, 1), (3, 1)]


@BOTH
@pytest.mark.parametrize(("kind", "count"), [(pa.int8(), 128), (pa.uint8(), 256)])
def test_a_dictionary_may_be_as_large_as_its_indices_reach(
    engine: Engine, kind: pa.DataType, count: int
) -> None:
    words = pa.array([f"s{number}" for number in range(count)])
    column = pa.DictionaryArray.from_arrays(pa.array([count - 1, None, 1], kind), words)
    matcher = Matcher({"it": f"a LIKE '%{count - 1}'", "none": "a IS NULL"}, engine=engine)
    found = matcher.match_batch(pa.RecordBatch.from_arrays([column], ["a"]))
    assert list(found) == [(0, "it"), (1, "none")]


@BOTH
def test_nulls_among_numbers_are_no_numbers(engine: Engine) -> None:
    matcher = Matcher({1: "x < 5", 2: "x > -5", 3: "x BETWEEN -1 AND 1"}, engine=engine)
    for kind in (pa.int64(), pa.float64(), pa.uint8()):
        batch = pa.record_batch({"x": pa.array([None, 0, None], kind)})
        assert list(matcher.match_batch(batch)) == [(1, 1), (1, 2), (1, 3)]


@BOTH
def test_nulls_among_strings_are_no_strings(engine: Engine) -> None:
    matcher = Matcher({1: "x = ''", 2: "x <> 'a'", 3: "x = 'a'"}, engine=engine)
    plain = (pa.string(), pa.large_string(), pa.string_view())
    for kind in (*plain, *(pa.dictionary(pa.int8(), each) for each in plain[:2])):
        batch = pa.record_batch({"x": pa.array([None, "", None, "a", "b"], kind)})
        assert list(matcher.match_batch(batch)) == [(1, 1), (1, 2), (3, 3), (4, 2)]
        few = batch.slice(2, 2)  # fewer than a dictionary has
        assert list(matcher.match_batch(few)) == [(1, 3)]


@BOTH
def test_two_columns_of_one_name_are_refused(engine: Engine) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    with pytest.raises(TypeError, match="2 columns 'x'"):
        Matcher({1: "x = 1"}, engine=engine).match_batch(batch)


@BOTH
def test_an_empty_batch_and_an_absent_column_match_nothing_by_themselves(engine: Engine) -> None:
    matcher = Matcher({1: "x = 1", 2: "x IS NULL", 3: "s LIKE 'a%'"}, engine=engine)
    assert list(matcher.match_batch(pa.record_batch({"x": pa.array([], pa.int64())}))) == []
    assert list(matcher.match_batch(pa.record_batch({"y": [1, 2]}))) == [(0, 2), (1, 2)]
    assert matcher.match_batch([]) == []


@BOTH
def test_keys_are_not_looked_up_in_a_matcher_that_has_changed(engine: Engine) -> None:
    matcher = Matcher({1: "x = 1"}, engine=engine)
    matches = matcher.match_batch(pa.record_batch({"x": [1]}))
    assert matches.handles.tolist() == [matcher.handle_of(1)]
    matcher.remove(1)
    with pytest.raises(RuntimeError, match="has changed"):
        matches.keys()


def test_more_matches_than_fit_one_result_buffer_are_all_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gapless.filters.matching.compiled_index.BATCH_OUT", 1)
    matcher = Matcher({number: f"x >= {number}" for number in range(100)}, engine="compiled")
    batch = pa.record_batch({"x": [5, 200, 0, -1, 200, 50]})
    expected = [(e, n) for e, x in enumerate(batch["x"].to_pylist()) for n in range(100) if x >= n]
    assert list(matcher.match_batch(batch)) == expected
