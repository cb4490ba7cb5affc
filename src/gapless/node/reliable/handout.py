"""Handing out: events of a service that stores nothing, to the clients that want them.

Each connection gets one message with all that came in one step of a source, and with each event the
numbers of its subscriptions that want it. Connections that want just the same get the same message,
which is encoded once for all of them. What a client has not consumed counts together with what
other services sent it: a client that lets more than `client_queue_max` pile up loses the
subscriptions that would add to it, with an error, and slows no other client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.client_messages import Ended
from gapless.core.effects import Effect, Send
from gapless.node.delivery.packing import Packing
from gapless.tree.members import places

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gapless.core.identity import ClientName, PubendName, TopicName
    from gapless.knowledge.subend import Settled
    from gapless.node.delivery.audience import Key
    from gapless.node.delivery.packing import Share
    from gapless.node.delivery.subscribers import Subscribers
    from gapless.tree.members import Members

TOO_SLOW = "too many events were sent and not consumed in time"
REMEDY = "Consume faster, or narrow the condition; then subscribe again."


def hand_out(
    subscribers: Subscribers,
    topic: TopicName,
    pubend: PubendName,
    events: Settled,
    wanted: Mapping[Iterable[Key], Members],
) -> tuple[list[Effect], list[Key]]:
    """Events of one source, to the subscriptions that want each. Effects, and the subscriptions
    that end because their client is too slow."""
    limits = subscribers.config.batch_events_max, subscribers.config.batch_bytes_max
    packing = Packing(topic, pubend, events, events.ticks[-1] + 1, limits)
    effects: list[Effect] = []
    slow: list[Key] = []
    for name, shares in sorted(shares_of(wanted).items()):
        client, parcel = subscribers.clients[name], packing.pack(shares)
        if subscribers.is_too_slow(client, parcel.count, parcel.size):
            slow += [(name, number) for number in sorted({number for number, _ in shares})]
            continue
        client.send(parcel.count, parcel.size)
        effects += [Send(name, message) for message in parcel.messages]
    for name, number in slow:
        subscribers.ended_slow += 1
        effects.append(Send(name, Ended(number, TOO_SLOW, REMEDY)))
    return effects, slow


def shares_of(wanted: Mapping[Iterable[Key], Members]) -> dict[ClientName, list[Share]]:
    """By connection, its subscriptions and the indices of the events that each wants."""
    shares: dict[ClientName, list[Share]] = {}
    for keys, members in wanted.items():
        indices = places(members)  # one list for all that want the same: they get one message
        for name, number in keys:
            shares.setdefault(name, []).append((number, indices))
    return shares
