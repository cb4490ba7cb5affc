"""Files of events are read as a user means them, or refused with the line that is wrong."""

from __future__ import annotations

import io
import os
import threading
from typing import TYPE_CHECKING, TextIO

import pytest

from gapless.cli.event_file import EventFileTable, json_events, open_file, read_types
from gapless.core.errors import EventError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gapless.core.events import Attributes


def read_events(
    lines: TextIO, body_field: str, *, is_csv: bool, types: str = ""
) -> Iterator[tuple[Attributes, bytes]]:
    if is_csv:
        return EventFileTable(lines, body_field, read_types(types)).events()
    return json_events(lines, body_field)


def table(text: str, body_field: str = "", types: str = "") -> list[tuple[Attributes, bytes]]:
    return list(read_events(io.StringIO(text, newline=""), body_field, is_csv=True, types=types))


def test_a_json_line_is_an_event_and_null_is_left_out() -> None:
    lines = io.StringIO('{"a": 1, "b": null, "text": "x"}\n\n{"a": 2}\n')
    assert list(read_events(lines, "text", is_csv=False)) == [({"a": 1}, b"x"), ({"a": 2}, b"")]


def test_a_csv_row_is_an_event_and_an_empty_field_is_left_out() -> None:
    lines = io.StringIO("a,b\n1,\n2,true\n")
    assert list(read_events(lines, "", is_csv=True)) == [
        ({"a": 1}, b""),
        ({"a": 2, "b": True}, b""),
    ]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "line 1 is not JSON"),
        ("[]", "no JSON obj"),
        ('{"a": {"b": 1}}', "line 1: attribute 'a' is of type dict"),
        ('{"a": ', "line 1 is not JSON: Expecting value at column 6"),
        ('{"a": "\udcff"}', "line 1 is not UTF-8"),
        ('{"a": "\\ud800"}', "line 1: attribute 'a' is text with half a surrogate pair"),
        ('{"text": "\\ud800"}', "line 1: 'text' is text that has no UTF-8"),
    ],
)
def test_a_line_that_is_no_event_is_named(line: str, problem: str) -> None:
    with pytest.raises(EventError, match=problem):
        list(read_events(io.StringIO(line), "text", is_csv=False))


def test_a_csv_row_with_a_field_too_many_is_named() -> None:
    with pytest.raises(EventError, match="line 3 has more fields"):
        list(read_events(io.StringIO("a,b\n1,2\n1,2,3\n"), "", is_csv=True))


def test_fields_that_are_not_separated_by_commas_are_refused() -> None:
    for line in ("a;b\n1;2\n", "a\tb\n1\t2\n"):
        with pytest.raises(EventError, match="line 1 has one name"):
            list(read_events(io.StringIO(line), "", is_csv=True))


def test_a_mark_of_the_encoding_is_no_part_of_the_first_name(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_bytes(b"\xef\xbb\xbfa,b\n1,2\n")
    with open_file(path) as file:
        assert list(read_events(file, "", is_csv=True)) == [({"a": 1, "b": 2}, b"")]


def test_bytes_that_are_not_utf8_are_found_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"a": 1}\n\xff\n')
    with open_file(path) as file, pytest.raises(EventError, match="line 2 is not UTF-8"):
        list(read_events(file, "", is_csv=False))
    path.write_bytes(b"a,b\n1,\xff\n")
    with open_file(path) as file, pytest.raises(EventError, match="line 2 is not UTF-8"):
        list(read_events(file, "", is_csv=True))


# --- tables: one type a column --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "values"),
    [
        (["12345", "01234"], ["12345", "01234"]),
        (["1", "2.5"], [1.0, 2.5]),
        (["1", "-7"], [1, -7]),
        (["1", "true"], ["1", "true"]),
        (["true", "false"], [True, False]),
        (["1", "NaN"], [1.0, "nan"]),
        (["1", "x"], ["1", "x"]),
        (["1", str(1 << 63)], ["1", str(1 << 63)]),
        ([str((1 << 53) + 1), "0.5"], [str((1 << 53) + 1), "0.5"]),
        (["1", "1e999"], ["1", "1e999"]),
        (["[1]", "null"], ["[1]", "null"]),
        (["1.50", "1e3"], [1.5, 1000.0]),
    ],
)
def test_a_column_has_one_type_whatever_its_first_fields_look_like(
    fields: list[str], values: list[object]
) -> None:
    for one, other in (fields, fields[::-1]):
        read = [found["a"] for found, _ in table(f"a\n{one}\n{other}\n")]
        meant = values if [one, other] == fields else values[::-1]
        shown = ["nan" if each != each else each for each in read]
        assert [(each, type(each)) for each in shown] == [(each, type(each)) for each in meant]


def test_which_types_were_chosen_is_told_and_they_can_be_asked_for() -> None:
    text = "id,price,sold,note,none\n1,2.5,true,,\n2,3,false,x,\n"
    assert (
        EventFileTable(io.StringIO(text), "", {}).told()
        == "id int, price float, sold bool, note text"
    )
    (first, _), _ = table(text, types="id=text,price=text")
    assert first == {"id": "1", "price": "2.5", "sold": True}
    assert table("a\n007\n", types="a=int") == [({"a": 7}, b"")]
    assert table("a\nTRUE\n", types="a=bool") == [({"a": True}, b"")]


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("timestamp", "2026-11-17T09:00:00"),
        ("bytes", "0"),
        ("int", "1.5"),
        ("int", str(1 << 63)),
        ("float", "x"),
        ("float", "1e999"),
        ("bool", "1"),
    ],
)
def test_a_field_that_does_not_fit_is_named_with_its_line(kind: str, field: str) -> None:
    with pytest.raises(EventError, match=f"line 2: '{field}' in the column 'a' is no {kind}"):
        table(f"a\n{field}\n", types=f"a={kind}")


def test_the_body_of_a_row_is_its_text_as_it_stands() -> None:
    assert table("a,b\n1,1.50\n2,true\n3,\n", "b") == [
        ({"a": 1}, b"1.50"),
        ({"a": 2}, b"true"),
        ({"a": 3}, b""),
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a,b,a\n1,2,3\n", "line 1 has the name 'a' twice"),
        ("a, b\n1,2\n", "line 1: the name ' b' begins or ends with a blank"),
        ("a,b\n1\n", "line 2 has fewer fields"),
        ("a,\n1,\n2,3\n", "line 3: '3' stands in a column without a name"),
        ('a,b\n1,"2\n3,4\n', "line 3 is no row: unexpected end of data"),
        ('a\n"x"y\n', "line 2 is no row"),
        ("", "line 1 has no names"),
        (f"a\n{'x' * (1 << 21)}\n", "line 2 is no row: field larger"),
    ],
)
def test_what_is_wrong_with_a_table_is_found_before_its_first_event(
    text: str, problem: str
) -> None:
    with pytest.raises(EventError, match=problem):
        EventFileTable(io.StringIO(text, newline=""), "", {})


def test_a_table_without_the_column_that_is_asked_for_is_refused() -> None:
    with pytest.raises(UsageError, match=r"has no column 'boddy'\. It has: a, body"):
        table("a,body\n1,x\n", "boddy")
    with pytest.raises(UsageError, match="has no column 'c'"):
        table("a\n1\n", types="c=int")
    with pytest.raises(UsageError, match="'a' is the body"):
        table("a\n1\n", "a", types="a=int")


@pytest.mark.parametrize("words", ["a", "a=number", "=int", "a=int,a=text"])
def test_types_are_written_in_one_way(words: str) -> None:
    with pytest.raises(UsageError, match="--types"):
        read_types(words)


def test_odd_and_sound_tables_are_read() -> None:
    assert table("a,b\r\n1,x\r\n\r\n2,y") == [({"a": 1, "b": "x"}, b""), ({"a": 2, "b": "y"}, b"")]
    assert table('a,b\n1,"x\n,""y"""\n') == [({"a": 1, "b": 'x\n,"y"'}, b"")]
    assert table("a,b,\n1,x\0,\n") == [({"a": 1, "b": "x\0"}, b"")]
    assert table("a\n") == []


def test_a_table_may_come_from_a_pipe(tmp_path: Path) -> None:
    path = tmp_path / "events.CSV"
    os.mkfifo(path)
    writing = threading.Thread(target=path.write_text, args=("a\n01\n2\n",))
    writing.start()
    with open_file(path) as file:
        found = list(read_events(file, "", is_csv=True))
    writing.join()
    assert found == [({"a": "01"}, b""), ({"a": "2"}, b"")]


# --- JSON lines -----------------------------------------------------------------------------------


def test_the_first_event_has_the_field_of_the_body_and_later_ones_may_leave_it_out() -> None:
    lines = '{"a": 1, "b": null}\n{"a": 2}\n{"b": {"x": [true]}}\n{"b": 1.50}'
    bodies = [body for _, body in json_events(io.StringIO(lines), "b")]
    assert bodies == [b"", b"", b'{"x": [true]}', b"1.5"]
    with pytest.raises(UsageError, match="line 2, the first event, has no field 'boddy'"):
        next(json_events(io.StringIO('\n{"a": 1, "body": "x"}\n'), "boddy"))


def test_a_name_that_stands_twice_in_an_object_is_refused() -> None:
    with pytest.raises(EventError, match="line 1 has the name 'a' twice"):
        next(json_events(io.StringIO('{"a": 1, "a": 2}'), ""))


def test_a_folder_and_a_file_that_is_not_there_are_told(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.csv"):
        with pytest.raises(UsageError, match="cannot read"):
            open_file(path)
