"""Start points: where a broker that hosts subscribers starts, at each pubend.

Theory of operation
    A broker that comes up knows nothing of any pubend. It asks each pubend, by way of the cells
    between, where it stands. From there on the broker loses nothing, so its first subscriptions
    start there. All other messages may be old, and may lie before what is released.
    A question is repeated under a new number until it is answered; other answers do not count.

Source: docs/protocols/durable-subscriptions.md, 3.4 (a new broker asks first where
the pubend stands).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.broker_messages import StartQuery
from gapless.core.identity import Instant

if TYPE_CHECKING:
    from gapless.core.broker_messages import StartReply
    from gapless.core.effects import Effect
    from gapless.core.identity import PubendName
    from gapless.node.context import Context
    from gapless.node.network import Cell


class PubendStarts:
    """The pubends whose positions one broker does not know yet."""

    def __init__(self, context: Context, cell: Cell) -> None:
        self.network = context.network
        self.cell = cell.name
        self.config = context.config
        self.routing = context.routing
        self.asked: dict[PubendName, int] = {}  # the number of the last question
        self.deadline: Instant | None = None
        self._has_subscribers = cell.subscribers

    def add(self, pubend: PubendName, now: Instant) -> None:
        """Ask a new pubend at once."""
        if self._has_subscribers:
            self.asked[pubend] = 0
            self.deadline = now

    def remove(self, pubend: PubendName) -> None:
        self.asked.pop(pubend, None)

    def fire(self, now: Instant) -> list[StartQuery]:
        """The questions to send, or to repeat."""
        if self.deadline is None or now < self.deadline:
            return []
        self.deadline = Instant(now + self.config.start_repeat) if self.asked else None
        self.asked = {pubend: number + 1 for pubend, number in self.asked.items()}
        return [StartQuery(pubend, self.cell, number) for pubend, number in self.asked.items()]

    def hurry(self, now: Instant) -> None:
        """Our questions may be lost: repeat them now."""
        self.deadline = now if self.asked else None

    def receive_reply(self, reply: StartReply) -> bool:
        """Is this the answer that we wait for?"""
        return self.asked.get(reply.pubend) == reply.number

    def begun(self, pubend: PubendName) -> None:
        """It is known where the pubend stands."""
        del self.asked[pubend]

    def pass_on(self, reply: StartReply, now: Instant) -> list[Effect]:
        hop = self.network.next_hop(self.cell, reply.cell)
        return self.routing.send(hop, reply.pubend, reply, now)
