"""Inquiries at the admin port: the way of an event, events that match, what is known of ticks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from gapless.broker.security.rights import Right
from gapless.client.json_values import to_json
from gapless.core.errors import StorageDamagedError
from gapless.core.events import EventBatch
from gapless.core.identity import PubendName, TopicName
from gapless.core.ticks import PUBEND_BITS, Span
from gapless.node.context import EventEncoding
from gapless.node.durable.why import way_of_event
from gapless.node.reads.search import LogSearch, Selection
from gapless.wire.events import decode_attributes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.broker.security.access import Access
    from gapless.knowledge.pubend import Pubend
    from gapless.knowledge.relay import Relay
    from gapless.node.node import Node

FOUND_MAX = 5
"""Events that a search names, the newest."""

WINDOWS_S = (10, 600, 36_000, 31_536_000)
"""How far to look back for the newest events, step by step."""

LOOK_BYTES_MAX = 1 << 20
"""What one look at a log reads."""

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
        for part in (facts, facts.get("host")):
            if isinstance(part, dict) and part["attributes"] is not None:
                part["attributes"] = to_json(part["attributes"])
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
            {"event": f"{pubend.name}:{tick}", "tick": tick, "attributes": to_json(each)}
            for (tick, _), each in zip(found, attributes, strict=True)
        ]

    async def newest(self, topic: str, count: int) -> list[dict[str, Any]]:
        """About the newest events of a topic that this broker has, each with its attributes."""
        entry = self._node.durable.network.topic.get(TopicName(topic))
        found = list[tuple[int, PubendName, bytes]]()
        for each in entry.pubends if entry is not None else ():
            relay = self._node.durable.streams.relays.get(each.name)
            if relay is not None:
                newest = self._newest(each.name, relay, count)
                found += [(tick, each.name, event) for tick, event in newest]
                await asyncio.sleep(0)
        found = sorted(found)[-count:]
        attributes = decode_attributes(EventBatch(tuple(event for _, _, event in found)))
        return [
            {"event": f"{name}:{tick}", "attributes": each}
            for (tick, name, _), each in zip(found, attributes, strict=True)
        ]

    def _newest(self, name: PubendName, relay: Relay, count: int) -> list[tuple[int, bytes]]:
        """Look back further and further, until there are enough, or more than one look reads."""
        best = list[tuple[int, bytes]]()
        end = relay.stream.end
        for window_s in WINDOWS_S:
            start = max(0, end - (window_s * 1_000_000 << PUBEND_BITS))
            if start >= end:
                break
            ticks, events = self.events_in(name, Span(start, end), relay)
            if len(ticks) >= count or sum(map(len, events)) >= LOOK_BYTES_MAX:
                return best or list(zip(ticks, events, strict=True))[-count:]
            best = list(zip(ticks, events, strict=True))
        return best

    def events_in(
        self, name: PubendName, span: Span, relay: Relay
    ) -> tuple[Sequence[int], Sequence[bytes]]:
        """The first events of a span: of the log if it is here, else of the cache."""
        pubend = self._node.durable.streams.pubends.get(name)
        if pubend is None:
            return relay.stream.events_in(span)
        try:
            return pubend.store.scan(pubend.stream, span.start, span.end, bytes_max=LOOK_BYTES_MAX)
        except StorageDamagedError:
            return [], []
