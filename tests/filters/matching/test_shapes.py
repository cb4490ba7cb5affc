"""Shapes: reading by recipe gives what parsing gives."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import workloads
from gapless.core.errors import FilterError
from gapless.filters.filter import Filter
from gapless.filters.matching.shapes import SHAPES_MAX, Shapes
from tests.filters.strategies import filter_texts

FORMS = [
    *("a = {}", "a <> {}", "a < {} AND b >= {}", "a BETWEEN {} AND {}", "a LIKE {}", "{} < a"),
    *("a = {} OR a = {}", "a > {} AND a < {}", "a IN ({}, {})", "a > -{}", "a+{} > {}"),
    *("NOT a = {}", "a <= {} AND b <> {} AND c BETWEEN {} AND {}"),
    *("a = {} /* {} */", '"a {}" = {}', "a{} = {}", "a = {}{}", "a LIKE {} ESCAPE {}", "x.{} = {}"),
    *("a NOT IN ({}, {})", "a IN ({}) AND b IN ({}, {}, TRUE)", "NOT (a < {} OR b = FALSE)"),
    *("NOT (a < {} OR NOT b = {}) AND c = {}", "NOT (a < {} AND b = {})", "a = TRUE AND b <> {}"),
    *("a * b > {} AND c = {}", "{} <= a - b", "a * b = {} AND a + b < {}", "a * {} > {}"),
    *("EXISTS a AND b IN ({}, {})", "NOT a BETWEEN {} AND {}", "NOT a IN ({}, {}) AND a > {}"),
    *("-a < {} AND b NOT IN ({}, {})", "a * b > {} AND c BETWEEN {} AND {}"),
    *("a NOT LIKE {}", "a = {}AND b={}", "a>={}", "b = {} AND a LIKE {}", "a IS NULL AND b = {}"),
]
LITERALS = [
    *("0", "1", "5", "10", "1.5", "2.0", "0.25", "007", "0x1F", "1e3", "5L", ".5", "5.", "1_000"),
    *("'x'", "'ab%'", "'%a_'", "''", "'it''s'", "'5'", "'x", "TRUE", "é", "'é'"),
    "9223372036854775808",
    *("999999999999999", "1234567890123456", "'-- {}'", "'a\"b'", "'/*'"),
]


def outcome(read: object, text: str) -> object:
    try:
        return read(text)  # type: ignore[operator]
    except FilterError as error:
        return str(error)


def parsed(text: str) -> object:
    return Filter.parse(text).conjunctions


@settings(max_examples=250, deadline=None)
@given(st.sampled_from(FORMS), st.lists(st.sampled_from(LITERALS), min_size=6, max_size=6))
def test_texts_of_one_form_read_like_parsed(form: str, literals: list[str]) -> None:
    shapes = Shapes()
    for start in range(5):
        text = form.format(*literals[start:], *literals)
        assert outcome(shapes.read, text) == outcome(parsed, text), text


def test_a_sign_is_not_lost_where_it_once_made_no_difference() -> None:
    shapes = Shapes()
    for text in ("a > -0", "a > -1", "a > - 0.0", "a > - 2.0"):
        assert shapes.read(text) == parsed(text)


@settings(max_examples=100, deadline=None)
@given(st.lists(filter_texts(), min_size=1, max_size=5))
def test_any_text_reads_like_parsed_first_and_again(texts: list[str]) -> None:
    shapes = Shapes()
    for text in texts * 2:
        assert outcome(shapes.read, text) == outcome(parsed, text)


@pytest.mark.parametrize("name", ["stock", "ranges", "topics", "eq", "mixed"])
def test_workloads_read_like_parsed(name: str) -> None:
    shapes = Shapes()
    for text in workloads.make(name, 150, 0).conditions:
        assert shapes.read(text) == parsed(text)


def test_shapes_are_forgotten_when_there_are_too_many() -> None:
    shapes = Shapes()
    for number in range(SHAPES_MAX + 10):
        shapes.read(f"a{number} = 1")
    assert len(shapes._recipes) <= SHAPES_MAX
