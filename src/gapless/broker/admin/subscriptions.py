"""What a broker says about its durable subscriptions: who is attached, and how far behind each is.

`behind_s` is the time between what a subscription has acknowledged and the newest that the broker
knows: how much of the past is kept for it, whatever matches in there. None: all there is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.identity import PubendName
from gapless.core.ticks import Tick, instant_of

if TYPE_CHECKING:
    from gapless.durable.subscriptions import DurableSubscription
    from gapless.node.node import Node


def durable_subscriptions(node: Node) -> list[dict[str, object]]:
    """One entry for each, sorted by name: JSON-able."""
    found = sorted(node.durable.subscriptions.all(), key=lambda each: each.definition.name)
    return [_describe(node, each) for each in found]


def _describe(node: Node, subscription: DurableSubscription) -> dict[str, object]:
    definition = subscription.definition
    session = node.durable.session(definition.name)
    token = subscription.acknowledged
    behind_us = [
        instant_of(Tick(node.durable.delivered(PubendName(name))))
        - instant_of(Tick(token.get(name)))
        for name in subscription.since
    ]
    is_all = not all(instant_of(Tick(token.get(name))) for name in subscription.since)
    group = node.durable.groups.describe(subscription)
    return {
        "name": definition.name,
        "topic": definition.topic,
        "condition": definition.condition,
        "owner": definition.owner,
        "tokens": definition.tokens,
        "attached": session is not None,
        "catching_up": sorted(session.behind) if session is not None else [],
        "acknowledged": dict(token),
        "behind_s": None if is_all else round(max(0, *behind_us) / 1e6, 3),
        "moves": definition.moves,
        **({"group": group} if group is not None else {}),
    }
