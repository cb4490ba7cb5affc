"""Leases: a named subscription that is read by ranges belongs to one run of one query.

Theory of operation
    Two readers of one subscription would acknowledge each other's events away. So a reader takes a
    lease of the name, for itself (the run) and for what it is a run of (the query, which survives
    restarts). The lease is written down before it is granted. From then on only this run may
    acknowledge as a reader. A later run of the same query takes the lease over at once: the run
    before it is dead, or a zombie that must be refused. Another query gets the lease when the run
    has not been heard of for `LEASE_US`, and so does a client that wants to attach. After a restart
    the broker does not know when that was: the time begins when somebody else asks.
    An application that acknowledges by name without being a run is not asked for a lease.

Invariants
    L1  at any time at most one run may acknowledge, and a run that lost the lease never may again,
        across restarts of the broker too

docs/protocols/durable-subscriptions.md, 3.10; decision 0065.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gapless.core.client_messages import Done, Refused
from gapless.core.effects import Effect, Send
from gapless.core.errors import quoted

if TYPE_CHECKING:
    from collections.abc import Container

    from gapless.core.client_messages import Acknowledge
    from gapless.core.identity import ClientName, Instant
    from gapless.durable.subscriptions import DurableSubscription, DurableSubscriptions

LEASE_US = 10_000_000
"""How long a lease lasts after its run was last heard of."""

REMEDY = "Stop that query, or give this one a subscription of its own."


def refuse_other(
    subscription: DurableSubscription,
    request: int,
    now: Instant,
    clients: Container[ClientName],
) -> Refused | None:
    """Why somebody who is not of the query may not have the subscription now. It may be tried again
    if the run's connection is gone: then the lease ends soon."""
    definition, contact = subscription.definition, subscription.contact
    if not definition.run:
        return None
    if not contact.leased_at:
        contact.leased_at = now
    if now - contact.leased_at > LEASE_US:
        return None
    return Refused(
        request,
        f"subscription {quoted(definition.name)} is read by query {quoted(definition.query)} (run "
        f"{quoted(definition.run)})",
        REMEDY,
        retry=contact.leaser not in clients,
    )


def check_run(
    subscription: DurableSubscription,
    client: ClientName,
    message: Acknowledge,
    now: Instant,
    *,
    is_attached: bool,
) -> Refused | None:
    """Why this run may not acknowledge; None, and it was heard of, if it may."""
    definition, contact = subscription.definition, subscription.contact
    if is_attached:
        problem = f"a client is attached to subscription {quoted(definition.name)}"
        return Refused(message.request, problem, REMEDY)
    if definition.run == message.run:
        contact.leased_at, contact.leaser = now, client
        return None
    problem = f"run {quoted(message.run)} has no lease of {quoted(definition.name)}"
    if definition.run:
        problem += (
            f": query {quoted(definition.query)} (run {quoted(definition.run)}) has taken it over"
        )
    return Refused(message.request, problem, REMEDY)


def grant(
    subscriptions: DurableSubscriptions,
    subscription: DurableSubscription,
    client: ClientName,
    message: Acknowledge,
    now: Instant,
) -> list[Effect]:
    """Give the lease to the run: durable before the client is told."""
    definition, contact = subscription.definition, subscription.contact
    contact.leased_at, contact.leaser, contact.is_reader = now, client, True
    leased = replace(definition, query=message.query, run=message.run)
    problem, remedy = "the disk has no room for the lease", "Try again later."
    refused = Refused(message.request, problem, remedy, retry=True)
    return subscriptions.redefine(
        leased,
        then=(Send(client, Done(message.request)),),
        otherwise=(Send(client, refused),),
    )
