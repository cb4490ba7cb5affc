"""Handing out: events of a service that stores nothing, to the clients that want them.

Each connection gets one message with all that came in one step of a source, and with each event the
numbers of its subscriptions that want it; connections that want just the same get the same message,
so that it is encoded once for all. What a client has not consumed counts together with what other
services sent it: one that lets more than `client_queue_max` pile up loses the subscriptions that
would add to it, with an error, and slows nobody else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.client_messages import Deliveries, Ended
from gapless.core.effects import Effect, Send
from gapless.core.events import EventBatch
from gapless.knowledge.batch import cut

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gapless.core.identity import ClientName, PubendName, TopicName
    from gapless.node.config import Config
    from gapless.node.delivery.audience import Key
    from gapless.node.delivery.subscribers import Subscribers

TOO_SLOW = "too many events were sent and not consumed in time"
REMEDY = "Consume faster, or narrow the condition; then subscribe again."

Share = tuple[tuple[int, tuple[int, ...]], ...]
"""What one connection gets: indices of events, ascending, with the numbers that want each."""


def hand_out(
    subscribers: Subscribers,
    topic: TopicName,
    pubend: PubendName,
    ticks: Sequence[int],
    events: Sequence[bytes],
    takers: Sequence[Iterable[Key]],
) -> tuple[list[Effect], list[Key]]:
    """Events of one source by ascending tick, each with those who want it. Effects, and whose
    subscriptions end because their client is too slow."""
    effects: list[Effect] = []
    slow: list[Key] = []
    made: dict[Share, list[Deliveries]] = {}
    for name, share in sorted(shares(takers).items()):
        client = subscribers.clients[name]
        size = sum(len(events[index]) for index, _ in share)
        if subscribers.is_too_slow(client, len(share), size):
            slow += [(name, number) for number in sorted({n for _, some in share for n in some})]
            continue
        if share not in made:
            made[share] = pack(subscribers.config, topic, pubend, ticks, events, share)
        client.send(len(share), size)
        effects += [Send(name, message) for message in made[share]]
    for name, number in slow:
        subscribers.ended_slow += 1
        effects.append(Send(name, Ended(number, TOO_SLOW, REMEDY)))
    return effects, slow


def shares(takers: Sequence[Iterable[Key]]) -> dict[ClientName, Share]:
    wanted: dict[ClientName, dict[int, list[int]]] = {}
    for index, keys in enumerate(takers):
        for name, number in keys:
            wanted.setdefault(name, {}).setdefault(index, []).append(number)
    return {
        name: tuple((index, tuple(sorted(numbers))) for index, numbers in found.items())
        for name, found in wanted.items()
    }


def pack(
    config: Config,
    topic: TopicName,
    pubend: PubendName,
    ticks: Sequence[int],
    events: Sequence[bytes],
    share: Share,
) -> list[Deliveries]:
    """The messages of a share, as few as the limits allow."""
    chosen = tuple(events[index] for index, _ in share)
    at = tuple(ticks[index] for index, _ in share)
    numbers = tuple(some for _, some in share)
    return [
        Deliveries(
            topic,
            at[high - 1] + 1,
            pubend,
            at[low:high],
            EventBatch(chosen[low:high]),
            numbers[low:high],
        )
        for low, high in cut(chosen, config.batch_events_max, config.batch_bytes_max)
    ]
