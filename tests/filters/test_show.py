"""Show: what it writes parses back to an equal tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings

from gapless.filters.lexer import tokenise
from gapless.filters.parse import parse
from gapless.filters.show import show, show_name, show_value
from gapless.filters.syntax import Attribute, Compare, Condition
from tests.filters.strategies import NAMES, conditions, literals, plain_literal, texts

if TYPE_CHECKING:
    from gapless.core.events import Value


@settings(max_examples=150)
@given(condition=conditions())
def test_conditions_parse_back_to_equal_trees(condition: Condition) -> None:
    assert parse(show(condition)) == condition


@given(value=literals())
def test_literals_read_back_as_the_same_value_and_kind(value: Value) -> None:
    assert parse(f"a = {show_value(value)}") == Compare("=", Attribute("a"), plain_literal(value))


@pytest.mark.parametrize(
    "name", [*NAMES, "NULL", "a.b", "1a", "x-y", 'q"', "\0", "ü", "‘", "ıs", "ıS"]
)
def test_names_read_back(name: str) -> None:
    assert tokenise(show_name(name))[1][0] == name


@given(name=texts().filter(bool))
def test_any_text_can_be_a_name(name: str) -> None:
    assert tokenise(show_name(name))[1][0] == name
