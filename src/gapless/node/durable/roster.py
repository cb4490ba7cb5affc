"""Roster: which names the pubends of a broker remember, and how an administrator removes some.

A pubend has room for a limited number of publishers, producers and open transactions. This part
lists them for an administrator, and strikes off the names that nobody needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.client_messages import Done, Refused
from gapless.core.effects import NO_ROOM, Effect, Persist, Send
from gapless.core.identity import ProducerName, PublisherName
from gapless.core.roster_messages import (
    ROSTER_ENTRIES_MAX,
    Roster,
    RosterEntry,
    RosterQuery,
    Strike,
)
from gapless.core.ticks import PUBEND_BITS
from gapless.core.transaction_messages import Abort
from gapless.node.redirect import bound_pubend, refuse_elsewhere, refuse_unknown

if TYPE_CHECKING:
    from gapless.core.effects import Write
    from gapless.core.identity import ClientName, Instant, PubendName
    from gapless.core.roster_messages import RosterKind, RosterRequest
    from gapless.knowledge.pubend import Pubend
    from gapless.node.context import Context
    from gapless.node.deadlines import Machines


class Rosters:
    """The names that are remembered at one broker."""

    def __init__(self, context: Context, pubends: Machines[PubendName, Pubend]) -> None:
        self.network = context.network
        self.pubends = pubends

    def receive(self, client: ClientName, message: RosterRequest, now: Instant) -> list[Effect]:
        topic = self.network.topic.get(message.topic)
        if topic is None:
            return refuse_unknown(client, message, message.topic, self.network)
        pubends = self.pubends
        if isinstance(message, RosterQuery):
            here = [pubends[each.name] for each in topic.pubends if each.name in pubends]
            if not here and topic.pubends:
                problem = f"no pubend of topic {message.topic!r} is hosted at this broker"
                hosts = [each.host for each in topic.pubends]
                return refuse_elsewhere(client, message, problem, hosts)
            names = [entry for pubend in here for entry in entries(pubend, message.of)]
            listed = tuple(names[:ROSTER_ENTRIES_MAX])
            return [Send(client, Roster(message.request, listed, len(names) > len(listed)))]
        if not topic.pubends:
            problem = f"a {topic.service} topic remembers no names"
            return [Send(client, Refused(message.request, problem, "Nothing is to be done."))]
        bound = bound_pubend(topic, message.name)
        pubend = pubends.get(bound.name)
        if pubend is None:
            problem = f"{message.name!r} is bound to {bound.name!r}, not hosted here"
            return refuse_elsewhere(client, message, problem, [bound.host])
        return strike(client, message, pubend, now)


def entries(pubend: Pubend, of: RosterKind) -> list[RosterEntry]:
    """What one pubend remembers, sorted by name."""
    name, transactions = pubend.name, pubend.transactions
    if of == "publishers":
        publishers = pubend.publishers
        return [
            RosterEntry(each, name, publisher.next, publishers.owner(each), publisher.heard_at)
            for each, publisher in sorted(publishers.records.items())
        ]
    if of == "producers":
        return [
            RosterEntry(each, name, number, transactions.owners.get(each, ""), tick >> PUBEND_BITS)
            for each, (number, tick, _) in sorted(transactions.last.items())
        ]
    return [
        RosterEntry(producer, name, number, slot.owner, slot.touched, slot.size)
        for (producer, number), slot in sorted(transactions.stages.open_slots.items())
    ]


def strike(client: ClientName, message: Strike, pubend: Pubend, now: Instant) -> list[Effect]:
    """Forget a name, or drop an open transaction; fine if there is none."""
    writes: tuple[Write, ...] | None
    if message.of == "transactions":
        key = ProducerName(message.name), message.number
        abort = Abort(message.topic, message.request, *key)
        return pubend.transactions.abort(client, abort, now)
    if message.of == "publishers":
        writes = pubend.publishers.strike(PublisherName(message.name))
    else:
        writes = pubend.transactions.strike(ProducerName(message.name))
    if writes is None:
        problem = f"{message.name!r} has something under way"
        refused = Refused(message.request, problem, "Try again, or end that first.", retry=True)
        return [Send(client, refused)]
    failed = Refused(message.request, NO_ROOM, "Try again later.", retry=True)
    return [Persist(writes, (Send(client, Done(message.request)),), (Send(client, failed),))]
