"""Events are read from arguments and files as a user means them."""

from __future__ import annotations

import io

import pytest

from gapless.cli.publish import read_events, read_pairs, read_value
from gapless.core.errors import EventError, UsageError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7), ("-1.5", -1.5), ("1e3", 1000.0), ("true", True), ("false", False),
        ("IBM", "IBM"), ('"7"', "7"), ("", ""), ("a=b", "a=b"), ("[1]", "[1]"), ("null", "null"),
    ],
)  # fmt: skip
def test_a_value_is_a_number_a_truth_or_text(text: str, value: object) -> None:
    found = read_value(text)
    assert (found, type(found)) == (value, type(value))


def test_pairs_are_split_at_the_first_equals_sign() -> None:
    assert read_pairs(["a=b=c", "n=1"]) == {"a": "b=c", "n": 1}
    for bad in ("a", "=1", ""):
        with pytest.raises(UsageError, match="is no attribute"):
            read_pairs([bad])


def test_a_json_line_is_an_event_and_null_is_left_out() -> None:
    lines = io.StringIO('{"a": 1, "b": null, "text": "x"}\n\n{"a": 2}\n')
    assert list(read_events(lines, "text", is_csv=False)) == [({"a": 1}, b"x"), ({"a": 2}, b"")]


def test_a_csv_row_is_an_event_and_an_empty_field_is_left_out() -> None:
    lines = io.StringIO("a,b\n1,\nx,true\n")
    assert list(read_events(lines, "", is_csv=True)) == [
        ({"a": 1}, b""),
        ({"a": "x", "b": True}, b""),
    ]


@pytest.mark.parametrize(("line", "problem"), [("{", "line 1 is not JSON"), ("[]", "no JSON obj")])
def test_a_line_that_is_no_event_is_named(line: str, problem: str) -> None:
    with pytest.raises(EventError, match=problem):
        list(read_events(io.StringIO(line), "", is_csv=False))
