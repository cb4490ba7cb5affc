"""What compiled code finds in encoded events is what decoding them one by one says."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapless.client import columns as module
from gapless.client.columns import VALUE, attributes_column, flatten, join_runs, to_arrow
from gapless.core.events import EventBatch, EventRun
from gapless.core.identity import PublisherName
from gapless.wire.events import decode_contents, encode_event

VALUES = st.one_of(
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.sampled_from([0, 127, 128, 255, 256, 65535, 65536, 1 << 32, -32, -33, -128, -129, -32769]),
    st.floats(allow_nan=False),
    st.text(max_size=40),
    st.sampled_from(["x" * 31, "x" * 32, "y" * 255, "é" * 200, "z" * 65_536]),
    st.datetimes(timezones=st.just(UTC)),
    st.sampled_from([b"", b"\xff", b"x" * 255, b"x" * 70_000]),
)
NAMES = st.one_of(st.sampled_from(["a", "b", "price", "n" * 40]), st.text(min_size=1, max_size=8))
EVENTS = st.tuples(
    st.dictionaries(NAMES, VALUES, max_size=20),
    st.one_of(st.binary(max_size=50), st.sampled_from([b"b" * 300, b"c" * 70_000])),
    st.one_of(st.none(), st.tuples(st.text(min_size=1, max_size=8), st.integers(0, 1 << 62))),
)


def encode(event: Any) -> bytes:
    attributes, body, origin = event
    publisher, sequence = origin or (None, None)
    name = None if publisher is None else PublisherName(publisher)
    return encode_event(attributes, body, name, sequence)


def run_of(*encoded: bytes) -> EventRun:
    return EventRun.of(range(len(encoded)), encoded)


@pytest.fixture(autouse=True, scope="module")
def few_will_do() -> Any:
    before, module.EVENTS_MIN = module.EVENTS_MIN, 0
    yield
    module.EVENTS_MIN = before


@settings(max_examples=60)
@given(st.lists(EVENTS, max_size=12))
def test_every_column_is_what_decoding_says(events: list[Any]) -> None:
    encoded = tuple(map(encode, events))
    flat, contents = flatten(run_of(*encoded)), decode_contents(EventBatch(encoded))
    assert flat is not None
    maps = [content.attributes for content in contents]
    found = flat.attributes(VALUE)
    found.validate(full=True)
    assert found.equals(attributes_column(maps))
    assert flat.bodies().to_pylist() == [content.body for content in contents]
    assert flat.publishers().to_pylist() == [content.publisher for content in contents]
    assert flat.sequences().to_pylist() == [content.sequence for content in contents]
    for name in ("a", "price", "nowhere"):
        texts = [each.get(name) if type(each.get(name)) is str else None for each in maps]
        assert flat.find(name).texts().to_pylist() == texts


@settings(max_examples=60)
@given(EVENTS, st.data())
def test_broken_bytes_are_refused_or_read_within_their_event(event: Any, data: Any) -> None:
    encoded = bytearray(encode(event)[:200])
    for _ in range(data.draw(st.integers(0, 3))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(encoded[: data.draw(st.integers(0, len(encoded)))])
    flat = flatten(run_of(cut))
    if flat is not None:  # then what it says is inside, and building columns of it is safe
        assert len(flat.bodies()) == 1
        flat.publishers()
        flat.attributes(VALUE).validate()


@pytest.mark.parametrize(
    "event",
    [
        b"\x92\x82\xa1a\x01\xa1a\x02\xc4\x00",  # a name twice
        b"\x92\x81\xa1a\xca\x00\x00\x00\x00\xc4\x00",  # 32 bits of floating point
        b"\x91\x81\xa1a\xcf\xff\xff\xff\xff\xff\xff\xff\xff",  # beyond 63 bits
        b"\xdc\x00\x02\x80\xc4\x00",  # a long form of array
        b"\x92\x81\xa1a\xc0\xc4\x00",  # nil
        b"",
    ],
)
def test_what_our_encoder_never_makes_is_left_to_the_decoder(event: bytes) -> None:
    assert flatten(run_of(encode(({"a": 1}, b"", None)), event)) is None


def test_a_batch_is_the_same_by_both_ways() -> None:
    events = [({"i": i, "name": f"n{i}"}, b"x" * i, ("feed", i)) for i in range(50)]
    encoded, ticks = tuple(map(encode, events)), range(1 << 40, (1 << 40) + 50)
    quick = to_arrow("t", "t/0", EventRun.of(ticks, encoded))
    odd = b"\xdc\x00\x02" + encode(({"i": 1}, b"", None))[1:]  # a long form of array
    slow = to_arrow("t", "t/0", EventRun.of([*ticks, 1 << 50], (*encoded, odd)))
    assert flatten(run_of(*encoded, odd)) is None
    assert slow.slice(0, 50).equals(quick)


def test_runs_are_joined_one_behind_the_other() -> None:
    pieces = [[b"a", b"", b"bcd"], [], [b"e" * 300], [b"fg"]]
    runs = [EventRun.of([10 * len(some)] * len(some), some) for some in pieces]
    joined = join_runs(runs)
    assert joined.cut() == tuple(event for some in pieces for event in some)
    assert joined.tick_numbers() == (30, 30, 30, 10, 10)


def test_ends_that_go_back_are_left_to_the_decoder() -> None:
    events = [encode(({"a": i}, b"", None)) for i in range(3)]
    good = run_of(*events)
    ends = good.ends[4:8] + good.ends[:4] + good.ends[8:]
    assert flatten(good) is not None
    assert flatten(EventRun(good.ticks, ends, good.data)) is None
