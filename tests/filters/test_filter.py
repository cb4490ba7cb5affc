"""Filter: the public face of the language."""

from __future__ import annotations

import pickle
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given

from gapless.core.errors import FilterError
from gapless.filters import Filter
from gapless.filters.parse import NESTING_MAX
from tests.filters.strategies import attribute_maps, conditions, filter_texts

if TYPE_CHECKING:
    from gapless.core.events import Value
    from gapless.filters.syntax import Condition


def test_a_filter_matches_only_where_its_condition_is_true() -> None:
    stock = Filter.parse("symbol = 'IBM' AND price > 90")
    assert stock.matches({"symbol": "IBM", "price": 92.5})
    assert stock.matches({"symbol": "IBM", "price": 92.5}) is True
    assert stock.matches({"symbol": "IBM", "price": 90}) is False
    assert stock.matches({"symbol": "IBM"}) is False


def test_covering_by_example() -> None:
    wide, narrow = Filter.parse("price > 10"), Filter.parse("price > 20 AND symbol = 'IBM'")
    assert wide.covers(narrow)
    assert not narrow.covers(wide)


@given(text=filter_texts())
def test_equality_hash_and_pickling_follow_the_canonical_text(text: str) -> None:
    one = Filter.parse(text)
    again = pickle.loads(pickle.dumps(one))
    assert again == one == Filter.parse(f" ( {text} ) ")
    assert hash(again) == hash(one)
    assert str(again) == str(one)
    assert again.conjunctions == one.conjunctions


def test_literals_of_different_kinds_make_different_filters() -> None:
    texts = ["a = 1", "a = 1.0", "a = TRUE", "a = '1'"]
    assert len({Filter.parse(text) for text in texts}) == 4
    assert Filter.parse("a = 1") != "a = 1"


def test_the_representation_can_be_pasted() -> None:
    one = Filter.parse("name = 'it''s'")
    assert repr(one) == """Filter.parse("name = 'it''s'")"""


def test_attributes_are_all_the_names_that_are_read() -> None:
    text = "a + b * -c > 1 AND d IS NULL OR e LIKE 'x' AND NOT (f IN (1) OR g BETWEEN h AND 2)"
    assert Filter.parse(text).attributes == frozenset("abcdefgh")
    assert Filter.parse("").attributes == frozenset()


def test_a_condition_that_explodes_is_refused_when_parsed() -> None:
    for test in ("(a{0} = 1 OR b{0} = 2)", "a{0} NOT BETWEEN 1 AND 2", "a{0} IN (1, 'x', TRUE)"):
        with pytest.raises(FilterError, match="multiplies out"):
            Filter.parse(" AND ".join(map(test.format, range(20))))


@given(condition=conditions(), attributes=attribute_maps())
def test_matching_agrees_with_the_normal_form_of_a_copy(
    condition: Condition, attributes: dict[str, Value]
) -> None:
    one = Filter(condition)
    assert one.matches(attributes) == Filter.parse(str(one)).matches(attributes)


def test_what_a_filter_derives_is_made_on_demand() -> None:
    """A million filters are held: one that was only parsed must stay small."""
    one = Filter.parse("symbol = 'IBM' AND price > 90.5")
    assert not hasattr(one, "__dict__")
    assert sys.getsizeof(one) <= 80
    assert one.conjunctions is one.conjunctions


def test_the_deepest_condition_can_be_used_in_every_way() -> None:
    text = "x = 1"
    for _ in range(NESTING_MAX - 1):
        text = f"a > 1 OR b > 2 AND NOT ({text})"
    deep = Filter.parse(text)
    assert deep.matches({"a": 2})
    assert not deep.matches({})
    assert Filter.parse(str(deep)).covers(deep)
    sums = Filter.parse("(1 + a * -" * NESTING_MAX + "b" + ")" * NESTING_MAX + " > 1")
    assert sums.matches({"a": 0, "b": 1}) is False
    assert pickle.loads(pickle.dumps(sums)).conjunctions == sums.conjunctions
