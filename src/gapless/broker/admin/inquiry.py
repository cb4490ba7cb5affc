"""Inquiries at the admin port: the way of an event, events that match, what is known of ticks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from gapless.broker.security.rights import Right
from gapless.core.events import EventBatch
from gapless.core.identity import PubendName, TopicName
from gapless.core.ticks import Span
from gapless.node.context import EventEncoding
from gapless.node.durable.why import way_of_event
from gapless.node.reads.search import LogSearch, Selection
from gapless.wire.events import decode_attributes

if TYPE_CHECKING:
    from gapless.broker.security.access import Access
    from gapless.knowledge.pubend import Pubend
    from gapless.node.node import Node

FOUND_MAX = 5
"""Events that a search names, the newest."""

LOOKS_MAX = 2_000
"""Pieces of a log that a search looks at; beyond it the rest is not searched."""


class EventInquiry:
    """What people ask one broker, by its admin port."""

    def __init__(self, node: Node, access: Access | None) -> None:
        self._node = node
        self._access = access
        config = node.durable.streams.config
        self._search = LogSearch(config, EventEncoding(decode_attributes))

    def way(self, topic: str, pubend: str, tick: int, name: str) -> dict[str, Any]:
        """What this broker knows of the way of an event to a subscription."""
        facts = way_of_event(self._node.durable, decode_attributes, topic, pubend, tick, name)
        subscription = facts.get("subscription")
        if self._access is not None and isinstance(subscription, dict) and subscription["owner"]:
            rights = self._access.principals.rights_of(subscription["owner"])
            subscription["may_subscribe"] = rights.may(Right.SUBSCRIBE, topic)
        return facts

    async def find(self, topic: str, where: str) -> list[dict[str, Any]]:
        """The newest events that match, of the pubends hosted here; `FilterError` for a bad
        condition."""
        wanted = Selection(where)
        entry = self._node.durable.network.topic.get(TopicName(topic))
        hosted = self._node.durable.streams.pubends
        found = list[dict[str, Any]]()
        for each in entry.pubends if entry is not None else ():
            if (pubend := hosted.get(PubendName(each.name))) is not None:
                found += await self._find(pubend, wanted)
        return sorted(found, key=lambda one: -int(one["tick"]))[:FOUND_MAX]

    async def _find(self, pubend: Pubend, wanted: Selection) -> list[dict[str, Any]]:
        found = list[tuple[int, bytes]]()
        at, end = pubend.released, pubend.end
        for _ in range(LOOKS_MAX):
            at = max(at, pubend.released, pubend.release.next_chop_end)
            if at >= end:
                break
            ticks, events, through, _ = self._search.find(pubend, Span(at, end), wanted)
            found = [*found, *zip(ticks, events, strict=True)][-FOUND_MAX:]
            at = through
            await asyncio.sleep(0)
        attributes = decode_attributes(EventBatch(tuple(event for _, event in found)))
        return [
            {"event": f"{pubend.name}:{tick}", "tick": tick, "attributes": each}
            for (tick, _), each in zip(found, attributes, strict=True)
        ]
