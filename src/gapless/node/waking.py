"""Waking: what the streams of a broker do when time has passed.

First the links: open questions go where they would go now, if neighbours died or returned. Then
each machine whose deadline has come, and no other: pubends before relays, because what the former
say goes through the latter. What was held back for subscribers (`pace`) is handed out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.identity import Instant
from gapless.knowledge.outgoing import PUBLISHER_ORDER, SOURCE, TOTAL_ORDER

if TYPE_CHECKING:
    from gapless.core.effects import Effect
    from gapless.core.identity import BrokerName, TopicName
    from gapless.node.streams import Streams


def wake(streams: Streams, now: Instant) -> list[Effect]:
    effects: list[Effect] = []
    meter = streams.subscribers.meter
    meter.begin_turn()
    before, after = streams.routing.look(now)
    if before != after:
        effects += ask_elsewhere(streams, before, after, now)
    for query in streams.beginnings.fire(now):
        effects += streams.receive_start_query(query, now)
    for pubend in streams.pubends.ripe(now):
        more, knowledge, expected = pubend.fire(now)
        effects += more + streams.carry(streams.spread(knowledge, now), now)
        if expected:
            out = streams.relays[pubend.name].receive_ack_expected(expected, now)
            effects += streams.carry(out, now)
    for subend in streams.subends.ripe(now):
        effects += streams.carry(streams.ask(PUBLISHER_ORDER, subend.fire(now), now), now)
    for name in streams.pace.ripe(now):
        if name in streams.subends:
            effects += streams.deliver(streams.network.pubends[name].topic, name, now=now)
    for topic, source in meter.ripe(now):
        if source is None and topic in streams.merges:
            first = next(iter(streams.merges[topic].inputs))
            effects += streams.deliver(topic, first, merging=True, now=now)
        elif source is not None and source in streams.subends:
            effects += streams.deliver(topic, source, now=now)
    for merge in streams.merges.ripe(now):
        effects += streams.carry(streams.ask(TOTAL_ORDER, merge.fire(now), now), now)
    for relay in streams.relays.ripe(now):
        effects += streams.carry(relay.fire(now), now)
    if streams.tell_due <= now:
        streams.tell_due = Instant(now + streams.config.silence_flush)
        effects += tell_positions(streams)
    return effects


def put_again(streams: Streams, peer: BrokerName, now: Instant) -> list[Effect]:
    """A neighbour answers over a new link: what was sent to it before may be lost, so put again
    what waits for an answer."""
    effects = streams.interests.tell_again(peer, now)
    cell = streams.network.cell_of[peer].name
    for relay in streams.relays.values():
        if relay.upstream == cell:
            effects += streams.carry(relay.ask_again(now), now)
    streams.relays.touch()
    streams.beginnings.hurry(now)
    return effects + wake(streams, now)


def speak(streams: Streams, topic: TopicName, now: Instant) -> list[Effect]:
    """Messages of this topic have a new vector: say so, though nothing is due."""
    effects: list[Effect] = []
    for each in streams.network.topic[topic].pubends:
        if each.name in streams.pubends:
            more, knowledge = streams.pubends[each.name].speak(now)
            effects += more + streams.carry(streams.spread(knowledge, now), now)
    return effects


def ask_elsewhere(
    streams: Streams,
    before: frozenset[BrokerName],
    after: frozenset[BrokerName],
    now: Instant,
) -> list[Effect]:
    """Neighbours died or returned: put open questions where they would go now, and let those
    who are left speak for their cells."""
    effects: list[Effect] = []
    for name, relay in streams.relays.items():
        if relay.upstream != SOURCE and streams.routing.has_lost(
            relay.upstream, name, before, after
        ):
            effects += streams.carry(relay.ask_again(now), now)
        for gone in sorted(before - after):
            relay.forget_reporter(streams.network.cell_of[gone].name, gone, now)
    streams.relays.touch()
    return effects


def tell_positions(streams: Streams) -> list[Effect]:
    """Tell subscribers how far their streams have come, where nothing was delivered of late."""
    effects: list[Effect] = []
    subscribers, topics = streams.subscribers, streams.network.topic
    wanted = dict.fromkeys(topic for topic, order in subscribers.audiences if order == "publisher")
    for topic in wanted:
        for pubend in topics[topic].pubends if topic in topics else ():
            if pubend.name in streams.subends:
                taken = streams.subends[pubend.name].taken
                effects += subscribers.tell_position(topic, pubend.name, taken)
    for topic, merge in streams.merges.items():
        effects += subscribers.tell_position(topic, None, merge.position)
    return effects
