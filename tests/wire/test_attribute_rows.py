"""Compiled code says of events what decoding and checking them says."""

from __future__ import annotations

import math
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapless.core.attribute_table import BOOL, BYTES, FLOAT, INT, MISSING, TEXT, TIMESTAMP
from gapless.core.errors import WireError
from gapless.core.events import EventBatch
from gapless.core.identity import PublisherName
from gapless.core.timestamps import to_microseconds
from gapless.wire import attribute_rows, parse
from gapless.wire.attribute_rows import AttributeRows, check_plain
from gapless.wire.events import TEXT_MAX, check_events, decode_attributes, encode_event
from tests.wire.test_survey import NAMES, VALUES, WANTED

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.core.attribute_table import AttributeTable
    from gapless.core.events import Value

KINDS = {
    bool: BOOL,
    int: INT,
    float: FLOAT,
    str: TEXT,
    type(None): MISSING,
    datetime: TIMESTAMP,
    bytes: BYTES,
}
FEED = PublisherName("feed")
GOOD = encode_event({"a": 1, "price": 2.5, "s": "tëxt", "t": True}, b"body", FEED, 7)


def value_at(located: AttributeTable, row: int, event: int) -> Value | None:
    kind, number = located.kinds[row, event], located.values[row, event]
    if kind == TEXT:
        start, length = located.starts[row, event], located.lengths[row, event]
        return located.data[start : start + length].tobytes().decode()
    if kind == BYTES:
        start, length = located.starts[row, event], located.lengths[row, event]
        return located.data[start : start + length].tobytes()
    return None if kind == MISSING else float(number)


def check_located(encoded: list[bytes], names: tuple[str, ...]) -> None:
    batch = EventBatch.join(encoded)
    located = AttributeRows(batch).locate(names)
    assert located is not None
    for event, attributes in enumerate(decode_attributes(batch)):
        for row, name in enumerate(names):
            value = attributes.get(name)
            assert located.kinds[row, event] == KINDS[type(value)]
            if isinstance(value, datetime):
                value = to_microseconds(value)
            expected = float(value) if isinstance(value, int | float) else value
            found = value_at(located, row, event)
            assert found == expected or (found != found and math.isnan(expected))  # type: ignore[arg-type]


def is_let_in(encoded: list[bytes]) -> bool:
    """By both, for they agree."""
    batch = EventBatch.join(encoded)
    said = [_said(check, batch) for check in (check_events, check_plain)]
    assert said[0] == said[1]
    return said[0] == ""


def _said(check: Callable[[EventBatch], object], batch: EventBatch) -> str:
    try:
        check(batch)
    except WireError as error:
        return str(error)
    return ""


def is_plain(encoded: bytes) -> bool:
    data, bounds = attribute_rows._end_to_end(EventBatch((encoded,)))
    return bool(parse.is_plain(data, bounds, 256, 255))


@settings(max_examples=200)
@given(
    rows=st.lists(st.dictionaries(NAMES, VALUES, max_size=20), min_size=1, max_size=6),
    names=st.lists(NAMES, max_size=4, unique=True),
)
def test_events_are_located_as_they_decode(rows: list[dict[str, Value]], names: list[str]) -> None:
    encoded = [encode_event(row, b"body", FEED, 3) for row in rows]
    check_located(encoded, tuple(names))
    assert is_let_in(encoded)
    assert all(map(is_plain, encoded))


def test_of_a_name_that_occurs_twice_the_last_is_located() -> None:
    check_located([b"\x92\x82\xa1a\x01\xa1a\xa1x\xc4\x00"], ("a",))
    check_located([b"\x92\x82\xa1a\xa1x\xa1a\x01\xc4\x00"], ("a",))


def test_rows_are_attributes_one_by_one_in_slices_and_all_together() -> None:
    batch = EventBatch(tuple(encode_event({"a": number}) for number in range(5)))
    rows = AttributeRows(batch)
    assert list(rows) == decode_attributes(batch) == [rows[index] for index in range(5)]
    assert list(rows[1:3]) == [{"a": 1}, {"a": 2}]
    assert len(rows) == 5


@settings(max_examples=400)
@given(st.data())
def test_any_bytes_are_let_in_by_both_checks_or_by_none(data: st.DataObject) -> None:
    encoded = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 3))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.one_of(st.just(len(encoded)), st.integers(0, len(encoded))))
    is_let_in([GOOD, bytes(encoded[:end]), GOOD])


TEXTS = (b"\x7f", b"\xc2\x80", b"\xdf\xbf", b"\xe0\xa0\x80", b"\xed\x9f\xbf", b"\xef\xbf\xbf")
MORE_TEXTS = (b"\xf0\x90\x80\x80", b"\xf4\x8f\xbf\xbf", b"a\xc3\xa9b")
NO_TEXTS = (b"\x80", b"\xc1\xbf", b"\xc2", b"\xc2a", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xe1\x80")
MORE_NO_TEXTS = (b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xe1\x80a")


@pytest.mark.parametrize("text", [*TEXTS, *MORE_TEXTS, *NO_TEXTS, *MORE_NO_TEXTS])
def test_a_text_is_let_in_if_and_only_if_it_is_utf_8(text: bytes) -> None:
    """As a value and as a name; and compiled code needs no help to tell."""
    head = bytes([0xA0 + len(text)]) + text
    for event in (b"\x91\x81\xa1a" + head, b"\x91\x81" + head + b"\x01"):
        assert is_let_in([event]) == is_plain(event) == (text in (*TEXTS, *MORE_TEXTS))


TOO_MANY = b"\x91\xde\x01\x01" + b"".join(b"\xa3%03d\x01" % number for number in range(257))


@pytest.mark.parametrize(
    "event",
    [
        b"\x93\x80\xc4\x00\xa1p",  # a publisher without a sequence
        b"\x94\x80\xc4\x00\xa1p\xff",  # a sequence below 0
        b"\x94\x80\xc4\x00\xa0\x01",  # a publisher without a name
        b"\x91\x81\xa0\x01",  # an attribute without one
        b"\x91\x80\x00",  # something behind it
        encode_event({"a": 1}) + b"\x00",
        TOO_MANY,
        msgspec.msgpack.encode(({"a": "x" * (TEXT_MAX + 1)}, b"")),
    ],
)
def test_what_breaks_a_rule_is_refused_by_both(event: bytes) -> None:
    assert not is_let_in([GOOD, event])


@pytest.mark.parametrize(
    "event",
    [
        b"\x91\x81\xa1a\xca\x3f\x80\x00\x00",  # half a float
        b"\xdc\x00\x01\x80",  # an array with a long head
        b"\x95\x80\xc4\x00\xa1p\x01\x05",  # one part more, of a later version
        b"\x94\x80\xc4\x00\xc0\xc0",  # neither publisher nor sequence, and said so
    ],
)
def test_what_our_encoder_never_makes_is_let_in_all_the_same(event: bytes) -> None:
    assert not is_plain(event)
    assert is_let_in([GOOD, event])
    check_plain(EventBatch((event,)))


def test_an_event_beyond_the_limit_is_refused() -> None:
    with pytest.raises(WireError, match="longer than 10 bytes"):
        check_plain(EventBatch((GOOD,)), 10)


def test_nothing_at_all_is_let_in() -> None:
    check_plain(EventBatch(()))
    assert AttributeRows(EventBatch(())).locate(tuple(WANTED)) is not None
