"""What a broker says about its durable subscriptions: state, lag, rate, gaps.

`node.subscriptions.lag` says what each figure means, and how exact it is. `behind_s` is the time
between what a subscription has acknowledged and the newest that the broker knows, whatever matches
in there. None: all there is.

The rate is measured between two looks, at least `SAMPLE_US` apart, from what the connection of the
client was sent: it is not known where a connection has several subscriptions, or on the first look.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from gapless.core.identity import Instant, PubendName
from gapless.core.ticks import Tick, instant_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.core.ticks import Span
    from gapless.durable.subscriptions import DurableSubscription
    from gapless.node.delivery.session import Session
    from gapless.node.node import Node
    from gapless.node.subscriptions.lag import Lag

SAMPLE_US = 1_000_000
"""A rate is measured over at least this long."""


class Sample(NamedTuple):
    """What the connection of a session had been sent at one moment."""

    session: Session
    at: Instant
    delivered: int


class SubscriptionFigures:
    """The figures of the durable subscriptions of one broker, made on request."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._samples: dict[int, tuple[Sample, Sample]] = {}  # by number: an older and a newer one

    def names(self) -> list[str]:
        """All durable subscriptions here, sorted; what is kept of others is forgotten."""
        durable = self._node.durable
        durable.lags.forget()
        known = {each.number for each in durable.subscriptions.all()}
        self._samples = {key: each for key, each in self._samples.items() if key in known}
        return sorted(each.definition.name for each in durable.subscriptions.all())

    def oldest_names(self, count: int) -> list[str]:
        """The subscriptions that were made first, in this order."""
        every = sorted(self._node.durable.subscriptions.all(), key=lambda each: each.number)
        return [each.definition.name for each in every[:count]]

    def describe(self, names: Sequence[str], now: Instant) -> list[dict[str, object]]:
        """One entry for each of these that is still here: JSON-able."""
        durable = self._node.durable
        by_name = ((durable.subscriptions.get(name)) for name in names)  # type: ignore[arg-type]
        lags = durable.lags.look([each for each in by_name if each is not None], now)
        return [self._describe(each, lag, now) for each, lag in lags]

    def _describe(
        self, subscription: DurableSubscription, lag: Lag, now: Instant
    ) -> dict[str, object]:
        definition, contact = subscription.definition, subscription.contact
        durable = self._node.durable
        session = durable.session(definition.name)
        token = subscription.acknowledged
        behind_us = [
            instant_of(Tick(durable.delivered(PubendName(name))))
            - instant_of(Tick(token.get(name)))
            for name in subscription.since
        ]
        is_all = not all(instant_of(Tick(token.get(name))) for name in subscription.since)
        contact_at = now if session is not None else contact.at
        group = durable.groups.describe(subscription)
        return {
            "name": definition.name,
            "topic": definition.topic,
            "condition": definition.condition,
            "owner": definition.owner,
            "tokens": definition.tokens,
            "state": lag.state,
            "pending": lag.pending,
            "pending_is": lag.accuracy,
            "pending_bytes": lag.pending_bytes,
            "pending_bytes_is": "exact" if lag.is_size_exact else "about",
            "oldest_pending_s": seconds(now - lag.oldest) if lag.oldest and lag.pending else None,
            "unacknowledged": lag.unacknowledged,
            "rate": self._rate(subscription.number, session, now),
            "gaps": contact.gaps,
            "last_gap": gap_line(definition.topic, *contact.last_gap) if contact.last_gap else None,
            "last_contact_s": seconds(now - contact_at) if contact_at else None,
            "query": definition.query if lag.state == "reading" else "",
            "attached": session is not None,
            "catching_up": sorted(session.behind) if session is not None else [],
            "acknowledged": dict(token),
            "behind_s": None if is_all else round(max(0, *behind_us) / 1e6, 3),
            "moves": definition.moves,
            **({"group": group} if group is not None else {}),
        }

    def _rate(self, number: int, session: Session | None, now: Instant) -> float | None:
        """Events a second that the client was sent, since an earlier look."""
        if session is None:
            self._samples.pop(number, None)
            return None
        sessions = self._node.subscribers.sessions_of.get(session.name, {})
        if len(sessions) > 1 or session.client.subscriptions:
            return None
        current = Sample(session, now, session.client.delivered)
        older, newer = self._samples.get(number, (current, current))
        if older.session is not session:
            older = newer = current
        if now - newer.at >= SAMPLE_US:
            older, newer = newer, current
        self._samples[number] = older, newer
        if now - older.at < SAMPLE_US:
            return None
        return round((current.delivered - older.delivered) * 1e6 / (now - older.at), 3)


def gap_line(topic: str, pubend: str, span: Span) -> str:
    """A gap as `gapless pipeline replay --gap` takes it; a text, for the ticks are longer than the
    numbers of a browser."""
    gap = {"start": span.start, "end": span.end}
    return json.dumps({"gap": gap, "topic": topic, "pubend": pubend})


def seconds(us: int) -> float:
    return round(max(0, us) / 1e6, 3)
