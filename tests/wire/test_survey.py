"""What a survey says of events is what a digest of their decoded attributes says."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapless.core.errors import WireError
from gapless.core.events import EventBatch
from gapless.core.timestamps import EPOCH, FIRST, LAST, MICROSECOND
from gapless.filters import sieve
from gapless.wire import survey as module
from gapless.wire.events import decode_attributes, encode_event
from gapless.wire.survey import survey

if TYPE_CHECKING:
    from gapless.core.events import Value

WANTED = ["a", "price", "n" * 40, "é"]
VALUES = st.one_of(
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.sampled_from([0, 127, 128, 255, 256, 65535, 65536, 1 << 32, -32, -33, -128, -129, -32769]),
    st.floats(allow_nan=False),
    st.text(max_size=40),
    st.sampled_from(["x" * 31, "x" * 32, "y" * 255, "é" * 200]),
    st.datetimes(timezones=st.just(UTC)),
    st.sampled_from([EPOCH, EPOCH + MICROSECOND, EPOCH - MICROSECOND, FIRST, LAST]),
    st.binary(max_size=40),
    st.sampled_from([b"x" * 255, b"x" * 256]),
)
NAMES = st.one_of(st.sampled_from([*WANTED, "b", "aa"]), st.text(min_size=1, max_size=8))


def survey_all(encoded: list[bytes], names: list[str]) -> list[sieve.Digest] | None:
    parts = [encoded[:1], encoded[1:]]
    pieces = [(b"".join(part), np.cumsum([0, *map(len, part)])) for part in parts]
    found = survey(pieces, names)
    return None if found is None else [sieve.compact(*each) for each in found]


def check_same(encoded: list[bytes], names: list[str]) -> None:
    rows = decode_attributes(EventBatch.join(encoded))
    found = survey_all(encoded, names)
    assert found is not None
    for name, (kinds, values) in zip(names, found, strict=True):
        expected = sieve.digest([row.get(name) for row in rows])
        assert kinds.tolist() == expected.kinds.tolist()
        assert values.dtype == expected.values.dtype
        assert values.tolist() == expected.values.tolist()


@settings(max_examples=200)
@given(
    rows=st.lists(st.dictionaries(NAMES, VALUES, max_size=20), min_size=1, max_size=6),
    names=st.lists(NAMES, max_size=4, unique=True),
)
def test_events_are_surveyed_as_they_decode(rows: list[dict[str, Value]], names: list[str]) -> None:
    check_same([encode_event(row, b"body") for row in rows], names)


def test_kinds_are_numbered_as_a_sieve_has_them() -> None:
    ours = module.NOTHING, module.BOOLEAN, module.NUMBER, module.WORDS
    assert ours == (sieve.NOTHING, sieve.BOOLEAN, sieve.NUMBER, sieve.TEXT)
    assert (module.MOMENT, module.OCTETS) == (sieve.TIMESTAMP, sieve.BYTES)


def test_of_a_name_that_occurs_twice_the_last_counts() -> None:
    check_same([b"\x92\x82\xa1a\x01\xa1a\xa1x\xc4\x00"], ["a"])


def test_more_attributes_than_fifteen_are_all_seen() -> None:
    check_same([encode_event({f"a{number}": number for number in range(256)})], ["a0", "a255"])


@pytest.mark.parametrize(
    "strange",
    [
        b"",
        b"\x92",
        b"\x90",
        b"\xdc\x00\x01\x80",  # an array with a long head
        b"\x91\xdf\x00\x00\x00\x01\xa1a\x01",  # a map with a long head
        b"\x91\x81\xa1a\xca\x3f\x80\x00\x00",  # half a float
        b"\x91\x81\xa1a\xcf" + b"\xff" * 8,  # beyond 63 bits
        b"\x91\x81\xa1a",
        b"\x91\x81\xa5a",
        b"\x91\xde\x00",
        b"\x91\x81\xa1a\xda\x00",
        b"\x91\x81\xa1a\xcb\x00",
    ],
)
def test_what_is_strange_or_cut_off_is_refused(strange: bytes) -> None:
    good = encode_event({"a": 1})
    assert survey_all([good, strange, good], ["a"]) is None


@settings(max_examples=200)
@given(st.data())
def test_any_bytes_are_refused_or_mean_what_decoding_says(data: st.DataObject) -> None:
    encoded = bytearray(encode_event({"a": 1, "price": 2.5, "s": "text"}))
    for _ in range(data.draw(st.integers(1, 4))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    found = survey_all([bytes(encoded)], ["a", "price"])
    try:
        [row] = decode_attributes(EventBatch((bytes(encoded),)))
    except (WireError, msgspec.DecodeError):
        return  # such bytes are in no log
    if found is not None:
        kinds = [int(each.kinds[0]) for each in found]
        assert kinds == [sieve.KINDS[type(row.get(name))] for name in ("a", "price")]
