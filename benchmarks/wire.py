"""Bytes: batches encoded and decoded, events forwarded, frames cut; beside plain libraries.

Each event has 4 attributes and a body of 250 bytes. `encode` is from attributes to a frame,
`decode` from a frame to the attributes, the body left as it is: what a broker does that filters.
"""

from __future__ import annotations

import json
import pickle
import struct
from itertools import accumulate
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from benchmarks.report import Report, cpu_seconds, rate
from gapless.core.client_messages import Publish
from gapless.core.events import Attributes, EventBatch
from gapless.core.identity import PublisherName, TopicName
from gapless.wire.codec import Codec, Unknown
from gapless.wire.events import check_events, decode_attributes, encode_event
from gapless.wire.framing import Unframer, frame

if TYPE_CHECKING:
    from collections.abc import Callable

BODY = bytes(range(250))
READ_BYTES = 64 * 1024
PUBLISHER = PublisherName("feed-1")


class Bare(msgspec.Struct):
    """The same event as one plain msgspec struct: the least that Python can do."""

    attributes: Attributes
    body: bytes
    publisher: str
    sequence: int


def attributes_of(index: int) -> Attributes:
    return {
        "symbol": f"S{index % 500}",
        "price": 90 + index / 7,
        "volume": index * 100,
        "halted": index % 2 == 0,
    }


def run(quick: bool) -> list[Report]:
    at_least = 0.03 if quick else 0.1
    sizes = (1, 64) if quick else (1, 16, 64, 256)
    return [
        _batches(sizes, at_least),
        _forwarding(sizes[1:], at_least),
        _layouts(sizes[1:], at_least),
        _framing(at_least),
    ]


def _seconds(works: dict[str, Callable[[], object]], at_least: float) -> dict[str, float]:
    """The best of two rounds for each, taken in turns, so that all meet the same weather."""
    rounds = [
        {name: cpu_seconds(work, at_least=at_least, repeats=2) for name, work in works.items()}
        for _ in range(2)
    ]
    return {name: min(each[name] for each in rounds) for name in works}


def _batches(sizes: tuple[int, ...], at_least: float) -> Report:
    report = Report(
        "wire-batches",
        "Events in batches: encode and decode",
        ("batch", "way", "encode", "decode", "both", "gapless ÷ this"),
        notes=[
            "gapless: checked on encoding, framed with a checksum; decoding leaves bodies alone.",
            "admitted: the same with `check_events`, the whole event against all limits.",
            "bare msgspec: one struct per event, no checks, no batch, no frame.",
        ],
    )
    for size in sizes:
        ways = _ways(size)
        works = {f"{name} {way}": work for name, pair in ways.items() for way, work in pair.items()}
        seconds = _seconds(works, at_least)
        ours = seconds["gapless encode"] + seconds["gapless decode"]
        for name in ways:
            encode, decode = seconds[f"{name} encode"], seconds[f"{name} decode"]
            report.add(
                size,
                name,
                rate(size / encode),
                rate(size / decode),
                rate(size / (encode + decode)),
                f"{(encode + decode) / ours:.2f}",
            )
    return report


def _ways(size: int) -> dict[str, dict[str, Callable[[], object]]]:
    """How to encode and decode a batch of this size."""
    contents = [attributes_of(index) for index in range(size)]
    bares = [Bare(each, BODY, PUBLISHER, index) for index, each in enumerate(contents)]
    plain = [(each, BODY.decode("latin-1"), PUBLISHER, 1) for each in contents]
    binary = [(each, BODY, PUBLISHER, 1) for each in contents]
    codec, bare_encoder = Codec(Publish), msgspec.msgpack.Encoder()
    bare_decoder = msgspec.msgpack.Decoder(Bare)

    def encode() -> bytearray:
        events = [encode_event(each, BODY, PUBLISHER, n) for n, each in enumerate(contents)]
        return codec.frames([Publish(TopicName("trades"), 1, EventBatch(tuple(events)))])

    def received(data: bytes) -> EventBatch:
        [payload] = Unframer().feed(data)
        message = codec.decode(payload)
        assert isinstance(message, Publish)
        return message.events

    sent, packed = bytes(encode()), [bare_encoder.encode(each) for each in bares]
    texts, pickles = json.dumps(plain), pickle.dumps(binary)
    assert decode_attributes(received(sent)) == contents
    return {
        "gapless": {"encode": encode, "decode": lambda: decode_attributes(received(sent))},
        "gapless, admitted": {"encode": encode, "decode": lambda: check_events(received(sent))},
        "bare msgspec": {
            "encode": lambda: [bare_encoder.encode(each) for each in bares],
            "decode": lambda: [bare_decoder.decode(each) for each in packed],
        },
        "json": {"encode": lambda: json.dumps(plain), "decode": lambda: json.loads(texts)},
        "pickle": {"encode": lambda: pickle.dumps(binary), "decode": lambda: pickle.loads(pickles)},
    }


def _forwarding(sizes: tuple[int, ...], at_least: float) -> Report:
    report = Report(
        "wire-forwarding",
        "A quarter of a batch, from received frame to frame to send",
        ("batch", "way", "events in", "gapless ÷ this"),
    )
    for size in sizes:
        codec = Codec(Publish)
        events = [encode_event(attributes_of(n), BODY, PUBLISHER, n) for n in range(size)]
        payload = codec.encode(Publish(TopicName("trades"), 1, EventBatch.join(events)))
        chosen = range(0, size, 4)

        def parse(codec: Codec = codec, payload: bytes = payload) -> EventBatch:
            message = codec.decode(payload)
            assert not isinstance(message, Unknown)
            assert isinstance(message, Publish)
            return message.events

        def send(batch: EventBatch, codec: Codec = codec) -> bytearray:
            return codec.frames([Publish(TopicName("trades"), 1, batch)])

        def pick(chosen: range = chosen) -> bytearray:
            return send(parse().pick(chosen))

        def encode_again(chosen: range = chosen) -> bytearray:
            contents = check_events(parse())
            kept = [contents[index] for index in chosen]
            return send(
                EventBatch.join(
                    encode_event(each.attributes, each.body, each.publisher, each.sequence)
                    for each in kept
                )
            )

        assert pick() == encode_again()
        seconds = _seconds({"picked": pick, "decoded, encoded again": encode_again}, at_least)
        for name, spent in seconds.items():
            report.add(size, name, rate(size / spent), f"{spent / seconds['picked']:.2f}")
    return report


class Contiguous(msgspec.Struct, frozen=True, array_like=True):
    """The batch we did not choose: all events in one byte string, and where each of them ends."""

    data: bytes
    ends: tuple[int, ...]

    def __post_init__(self) -> None:
        if (0, *self.ends)[-1] != len(self.data) or list(self.ends) != sorted(self.ends):
            raise ValueError("the events of a batch must follow one another")

    @classmethod
    def join(cls, pieces: list[bytes]) -> Contiguous:
        return cls(b"".join(pieces), tuple(accumulate(map(len, pieces))))

    def pick(self, indices: range) -> Contiguous:
        starts = (0, *self.ends)
        return Contiguous.join([self.data[starts[i] : starts[i + 1]] for i in indices])


class Packed(msgspec.Struct, frozen=True, array_like=True):
    """Another one: the ends as packed 32-bit integers."""

    data: bytes
    packed: bytes

    def pick(self, indices: range) -> Packed:
        starts = (0, *struct.unpack(f"<{len(self.packed) // 4}I", self.packed))
        return Packed.join([self.data[starts[i] : starts[i + 1]] for i in indices])

    @classmethod
    def join(cls, pieces: list[bytes]) -> Packed:
        ends = accumulate(map(len, pieces))
        return cls(b"".join(pieces), struct.pack(f"<{len(pieces)}I", *ends))


def _layouts(sizes: tuple[int, ...], at_least: float) -> Report:
    report = Report(
        "wire-layouts",
        "How a batch keeps its events: decode it, pick a quarter, encode that",
        ("batch", "layout", "events in", "gapless ÷ this"),
        notes=["`Packed` does not even check its ends when it is decoded."],
    )
    for size in sizes:
        events = [encode_event(attributes_of(n), BODY, PUBLISHER, n) for n in range(size)]
        works: dict[str, Callable[[], object]] = {
            "tuple of byte strings (gapless)": _relay(EventBatch, events),
            "contiguous, ends in a tuple": _relay(Contiguous, events),
            "contiguous, ends packed": _relay(Packed, events),
        }
        seconds = _seconds(works, at_least)
        ours = seconds["tuple of byte strings (gapless)"]
        for name, spent in seconds.items():
            report.add(size, name, rate(size / spent), f"{spent / ours:.2f}")
    return report


def _relay(
    layout: type[EventBatch | Contiguous | Packed], events: list[bytes]
) -> Callable[[], bytes]:
    encoder, decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(layout)
    sent = encoder.encode(layout.join(events))
    chosen = range(0, len(events), 4)
    return lambda: encoder.encode(decoder.decode(sent).pick(chosen))


def _framing(at_least: float) -> Report:
    report = Report(
        "wire-framing",
        f"Frames cut from a stream, in reads of {READ_BYTES // 1024} KiB",
        ("payload", "frames", "bytes", "share of the checksum"),
    )
    for size in (300, 20_000, 1_000_000):
        payload = bytes(size)
        stream = frame(payload) * max(1, 4_000_000 // size)
        reads = [stream[at : at + READ_BYTES] for at in range(0, len(stream), READ_BYTES)]
        count = len(stream) // len(frame(payload))

        def cut(reads: list[bytes] = reads) -> None:
            unframer = Unframer()
            for data in reads:
                unframer.feed(data)

        def checksums(payload: bytes = payload, count: int = count) -> None:
            for _ in range(count):
                crc32(payload)

        seconds = _seconds({"cut": cut, "checksums": checksums}, at_least)
        report.add(
            f"{size} bytes",
            rate(count / seconds["cut"]),
            f"{len(stream) / seconds['cut'] / 1e9:.2f} GB/s",
            f"{seconds['checksums'] / seconds['cut']:.0%}",
        )
    return report
