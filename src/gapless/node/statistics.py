"""What a node says about itself: plain figures by name, for status pages, metrics and checkers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gapless.node.durable.clients import Clients
    from gapless.node.routing import Routing
    from gapless.node.service import Services


def statistics(routing: Routing, clients: Clients, services: Services) -> dict[str, object]:
    streams, subscribers = clients.streams, clients.subscribers
    pubends: dict[str, dict[str, int]] = {}
    for name, relay in streams.relays.items():
        figures = {
            "cached_events": relay.stream.event_count,
            "known_end": relay.stream.end,
            "acked": relay.acked,
            "nacks_sent": relay.nacks_sent,
            "asking": relay.questions.tick_count,
        }
        if subend := streams.subends.get(name):
            figures["horizon"] = subend.horizon
            figures["in_doubt"] = subend.seen - subend.horizon
            figures["waiting_events"] = subend.stream.event_count
        if pubend := streams.pubends.get(name):
            figures["end"] = pubend.end
            figures["released"] = pubend.released
            figures["pending_events"] = pubend.pending_count
            figures["publishers"] = len(pubend.publishers.records)
            figures["open_transactions"] = pubend.transactions.open_count
            figures["staged_bytes"] = pubend.transactions.stages.staged_bytes
            figures["producers"] = len(pubend.transactions.last)
        pubends[name] = figures
    return {
        "broker": streams.name,
        "cell": streams.cell.name,
        "clients": len(subscribers.clients),
        "subscriptions": subscribers.subscription_count + services.subscription_count,
        "waiting_subscriptions": len(clients.waiting),
        "durable_subscriptions": subscribers.durable_count,
        "catch_up_streams": sum(len(each.behind) for each in subscribers.sessions.values()),
        "published": streams.published,
        "delivered": subscribers.delivered,
        "batch_sizes": list(subscribers.batch_sizes),
        "ended_slow": subscribers.ended_slow,
        "failovers": routing.failovers,
        "sideways": routing.sideways,
        "neighbour_changes": routing.changes,
        "merges": len(streams.merges),
        "pubends": pubends,
        "topics": {name: each.statistics() for name, each in clients.interests.by_topic.items()},
        "services": services.statistics(),
    }
