"""Timestamps and bytes in conditions: what they mean, and that every path agrees."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapless.core.errors import FilterError
from gapless.core.events import EventBatch
from gapless.core.timestamps import MICROSECOND
from gapless.filters import Filter
from gapless.filters.build import chained
from gapless.filters.evaluate import compile_condition
from gapless.filters.matcher import Matcher
from gapless.filters.parse import parse
from gapless.filters.show import show, show_value
from gapless.filters.sieve import Sieve, digest
from gapless.filters.syntax import And
from gapless.wire.attribute_rows import AttributeRows
from gapless.wire.events import encode_event
from tests.filters import oracle
from tests.filters.strategies import byte_strings, conditions, moments

if TYPE_CHECKING:
    from gapless.filters.syntax import Condition

AT = datetime(2026, 11, 17, 9, tzinfo=UTC)
TYPES = {"a": pa.timestamp("us", "UTC"), "b": pa.binary(), "c": pa.timestamp("us", "UTC")}
NEAR = st.integers(-3, 3).map(lambda some: AT + some * MICROSECOND)
SHORT = st.text("\0a\xff", max_size=2).map(lambda text: text.encode("latin-1"))
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "a": st.none() | NEAR | moments(),
            "b": st.none() | SHORT | byte_strings(),
            "c": st.none() | NEAR,
        }
    ),
    min_size=1,
    max_size=6,
)


@st.composite
def near_tests(draw: st.DrawFn) -> Condition:
    """A test of one attribute, with literals that events have or just do not have."""
    name = draw(st.sampled_from("abc"))
    kind: st.SearchStrategy[Any] = SHORT if name == "b" else NEAR
    one, other = (show_value(draw(kind)) for _ in range(2))
    sign = draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "BETWEEN", "IN", "NOT IN"]))
    if sign == "BETWEEN":
        return parse(f"{name} BETWEEN {one} AND {other}")
    return parse(f"{name} {sign} ({one}, {other})" if "IN" in sign else f"{name} {sign} {one}")


NEARBY = st.lists(near_tests(), min_size=1, max_size=2).map(
    lambda some: some[0] if len(some) == 1 else chained(And, some)
)


@settings(max_examples=150, deadline=None)
@given(st.lists(NEARBY | NEARBY | conditions(), min_size=1, max_size=6), ROWS)
def test_evaluator_engines_bytes_arrow_and_sieve_agree(
    some: list[Condition], rows: list[dict[str, Any]]
) -> None:
    events = [{name: value for name, value in row.items() if value is not None} for row in rows]
    texts = [show(one) for one in some]
    wanted = [
        (event, number)
        for event, attributes in enumerate(events)
        for number, one in enumerate(some)
        if oracle.is_true(one, attributes)
    ]
    for event, attributes in enumerate(events):
        matching = [n for n, text in enumerate(texts) if Filter.parse(text).matches(attributes)]
        assert matching == [number for place, number in wanted if place == event]
    batch = pa.record_batch(
        {name: pa.array([row[name] for row in rows], kind) for name, kind in TYPES.items()}
    )
    located = AttributeRows(EventBatch.join(map(encode_event, events)))
    for engine in ("python", "compiled"):
        matcher = Matcher(enumerate(texts), engine=engine)
        assert matcher.match_batch(events) == wanted
        assert matcher.match_batch(located) == wanted
        assert list(matcher.match_batch(batch)) == wanted
    for number, one in enumerate(some):
        sieve = Sieve(Filter(one))
        digests = {name: digest([event.get(name) for event in events]) for name in sieve.names}
        passing = sieve.candidates(digests, len(events))
        assert all(passing[event] for event, match in wanted if match == number)


@pytest.mark.parametrize(
    ("condition", "result"),
    [
        ("at > TIMESTAMP '2026-11-17T08:59:59.999999Z'", True),
        ("at = timestamp '2026-11-17 11:00:00+02:00'", True),
        ("at BETWEEN TIMESTAMP '2026-11-17T09:00Z' AND TIMESTAMP '2026-11-17T09:00Z'", True),
        ("at NOT IN (TIMESTAMP '2026-11-17T09:00:00Z')", False),
        ("at <> 5", None),
        ("at = '2026-11-17T09:00:00Z'", None),
        ("raw = '00ff'", None),
        ("raw = at", None),
        ("at < later", True),
        ("raw = X'00ff' AND raw <> x'00' AND raw >= X''", True),
        ("raw IN (X'00FF', 'abc')", True),
        ("at IS NOT NULL AND raw IS NOT NULL", True),
        ("at + 1 > 0", None),
        ("later - at > 0", None),
        ("raw LIKE '%'", None),
        ("timestamp = 'x' AND x = 1", True),
    ],
)
def test_comparisons_mean_what_the_page_says(condition: str, result: bool | None) -> None:
    event: dict[str, Any] = {
        "at": AT,
        "later": AT.astimezone(timezone(timedelta(hours=9))) + timedelta(microseconds=1),
        "raw": b"\x00\xff",
        "timestamp": "x",
        "x": 1,
    }
    parsed = Filter.parse(condition)
    assert compile_condition(parsed.condition)(event) is result
    assert Filter.parse(str(parsed)) == parsed


def test_literals_have_one_canonical_text() -> None:
    given_text = "at>timestamp'2026-11-17 11:00:00.500000+02:00' AND raw=x'00ff'"
    canonical = "at > TIMESTAMP '2026-11-17T09:00:00.500000Z' AND raw = X'00FF'"
    assert str(Filter.parse(given_text)) == canonical


@pytest.mark.parametrize(
    ("condition", "caret", "problem", "remedy"),
    [
        (
            "a = 1 AND at > TIMESTAMP '2026-11-17T09:00:00'",
            15,
            "'2026-11-17T09:00:00' is no timestamp: a time without a time zone",
            "Write it with Z or an offset",
        ),
        ("at > TIMESTAMP 'noon'", 5, "'noon' is no timestamp: not a date and a time", "as in"),
        ("at > TIMESTAMP '2026-02-30T09:00:00Z'", 5, "day is out of range for month", ""),
        ("at > TIMESTAMP '2026-11-17T09:00:00.1234567Z'", 5, "at most six digits", ""),
        ("at > TIMESTAMP '0001-01-01T00:00:00+01:00'", 5, "beyond the years 1 to 9999", ""),
        ("at - TIMESTAMP '2026-11-17T09:00:00Z' > 5", 5, "arithmetic takes numbers only", "compar"),
        ("-TIMESTAMP '2026-11-17T09:00:00Z' > at", 1, "arithmetic takes numbers only", "compar"),
        ("raw + X'00' = 1", 6, "arithmetic takes numbers only", ""),
        ("raw = X'0'", 6, "it needs an even number of hexadecimal digits", "X'00FF'"),
        ("raw = X'zz'", 6, "it needs an even number of hexadecimal digits", "X'00FF'"),
        ("raw = X '00'", 8, "found a string", "without a space"),
        ("at LIKE TIMESTAMP '2026-11-17T09:00:00Z'", 8, "found a timestamp", ""),
        ("TIMESTAMP '2026-11-17T09:00:00Z'", 0, "this is a value", ""),
    ],
)
def test_bad_literals_are_refused_where_they_stand(
    condition: str, caret: int, problem: str, remedy: str
) -> None:
    with pytest.raises(FilterError) as caught:
        Filter.parse(condition)
    assert problem in caught.value.problem
    assert remedy in (caught.value.remedy or "")
    assert caught.value.position == caret


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("at > TIMESTAMP '1970-01-01T00:00:00Z'", "at >= TIMESTAMP '1970-01-01T00:00:00.000001Z'"),
        (
            "at > TIMESTAMP '1970-01-01T00:00Z' AND at < TIMESTAMP '1970-01-01T00:00:00.000002Z'",
            "at = TIMESTAMP '1970-01-01T00:00:00.000001Z'",
        ),
        (
            "at >= TIMESTAMP '9999-12-31T23:59:59.999999Z'",
            "at = TIMESTAMP '9999-12-31T23:59:59.999999Z'",
        ),
        ("raw > X'61' AND raw < X'610000'", "raw = X'6100'"),
        ("raw >= X''", "raw <> X'61' OR raw = X'61'"),
    ],
)
def test_equal_sets_have_equal_normal_forms(one: str, other: str) -> None:
    assert Filter.parse(one).conjunctions == Filter.parse(other).conjunctions


def test_nothing_is_after_the_last_moment() -> None:
    assert not Filter.parse("at > TIMESTAMP '9999-12-31T23:59:59.999999Z'").conjunctions
    assert not Filter.parse("at < TIMESTAMP '0001-01-01T00:00:00Z'").conjunctions
