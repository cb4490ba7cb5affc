"""Events: what goes in comes out; what does not fit is refused by name; nothing else gets in."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import repeat
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.errors import EventError, GaplessError, WireError
from gapless.core.events import Event, EventBatch
from gapless.core.identity import PubendName, PublisherName, TopicName
from gapless.core.ticks import Tick
from gapless.core.timestamps import FIRST
from gapless.wire.events import (
    ATTRIBUTE_COUNT_MAX,
    NAME_BYTES_MAX,
    TEXT_MAX,
    Content,
    check_events,
    decode_attributes,
    decode_event,
    decode_events,
    encode_event,
    encode_events,
)
from tests.wire.samples import EVENTS, PLAIN, attributes, names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gapless.core.events import Attributes

pack = msgspec.msgpack.encode
EAST = timezone(timedelta(hours=2))
PLACE = (TopicName("trades"), PubendName("trades/0"), Tick(5))

READERS: list[Callable[[bytes], object]] = [
    lambda encoded: decode_attributes(EventBatch((PLAIN, encoded))),
    lambda encoded: decode_event(encoded, *PLACE),
    lambda encoded: decode_events(EventBatch((encoded,)), PLACE[0], PLACE[1:2], PLACE[2:]),
    lambda encoded: check_events(EventBatch((PLAIN, encoded))),
]


@given(attributes, st.binary(max_size=50), st.none() | st.tuples(names, st.integers(0, 2**63 - 1)))
def test_an_event_comes_out_as_it_went_in(
    given_attributes: Attributes, body: bytes, origin: tuple[str, int] | None
) -> None:
    publisher, sequence = (PublisherName(origin[0]), origin[1]) if origin else (None, None)
    encoded = encode_event(given_attributes, body, publisher, sequence)
    batch = EventBatch((PLAIN, encoded))
    whole = Event(given_attributes, body, *PLACE, publisher, sequence)
    assert decode_event(encoded, *PLACE) == whole
    assert decode_attributes(batch) == [{}, given_attributes]
    content = Content(given_attributes, body, publisher, sequence)
    assert check_events(batch) == [Content({}), content]
    kinds = [type(value) for value in decode_attributes(batch)[1].values()]
    assert kinds == [type(value) for value in given_attributes.values()]


def test_a_moment_comes_out_in_utc_wherever_it_was_written() -> None:
    [decoded] = decode_attributes(
        EventBatch((encode_event({"at": datetime(2026, 11, 17, 11, 0, 0, 7, EAST)}),))
    )
    assert repr(decoded["at"]) == repr(datetime(2026, 11, 17, 9, 0, 0, 7, UTC))


def test_nan_and_infinities_are_values() -> None:
    encoded = encode_event({"nan": math.nan, "low": -math.inf, "high": math.inf})
    [decoded] = decode_attributes(EventBatch((encoded,)))
    assert math.isnan(float(str(decoded["nan"])))
    assert (decoded["low"], decoded["high"]) == (-math.inf, math.inf)


def test_any_mapping_and_any_bytes_will_do() -> None:
    plain = encode_event({"a": 1}, b"xyz")
    assert encode_event(MappingProxyType({"a": 1}), bytearray(b"xyz")) == plain
    assert encode_event({"a": 1}, memoryview(b"_x_y_z")[1::2]) == plain


def test_events_are_numbered_on_and_encoded_as_each_is_alone() -> None:
    rows: list[tuple[Attributes, bytes]] = [({"a": n}, b"x" * n) for n in range(3)]
    named = [encode_event(*row, PublisherName("p"), 7 + n) for n, row in enumerate(rows)]
    assert list(encode_events(rows, PublisherName("p"), 7)) == named
    assert list(encode_events(rows)) == [encode_event(*row) for row in rows]


def test_what_stands_before_an_event_that_does_not_fit_is_encoded() -> None:
    rows: Any = iter([({"a": 1}, b""), ({"a": None}, b""), ({"a": 3}, b"")])
    encoded = encode_events(rows)
    assert next(encoded) == encode_event({"a": 1})
    with pytest.raises(EventError, match="'a' is of type NoneType"):
        next(encoded)
    assert list(rows) == [({"a": 3}, b"")]


def test_events_of_a_batch_come_out_alike_with_a_publisher_without_and_mixed() -> None:
    named = encode_event({"a": 1, "b": "x"}, b"y", PublisherName("p"), 7)
    later = pack([{"a": 1}, b"y", "p", 7, "a field of a later version"])
    for pieces in ((named, named), (PLAIN, PLAIN), (named, PLAIN), (named, later), (PLAIN,), ()):
        topic, pubend, _ = PLACE
        ticks = [Tick(5 + index) for index in range(len(pieces))]
        events = decode_events(EventBatch(pieces), topic, [pubend] * len(pieces), iter(ticks))
        alone = [decode_event(*each) for each in zip(pieces, repeat(topic), repeat(pubend), ticks)]
        assert events == alone
        assert all(type(event) is Event for event in events)


WRONG_ATTRIBUTES: list[tuple[dict[Any, Any], str]] = [
    ({"good": 1, "bad": None}, "'bad' is of type NoneType"),
    ({"bad": [1]}, "'bad' is of type list"),
    ({"bad": {"x": 1}}, "'bad' is of type dict"),
    ({"bad": bytearray(b"x")}, "'bad' is of type bytearray"),
    (
        {"bad": datetime(2026, 11, 17)},  # noqa: DTZ001 - on purpose
        "'bad' is a time without a time zone. Give it a time zone",
    ),
    ({"bad": FIRST.replace(tzinfo=EAST)}, "'bad' is beyond the years 1 to 9999 of UTC"),
    ({"bad": date(2026, 11, 17)}, "'bad' is of type datetime.date"),
    ({"bad": Decimal("1.5")}, "'bad' is of type decimal.Decimal"),
    ({"bad": numpy.float64(1.5)}, r"'bad' is of type numpy\.float64.*item\(\)"),
    ({"bad": 2**63}, "'bad' is beyond 64 bits"),
    ({"bad": -(2**63) - 1}, "'bad' is beyond 64 bits"),
    ({"bad": 10**30}, "'bad' is beyond 64 bits"),
    ({"bad": "half \ud83e"}, "'bad' is text with half a surrogate pair"),
    ({"half \ud83e": 1}, "name, .*half a surrogate pair"),
    ({"": 1}, "name, '', is empty"),
    ({1: 1}, "name, 1, is of type int"),
    ({"n" * (NAME_BYTES_MAX + 1): 1}, f"longer than {NAME_BYTES_MAX} bytes"),
    ({"é" * (NAME_BYTES_MAX // 2 + 1): 1}, f"longer than {NAME_BYTES_MAX} bytes"),
    ({str(n): n for n in range(ATTRIBUTE_COUNT_MAX + 1)}, "257 attributes, the limit is 256"),
    ({"a": 1, "bad": "é" * (TEXT_MAX + 1)}, "'bad' is text of 65537 .* limit is 65536.*the body"),
]


@pytest.mark.parametrize(
    ("wrong", "why"), WRONG_ATTRIBUTES, ids=[why for _, why in WRONG_ATTRIBUTES]
)
def test_an_attribute_that_does_not_fit_is_refused_by_name(wrong: dict[Any, Any], why: str) -> None:
    with pytest.raises(EventError, match=why):
        encode_event(wrong)


@pytest.mark.parametrize(
    ("publisher", "sequence", "why"),
    [
        ("feed", None, "go together"),
        (None, 1, "go together"),
        ("", 1, "name '' is empty"),
        ("p" * 256, 1, "longer than"),
        ("half \ud83e", 1, "surrogate"),
        ("feed", -1, "sequence -1 is not in"),
        ("feed", 2**63, "is not in"),
        ("feed", True, "sequence True is not in"),
    ],
)
def test_an_origin_that_does_not_fit_is_refused(publisher: Any, sequence: Any, why: str) -> None:
    with pytest.raises(EventError, match=why):
        encode_event({"a": 1}, b"", publisher, sequence)


@pytest.mark.parametrize(
    "wrong",
    [{"a": 1}, ({"a": 1},), ({"a": 1}, b"", 3), 5, None, "ab", (None, b""), ([("a", 1)], b"")],
)
def test_an_event_is_attributes_and_a_body(wrong: Any) -> None:
    with pytest.raises(EventError, match=r"is no event\. Give a dict of attributes, and a body"):
        list(encode_events([wrong]))


def test_an_error_of_whoever_makes_the_events_is_his_own() -> None:
    def events() -> Iterator[Any]:
        yield {"a": 1}, b""
        raise TypeError("mine")

    with pytest.raises(TypeError, match="mine"):
        list(encode_events(events()))


def test_a_body_is_bytes() -> None:
    with pytest.raises(EventError, match="body is of type str"):
        encode_event({}, "text")  # type: ignore[arg-type]  # what an untyped caller may do


def test_an_event_may_have_the_limit_and_not_one_byte_more() -> None:
    size = len(encode_event({"a": 1}, b"x" * 100))
    encoded = encode_event({"a": 1}, b"x" * 100, event_bytes_max=size)
    with pytest.raises(EventError, match=f"has {size} bytes, the limit is {size - 1}"):
        encode_event({"a": 1}, b"x" * 100, event_bytes_max=size - 1)
    assert len(check_events(EventBatch((encoded,)), size)) == 1
    with pytest.raises(WireError, match=f"longer than {size - 1} bytes"):
        check_events(EventBatch((encoded,)), size - 1)


def test_a_text_may_have_the_limit_and_not_one_character_more() -> None:
    largest = {"a": "é" * TEXT_MAX, "b": "x" * TEXT_MAX}
    assert check_events(EventBatch((encode_event(largest, bytes(TEXT_MAX)),)))
    longer = msgspec.msgpack.encode(({"a": "x" * (TEXT_MAX + 1)}, b""))
    with pytest.raises(WireError, match="a text of an event is longer than 65536 characters"):
        check_events(EventBatch((encode_event({}), longer)))


def test_names_at_the_limit_are_let_in() -> None:
    largest = {f"{n:0255}": n for n in range(ATTRIBUTE_COUNT_MAX)}
    assert check_events(EventBatch((encode_event(largest),)))[0].attributes == largest


@given(
    st.dictionaries(
        st.text(max_size=3) | st.integers() | st.none(),
        st.none() | st.integers() | st.text(max_size=3) | st.lists(st.none(), max_size=1),
        max_size=3,
    )
)
def test_what_encodes_is_let_in_and_what_does_not_is_refused(anything: dict[Any, Any]) -> None:
    try:
        encoded = encode_event(anything)
    except EventError:
        return
    assert check_events(EventBatch((encoded,)))[0].attributes == anything


# --- bytes that no publisher of ours makes ------------------------------------------------------


HOSTILE = {
    "nothing": b"",
    "no array": pack({"a": 1}),
    "an empty array": pack([]),
    "no attributes": pack([None]),
    "a list as attributes": pack([[1]]),
    "a null": pack([{"a": None}]),
    "a nested map": pack([{"a": {"b": 1}}]),
    "a null beside bytes": pack([{"a": b"x", "b": None}]),
    "a number beyond 63 bits beside bytes": pack([{"a": b"x", "b": 2**63}]),
    "a number as a name": pack([{1: 1}]),
    "unsigned beyond 63 bits": pack([{"a": 2**63}]),
    "an extension": pack([{"a": msgspec.msgpack.Ext(5, b"x")}]),
    "half a timestamp": b"\x91\x81\xa1a\xd6\xff\x00\x00\x00",
    "a timestamp beyond all": b"\x91\x81\xa1a\xc7\x0c\xff" + b"\x00" * 4 + b"\x7f" * 8,
    "a timestamp of too many nanoseconds": b"\x91\x81\xa1a\xd7\xff" + b"\xff" * 8,
    "a name that is no UTF-8": b"\x91\x81\xa1\xff\x01",
    "a value that is no UTF-8": b"\x91\x81\xa1a\xa1\xff",
    "a huge map": b"\x91\xdf\xff\xff\xff\xff\xa1a\x01",
    "a huge text": b"\x91\x81\xa1a\xdb\xff\xff\xff\xffx",
    "deep nesting": b"\x91" * 100_000,
    "deep nesting behind the attributes": b"\x93\x80\xc4\x00" + b"\x91" * 100_000,
    "something behind": PLAIN + b"\xc0",
    "two events": PLAIN + PLAIN,
}


@pytest.mark.parametrize("encoded", HOSTILE.values(), ids=HOSTILE.keys())
def test_bad_events_are_not_let_in(encoded: bytes) -> None:
    with pytest.raises(WireError, match="event 1 of a batch of 2 does not decode"):
        check_events(EventBatch((PLAIN, encoded)))
    for reader in READERS:
        survives(reader, encoded)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ([{"": 1}], "name that is empty"),
        ([{"n" * 256: 1}], "longer than 255"),
        ([{str(n): n for n in range(257)}], "more than 256"),
        ([{}, b"", "feed"], "without a sequence"),
        ([{}, b"", None, 1], "without a sequence"),
        ([{}, b"", "", 1], "name that is empty"),
        ([{}, b"", "feed", -1], "does not decode"),
        ([{}, b"", 7, 1], "does not decode"),
        ([{}, "text"], "does not decode"),
        ([{}, None], "does not decode"),
    ],
)
def test_events_beyond_the_limits_are_not_let_in(content: object, why: str) -> None:
    with pytest.raises(WireError, match=why):
        check_events(EventBatch((pack(content),)))


def survives(reader: Callable[[bytes], object], encoded: bytes) -> bool:
    """Whether it decodes; any exception but `WireError` fails the test."""
    try:
        reader(encoded)
    except WireError:
        return False
    return True


@pytest.mark.parametrize("encoded", EVENTS.values(), ids=EVENTS.keys())
def test_damaged_events_decode_or_give_an_error(encoded: bytes) -> None:
    damaged = [encoded[:end] for end in range(len(encoded))]
    for bit in range(8 * len(encoded)):
        flipped = bytearray(encoded)
        flipped[bit // 8] ^= 1 << bit % 8
        damaged.append(bytes(flipped))
    for each in damaged:
        *lazy, whole = (survives(reader, each) for reader in READERS)
        assert all(lazy) or not whole, "let in, but some reader refuses it"
    assert not any(survives(READERS[-1], each) for each in damaged[: len(encoded)])


@given(st.binary(max_size=40))
def test_any_bytes_decode_or_give_an_error(encoded: bytes) -> None:
    for reader in READERS:
        survives(reader, encoded)
        survives(reader, b"\x92\x81\xa1a" + encoded)


def test_fields_of_a_later_version_are_skipped() -> None:
    later = pack([{"a": 1}, b"body", "feed", 7, {"new": [1]}, 9])
    assert decode_event(later, *PLACE) == Event({"a": 1}, b"body", *PLACE, PublisherName("feed"), 7)
    assert decode_attributes(EventBatch((later,))) == [{"a": 1}]
    assert len(check_events(EventBatch((later,)))) == 1


def test_of_a_name_that_occurs_twice_the_last_value_counts() -> None:
    twice = b"\x91\x82\xa1a\x01\xa1a\x02"
    assert decode_attributes(EventBatch((twice,))) == [{"a": 2}]
    assert check_events(EventBatch((twice,)))[0].attributes == {"a": 2}


def test_attributes_are_read_without_looking_at_the_body() -> None:
    strange = pack([{"a": 1}, ["not", "a", "body"]])
    assert decode_attributes(EventBatch((strange,))) == [{"a": 1}]
    with pytest.raises(WireError, match="an event does not decode"):
        decode_event(strange, *PLACE)


def test_an_empty_batch_is_fine() -> None:
    assert decode_attributes(EventBatch(())) == []
    assert check_events(EventBatch(())) == []


def test_a_caller_can_catch_a_refused_event_as_a_value_error() -> None:
    assert issubclass(EventError, ValueError)
    assert issubclass(EventError, GaplessError)


def test_a_batch_decodes_like_its_events_one_by_one() -> None:
    encoded = [
        encode_event({"a": 1, "b": "x"}, b"one"),
        encode_event({}, b"", PublisherName("feed"), 7),
    ]
    pubends = [PubendName("t/0"), PubendName("t/1")]
    places = list(zip(encoded, pubends, [Tick(5), Tick(9)], strict=True))
    singly = [decode_event(each, TopicName("t"), pubend, tick) for each, pubend, tick in places]
    batch = EventBatch(tuple(encoded))
    together = decode_events(batch, TopicName("t"), pubends, [Tick(5), Tick(9)])
    assert together == singly
    assert [type(each) for each in together] == [Event, Event]


def test_the_first_bad_event_of_a_batch_is_named() -> None:
    batch = EventBatch((encode_event({}), b"\xc1"))
    pubends = [PubendName("t/0")] * 2
    with pytest.raises(WireError, match="event 1 of a batch of 2"):
        decode_events(batch, TopicName("t"), pubends, [Tick(1), Tick(2)])
