"""Publications of clients that the root of their multicast topic has not confirmed yet.

A request of a client is cut into parts that are published one by one; its client is answered once,
when all parts are confirmed or the first is not. Of an ordered topic a part has one number in the
stream, and its events the ticks from `number << TICK_BITS` on: every subscriber sees the same. An
event of a topic without order has no tick that all agree on: its receipt says -1.

Invariants (checked by `check`)
    I1  a request waits for at least one part, and is not answered yet
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapless.core.client_messages import Receipt, Refused
from gapless.core.effects import Effect, Send
from gapless.core.ticks import PUBEND_BITS

if TYPE_CHECKING:
    from gapless.core.identity import ClientName, PubendName, TopicId
    from gapless.scribe.effects import RequestOutcome

TICK_BITS = PUBEND_BITS
EVENTS_MAX = 1 << TICK_BITS
"""Events in one part: each has a tick of its own."""


@dataclass(slots=True, eq=False)
class PendingRequest:
    """What one client asked for at once."""

    client: ClientName | None  # none: it is gone, or was told
    number: int
    pubend: PubendName
    ticks: list[int]
    parts: int = 0  # that are not confirmed


class Requests:
    """See the module docstring."""

    def __init__(self) -> None:
        self._parts: dict[
            tuple[TopicId, int], tuple[PendingRequest, int, int]
        ] = {}  # and low, high

    def __len__(self) -> int:
        return len(self._parts)

    def add(
        self, topic: TopicId, number: int, request: PendingRequest, low: int, high: int
    ) -> None:
        """The publication of this number has these events of the request."""
        self._parts[topic, number] = (request, low, high)
        request.parts += 1

    def answer(self, answer: RequestOutcome, remedy: str, *, retry: bool) -> list[Effect]:
        assert answer.number is not None
        found = self._parts.pop((answer.topic, answer.number), None)
        if found is None:
            return []
        request, low, high = found
        request.parts -= 1
        client = request.client
        if client is None:
            return []
        if answer.problem:
            request.client = None
            return [Send(client, Refused(request.number, answer.problem, remedy, retry=retry))]
        if answer.position:
            first = answer.position << TICK_BITS
            request.ticks[low:high] = range(first, first + high - low)
        if request.parts:
            return []
        return [Send(client, Receipt(request.number, request.pubend, tuple(request.ticks)))]

    def disconnect(self, client: ClientName) -> None:
        for request, _, _ in self._parts.values():
            if request.client == client:
                request.client = None

    def check(self) -> None:
        waiting: dict[PendingRequest, int] = {}
        for request, _, _ in self._parts.values():
            waiting[request] = waiting.get(request, 0) + 1
        assert all(request.parts == count for request, count in waiting.items()), "I1"
