"""Handing out: an event of a service that stores nothing, to the clients that want it.

Each connection gets one message with the numbers of all its subscriptions that want the event, and
connections with the same numbers get the same message, so that it is encoded once for all. What a
client has not consumed counts together with what other services sent it: one that lets more than
`client_queue_max` pile up loses the subscriptions that would add to it, with an error, and slows
nobody else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.client_messages import Deliveries, Ended
from gapless.core.effects import Effect, Send
from gapless.core.events import EventBatch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gapless.core.identity import ClientName, PubendName, TopicName
    from gapless.node.audience import Key
    from gapless.node.subscribers import Subscribers

TOO_SLOW = "too many events were sent and not consumed in time"
REMEDY = "Consume faster, or narrow the condition; then subscribe again."


def hand_out(
    subscribers: Subscribers,
    topic: TopicName,
    pubend: PubendName,
    tick: int,
    event: bytes,
    takers: Iterable[Key],
) -> tuple[list[Effect], list[Key]]:
    """Effects, and whose subscriptions end because their client is too slow."""
    wanted: dict[ClientName, list[int]] = {}
    for name, number in takers:
        wanted.setdefault(name, []).append(number)
    effects: list[Effect] = []
    slow: list[Key] = []
    made: dict[tuple[int, ...], Deliveries] = {}
    for name, unordered in sorted(wanted.items()):
        client, numbers = subscribers.clients[name], tuple(sorted(unordered))
        if subscribers.is_too_slow(client, 1, len(event)):
            slow += [(name, number) for number in numbers]
            continue
        message = made.get(numbers)
        if message is None:
            batch = EventBatch((event,))
            message = Deliveries(topic, tick + 1, pubend, (tick,), batch, (numbers,))
            made[numbers] = message
        client.send(1, len(event))
        subscribers.delivered += 1
        effects.append(Send(name, message))
    for name, number in slow:
        subscribers.ended_slow += 1
        effects.append(Send(name, Ended(number, TOO_SLOW, REMEDY)))
    return effects, slow
