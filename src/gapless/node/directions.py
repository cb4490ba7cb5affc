"""Directions: what a neighbour says of a pubend's stream must come from its side of the tree.

Knowledge comes from above or from a sibling, questions and acknowledgements from below. What comes
the wrong way contradicts the network that both must have the same file of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.broker_messages import (
    Ack,
    AckExpected,
    Knowledge,
    Nack,
    ReleaseEcho,
    ReleaseHold,
    StartQuery,
    StartReply,
)
from gapless.core.errors import ProtocolError
from gapless.core.ticks import TICK_MAX
from gapless.knowledge.outgoing import SOURCE

if TYPE_CHECKING:
    from gapless.core.broker_messages import Routed
    from gapless.core.effects import Effect
    from gapless.core.identity import BrokerName, CellName, Instant
    from gapless.knowledge.relay import Relay
    from gapless.node.streams import Streams


def receive_routed(
    streams: Streams, sender: BrokerName, message: Routed, now: Instant
) -> list[Effect]:
    """A message about a pubend that is known here; `ProtocolError` if it came the wrong way."""
    relay, routing, here = streams.relays[message.pubend], streams.routing, streams.cell.name
    cell = streams.network.cell_of[sender].name
    from_above = cell in (relay.upstream, here)
    from_below = cell in relay.outlets or cell == here
    if isinstance(message, Knowledge) and message.span.end > TICK_MAX:
        raise ProtocolError(f"{sender!r} knows {message.pubend!r} up to the end of time")
    match message:
        case Knowledge() if from_above and relay.upstream != SOURCE:
            return streams.receive_knowledge(sender, message, now)
        case AckExpected(tick=tick) if from_above and relay.upstream != SOURCE:
            return streams.carry(relay.receive_ack_expected(tick, now), now)
        case StartReply(cell=target) if (
            from_above
            and relay.upstream != SOURCE
            and (target == here or is_below(streams, relay, target))
        ):
            return streams.receive_start_reply(message, now)
        case Nack() if from_below:
            asking = None if cell == here else cell
            return streams.carry(relay.receive_nack(sender, asking, message, now), now)
        case StartQuery(cell=target) if from_below and is_below(streams, relay, target):
            return streams.receive_start_query(message, now)
        case ReleaseHold(cell=target) if cell in relay.outlets and is_below(streams, relay, target):
            effects = streams.receive_hold(cell, message, now)
            return effects + routing.share(message)
        case ReleaseHold(cell=target) if sender in routing.siblings and is_below(
            streams, relay, target
        ):
            relay.receive_hold(streams.network.next_hop(here, target), message, now)
            return []
        case ReleaseEcho(cell=target) if from_above and (
            target == here or is_below(streams, relay, target)
        ):
            return streams.hand_overs.receive_echo(message, now)
        case Ack(cell=of) if of in relay.outlets and cell in (of, here):
            return acknowledged(streams, sender, message, now)
        case _:
            raise ProtocolError(
                f"{type(message).__name__} of {message.pubend!r} came the wrong way, "
                f"from {sender!r}"
            )


def is_below(streams: Streams, relay: Relay, cell: CellName) -> bool:
    """Does the way to this cell lead down the tree of the relay's pubend?"""
    here, network = streams.cell.name, streams.network
    if cell == here or cell not in network.cell:
        return False
    return network.next_hop(here, cell) in relay.outlets


def acknowledged(streams: Streams, sender: BrokerName, ack: Ack, now: Instant) -> list[Effect]:
    pubend = streams.pubends.get(ack.pubend)
    if pubend is not None and ack.delivered > pubend.end:
        raise ProtocolError(f"tick {ack.delivered} was acknowledged before it was sent")
    effects = streams.carry(streams.relays[ack.pubend].receive_ack(ack, now), now)
    if sender not in streams.routing.siblings:
        effects += streams.routing.share(ack)
    return effects
