"""Frames: a length, a checksum, and that many bytes. A stream of bytes in, whole frames out.

Theory of operation
    TCP keeps the order of bytes but not their grouping, so the receiver gets them cut anywhere.
    Frames that lie whole in one read are handed out as views of it, without a copy. Only the last,
    incomplete frame is kept, in a buffer of its own that grows with what has really arrived, never
    with what a header announces; when the frame is whole, that buffer is the frame.
    The checksum (CRC-32 of the payload) turns bytes that were damaged on the way into an error,
    which drops the link. The protocols above repair that like any other loss.

Invariants
    I1  the same bytes give the same frames, however they are cut
    I2  at most one frame is kept, of at most `frame_bytes_max` bytes, and only if it is incomplete
    I3  after an error no frame comes out any more
    I4  nothing more is kept of a frame that the receiver skips

Cost
    Linear in the bytes fed: each is copied at most once, in appends to a growing buffer.
    `python -m benchmarks wire` prints the share of the checksum.
"""

from __future__ import annotations

import struct
from zlib import crc32

from gapless.core.errors import WireError

Bytes = bytes | bytearray | memoryview

FRAME_BYTES_MAX = 16 * 1024 * 1024
"""The longest payload that is sent or accepted, unless configured otherwise."""

HEADER = struct.Struct(">II")
"""Length of the payload and its CRC-32, both big-endian."""

UNSEALED = bytes(HEADER.size)
"""Room for a header that `seal` fills in once the payload stands behind it."""

_FOREIGN = {
    b"\x16\x03": "TLS",
    b"\x15\x03": "TLS",
    b"GET ": "HTTP",
    b"POST": "HTTP",
    b"HEAD": "HTTP",
    b"PRI ": "HTTP",
    b"HTTP": "HTTP",
}
"""How other protocols begin. As lengths they are all beyond 300 MB, so beyond any sane limit."""


def frame(payload: bytes, frame_bytes_max: int = FRAME_BYTES_MAX) -> bytes:
    """One frame."""
    _check_room(len(payload), frame_bytes_max)
    return HEADER.pack(len(payload), crc32(payload)) + payload


def seal(buffer: bytearray, start: int, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
    """Make a frame of `UNSEALED` at `start` and the payload from there to the end of the buffer."""
    with memoryview(buffer) as view, view[start + HEADER.size :] as payload:
        _check_room(len(payload), frame_bytes_max)
        HEADER.pack_into(buffer, start, len(payload), crc32(payload))


class Unframer:
    """Cuts what a link delivers into frames. One per link and direction."""

    __slots__ = ("_first_bytes_max", "_frame_bytes_max", "_partial", "_skipped", "error")

    def __init__(
        self, frame_bytes_max: int = FRAME_BYTES_MAX, first_bytes_max: int | None = None
    ) -> None:
        """`first_bytes_max`: the limit of the first frame, whose sender is not known yet."""
        self.error: WireError | None = None
        """Why no more frames come; set together with the last good frames."""
        self._frame_bytes_max = frame_bytes_max
        self._first_bytes_max = first_bytes_max  # None once the first frame has begun
        self._partial = bytearray()  # the beginning of a frame, header included
        self._skipped = 0  # bytes still to come of a skipped frame

    @property
    def awaited(self) -> int:
        """The size of the frame that is not yet whole; 0 if there is none, or it is not known."""
        partial = self._partial
        return HEADER.unpack_from(partial)[0] if len(partial) >= HEADER.size else 0

    def begin(self, size: int) -> bytes:
        """The first bytes of the payload that is not yet whole."""
        return bytes(self._partial[HEADER.size : HEADER.size + size])

    def skip(self) -> None:
        """Drop the frame that is not yet whole, and what is still to come of it."""
        self._skipped = HEADER.size + self.awaited - len(self._partial)
        self._partial = bytearray()

    @property
    def buffered_bytes(self) -> int:
        """How much is kept of a frame that is not yet whole."""
        return len(self._partial)

    def feed(self, data: Bytes) -> list[memoryview]:
        """The payloads that `data` completes, in order; views that stay valid.

        Bad bytes raise `WireError`. If good frames came before them in the same data, these are
        returned first, `error` is set, and the next call raises.
        """
        if self.error is not None:
            raise self.error
        # The frames are views, so what they look into must never change.
        view = memoryview(data if type(data) is bytes else bytes(data))
        frames: list[memoryview] = []
        if self._skipped:
            dropped = min(self._skipped, len(view))
            self._skipped -= dropped
            view = view[dropped:]
        try:
            if self._first_bytes_max is not None:
                self._check_first(bytes(self._partial) + bytes(view[:4]), self._first_bytes_max)
            start = self._complete(view, frames) if self._partial else 0
            self._cut(view, start, frames)
        except WireError as error:
            self.error = error
            self._partial = bytearray()
            if not frames:
                raise
        return frames

    def _check_first(self, begin: bytes, limit: int) -> None:
        """Check the length of the very first frame, once it is there."""
        if len(begin) < 4:
            return
        size = int.from_bytes(begin[:4], "big")
        if size > limit:
            raise self._oversized(size, begin[:4], limit)
        self._first_bytes_max = None

    def _complete(self, view: memoryview, frames: list[memoryview]) -> int:
        """Add to the kept frame what it lacks; how much of `view` that took."""
        partial = self._partial
        used = 0
        if len(partial) < HEADER.size:
            used = HEADER.size - len(partial)
            partial += view[:used]
            if len(partial) < HEADER.size:
                return len(view)
        size: int
        size, checksum = HEADER.unpack_from(partial)
        if size > self._frame_bytes_max:
            raise self._oversized(size, bytes(partial[:4]))
        lacking = HEADER.size + size - len(partial)
        partial += view[used : used + lacking]
        if used + lacking > len(view):
            return len(view)
        self._partial = bytearray()
        frames.append(_checked(memoryview(partial)[HEADER.size :], checksum))
        return used + lacking

    def _cut(self, view: memoryview, start: int, frames: list[memoryview]) -> None:
        """Hand out every frame that lies whole in `view` from `start` on; keep the rest."""
        end = len(view)
        while end - start >= HEADER.size:
            size, checksum = HEADER.unpack_from(view, start)
            if size > self._frame_bytes_max:
                raise self._oversized(size, bytes(view[start : start + 4]))
            body = start + HEADER.size
            if body + size > end:
                break
            start = body + size
            frames.append(_checked(view[body:start], checksum))
        if start < end:
            self._partial += view[start:]

    def _oversized(self, size: int, first: bytes, limit: int = 0) -> WireError:
        """The error for a length beyond the limit, whose header begins with `first`."""
        spoken = _FOREIGN.get(first) or _FOREIGN.get(first[:2])
        if spoken is not None:
            return WireError(
                f"the other end speaks {spoken}, not gapless",
                "Check address and port; gapless+tls:// goes with a port that expects TLS.",
            )
        return WireError(
            f"a frame of {size} bytes is announced; the limit is {limit or self._frame_bytes_max}",
            "Check that the other end speaks gapless.",
        )


def _checked(payload: memoryview, checksum: int) -> memoryview:
    if crc32(payload) != checksum:
        raise WireError(
            f"a frame of {len(payload)} bytes was damaged on the way (CRC-32 differs)",
            "The link is dropped and set up anew; if it repeats, look for faulty hardware.",
        )
    return payload


def _check_room(size: int, frame_bytes_max: int) -> None:
    if size > frame_bytes_max:
        raise WireError(
            f"a message of {size} bytes does not fit a frame of {frame_bytes_max}",
            "Send smaller batches.",
        )
