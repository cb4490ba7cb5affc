"""The messages about topics: between clients and brokers, and among brokers.

An entry of the catalogue says all there is to say of a topic. Of two entries of one name the one
with the higher incarnation holds: it counts creations and deletions together, and only the owner
of the name counts.
"""

from __future__ import annotations

from typing import Annotated, Literal, get_args

import msgspec

from gapless.core.identity import BrokerName, TopicName
from gapless.core.lengths import AnyCount, Name
from gapless.core.messages import Message
from gapless.core.ticks import PUBEND_COUNT_MAX

Service = Literal["durable", "reliable", "multicast"]
SERVICES: tuple[str, ...] = get_args(Service)


class TopicEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A topic, or that it was deleted. `hosts`: for each of its pubends, the broker that has it;
    only a durable topic has any."""

    name: TopicName
    incarnation: AnyCount
    hosts: tuple[BrokerName, ...]
    service: Service = "durable"
    retention_us: int | None = None
    retention_bytes: int | None = None
    is_deleted: bool = False
    ordered: bool = False  # of a multicast topic: all get everything, in one order
    owner: Name = ""  # the principal that created it, if it was proved
    deleted_us: AnyCount = 0  # when it was deleted, on its decider's clock; 0: not known
    keep_us: int | None = None  # events that are younger are kept for everybody
    keep_bytes: int | None = None
    revision: AnyCount = 0  # how often its settings were changed

    def __post_init__(self) -> None:
        if self.incarnation < 1:
            raise ValueError("incarnations count from 1")
        if not (self.service == "durable") <= len(self.hosts) <= PUBEND_COUNT_MAX:
            raise ValueError(f"a durable topic has 1 to {PUBEND_COUNT_MAX} pubends")


# --- between a client and its broker ------------------------------------------------------------


class CreateTopic(Message, frozen=True):
    """Let there be this topic. `hosts`: which brokers get its pubends, instead of any."""

    request: int
    name: TopicName
    service: Service = "durable"
    pubends: int = 1
    hosts: Annotated[tuple[BrokerName, ...], msgspec.Meta(max_length=PUBEND_COUNT_MAX)] = ()
    retention_us: int | None = None
    retention_bytes: int | None = None
    ordered: bool = False
    keep_us: int | None = None
    keep_bytes: int | None = None


UNCHANGED = -1
"""In place of a setting: it stays as it is."""


class AlterTopic(Message, frozen=True):
    """Change settings of a durable topic; None: there is no such limit any more."""

    request: int
    name: TopicName
    retention_us: int | None = UNCHANGED
    retention_bytes: int | None = UNCHANGED
    keep_us: int | None = UNCHANGED
    keep_bytes: int | None = UNCHANGED


class DeleteTopic(Message, frozen=True):
    """Let there be no such topic any more, nor its events and subscriptions."""

    request: int
    name: TopicName


class TopicsQuery(Message, frozen=True):
    """Which topics are there?"""

    request: int


class TopicList(Message, frozen=True):
    """All topics that the broker knows of, by name."""

    request: int
    topics: tuple[TopicEntry, ...]


# --- between brokers ----------------------------------------------------------------------------


class TopicNews(Message, frozen=True):
    """Entries that the receiver may not have."""

    entries: tuple[TopicEntry, ...]


class TopicQuestion(Message, frozen=True):
    """Is there such a topic? Put to the name's owner by a broker that knows of none; and its
    answer, with the entry if there is one."""

    topic: TopicName
    sender: BrokerName
    receiver: BrokerName
    is_answer: bool = False
    entry: TopicEntry | None = None
