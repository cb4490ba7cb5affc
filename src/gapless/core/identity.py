"""Names of things, and points in time. Distinct types, so that mypy tells them apart."""

from __future__ import annotations

from typing import NewType

from gapless.core.lengths import NAME_BYTES_MAX, LongName, Name

BrokerName = NewType("BrokerName", Name)
"""One broker process; unique in its network."""

ClientName = NewType("ClientName", str)
"""One connection of a client to a broker; unique among the broker's peers, given by the driver."""

PeerName = BrokerName | ClientName
"""The other end of a link."""

CellName = NewType("CellName", Name)
"""A node of the routing tree: one or more brokers that back each other up."""

TopicName = NewType("TopicName", Name)

PubendName = NewType("PubendName", LongName)
"""A publisher endpoint: an ordered, durable stream of ticks at one broker."""

PublisherName = NewType("PublisherName", Name)
"""Chosen by a publisher that wants its repeated publications recognised."""

ProducerName = NewType("ProducerName", Name)
"""Chosen by an application that commits transactions. The pubend remembers its last one for
good."""

SubscriptionName = NewType("SubscriptionName", LongName)

Instant = NewType("Instant", int)
"""A point on a broker's own clock, in whole microseconds since the Unix epoch."""


class Identifier(int):
    """A point on the circle of the multicast service: up to 160 bits, more than a number of the
    wire has, where it is bytes."""

    __slots__ = ()


NodeId = NewType("NodeId", Identifier)
"""Where a node stands."""

TopicId = NewType("TopicId", Identifier)
"""Where a topic stands."""


def check_name(name: str, what: str) -> None:
    """`ValueError` if a client may not call something so."""
    if not 0 < len(name.encode()) <= NAME_BYTES_MAX:
        raise ValueError(f"the name of a {what} has 1 to {NAME_BYTES_MAX} bytes")


TOPIC_BYTES_MAX = 200
TOPIC_NAMES = (
    f"Use 1 to {TOPIC_BYTES_MAX} printable bytes without @, no blank at the ends, and not . or .. "
    "alone."
)


def is_topic_name(name: str) -> bool:
    """May a topic be called so? Folders are called like it, and it is shown to people."""
    is_plain = name.isprintable() and "@" not in name and name == name.strip()
    return is_plain and name not in (".", "..") and 0 < len(name.encode()) <= TOPIC_BYTES_MAX
