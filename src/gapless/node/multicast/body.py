"""Packed: a batch of events as one body.

What a client publishes at once travels as one publication of the multicast service, each event
behind its length: four bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.errors import ProtocolError
from gapless.scribe.messages import (
    Accept,
    LogAppend,
    Promise,
    RootPublication,
    Routed,
    TreeEvent,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gapless.scribe.messages import Payload, ScribeMessage


LENGTH_BYTES = 4


def pack(events: Sequence[bytes]) -> bytes:
    pieces: list[bytes] = []
    for event in events:
        pieces += (len(event).to_bytes(LENGTH_BYTES), event)
    return b"".join(pieces)


def unpack(body: bytes) -> list[bytes]:
    events: list[bytes] = []
    start, end = 0, len(body)
    while start < end:
        head = start + LENGTH_BYTES
        start = head + int.from_bytes(body[start:head])
        events.append(body[head:start])
    if start != end:
        raise ProtocolError("a body of a multicast topic ends within an event")
    return events


def bodies(messages: Iterable[ScribeMessage | Payload]) -> Iterator[bytes]:
    """All that these messages carry."""
    for message in messages:
        match message:
            case RootPublication(body=body) | TreeEvent(body=body):
                yield body
            case Routed(payload=payload):
                yield from bodies((payload,))
            case LogAppend(entries=entries):
                yield from (entry.body for entry in entries)
            case Promise(state=state) | Accept(state=state):
                yield from (entry.body for entry in state.entries)
            case _:
                pass
