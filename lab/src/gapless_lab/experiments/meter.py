"""The meter: counts what brokers send, by link, kind of message and second.

Bytes are those of the real codec with its frame, so they are what a socket would carry. A message
that the network loses counts too: it was sent.

Cost: one encoding a message, which is why bytes are counted only when asked for.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from gapless.core.broker_messages import Knowledge, Nack, Sideways
from gapless.testing.checkers.checker import Checker
from gapless.testing.clock import START
from gapless.wire.kinds import codec

if TYPE_CHECKING:
    from gapless.core.identity import PeerName
    from gapless.core.messages import Message
    from gapless.node.config import Config
    from gapless.testing.checkers.checker import Broker
    from gapless.testing.record import Record

SECOND = 1_000_000

Link = tuple[str, str]


class Meter(Checker):
    """Watches a run and violates nothing."""

    def __init__(self, record: Record, config: Config, *, counts_bytes: bool = False) -> None:
        super().__init__(record, config)
        self._codec = codec() if counts_bytes else None
        self.messages: Counter[tuple[Link, str]] = Counter()
        """By link and kind: how many messages."""
        self.bytes: Counter[tuple[Link, str]] = Counter()
        self.carried: Counter[tuple[Link, str]] = Counter()
        """By link and pubend: how many events."""
        self.nacks: Counter[tuple[Link, int]] = Counter()
        """By link and second: how many nacks."""
        self.nacked_ticks: Counter[Link] = Counter()

    def sent(self, broker: Broker, to: PeerName, message: Message) -> None:
        link = (str(broker.name), str(to))
        key = link, type(message).__name__
        self.messages[key] += 1
        if self._codec is not None:
            self.bytes[key] += len(self._codec.frames([message]))
        inner = message.message if isinstance(message, Sideways) else message
        if isinstance(inner, Nack):
            self.nacks[link, (broker.now - START) // SECOND] += 1
            self.nacked_ticks[link] += sum(span.end - span.start for span in inner.spans)
        elif isinstance(inner, Knowledge):
            self.carried[link, inner.pubend] += len(inner.ticks)

    def reset(self) -> None:
        """Forget everything: what comes now is what counts."""
        for counter in (self.messages, self.bytes, self.carried, self.nacks, self.nacked_ticks):
            counter.clear()
