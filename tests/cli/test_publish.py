"""Events are read from arguments and files as a user means them."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from gapless.cli import app
from gapless.cli.event_file import json_events
from gapless.cli.publish import (
    BATCH_SIZE,
    interruption_told,
    read_pairs,
    read_value,
    stopped_by,
    take,
    until_fault,
)
from gapless.core.errors import EventError, FilterError, UsageError

if TYPE_CHECKING:
    from gapless.core.events import Attributes


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


def test_timestamps_and_bytes_are_written_as_in_conditions() -> None:
    moment = datetime(2026, 11, 17, 9, tzinfo=UTC)
    assert read_value("TIMESTAMP '2026-11-17T10:00:00+01:00'") == moment
    assert read_value('{"timestamp": "2026-11-17T09:00:00Z"}') == moment
    assert read_value("X'00ff'") == b"\x00\xff"
    assert read_value("2026-11-17T09:00:00Z") == "2026-11-17T09:00:00Z", "text is not guessed"
    with pytest.raises(FilterError, match="a time without a time zone"):
        read_value("TIMESTAMP '2026-11-17T10:00:00'")


def test_pairs_are_split_at_the_first_equals_sign() -> None:
    assert read_pairs(["a=b=c", "n=1"]) == {"a": "b=c", "n": 1}
    with pytest.raises(UsageError, match="'a' is there twice"):
        read_pairs(["a=1", "a=2"])
    for bad in ("a", "=1", ""):
        with pytest.raises(UsageError, match="is no attribute"):
            read_pairs([bad])


def test_large_events_go_out_a_few_at_a_time() -> None:
    large: tuple[Attributes, bytes] = ({"a": "x" * (BATCH_SIZE // 2)}, b"")
    small: tuple[Attributes, bytes] = ({"a": 1}, b"")
    events = iter([large] * 3 + [small] * 9)
    assert [len(take(events, 8)) for _ in range(3)] == [2, 8, 2]
    assert len(take(iter([(small[0], bytes(BATCH_SIZE))] * 2), 8)) == 1


def test_all_that_stands_before_a_bad_line_is_read() -> None:
    faults: list[EventError] = []
    events = json_events(io.StringIO('{"a": 1}\n{"a": 2}\n{"a": []}\n'), "")
    assert len(take(until_fault(events, faults), 8)) == 2
    assert [fault.problem for fault in faults] == ["line 3: attribute 'a' is of type list"]


@pytest.mark.parametrize(
    ("before", "name", "told"),
    [
        (0, "", "line 3; nothing is published. Mend it."),
        (
            2,
            "",
            "line 3; what stands before it, 2 events, is published. Mend it. Then run this with",
        ),
        (2, "n", "is published. Mend it. Then run this again: it goes on there."),
    ],
)
def test_where_a_file_stops_it_is_told_how_to_go_on(before: int, name: str, told: str) -> None:
    assert told in str(stopped_by(EventError("line 3", "Mend it."), before, name))


@pytest.mark.parametrize(("name", "told"), [("", "5 are published"), ("n", "run it again")])
def test_whoever_interrupts_is_told_how_far_it_went(
    name: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def publish() -> None:
        with interruption_told(name) as count:
            count(2)
            count(3)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        publish()
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        ["a=1", "--name", "n"],
        ["a=1", "--rate", "5"],
        ["--file", "f", "--body", "x"],
        ["--file", "f.jsonl", "--types", "a=int"],
        ["a=1", "--types", "a=int"],
    ],
)
def test_an_option_that_would_have_no_effect_is_refused(options: list[str]) -> None:
    result = CliRunner().invoke(app, ["publish", "trades", *options])
    assert isinstance(result.exception, UsageError), result.output
