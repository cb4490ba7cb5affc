"""Encoded events: attributes, body, publisher, sequence.

Theory of operation
    A publisher encodes an event once, as a MessagePack array `[attributes, body, publisher,
    sequence]`; the last two are left out together when there is no publisher name. From there on
    it travels as those bytes. A reader takes from the front of the array what it needs and skips
    the rest, so a relay that filters never touches a body, and a later version may append fields.
    The broker that the publisher is connected to checks an event once (`check_events`): it must be
    whole, and within all limits. Without that, only subscribers would find a bad body.
    A timestamp is MessagePack's own, bytes are its binary. msgspec has no union of texts with
    these, so events that have them are decoded a second time, and their values checked here.

Invariants
    I1  `check_events` accepts what `encode_event` makes, with the same limit
    I2  every function here decodes what `check_events` accepts
    I3  decoding raises `WireError` and nothing else, whatever the bytes; encoding raises
        `EventError` and nothing else, whatever the attributes and the body hold

Deviation: if a name occurs twice in a map, the last value counts, as msgspec decodes it.
`encode_event` cannot make such a map, and every decoder here agrees, so nothing is refused.

Cost
    `decode_attributes` is one msgspec call per event; decoding a whole batch in one call was no
    faster, and would not notice an event that runs over into the next. `decode_events` works by
    columns, so that the rest runs in C too. Of the time of `encode_events` msgspec takes a third,
    checking each attribute half: caching shapes, or types of all values in one set, was slower.
"""

from __future__ import annotations

from datetime import datetime
from itertools import repeat
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import astuple

from gapless.core.errors import EventError, WireError
from gapless.core.events import Event
from gapless.core.identity import PublisherName
from gapless.core.timestamps import NO_ZONE, in_utc
from gapless.wire.refusal import MALFORMED, refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gapless.core.events import Attributes, EventBatch, Value
    from gapless.core.identity import PubendName, TopicName
    from gapless.core.ticks import Tick
    from gapless.wire.framing import Bytes

EVENT_BYTES_MAX = 1024 * 1024
"""The longest encoded event, unless configured otherwise."""

ATTRIBUTE_COUNT_MAX = 256
NAME_BYTES_MAX = 255
"""The longest name of an attribute or a publisher, in UTF-8."""

TEXT_MAX = 64 * 1024
"""The longest text of an attribute, in characters. Each pattern of each condition is searched for
in all of a text, and nobody else is served meanwhile."""

INTEGER_MIN, INTEGER_MAX = -(1 << 63), (1 << 63) - 1

_Integer = Annotated[int, msgspec.Meta(ge=INTEGER_MIN, le=INTEGER_MAX)]
_Sequence = Annotated[int, msgspec.Meta(ge=0, le=INTEGER_MAX)]
if TYPE_CHECKING:
    _Attributes = Attributes
else:
    _Attributes = dict[str, bool | _Integer | float | str]
_KINDS = frozenset((bool, int, float, str, datetime, bytes))


class Content(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The contents of an encoded event."""

    attributes: _Attributes
    body: bytes = b""
    publisher: PublisherName | None = None
    sequence: _Sequence | None = None


class _Row(NamedTuple):
    """As `Content`, to be split into columns; it has no room for fields of a later version."""

    attributes: _Attributes
    body: bytes = b""
    publisher: PublisherName | None = None
    sequence: _Sequence | None = None


class _Head(msgspec.Struct, frozen=True, array_like=True, gc=False):
    attributes: _Attributes


class _WideContent(Content, frozen=True, array_like=True, gc=False):
    """As `Content`, before the values of attributes are checked."""

    attributes: dict[str, Any]


class _WideHead(_Head, frozen=True, array_like=True, gc=False):
    attributes: dict[str, Any]


_encoder = msgspec.msgpack.Encoder()
_contents = msgspec.msgpack.Decoder(Content)
_heads = msgspec.msgpack.Decoder(_Head)
_rows = msgspec.msgpack.Decoder(_Row)
_wide_contents = msgspec.msgpack.Decoder(_WideContent)
_wide_heads = msgspec.msgpack.Decoder(_WideHead)

_Part = TypeVar("_Part", Content, _Head)


def encode_event(
    attributes: Mapping[str, Value],
    body: Bytes = b"",
    publisher: PublisherName | None = None,
    sequence: int | None = None,
    *,
    event_bytes_max: int = EVENT_BYTES_MAX,
) -> bytes:
    """The bytes of an event; `EventError` says what is wrong with it."""
    one = ((attributes, body),)
    (encoded,) = encode_events(one, publisher, sequence, event_bytes_max=event_bytes_max)
    return encoded


def encode_events(
    events: Iterable[tuple[Mapping[str, Value], Bytes]],
    publisher: PublisherName | None = None,
    sequence: int | None = None,
    *,
    event_bytes_max: int = EVENT_BYTES_MAX,
) -> Iterator[bytes]:
    """The bytes of each event, encoded lazily; numbers go on from `sequence`."""
    encode, kinds = _encoder.encode, _KINDS
    number = -1 if publisher is None and sequence is None else _origin(publisher, sequence)
    for event in events:
        try:
            attributes, body = event
            items = attributes.items()
        except (TypeError, ValueError, AttributeError):
            raise _no_event(event) from None
        for name, value in items:
            kind = type(value)
            if (
                type(name) is not str
                or kind not in kinds
                or (kind is int and not INTEGER_MIN <= value <= INTEGER_MAX)  # type: ignore[operator]
                or (kind is datetime and _unfit_value(value))
            ):
                raise _unfit(attributes)
        if type(attributes) is not dict:
            attributes = dict(attributes)
        if type(body) is not bytes:
            body = _as_bytes(body)
        try:
            if number < 0:
                encoded = encode((attributes, body))
            else:
                encoded = encode((attributes, body, publisher, number))
                number += 1
        except UnicodeEncodeError:
            raise _unfit(attributes) from None
        if len(encoded) > event_bytes_max:
            raise _oversized(len(encoded), event_bytes_max)
        # Names are inside what is not the body: if all that is short, so are they.
        rest = len(encoded) - len(body)
        if "" in attributes or (
            rest > NAME_BYTES_MAX
            and (
                len(attributes) > ATTRIBUTE_COUNT_MAX
                or _unfit_name(attributes)
                or (rest > TEXT_MAX and _has_long_text(attributes))
            )
        ):
            raise _unfit(attributes)
        yield encoded


def extend_event(encoded: Bytes, more: Mapping[str, Value]) -> bytes:
    """A copy of an event with further attributes. What does not fit into an event is left out: the
    event's own attributes first, then its body."""
    (content,) = _decode_all(_contents, _wide_contents, (encoded,))
    for attributes, body in (({**content.attributes, **more}, content.body), (more, content.body)):
        try:
            return encode_event(attributes, body)
        except EventError:
            continue
    return encode_event(more)


def decode_attributes(batch: EventBatch) -> list[Attributes]:
    """The attributes of every event of a batch; the rest is not decoded."""
    return [head.attributes for head in _decode_all(_heads, _wide_heads, batch)]


def decode_event(encoded: Bytes, topic: TopicName, pubend: PubendName, tick: Tick) -> Event:
    """One event, with its place in the stream."""
    (content,) = _decode_all(_contents, _wide_contents, (encoded,))
    return Event(
        content.attributes, content.body, topic, pubend, tick, content.publisher, content.sequence
    )


def decode_events(
    batch: EventBatch, topic: TopicName, pubends: Iterable[PubendName], ticks: Iterable[Tick]
) -> list[Event]:
    """All events of a batch, with their places: a pubend and a tick for each."""
    if not len(batch):
        return []
    try:
        columns = tuple(zip(*map(_rows.decode, batch.events), strict=True))
    except MALFORMED:  # there is more behind one, or one is bad
        columns = tuple(zip(*map(astuple, decode_contents(batch)), strict=True))
    attributes, bodies, publishers, sequences = columns
    # A NamedTuple is made by a call of Python; what that does in the end is done here, in C.
    parts = zip(
        attributes, bodies, repeat(topic), pubends, ticks, publishers, sequences, strict=False
    )
    return list(map(tuple.__new__, repeat(Event), parts))


def decode_contents(batch: EventBatch) -> list[Content]:
    """The contents of every event of a batch that `check_events` has accepted."""
    return _decode_all(_contents, _wide_contents, batch)


def check_events(batch: EventBatch, event_bytes_max: int = EVENT_BYTES_MAX) -> list[Content]:
    """The contents of a publisher's batch, if every event is whole and within all limits."""
    contents = decode_contents(batch)
    longest = max(map(len, batch), default=0)
    if longest > event_bytes_max:
        raise WireError(f"an event is longer than {event_bytes_max} bytes")
    for content in contents:
        if len(content.attributes) > ATTRIBUTE_COUNT_MAX:
            raise WireError(f"an event has more than {ATTRIBUTE_COUNT_MAX} attributes")
        if (content.publisher is None) is not (content.sequence is None):
            raise WireError("an event has a publisher without a sequence, or the reverse")
    if longest > TEXT_MAX and any(_has_long_text(content.attributes) for content in contents):
        raise WireError(f"a text of an event is longer than {TEXT_MAX} characters")
    # Most batches repeat a few names: look at each once.
    names = set[str]().union(*(content.attributes for content in contents))
    names.update(content.publisher for content in contents if content.publisher is not None)
    if unfit := _unfit_name(names):
        raise WireError(f"an event has a name that is {unfit}")
    return contents


def _decode_all(
    narrow: msgspec.msgpack.Decoder[_Part],
    wide: msgspec.msgpack.Decoder[Any],
    encoded: EventBatch | tuple[Bytes],
) -> list[_Part]:
    """The parts of all events; the wide decoder knows timestamps and bytes."""
    try:
        return list(map(narrow.decode, encoded))
    except MALFORMED:
        pass
    parts: list[_Part] = []
    for index, event in enumerate(encoded):
        try:
            part = wide.decode(event)
            _check_values(part.attributes)
            parts.append(narrow.type(*astuple(part)))
        except MALFORMED as error:
            is_single = isinstance(encoded, tuple)
            what = "an event" if is_single else f"event {index} of a batch of {len(encoded)}"
            raise refusal(what, error) from None
    return parts


def _check_values(attributes: dict[str, Any]) -> None:
    """`ValueError` if a value is none that an attribute may have."""
    for value in attributes.values():
        kind = type(value)
        if kind not in _KINDS or (kind is int and value > INTEGER_MAX):
            raise ValueError(f"an attribute is {_unfit_value(value)}")


def _no_event(event: object) -> EventError:
    shown = f"{event!r:.80}"
    return EventError(f"{shown} is no event", "Give a dict of attributes, and a body of bytes.")


def _as_bytes(body: object) -> bytes:
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    raise EventError(f"the body is of type {_kind(body)}", "Encode it: a body is bytes.")


def _oversized(size: int, event_bytes_max: int) -> EventError:
    return EventError(
        f"the event has {size} bytes, the limit is {event_bytes_max}",
        "Store large bodies outside of gapless, and publish their place.",
    )


def _origin(publisher: str | None, sequence: int | None) -> int:
    """The number of the first event; `EventError` if it or the publisher's name is wrong."""
    if publisher is None or sequence is None:
        raise EventError(
            "publisher and sequence go together", "Give both, or neither if a retry may repeat."
        )
    if unfit := _unfit_name((publisher,)):
        raise EventError(f"the publisher's name {publisher!r:.80} is {unfit}", "Choose another.")
    if type(sequence) is not int or not 0 <= sequence <= INTEGER_MAX:
        raise EventError(f"the sequence {sequence!r:.80} is not in 0..2^63-1", "Count from 0 up.")
    return sequence


def _unfit(attributes: Mapping[str, Value]) -> EventError:
    """Which attribute cannot be encoded, and why; one cannot."""
    if len(attributes) > ATTRIBUTE_COUNT_MAX:
        return EventError(
            f"the event has {len(attributes)} attributes, the limit is {ATTRIBUTE_COUNT_MAX}",
            "Keep what filters ask for; put the rest into the body.",
        )
    for name, value in attributes.items():
        if unfit := _unfit_name([name]):
            return EventError(f"an attribute's name, {name!r:.80}, is {unfit}", "Choose another.")
        if unfit := _unfit_value(value):
            remedy = _ZONE_REMEDY if unfit == NO_ZONE else _VALUE_REMEDY
            remedy = _BODY_REMEDY if type(value) is str and len(value) > TEXT_MAX else remedy
            return EventError(f"attribute {name!r:.80} is {unfit}", remedy)
    raise AssertionError("an event was refused, but every attribute of it is good")


_VALUE_REMEDY = (
    "Use bool, int, float, str, datetime or bytes, or leave it out for NULL "
    "(numpy: value.item(), pandas: value.to_pydatetime())."
)
_BODY_REMEDY = "Put it into the body; conditions look at attributes only."
_ZONE_REMEDY = "Give it a time zone: datetime.now(UTC), or value.replace(tzinfo=UTC)."


def _has_long_text(attributes: Mapping[str, Value]) -> bool:
    return any(type(value) is str and len(value) > TEXT_MAX for value in attributes.values())


def _unfit_value(value: object) -> str:
    if type(value) is int:
        return "" if INTEGER_MIN <= value <= INTEGER_MAX else "beyond 64 bits, signed"
    if type(value) is str:
        if len(value) > TEXT_MAX:
            return f"text of {len(value)} characters, the limit is {TEXT_MAX}"
        return "" if _is_unicode(value) else "text with half a surrogate pair, which has no UTF-8"
    if type(value) is datetime:
        try:
            in_utc(value)
        except ValueError as error:
            return str(error)
    return "" if type(value) in _KINDS else f"of type {_kind(value)}"


def _unfit_name(names: Iterable[object]) -> str:
    """What is wrong with the first bad name of these; empty if all are good."""
    for name in names:
        if type(name) is not str:
            return f"of type {_kind(name)}, not str"
        if not name:
            return "empty"
        if not name.isascii() and not _is_unicode(name):
            return "text with half a surrogate pair, which has no UTF-8"
        # No character takes more than four bytes.
        if len(name) > NAME_BYTES_MAX // 4 and len(name.encode()) > NAME_BYTES_MAX:
            return f"longer than {NAME_BYTES_MAX} bytes"
    return ""


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _kind(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
