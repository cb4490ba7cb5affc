"""What a client may ask about topics: create, delete, list.

Whichever broker the client is connected to, the one that decides about a name is found by itself.
Creating is safe to repeat, so a lost connection is no error as long as one comes back in time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gapless.client.elsewhere import ask_patiently
from gapless.client.errors import LinkError, RefusedError
from gapless.core.client_messages import Done, Refused
from gapless.core.errors import GaplessError, UsageError, WireError
from gapless.core.identity import BrokerName, TopicName
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
    from collections.abc import Callable, Sequence

    from gapless.client.carrier import Carrier
    from gapless.core.messages import Message

SECOND = 1_000_000


class Topic(NamedTuple):
    """A topic, as a broker knows it."""

    name: str
    service: str
    hosts: tuple[str, ...]
    """For each of its pubends, the broker that has it."""
    retention_seconds: float | None = None
    retention_bytes: int | None = None


class TopicRequests:
    """What a `Client` can do about topics."""

    async def create_topic(
        self: Carrier,
        name: str,
        service: Service = "durable",
        pubends: int = 1,
        retention_seconds: float | None = None,
        retention_bytes: int | None = None,
        hosts: Sequence[str] | None = None,
    ) -> None:
        """Let there be this topic; fine if it exists alike, `RefusedError` if unlike.

        `pubends`: how many streams it has, which brokers of the network host; `hosts` says which,
        one for each. Events older than `retention_seconds`, and the oldest while a stream has more
        than `retention_bytes`, are given up even if a named subscription has not had them.
        """
        if service not in SERVICES:
            raise UsageError(f"there is no service {service!r}", f"Use one of {SERVICES}.")
        if hosts is not None and not hosts:
            raise UsageError("a topic needs a host", "Name one for each pubend, or leave it out.")
        retention_us = None if retention_seconds is None else int(retention_seconds * SECOND)

        def make(request: int) -> CreateTopic:
            return CreateTopic(
                request,
                TopicName(name),
                service,
                len(hosts) if hosts else pubends,
                tuple(map(BrokerName, hosts or ())),
                retention_us,
                retention_bytes,
            )

        match (await insist(self, make)).message:
            case Done():
                return
            case Refused(problem=problem, remedy=remedy):
                raise RefusedError(problem, remedy)
            case other:
                raise WireError(f"the broker answered {type(other).__name__} to a CreateTopic")

    async def delete_topic(self: Carrier, name: str) -> None:
        """Delete a topic with its events and all subscriptions to it, at once and for good."""
        answer = await insist(self, lambda request: DeleteTopic(request, TopicName(name)))
        match answer.message:
            case Done():
                return
            case Refused() if answer.was_asked:
                return  # it is gone: the answer was lost, not the question
            case Refused(problem=problem, remedy=remedy):
                raise RefusedError(problem, remedy)
            case other:
                raise WireError(f"the broker answered {type(other).__name__} to a DeleteTopic")

    async def topics(self: Carrier) -> list[Topic]:
        """All topics that the broker knows of, by name."""
        match (await insist(self, TopicsQuery)).message:
            case TopicList(topics=topics):
                return list(map(_topic, topics))
            case Refused(problem=problem, remedy=remedy):
                raise RefusedError(problem, remedy)
            case other:
                raise WireError(f"the broker answered {type(other).__name__} to a TopicsQuery")


class Insisted(NamedTuple):
    """An answer, and whether the same was asked before and its answer lost."""

    message: Message
    was_asked: bool


async def insist(client: Carrier, make: Callable[[int], Message]) -> Insisted:
    """Ask until an answer comes; `LinkError` when there is no connection for too long."""
    was_asked = False
    while True:
        match (await ask_patiently(client, make)).message:
            case LinkError():
                was_asked = True
            case GaplessError() as error:
                raise error
            case answer:
                return Insisted(answer, was_asked)


def _topic(entry: TopicEntry) -> Topic:
    retention = entry.retention_us
    return Topic(
        entry.name,
        entry.service,
        entry.hosts,
        None if retention is None else retention / SECOND,
        entry.retention_bytes,
    )
