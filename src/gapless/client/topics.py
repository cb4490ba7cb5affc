"""Requests about topics: create, delete, list; and the names that a topic remembers.

Any broker takes these requests; it redirects the client to the broker that decides about a topic's
name, or remembers a publisher. Creating a topic may be repeated, so a lost connection is no error
if another comes up in time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gapless.client import arguments
from gapless.client.errors import RefusedError
from gapless.client.requests import ask_for, ask_until_answered
from gapless.core.client_messages import Done, Refused
from gapless.core.errors import UsageError, WireError
from gapless.core.identity import BrokerName, TopicName
from gapless.core.roster_messages import Roster, RosterQuery, Strike
from gapless.core.ticks import PUBEND_COUNT_MAX, TICK_MAX
from gapless.core.topic_messages import (
    SERVICES,
    CreateTopic,
    DeleteTopic,
    Service,
    TopicEntry,
    TopicList,
    TopicsQuery,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.client.channel import Channel
    from gapless.core.roster_messages import RosterKind

SECOND = 1_000_000


class TopicDescription(NamedTuple):
    """A topic, as a broker knows it."""

    name: str
    service: str
    hosts: tuple[str, ...]
    """For each of its pubends, the broker that hosts it."""
    retention_seconds: float | None = None
    retention_bytes: int | None = None
    ordered: bool = False
    """For a multicast topic: whether all subscribers get everything, in one order."""


class TopicRequests:
    """The requests about topics that a client has."""

    channel: Channel

    async def create_topic(
        self,
        name: str,
        service: Service = "durable",
        pubends: int = 1,
        retention_seconds: float | None = None,
        retention_bytes: int | None = None,
        hosts: Sequence[str] | None = None,
        *,
        ordered: bool = False,
    ) -> None:
        """Create a topic. Fine if the same topic exists; `RefusedError` if it has other settings.

        `pubends`: how many streams it has, each hosted by a broker; `hosts` names the broker of
        each, and so their number. Events older than `retention_seconds`, and the oldest while a
        stream has more than `retention_bytes`, are dropped even if a named subscription has not had
        them. `ordered`: for a multicast topic, which is best effort otherwise.
        """
        if service not in SERVICES:
            raise UsageError(f"there is no service {service!r}", f"Use one of {SERVICES}.")
        if hosts is not None and (not hosts or isinstance(hosts, str)):
            raise UsageError("a topic needs a host", "Name one for each pubend, or leave it out.")
        topic = TopicName(arguments.name("name", name))
        brokers = tuple(BrokerName(arguments.text("hosts", host)) for host in hosts or ())
        count = arguments.count("pubends", pubends, 1, PUBEND_COUNT_MAX)
        if brokers and count not in (1, len(brokers)):  # 1 is the default
            problem = f"pubends={count} and {len(brokers)} hosts contradict each other"
            raise UsageError(problem, "Name a host for each pubend, or leave one of the two out.")
        count = len(brokers) or count
        retention_us = None
        if retention_seconds is not None:
            longest_s = arguments.seconds("retention_seconds", retention_seconds)
            retention_us = min(int(longest_s * SECOND), TICK_MAX)
        if retention_bytes is not None:
            retention_bytes = arguments.count("retention_bytes", retention_bytes, 1)

        def make(request: int) -> CreateTopic:
            return CreateTopic(
                request,
                topic,
                service,
                count,
                brokers,
                retention_us,
                retention_bytes,
                ordered,
            )

        await ask_for(self.channel, make, Done)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with its events and all subscriptions to it, at once and for good."""
        topic = TopicName(arguments.name("name", name))
        answer = await ask_until_answered(self.channel, lambda request: DeleteTopic(request, topic))
        match answer.message:
            case Done():
                return
            case Refused() if answer.was_asked:
                return  # it is gone: the first answer was lost
            case Refused(problem=problem, remedy=remedy):
                raise RefusedError(problem, remedy)
            case other:
                raise WireError(f"the broker answered {type(other).__name__} to a DeleteTopic")

    async def topics(self) -> list[TopicDescription]:
        """All topics that the broker knows, sorted by name."""
        return list(map(_topic, (await ask_for(self.channel, TopicsQuery, TopicList)).topics))


def _topic(entry: TopicEntry) -> TopicDescription:
    retention = entry.retention_us
    return TopicDescription(
        entry.name,
        entry.service,
        entry.hosts,
        None if retention is None else retention / SECOND,
        entry.retention_bytes,
        entry.ordered,
    )


async def roster(client: TopicRequests, topic: str, of: RosterKind) -> Roster:
    """Publishers, producers or open transactions of a topic, at the pubends of the broker that the
    client is connected to."""
    name = TopicName(arguments.text("topic", topic))
    return await ask_for(client.channel, lambda request: RosterQuery(name, request, of), Roster)


async def strike(
    client: TopicRequests, topic: str, of: RosterKind, name: str, number: int = 0
) -> None:
    """Forget a publisher or producer, or drop an open transaction. Fine if there is none."""
    place = TopicName(arguments.text("topic", topic))
    entry = arguments.text("name", name)
    await ask_for(client.channel, lambda request: Strike(place, request, of, entry, number), Done)
