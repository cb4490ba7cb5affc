"""Frames of one turn: a message that goes to many connections is encoded once for all of them.

Subscribers that want the same get the very same `Deliveries`, so that the message itself is what
tells. Frames live for one turn of the loop, and the messages with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.client_messages import Deliveries
from gapless.node.dispatch import KINDS as SERVICE_KINDS
from gapless.wire.kinds import codec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.core.messages import Message


class Frames:
    """What was encoded in this turn."""

    def __init__(self) -> None:
        self._codec = codec(*SERVICE_KINDS)
        self._made: dict[int, tuple[Message, list[bytearray]]] = {}  # its id stays its own

    def of(self, messages: Sequence[Message]) -> Sequence[bytearray]:
        """The frames of these messages, in order: pieces for one write. `WireError`: one is too
        large."""
        if len(messages) == 1 and (kept := self._made.get(id(messages[0]))) is not None:
            return kept[1]
        pieces: list[bytearray] = []
        alone: list[Message] = []
        for message in messages:
            if not isinstance(message, Deliveries) or not message.ticks:
                alone.append(message)
                continue
            if alone:
                pieces.append(self._codec.frames(alone))
                alone = []
            kept = self._made.get(id(message))
            if kept is None:
                kept = self._made[id(message)] = (message, [self._codec.frames([message])])
            pieces += kept[1]
        if alone:
            pieces.append(self._codec.frames(alone))
        return pieces
