"""A frame decodes to a message, to `Unknown`, or to a `WireError` that says where."""

from __future__ import annotations

import sys
import tracemalloc

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.errors import WireError
from gapless.core.events import EventBatch
from gapless.core.messages import Hello, Message, Ping
from gapless.core.ticks import Span
from gapless.scribe.messages import Ringed
from gapless.wire.codec import KIND_LENGTH_MAX, Codec, Unknown
from gapless.wire.framing import Unframer, frame
from tests.wire.samples import CODEC, MESSAGES, Cargo, messages

pack = msgspec.msgpack.encode
samples = pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES.keys())


def outcome(payload: bytes) -> Message | Unknown | WireError:
    """What decoding comes to; any other exception fails the test."""
    try:
        return CODEC.decode(payload)
    except WireError as error:
        return error


@given(messages)
def test_what_was_encoded_decodes_to_an_equal_message(message: Message) -> None:
    payload = CODEC.encode(message)
    assert CODEC.decode(payload) == message
    assert CODEC.decode(memoryview(bytearray(payload))) == message


@given(st.lists(messages, max_size=5))
def test_many_messages_in_one_buffer_are_the_same_frames(sent: list[Message]) -> None:
    buffer = CODEC.frames(sent)
    assert buffer == b"".join(frame(CODEC.encode(message)) for message in sent)
    assert [CODEC.decode(payload) for payload in Unframer().feed(buffer)] == sent


def test_encoding_into_a_buffer_appends() -> None:
    buffer = bytearray(b"before")
    CODEC.encode_into(Ping(1), buffer)
    assert buffer == b"before" + CODEC.encode(Ping(1))


def test_a_message_too_large_for_a_frame_is_not_sent() -> None:
    with pytest.raises(WireError, match="does not fit a frame of 5"):
        CODEC.frames([Ping(1)], frame_bytes_max=5)


def test_a_codec_encodes_only_what_it_decodes() -> None:
    with pytest.raises(AssertionError, match="not of this codec"):
        Codec(Hello).encode(Ping())


@samples
def test_every_truncation_is_an_error(message: Message) -> None:
    payload = CODEC.encode(message)
    for end in range(len(payload)):
        assert isinstance(outcome(payload[:end]), WireError)
    assert isinstance(outcome(payload + b"\xc0"), WireError)


@samples
def test_every_flipped_bit_is_a_message_or_an_error(message: Message) -> None:
    payload = CODEC.encode(message)
    outcomes = []
    for bit in range(8 * len(payload)):
        damaged = bytearray(payload)
        damaged[bit // 8] ^= 1 << bit % 8
        outcomes.append(outcome(bytes(damaged)))
    assert any(isinstance(each, Unknown) for each in outcomes)
    assert any(isinstance(each, WireError) for each in outcomes)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_an_error(payload: bytes) -> None:
    outcome(payload)
    outcome(b"\x82\xa4kind\xa5cargo\xa4span" + payload)


HEADS = [b"", b"\x82\xa4kind\xa5cargo\xa6vector", b"\x82\xa4kind\xa4ping\xa7unknown"]


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("opener", [b"\x91", b"\x81\xa1k", b"\x81", b"\xdd\x00\x00\x00\x01"])
def test_deep_nesting_is_an_error(head: bytes, opener: bytes) -> None:
    assert isinstance(outcome(head + opener * 100_000 + b"\xc0"), WireError)


def test_nesting_is_reported_as_such() -> None:
    # Deep enough for any recursion limit that an interpreter may have.
    depth = 10 * sys.getrecursionlimit()
    with pytest.raises(WireError, match="does not decode: it is nested too deeply"):
        CODEC.decode(b"\x82\xa4kind\xa4ping\xa7unknown" + b"\x91" * depth + b"\xc0")


@pytest.mark.parametrize("head", [*HEADS, b"\x82\xa4kind\xa5cargo\xa5ticks"])
@pytest.mark.parametrize("opener", [b"\xc6", b"\xdb", b"\xc9", b"\xdd", b"\xdf"])
def test_a_huge_length_inside_a_message_costs_no_memory(head: bytes, opener: bytes) -> None:
    tracemalloc.start()
    try:
        assert isinstance(outcome(head + opener + b"\xff\xff\xff\xff" + bytes(100)), WireError)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("content", "where"),
    [
        ({"kind": "ping", "number": "7"}, "'ping' does not decode: .*int.*str.*`$.number`"),
        ({"kind": "ping", "number": 1.5}, "`$.number`"),
        ({"kind": "cargo", "span": [3, 3], "events": [[]]}, "not a span.*`$.span`"),
        ({"kind": "cargo", "span": [3, 4], "events": [[b"", "x"]]}, "`$.events[0][1]`"),
        ({"kind": "cargo", "span": [3, 4], "events": [[]], "ticks": [1]}, "more ticks"),
        ({"kind": "cargo", "span": [3, 4]}, "missing required field `events`"),
        ({"kind": "hello", "version": 1, "version_min": 2}, "no range"),
        ({"kind": 3}, "`$.kind`"),
        ({"kind": ""}, "`$.kind`"),
        ({"kind": "x" * (KIND_LENGTH_MAX + 1)}, "`$.kind`"),
        ({}, "missing required field `kind`"),
        (["ping"], "Expected `object`"),
        (None, "Expected `object`"),
        ({1: 2}, "Expected `str`"),
    ],
)
def test_an_error_says_what_and_where(content: object, where: str) -> None:
    with pytest.raises(WireError, match=where.replace("$", r"\$").replace("[", r"\[")):
        CODEC.decode(pack(content))


@pytest.mark.parametrize("text", [b"\xff\xff", b"\xed\xa0\x80"], ids=["no UTF-8", "surrogate"])
def test_text_that_is_not_utf_8_is_an_error(text: bytes) -> None:
    goodbye = b"\x82\xa4kind\xa7goodbye\xa7problem" + bytes([0xA0 + len(text)]) + text
    with pytest.raises(WireError, match="utf-8"):
        CODEC.decode(goodbye)


def test_an_error_does_not_repeat_megabytes_of_its_cause() -> None:
    with pytest.raises(WireError) as caught:
        CODEC.decode(pack({"kind": "x" * 1_000_000}))
    assert len(str(caught.value)) < 500


def test_an_unknown_kind_is_a_value_to_skip() -> None:
    assert CODEC.decode(pack({"field": [1], "kind": "Novelty"})) == Unknown("Novelty")


# --- two versions talk --------------------------------------------------------------------------


class OldCargo(Message, frozen=True, tag="parcel"):
    """A message as version 1 knows it."""

    span: Span
    note: str = ""


class NewCargo(Message, frozen=True, tag="parcel"):
    """The same message in version 2, with fields that were added."""

    span: Span
    note: str = ""
    events: EventBatch = EventBatch(())
    weight: int = 5


class Novelty(Message, frozen=True):
    """A kind that only version 2 has."""


OLD = Codec(Hello, OldCargo)
NEW = Codec(Hello, NewCargo, Novelty)


def test_an_older_end_skips_what_it_does_not_know() -> None:
    sent = NewCargo(Span(1, 2), "n", EventBatch((b"e",)), weight=6)
    assert OLD.decode(NEW.encode(sent)) == OldCargo(Span(1, 2), "n")
    assert OLD.decode(NEW.encode(Novelty())) == Unknown("novelty")


def test_a_newer_end_fills_in_what_it_was_not_told() -> None:
    assert NEW.decode(OLD.encode(OldCargo(Span(1, 2), "n"))) == NewCargo(Span(1, 2), "n")


def test_a_hello_states_its_versions_even_if_they_are_its_own_defaults() -> None:
    """The other end's defaults are its own versions: it must not fill in those."""
    assert {"version": 1, "version_min": 1}.items() <= msgspec.msgpack.decode(
        OLD.encode(Hello(1, 1))
    ).items()


def test_the_cargo_of_these_tests_is_checked_when_made() -> None:
    with pytest.raises(ValueError, match="more ticks"):
        Cargo(Span(1, 2), EventBatch(()), (1,))


def test_an_identifier_that_is_too_long_or_no_bytes_is_refused() -> None:
    def encoded(topic: object) -> bytes:
        leave = {"kind": "ringed", "messages": [{"kind": "gone", "topic": topic, "start": 1}]}
        return pack(leave)

    good = CODEC.decode(encoded(bytes(range(1, 21))))
    assert isinstance(good, Ringed)
    assert CODEC.decode(CODEC.encode(good)) == good
    for bad in (bytes(21), 5, "five", None):
        with pytest.raises(WireError):
            CODEC.decode(encoded(bad))
