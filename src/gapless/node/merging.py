"""Merging: a topic's pubends in one total order, for as long as someone wants that.

A merge comes up with the first subscription in total order and goes with the last. It starts where
the foremost pubend is, so that it has to wait for none of them longer than for news.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.knowledge.outgoing import TOTAL_ORDER

if TYPE_CHECKING:
    from gapless.core.effects import Effect
    from gapless.core.identity import Instant, TopicName
    from gapless.node.streams import Streams


def merge_position(streams: Streams, topic: TopicName) -> int:
    """Where the merge of all pubends of the topic stands, or would start."""
    if topic in streams.merges:
        return streams.merges[topic].position
    pubends = streams.network.topic[topic].pubends
    return max(streams.subends[each.name].horizon for each in pubends)


def start_merge(streams: Streams, topic: TopicName, now: Instant) -> list[Effect]:
    """Merge all pubends of the topic. It may deliver at once."""
    start = merge_position(streams, topic)
    names = [each.name for each in streams.network.topic[topic].pubends]
    make, config = streams.parts.subend, streams.config
    inputs = {name: make(name, start, config) for name in names}
    streams.merges[topic] = merge = streams.parts.merge(inputs, config)
    effects: list[Effect] = []
    for name in names:
        relay = streams.relays[name]
        relay.add_cell(TOTAL_ORDER, start)
        if relay.stream.end > start:
            nacks = merge.expect(name, relay.stream.end, now)
            effects += streams.carry(streams.ask(TOTAL_ORDER, nacks, now), now)
    return effects


def stop_merge(streams: Streams, topic: TopicName) -> None:
    for name in streams.merges.pop(topic).inputs:
        streams.relays[name].remove_cell(TOTAL_ORDER)
