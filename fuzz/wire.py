"""Fuzz the bytes: whatever arrives, the outcome is a value or a `WireError`.

    python -m fuzz.wire -runs=1000000 -keep_seed=1 -use_counters=0 $(mktemp -d) fuzz/corpus/wire

The options are libFuzzer's. It sees our Python but not msgspec's C, so it would throw away seeds
that look alike from here, and `-keep_seed` keeps them; counting loops only slows it down.
The first byte of an input says what the rest is: a stream of bytes, cut into pieces; the payload
of a good frame; an encoded event. So the checksum of a frame is no wall in front of the rest.
Beyond "nothing but `WireError`" it checks that any cut of a stream gives the same frames, that a
decoded message encodes to bytes that decode to it again, and that an event which was let in can be
read by every reader.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["gapless.wire"]):
    from gapless.core.errors import WireError
    from gapless.core.events import EventBatch
    from gapless.core.messages import Message, Told
    from gapless.wire.codec import Codec, Unknown
    from gapless.wire.events import check_events, decode_attributes, decode_event
    from gapless.wire.framing import Unframer, frame

import gapless.core.broker_messages
import gapless.core.client_messages  # noqa: F401  # so that their messages are known
from gapless.core.identity import PubendName, TopicName
from gapless.core.ticks import Tick

FRAME_BYTES_MAX = 4096
PLACE = (TopicName("topic"), PubendName("pubend"), Tick(1))
CODEC = Codec(
    *(each for each in (*Message.__subclasses__(), *Told.__subclasses__()) if each is not Told)
)


def frames_of(pieces: list[bytes]) -> list[bytes]:
    """Every frame that comes out before the first error."""
    unframer = Unframer(FRAME_BYTES_MAX)
    frames: list[bytes] = []
    try:
        for piece in pieces:
            frames += map(bytes, unframer.feed(piece))
    except WireError:
        assert unframer.error is not None
    assert unframer.buffered_bytes < FRAME_BYTES_MAX + 8
    return frames


def fuzz_stream(data: bytes) -> None:
    size = 1 + data[-1] % 64 if data else 1
    whole = frames_of([data])
    assert whole == frames_of([data[at : at + size] for at in range(0, len(data), size)])
    for payload in whole:
        fuzz_message(payload)


def fuzz_message(payload: bytes) -> None:
    [unframed] = Unframer(1 << 20).feed(frame(payload))
    try:
        message = CODEC.decode(unframed)
    except WireError:
        return
    if not isinstance(message, Unknown):
        again = CODEC.encode(message)
        # Compared as bytes: a NaN is not equal to itself.
        assert CODEC.encode(CODEC.decode(again)) == again  # type: ignore[arg-type]
        batch = getattr(message, "events", None)
        if isinstance(batch, EventBatch):
            fuzz_batch(batch)


def fuzz_batch(batch: EventBatch) -> None:
    try:
        contents = check_events(batch)
    except WireError:
        contents = None
    try:
        attributes = decode_attributes(batch)
        for encoded in batch:
            decode_event(encoded, *PLACE)
    except WireError:
        assert contents is None, "let in, but some reader refuses it"
    else:
        assert contents is None or len(contents) == len(attributes)


def one_input(data: bytes) -> None:
    kind, rest = data[:1], data[1:]
    if kind == b"s":
        fuzz_stream(rest)
    elif kind == b"m":
        fuzz_message(rest)
    else:
        fuzz_batch(EventBatch.join([rest]))


def main() -> None:
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
