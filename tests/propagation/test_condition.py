"""A conjunction survives being written and read, whatever is in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.errors import FilterError, ProtocolError
from gapless.filters.filter import Filter
from gapless.propagation.condition import ALL, ConditionReader, show_conjunction
from tests.filters.strategies import filter_texts


@given(filter_texts())
def test_what_is_shown_reads_back_as_the_same_and_can_be_sent(text: str) -> None:
    reader = ConditionReader()
    try:
        conjunctions = Filter.parse(text).conjunctions
    except FilterError:
        return
    for conjunction in conjunctions:
        propagated = reader.propagated(conjunction)
        assert propagated in (conjunction, None)
        if propagated is not None:
            shown = show_conjunction(conjunction)
            assert reader.read(shown) == conjunction
            shown.encode()  # no half characters


def test_what_nobody_could_read_is_propagated_as_everything() -> None:
    reader = ConditionReader()
    names = [f"'{number:05}'" for number in range(7_500)]
    text = f"a IN ({','.join(names)})"  # shown with a blank after each comma, it is too long
    [longest] = Filter.parse(text).conjunctions
    assert reader.propagated(longest) == ALL


@pytest.mark.parametrize(
    "text",
    [
        "TRUE",
        "a < 0 OR a >= 0",
        "a = 1e308 * 10 OR a = 1",
        "a > -1e308 * 10 AND a <= 5 AND a <> 3",
        "a IN (TRUE, FALSE)",
        "a NOT LIKE '\ud7ff%' AND a > 'b'",
        "a LIKE '\ud7ff%' OR a >= 'b' AND a < '\ud7ff'",
        "a LIKE '100!%%' ESCAPE '!' AND a NOT LIKE '%!!_' ESCAPE '!'",
        "a >= ''",
        "a IS NULL AND b IS NOT NULL AND c + d > 2",
    ],
)
def test_odd_bounds_have_a_text_too(text: str) -> None:
    for conjunction in Filter.parse(text).conjunctions:
        shown = show_conjunction(conjunction)
        assert ConditionReader().read(shown) == conjunction
        shown.encode()


@given(st.permutations(["a > 1", "b = 'x'", "c LIKE 'y%'"]))
def test_equal_conjunctions_have_equal_texts(tests: list[str]) -> None:
    [conjunction] = Filter.parse(" AND ".join(tests)).conjunctions
    assert show_conjunction(conjunction) == "a > 1 AND b = 'x' AND c LIKE 'y%'"


@pytest.mark.parametrize("text", ["a = 1 OR b = 2", "FALSE", "a >"])
def test_what_is_not_one_conjunction_is_the_neighbours_fault(text: str) -> None:
    with pytest.raises(ProtocolError):
        ConditionReader().read(text)
