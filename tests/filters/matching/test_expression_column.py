"""Expression columns: comparisons of expressions, exact for every kind of value on every path."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapless.filters.filter import Filter
from gapless.filters.matcher import Matcher
from gapless.filters.matching.expression_column import EXPRESSIONS_MAX, read_comparison
from tests.filters.matching.scan import LinearScan, assert_agree

if TYPE_CHECKING:
    from gapless.filters.matcher import Engine

EDGE = 2**53
EXPRESSIONS = [
    *("a + b", "a - b", "a * b", "a / b", "a % b", "-a", "+a", "a + b - b", "a * b / b"),
    *("a / 2", "a % 3", "2 / a", "a * 0", "a - 9007199254740993", "(a + b) * c", "a + 0.5"),
    *("a / b % c", "-a * b", "a - (b - c)", "7 % a", "1.5 % b", "a * 1e300"),
]
NUMBERS = [
    *("0", "1", "-1", "2", "0.5", "-0.0", "3.5", "1e300", "9007199254740991", "9007199254740992"),
    *("9007199254740993", "-9007199254740993", "9223372036854775807"),
]
INTEGERS = [
    *(0, 1, -1, 2, 3, -7, 100, EDGE - 1, EDGE, EDGE + 1, -EDGE - 1, 2**62 + 1),
    *(2**63 - 1, -(2**63), 94906267, 3037000500),
]
FLOATS = [
    *(0.0, -0.0, 0.5, 1.0, -2.5, 1e300, -1e300, 5e-324, float(EDGE), 2.0**63),
    *(float("inf"), float("-inf"), float("nan")),
]
ODD = [True, False, "1", "", None, 10**30, -(10**400)]


def comparisons() -> st.SearchStrategy[str]:
    sign = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
    return st.one_of(
        st.builds("{} {} {}".format, st.sampled_from(EXPRESSIONS), sign, st.sampled_from(NUMBERS)),
        st.builds(
            "{2} {1} {0}".format, st.sampled_from(EXPRESSIONS), sign, st.sampled_from(NUMBERS)
        ),
        st.builds(
            "{} BETWEEN {} AND {}".format,
            st.sampled_from(EXPRESSIONS),
            st.sampled_from(NUMBERS),
            st.sampled_from(NUMBERS),
        ),
        st.builds("NOT ({} > b)".format, st.sampled_from(EXPRESSIONS)),
    )


def columns() -> st.SearchStrategy[tuple[pa.DataType, list[Any]]]:
    """Some values of one kind, and the Arrow type that holds them."""
    kinds = [
        (pa.int64(), st.sampled_from(INTEGERS)),
        (pa.uint64(), st.sampled_from([0, 1, 3, EDGE + 1, 2**64 - 1])),
        (pa.float64(), st.sampled_from(FLOATS)),
        (pa.dictionary(pa.int8(), pa.int64()), st.sampled_from(INTEGERS)),
        (pa.bool_(), st.booleans()),
        (pa.string(), st.sampled_from(["1", ""])),
    ]
    return st.one_of(
        [
            st.lists(st.one_of(values, values, values, st.none()), min_size=6, max_size=6).map(
                lambda some, kind=kind: (kind, some)  # type: ignore[misc]
            )
            for kind, values in kinds
        ]
    )


@settings(max_examples=120, deadline=None)
@given(
    st.lists(comparisons(), min_size=1, max_size=12, unique=True),
    st.lists(st.tuples(*[st.sampled_from([*INTEGERS, *FLOATS, *ODD])] * 3), max_size=8),
)
def test_comparisons_of_expressions_agree_with_the_scan(
    conditions: list[str], rows: list[tuple[Any, ...]]
) -> None:
    scan = LinearScan()
    matchers = [Matcher[int](engine="python"), Matcher[int](engine="compiled")]
    everyone: list[Any] = [scan, *matchers]
    for number, condition in enumerate(conditions):
        for one in everyone:
            one.add(number, condition)
    events = [
        {name: value for name, value in zip("abc", row, strict=True) if value is not None}
        for row in rows
    ]
    assert_agree(scan, matchers, events)


@settings(max_examples=120, deadline=None)
@given(st.lists(comparisons(), min_size=1, max_size=12, unique=True), st.tuples(*[columns()] * 3))
def test_columns_of_a_batch_are_calculated_like_their_values(
    conditions: list[str], drawn: tuple[tuple[pa.DataType, list[Any]], ...]
) -> None:
    matcher = Matcher({text: text for text in conditions}, engine="compiled")
    named = dict(zip("abc", drawn, strict=True))
    batch = pa.record_batch({name: pa.array(some, kind) for name, (kind, some) in named.items()})
    for part in (batch, batch.slice(2, 3)):
        found = set(matcher.match_batch(part))
        expected = set()
        for index, row in enumerate(part.to_pylist()):
            event = {name: value for name, value in row.items() if value is not None}
            expected |= {(index, text) for text in conditions if Filter.parse(text).matches(event)}
        assert found == expected


def test_a_comparison_with_a_number_needs_no_check() -> None:
    matcher = Matcher({1: "a * b > 5 AND s = 'x'", 2: "3 >= a - b"}, engine="compiled")
    assert matcher.match({"a": 2, "b": 3, "s": "x"}) == [1, 2]
    assert not matcher._index._verification  # type: ignore[union-attr]
    matcher.add(3, f"a * b > {EDGE}")
    assert len(matcher._index._verification) == 1, "beyond 2^53 it takes a second look"  # type: ignore[union-attr]
    assert matcher.match({"a": EDGE + 1, "b": 1, "s": "y"}) == [3]
    assert matcher.match({"a": EDGE, "b": 1, "s": "y"}) == []


@pytest.mark.parametrize("text", ["a + b > c", "a * b = 'x'", "a > b", "a + b IN (1, 2)"])
def test_what_is_no_comparison_with_a_number_has_no_column(text: str) -> None:
    for conjunction in Filter.parse(text).conjunctions:
        assert [read_comparison(one) for one in conjunction.residuals] == [None]


@pytest.mark.parametrize("engine", ["python", "compiled"])
def test_more_expressions_than_have_columns(engine: Engine) -> None:
    scan, matchers = LinearScan(), [Matcher[int](engine=engine)]
    everyone: list[Any] = [scan, *matchers]
    for number in range(3 * EXPRESSIONS_MAX):
        for one in everyone:
            one.add(number, f"a * {number} > 20 AND b % 3 = {number % 3}")
    events: list[dict[str, Any]] = [{"a": a, "b": b} for a in (0, 1, 2.5, "x") for b in (1, 2, 6)]
    assert assert_agree(scan, matchers, events) > 50


def test_the_column_of_an_expression_is_free_once_no_filter_uses_it() -> None:
    matcher = Matcher[int]({-1: "k = 'x'"}, engine="compiled")
    for generation in range(6):
        for number in range(1_100):
            matcher.add(number, f"a * {generation * 5 + number % 5} > 20")
        assert not matcher._index._verification, "there is a column for each"  # type: ignore[union-attr]
        for number in range(1_100):
            matcher.remove(number)
    assert matcher.match({"k": "x", "a": 9}) == [-1]


def test_a_copy_made_by_pickling_computes_too() -> None:
    twin = pickle.loads(pickle.dumps(Matcher({1: "a * b > 5"}, engine="compiled")))
    assert twin.match({"a": 2, "b": 3}) == [1]
    assert twin.match({"a": 2, "b": 2}) == []
