"""The messages of the link itself, and the base of all others.

Theory of operation
    A message is a frozen struct that checks itself on construction; decoding constructs it, so
    what reaches a machine is well formed. `kind` tells messages apart on the wire.
    Two versions talk to each other because a receiver skips fields it does not know, and a field
    added later has a default; so: append defaulted fields only, never change a meaning or a
    default (a field at its default is not sent: the receiver fills in its own).
    The messages of each protocol stand in its own package.
"""

from __future__ import annotations

import msgspec

from gapless.core.identity import BrokerName
from gapless.core.lengths import Address, AnyCount, Prose, Secret

PROTOCOL_VERSION = 1
"""What we speak. It grows when a peer that does not know the change would go wrong."""

PROTOCOL_VERSION_MIN = 1
"""The oldest version we still understand."""


class Message(msgspec.Struct, frozen=True, tag_field="kind", tag=str.lower, omit_defaults=True):
    """Base of all that crosses a link."""


class Made:
    """How many writes and messages to clients this process has made so far. Code that catches an
    error of a handler compares the count to know whether one was lost."""

    count = 0


class Told(Message, frozen=True):
    """Base of the messages that one client may get because of what another client did."""

    def __post_init__(self) -> None:
        Made.count += 1


class Hello(Message, frozen=True, omit_defaults=False):
    """The first message on a link, from both ends: my name and the versions that I speak.

    Sent in full: the defaults differ between versions, and that is what it is about.
    """

    version: int = PROTOCOL_VERSION
    version_min: int = PROTOCOL_VERSION_MIN
    sender: BrokerName | None = None  # None: a client
    software: Address = ""  # for logs; nothing depends on it
    token: Secret = ""  # proves the client's identity; sent over TLS only
    address: Address = ""  # of a broker that joins: it is in no network file, and is reached there
    network: AnyCount = 0  # digest of a broker's network file; 0: it has none, or does not tell
    admin: Address = ""  # of a broker: where its admin port listens

    def __post_init__(self) -> None:
        if not 1 <= self.version_min <= self.version:
            raise ValueError(f"versions {self.version_min}..{self.version} are no range")


class Goodbye(Message, frozen=True):
    """The last message on a link: why it ends. Empty `problem`: a clean end.

    `final`: to connect again in the same way will not help.
    """

    problem: Prose = ""
    remedy: Prose = ""
    final: bool = False


class Addresses(Message, frozen=True):
    """Where brokers are reached that the receiver may not find in its network file. Who learns
    something new passes it on."""

    addresses: dict[BrokerName, Address]


class Ping(Message, frozen=True):
    """Proof of life; the receiver answers with a `Pong` of the same number."""

    number: int = 0
    catalogue: int = 0  # digest of all topics that the sender knows of


class Pong(Message, frozen=True):
    """The answer to a `Ping`."""

    number: int = 0
