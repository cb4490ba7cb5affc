"""Frames of one turn: a message that goes to many connections is encoded once for all of them.

Subscribers with equal conditions get the identical `Deliveries` object, so its id is the key of the
cache. Cache and messages live for one turn of the loop.
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
    """The messages that were encoded in this turn."""

    def __init__(self) -> None:
        self._codec = codec(*SERVICE_KINDS)
        # By id, which stays a message's own as long as the message is kept here.
        self._encoded: dict[int, tuple[Message, list[bytearray]]] = {}

    def of(self, messages: Sequence[Message]) -> Sequence[bytearray]:
        """The frames of these messages, in order: pieces for one write. `WireError`: a message is
        too large."""
        if len(messages) == 1 and (kept := self._encoded.get(id(messages[0]))) is not None:
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
            kept = self._encoded.get(id(message))
            if kept is None:
                kept = self._encoded[id(message)] = (message, [self._codec.frames([message])])
            pieces += kept[1]
        if alone:
            pieces.append(self._codec.frames(alone))
        return pieces
