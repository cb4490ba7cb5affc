"""Messages as MessagePack: a map per message, told apart by its `kind`.

Theory of operation
    A `Codec` is made of the message types that one end understands. msgspec checks every field
    while it decodes, and the message's own `__post_init__` checks the rest, so the result is well
    formed. Two versions can talk: an unknown field is skipped, a missing field gets its default,
    and an unknown kind becomes `Unknown`, a value to count and to skip. The protocol version says
    whether skipping is safe (`link.agree`).

Invariants
    I1  `decode` returns a message or `Unknown`, or raises `WireError`; never anything else
    I2  memory is bounded by the frame: msgspec refuses an array longer than the bytes that follow

Cost
    One call of msgspec; the slow path runs only for what it refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Union

import msgspec

from gapless.core.identity import Identifier
from gapless.core.messages import Message
from gapless.wire.framing import FRAME_BYTES_MAX, UNSEALED, seal
from gapless.wire.refusal import MALFORMED, refusal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gapless.wire.framing import Bytes


IDENTIFIER_BYTES_MAX = 20
"""The longest identifier of the multicast service; the default is 16."""

KIND_LENGTH_MAX = 64
"""The longest kind that is counted as unknown; a longer one is refused."""


class Unknown(msgspec.Struct, frozen=True):
    """A message of a kind that this end does not know: count it, skip it."""

    kind: Annotated[str, msgspec.Meta(min_length=1, max_length=KIND_LENGTH_MAX)]


class Codec:
    """Encodes and decodes the messages of one kind of link."""

    def __init__(self, *message_types: type[Message]) -> None:
        assert message_types, "a codec needs message types"
        assert all(issubclass(each, Message) for each in message_types), message_types
        self._types = frozenset(message_types)
        self._kinds = frozenset(each.__struct_config__.tag for each in message_types)
        assert len(self._kinds) == len(self._types), "two message types share a kind"
        # `Union[…]` of a tuple is how a union is made of types known at run time only.
        self._decoder = msgspec.msgpack.Decoder(Union[message_types], dec_hook=_decode_other)  # noqa: UP007
        self._encoder = msgspec.msgpack.Encoder(enc_hook=_encode_other)

    def encode(self, message: Message) -> bytes:
        """The payload of one frame."""
        assert type(message) in self._types, f"{message!r} is not of this codec"
        return self._encoder.encode(message)

    def encode_into(self, message: Message, buffer: bytearray) -> None:
        """Append the payload to a buffer."""
        assert type(message) in self._types, f"{message!r} is not of this codec"
        self._encoder.encode_into(message, buffer, -1)

    def frames(
        self, messages: Iterable[Message], frame_bytes_max: int = FRAME_BYTES_MAX
    ) -> bytearray:
        """All messages, framed, in one buffer: ready for one write, each body copied once."""
        buffer = bytearray()
        for message in messages:
            start = len(buffer)
            buffer += UNSEALED
            self.encode_into(message, buffer)
            seal(buffer, start, frame_bytes_max)
        return buffer

    def decode(self, payload: Bytes) -> Message | Unknown:
        """The message in the payload of a frame, or `Unknown`."""
        try:
            message: Message = self._decoder.decode(payload)
        except MALFORMED as error:
            return self._unknown(payload, error)
        return message

    def _unknown(self, payload: Bytes, error: Exception) -> Unknown:
        """`Unknown`, if that was the only reason why msgspec refused; the error otherwise."""
        try:
            unknown = _unknown_decoder.decode(payload)
        except MALFORMED:
            raise refusal("a frame", error) from None
        if unknown.kind in self._kinds:
            raise refusal(f"a frame of kind '{unknown.kind}'", error) from None
        return unknown


def _encode_other(value: object) -> bytes:
    """An identifier, without leading zeros; there is nothing else that msgspec does not know."""
    assert isinstance(value, Identifier), value
    return value.to_bytes((value.bit_length() + 7) // 8)


def _decode_other(kind: type, value: object) -> Identifier:
    if kind is not Identifier or type(value) is not bytes or len(value) > IDENTIFIER_BYTES_MAX:
        raise ValueError(f"an identifier is at most {IDENTIFIER_BYTES_MAX} bytes")
    return Identifier.from_bytes(value)


_unknown_decoder = msgspec.msgpack.Decoder(Unknown)
