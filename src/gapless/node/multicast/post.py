"""The post of the multicast service: what one step has for each broker, in as few messages as fit.

Brokers that get the same get the same message, so that it is encoded once for all. To one that is
not in the network file, or from one, it says who everybody is whom it speaks of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.effects import Effect, Send
from gapless.scribe.messages import (
    Accept,
    LogAppend,
    Promise,
    Ringed,
    RootPublication,
    Routed,
    TreeEvent,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gapless.core.identity import BrokerName, NodeId
    from gapless.node.multicast.name_book import NameBook
    from gapless.scribe.messages import ScribeMessage

LETTER_MESSAGES_MAX = 1_000
LETTER_BYTES_MAX = 1 << 20
"""What goes to one broker in one message; more goes into several."""


class Post:
    """Of one broker."""

    def __init__(self, here: BrokerName, book: NameBook) -> None:
        self.unsent = 0  # messages to nodes of which nobody knows who they are
        self._book = book
        self._is_in_file = book.is_in_file(here)

    def send(self, messages_to: dict[NodeId, list[ScribeMessage]]) -> list[Effect]:
        effects: list[Effect] = []
        made: dict[tuple[bool, tuple[int, ...]], Ringed] = {}
        for node, messages in messages_to.items():
            name = self._book.find(node)
            if name is None:
                self.unsent += len(messages)
                continue
            is_stranger = not (self._is_in_file and self._book.is_in_file(name))
            for letter in letters(messages):
                key = is_stranger, tuple(map(id, letter))
                if key not in made:
                    others = self._book.of(letter, all_of_them=is_stranger)
                    made[key] = Ringed(letter, others)
                effects.append(Send(name, made[key]))
        return effects


def letters(messages: list[ScribeMessage]) -> Iterator[tuple[ScribeMessage, ...]]:
    """The messages, in order, cut into pieces that fit a frame."""
    if len(messages) == 1:
        yield (messages[0],)
        return
    piece: list[ScribeMessage] = []
    size = 0
    for message in messages:
        weight = bytes_of(message)
        if piece and (len(piece) >= LETTER_MESSAGES_MAX or size + weight > LETTER_BYTES_MAX):
            yield tuple(piece)
            piece, size = [], 0
        piece.append(message)
        size += weight
    yield tuple(piece)


def bytes_of(message: ScribeMessage) -> int:
    """About how long it is, as far as events make it long."""
    match message:
        case (
            TreeEvent(body=body)
            | RootPublication(body=body)
            | Routed(payload=RootPublication(body=body))
        ):
            return len(body)
        case LogAppend(entries=entries):
            return sum(len(entry.body) for entry in entries)
        case Accept() | Promise():
            return LETTER_BYTES_MAX
        case _:
            return 0
