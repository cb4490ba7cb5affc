"""The examples of docs/reference/filter-language.md do what the page says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gapless.client.json_values import from_json
from gapless.core.errors import FilterError
from gapless.filters import Filter
from gapless.filters.evaluate import compile_condition
from gapless.filters.lexer import FILTER_BYTES_MAX, RESERVED
from gapless.filters.normal import CONJUNCTIONS_MAX
from gapless.filters.parse import NESTING_MAX

PAGE = (Path(__file__).parents[2] / "docs/reference/filter-language.md").read_text("utf-8")
WORDS = {True: "TRUE", False: "FALSE", None: "UNKNOWN"}


def rows(*header: str) -> list[list[str]]:
    """The cells of all rows of the tables with this header; code spans without their backticks."""
    found: list[list[str]] = []
    inside = False
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            inside = False
        elif cells == list(header):
            inside = True
        elif inside and not line.startswith("|---"):
            found.append([re.sub(r"`([^`]*)`", r"\1", cell) for cell in cells])
    return found


TRUTHS = rows("condition", "attributes", "result")
REFUSALS = rows("condition", "at", "problem")
COVERINGS = rows("a", "b", "a covers b")


def test_the_page_has_examples_of_every_kind() -> None:
    assert len(TRUTHS) > 60
    assert len(REFUSALS) >= 10
    assert len(COVERINGS) >= 7


@pytest.mark.parametrize(("condition", "attributes", "result"), TRUTHS)
def test_conditions_have_the_truth_that_the_page_says(
    condition: str, attributes: str, result: str
) -> None:
    parsed = Filter.parse(condition)
    event = from_json(json.loads(attributes))
    assert WORDS[compile_condition(parsed.condition)(event)] == result
    assert parsed.matches(event) == (result == "TRUE")
    assert Filter.parse(str(parsed)) == parsed


@pytest.mark.parametrize(("condition", "at", "problem"), REFUSALS)
def test_refusals_read_as_the_page_says(condition: str, at: str, problem: str) -> None:
    with pytest.raises(FilterError) as caught:
        Filter.parse(condition)
    assert caught.value.problem == problem
    assert caught.value.position == int(at)


@pytest.mark.parametrize(("wide", "narrow", "answer"), COVERINGS)
def test_coverings_are_as_the_page_says(wide: str, narrow: str, answer: str) -> None:
    assert Filter.parse(wide).covers(Filter.parse(narrow)) == (answer == "yes")


def test_limits_and_reserved_words_are_those_of_the_code() -> None:
    for limit in (FILTER_BYTES_MAX, NESTING_MAX, CONJUNCTIONS_MAX):
        assert f" {limit:,}" in PAGE
    [listed] = re.findall(r"Reserved words: ([A-Z ]+)\.", PAGE)
    assert set(listed.split()) == RESERVED


def test_the_python_example_runs() -> None:
    [code] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, object] = {}
    for line in code.splitlines():
        statement, _, comment = line.partition("  # ")
        if comment:
            assert repr(eval(statement, names)) == comment
        else:
            exec(line, names)
