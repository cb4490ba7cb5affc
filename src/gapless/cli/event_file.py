"""Event file: what `gapless publish --file` reads, as events that can be published.

Theory of operation
    JSON lines are read as they come, so that standard input may go on for ever. Each line has its
    own types, and a line that is no event ends the reading there.
    A table (.csv) has no types, only text. So it is looked through once before anything is
    published: each column has one type, the narrowest that all its fields fit, or the one that was
    asked for. A cell by cell guess would make text of `01234` and a number of `12345`, and a
    condition would find half of them. Whatever is wrong with a table is found in the same look.
"""

from __future__ import annotations

import csv
import json
import math
import re
import sys
import tempfile
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from gapless.client.json_values import from_json, to_json
from gapless.core.errors import EventError, UsageError
from gapless.core.timestamps import parse_timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from datetime import datetime
    from pathlib import Path

    from gapless.core.events import Attributes, Value

Found = tuple["Attributes", bytes]

TYPES = ("bool", "int", "float", "text", "timestamp", "bytes")
"""What a column may be. A timestamp and bytes are never guessed: to be asked for."""

INTEGER = re.compile(r"-?(0|[1-9][0-9]*)\Z")
NUMBER = re.compile(r"(-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?|NaN|-?Infinity)\Z")
LENIENT = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?\Z")
INTEGER_MAX = (1 << 63) - 1
CORRECT = "Correct it there."


def open_file(path: Path) -> TextIO:
    """Bytes that are not UTF-8 are found where they stand, with the number of their line."""
    if str(path) == "-" and sys.stdin is None:
        raise UsageError("standard input is closed", "Give a file of events.")
    try:
        file: Any = sys.stdin.buffer if str(path) == "-" else path.open("rb")
        if is_table(path) and not file.seekable():  # a pipe: it is looked through first
            file = copied(file)
        return TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror}", "Give a file of events."
        ) from None


def copied(file: Any) -> Any:
    import shutil

    copy = tempfile.TemporaryFile()  # noqa: SIM115 - whoever asked for the file closes it
    with file:
        shutil.copyfileobj(file, copy)
    copy.seek(0)
    return copy


def is_table(path: Path) -> bool:
    return path.suffix.lower() == ".csv"


def read_types(words: str) -> dict[str, str]:
    """`name=int,other=text`"""
    found: dict[str, str] = {}
    for word in filter(None, words.split(",")):
        name, equals, kind = word.rpartition("=")
        if not equals or not name or kind not in TYPES:
            remedy = f"Write NAME=TYPE,NAME=TYPE…; a type is one of {', '.join(TYPES)}."
            raise UsageError(f"--types: {word!r} is no type of a column", remedy)
        if name in found:
            raise UsageError(f"--types has {name!r} twice", "Give each column one type.")
        found[name] = kind
    return found


def checked(number: int, attributes: Attributes, body: bytes) -> Found:
    """`EventError` with the number of the line if this cannot be published."""
    from gapless.wire.events import encode_event

    try:
        encode_event(attributes, body)
    except EventError as error:
        raise EventError(f"line {number}: {error.problem}", error.remedy) from None
    return attributes, body


def utf8_lines(lines: Iterable[str]) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        if not line.isascii() and any("\ud800" <= each <= "\udfff" for each in line):
            raise EventError(f"line {number} is not UTF-8", CORRECT)
        yield line


# --- JSON lines -----------------------------------------------------------------------------------


def json_events(lines: TextIO, body_field: str) -> Iterator[Found]:
    """The first line has the field of the body, if there is one; others may leave it out."""
    is_first = True
    for number, attributes in read_json(utf8_lines(lines)):
        has_body = not body_field or body_field in attributes
        value = attributes.pop(body_field, None) if body_field else None
        kept = {name: each for name, each in attributes.items() if each is not None}
        found = checked(number, kept, body_of(value, number, body_field))
        if is_first and not has_body:
            problem = f"line {number}, the first event, has no field {body_field!r}"
            raise UsageError(problem, "Name a field of it; later lines may leave it out.")
        is_first = False
        yield found


def body_of(value: Any, number: int, field: str) -> bytes:
    """Text as it is; whatever else JSON may have, as JSON."""
    if value is None:
        return b""
    try:
        if isinstance(value, str):
            return value.encode()
        return json.dumps(to_json({"": value})[""], ensure_ascii=False).encode()
    except UnicodeEncodeError:
        problem = f"line {number}: {field!r} is text that has no UTF-8"
        raise EventError(problem, CORRECT) from None


def read_json(lines: Iterable[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The object of each line that is not empty, nulls and all."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield number, read_line(number, line)


def read_line(number: int, line: str) -> dict[str, Any]:
    """The object of one line."""
    try:
        found = json.loads(line.rstrip(), object_pairs_hook=without_doubles)
    except json.JSONDecodeError as error:
        problem = f"line {number} is not JSON: {error.msg} at column {error.colno}"
        raise EventError(problem, CORRECT) from None
    except DoubleError as error:
        raise EventError(f"line {number} has the name {error.name!r} twice", CORRECT) from None
    except (ValueError, RecursionError) as error:
        raise EventError(f"line {number} is not JSON: {error}", CORRECT) from None
    if not isinstance(found, dict):
        raise EventError(f"line {number} is no JSON object", "Write one object a line.")
    try:
        return from_json(found)
    except EventError as error:
        raise EventError(f"line {number}: {error.problem}", error.remedy) from None


class DoubleError(Exception):
    """A JSON object has a name twice."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The last of two values would win without a word."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise DoubleError(name)
        found[name] = value
    return found


# --- tables ---------------------------------------------------------------------------------------


class TableRow(NamedTuple):
    """The fields of one line, and its number; a quoted field may have several lines: the last."""

    number: int
    fields: list[str]


class EventFileTable:
    """A table whose columns have one type each. `types`: by column, as asked for, then as found."""

    def __init__(self, lines: TextIO, body_field: str, types: Mapping[str, str]) -> None:
        self._lines = lines
        self._body = body_field
        self.types = dict(types)
        self.names: list[str] = []
        self._look()

    def events(self) -> Iterator[Found]:
        for row in self._rows():
            yield self._event(row)

    def told(self) -> str:
        """Which types were chosen."""
        named = [f"{name} {kind}" for name, kind in self.types.items()]
        return ", ".join(named) or "none, for no column has a value"

    def _look(self) -> None:
        """Find all that is wrong, and the types."""
        possible: dict[str, set[str]] = {}
        asked = self.types
        for row in self._rows():
            for name, text in zip(self.names, row.fields, strict=True):
                if not text or name in asked or (name and name == self._body):
                    continue
                if not name:
                    problem = f"line {row.number}: {text!r:.80} stands in a column without a name"
                    raise EventError(problem, "Name it in the first line, or leave it out.")
                some = possible.setdefault(name, set(TYPES))
                if len(some) > 1:
                    some &= kinds_of(text)
        self.types = {
            name: asked.get(name) or next(each for each in TYPES if each in possible[name])
            for name in self.names
            if name != self._body and (name in asked or name in possible)
        }
        for row in self._rows():
            self._event(row)

    def _rows(self) -> Iterator[TableRow]:
        """All but the first line, which is checked."""
        from gapless.wire.events import EVENT_BYTES_MAX

        self._lines.seek(0)
        csv.field_size_limit(EVENT_BYTES_MAX)
        rows = csv.reader(utf8_lines(self._lines), strict=True)
        try:
            self.names = next(rows, [])
            self._check_names()
            for fields in rows:
                if not fields:
                    continue  # an empty line
                if len(fields) != len(self.names):
                    what = "more" if len(fields) > len(self.names) else "fewer"
                    problem = (
                        f"line {rows.line_num} has {what} fields than the first line has names"
                    )
                    raise EventError(problem, "Quote a field that has a comma in it.")
                yield TableRow(rows.line_num, fields)
        except csv.Error as error:
            raise EventError(f"line {rows.line_num} is no row: {error}", CORRECT) from None

    def _check_names(self) -> None:
        names = self.names
        if len(names) == 1 and (";" in names[0] or "\t" in names[0]):
            raise EventError(f"line 1 has one name, {names[0]!r}", "Separate fields by commas.")
        for place, name in enumerate(names):
            if name and name in names[:place]:
                problem = f"line 1 has the name {name!r} twice"
                raise EventError(problem, "Give each column a name of its own.")
            if name != name.strip():
                problem = f"line 1: the name {name!r} begins or ends with a blank"
                raise EventError(problem, "Remove it there.")
        if not names:
            raise EventError("line 1 has no names", "Name the columns in the first line.")
        unknown = [name for name in (self._body, *self.types) if name and name not in names]
        if unknown:
            known = f"It has: {', '.join(filter(None, names))}."
            raise UsageError(f"the table has no column {unknown[0]!r}", known)
        if self._body and self._body in self.types:
            raise UsageError(f"{self._body!r} is the body, which has no type", "Leave it out.")

    def _event(self, row: TableRow) -> Found:
        attributes, body = {}, ""
        for name, text in zip(self.names, row.fields, strict=True):
            if name == self._body and name:
                body = text
            elif text and name:
                attributes[name] = self._value(row.number, name, text)
        return checked(row.number, attributes, body.encode())

    def _value(self, number: int, name: str, text: str) -> Value:
        kind = self.types.get(name, "text")
        value = CONVERTED[kind](text)
        if value is None:
            problem = f"line {number}: {text!r:.80} in the column {name!r} is no {kind}"
            raise EventError(problem, f"Correct it there, or give --types {name}=text.")
        return value


def kinds_of(text: str) -> set[str]:
    """All types that a field may have by its looks."""
    text = text.strip(" ")
    if text in ("true", "false"):
        return {"bool", "text"}
    if not NUMBER.match(text):
        return {"text"}
    if not INTEGER.match(text):
        is_meant = math.isfinite(float(text)) or not text[-1].isdigit()  # 1e999 is too large
        return {"float", "text"} if is_meant else {"text"}
    number = int(text[:40])
    if abs(number) > INTEGER_MAX:
        return {"text"}
    return {"int", "float", "text"} if int(float(number)) == number else {"int", "text"}


def as_bool(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text.strip().lower())


def as_int(text: str) -> int | None:
    text = text.strip()
    if not re.fullmatch(r"[-+]?[0-9]{1,40}", text):
        return None
    number = int(text)
    return number if -INTEGER_MAX - 1 <= number <= INTEGER_MAX else None


def as_float(text: str) -> float | None:
    text = text.strip()
    if not LENIENT.match(text):
        return float(text) if text in ("NaN", "Infinity", "-Infinity") else None
    return number if math.isfinite(number := float(text)) else None


def as_timestamp(text: str) -> datetime | None:
    try:
        return parse_timestamp(text.strip())
    except ValueError:
        return None


def as_bytes(text: str) -> bytes | None:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return None


CONVERTED: dict[str, Callable[[str], Value | None]] = {
    "bool": as_bool,
    "int": as_int,
    "float": as_float,
    "text": lambda text: text,
    "timestamp": as_timestamp,
    "bytes": as_bytes,
}
