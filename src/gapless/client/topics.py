"""Requests about topics: create, delete, list; and the names that a topic remembers.

Any broker takes these requests; it redirects the client to the broker that decides about a topic's
name, or remembers a publisher. Creating a topic may be repeated, so a lost connection is no error
if another comes up in time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

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
    AlterTopic,
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

AS_IT_IS: Any = object()
"""In place of a setting: it stays as it is."""


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
    keep_seconds: float | None = None
    keep_bytes: int | None = None


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
        keep_seconds: float | None = None,
        keep_bytes: int | None = None,
    ) -> None:
        """Create a topic. Fine if the same topic exists; `RefusedError` if it has other settings.

        `pubends`: how many streams it has, each hosted by a broker; `hosts` names the broker of
        each, and so their number. Events older than `retention_seconds`, and the oldest while a
        stream has more than `retention_bytes`, are dropped even if a named subscription has not had
        them. Events younger than `keep_seconds`, and the newest `keep_bytes` of each stream, are
        kept though nobody subscribes. `ordered`: for a multicast topic, which is best effort
        otherwise.
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
        retention_us = _microseconds("retention_seconds", retention_seconds)
        retention_bytes = _size("retention_bytes", retention_bytes)
        keep_us = _microseconds("keep_seconds", keep_seconds)
        keep_bytes = _size("keep_bytes", keep_bytes)

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
                keep_us,
                keep_bytes,
            )

        await ask_for(self.channel, make, Done)

    async def alter_topic(
        self,
        name: str,
        *,
        retention_seconds: float | None = AS_IT_IS,
        retention_bytes: int | None = AS_IT_IS,
        keep_seconds: float | None = AS_IT_IS,
        keep_bytes: int | None = AS_IT_IS,
    ) -> None:
        """Change how much of a durable topic is kept; see `create_topic`. What is not given stays
        as it is, and None removes a limit. Brokers follow as soon as they hear of it."""
        topic = TopicName(arguments.name("name", name))
        seconds = {"retention_us": retention_seconds, "keep_us": keep_seconds}
        sizes = {"retention_bytes": retention_bytes, "keep_bytes": keep_bytes}
        changes: dict[str, int | None] = {}
        for field, given in seconds.items():
            if given is not AS_IT_IS:
                changes[field] = _microseconds(field.replace("_us", "_seconds"), given)
        for field, size in sizes.items():
            if size is not AS_IT_IS:
                changes[field] = _size(field, size)
        if not changes:
            raise UsageError("nothing is to be changed", "Give keep_seconds, for example.")
        await ask_for(self.channel, lambda request: AlterTopic(request, topic, **changes), Done)

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
        None if entry.keep_us is None else entry.keep_us / SECOND,
        entry.keep_bytes,
    )


def _microseconds(what: str, seconds: float | None) -> int | None:
    if seconds is None:
        return None
    return min(int(arguments.seconds(what, seconds) * SECOND), TICK_MAX)


def _size(what: str, size: int | None) -> int | None:
    return None if size is None else arguments.count(what, size, 1)


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
