"""Settling: what the streams of a broker do at the end of each step for durable subscriptions.

What was acknowledged is reported, those that are behind go on and put their questions, and holds on
release go up. An answer that is at hand may let one who is behind go on at once, and so ask again,
as long as the step has some of its budget left (`behind`); the rest goes on in the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.broker_messages import ReleaseHold
from gapless.core.effects import Effect
from gapless.knowledge.outgoing import CATCH_UP, PUBLISHER_ORDER

if TYPE_CHECKING:
    from gapless.core.identity import Instant
    from gapless.node.streams import Streams


def settle(streams: Streams, now: Instant) -> list[Effect]:
    effects, behind = list[Effect](), streams.attachments.behind
    if streams.is_quiet:
        return effects
    effects += _report(streams, now)
    while True:
        effects += behind.settle(now) + streams.hand_overs.settle(now) + _hold(streams, now)
        if behind.has_asked:
            return effects
        while (nack := behind.next_ask()) is not None:
            if (relay := streams.relays.get(nack.pubend)) is not None:
                effects += streams.carry(relay.receive_nack(CATCH_UP, None, nack, now), now)


def _report(streams: Streams, now: Instant) -> list[Effect]:
    """What durable subscriptions need no more."""
    effects, durables = list[Effect](), streams.durables
    reports, durables.reports = durables.reports, {}
    for pubend in reports:
        if pubend not in streams.subends:
            continue
        streams.attachments.behind.stir(pubend)
        streams.acknowledge(pubend, PUBLISHER_ORDER, streams.subends[pubend].taken, now)
        effects += durables.chop(pubend, durables.position(pubend, 0)[1])
        effects += streams.deliver(streams.network.pubends[pubend].topic, pubend, now=now)
    return effects


def _hold(streams: Streams, now: Instant) -> list[Effect]:
    if streams.is_mute:  # holds count among reports, which go up under a durable epoch
        return []
    effects: list[Effect] = []
    holds, streams.hand_overs.holds = streams.hand_overs.holds, []
    for hold in holds:
        tick = streams.durables.position(hold.pubend, hold.tick)[1]  # it counts here already
        tick, named = min(hold.tick, tick), streams.next_report()
        ours = ReleaseHold(hold.pubend, hold.cell, tick, hold.number, *named)
        effects += streams.receive_hold(PUBLISHER_ORDER, ours, now)
    return effects
