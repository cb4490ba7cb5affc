"""A log line has its fields, for people and for programs."""

from __future__ import annotations

import json
import logging

from gapless.broker.logs import JsonFormatter, PlainFormatter


def record(**fields: object) -> logging.LogRecord:
    made = logging.LogRecord("x", logging.INFO, "", 0, "link up", (), None)
    made.created = 0.5
    vars(made).update(fields)
    return made


def test_a_plain_line_is_key_value_pairs_with_odd_values_quoted() -> None:
    line = PlainFormatter().format(record(peer="b2", reason="two words", empty=""))
    assert line == ('1970-01-01T00:00:00.500000Z INFO link up peer=b2 reason="two words" empty=""')


def test_a_field_cannot_fake_a_second_line() -> None:
    assert "\n" not in PlainFormatter().format(record(peer="a\nINFO forged"))


def test_a_json_line_is_one_object() -> None:
    found = json.loads(JsonFormatter().format(record(peer="b2")))
    assert found == {
        "time": "1970-01-01T00:00:00.500000Z", "level": "INFO", "message": "link up", "peer": "b2",
    }  # fmt: skip


def test_an_error_comes_with_its_trace() -> None:
    try:
        raise ValueError("why")
    except ValueError as error:
        made = record(exc_info=(type(error), error, error.__traceback__))
    assert "ValueError: why" in PlainFormatter().format(made)
