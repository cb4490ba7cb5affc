"""Effects: what a machine asks its driver to do. Plain values; broker or simulator carry them out.

Theory of operation
    A machine never acts. It returns effects, in order, and its driver carries them out.
    `Persist` is a write that carries its replies: nothing in `then` leaves before the disk has
    said that all of `writes` is durable. If that never happens, `then` never happens.

    If a call raises, the effects that it has made are lost. Effects that must not be lost are
    counted (`core.messages.Made`): writes, and answers to clients. Messages to brokers may be lost.

Source: the contract between etcd's raft and its disk, in idea.
"""

from __future__ import annotations

import msgspec

from gapless.core.identity import PeerName
from gapless.core.messages import Made, Message


class Append(msgspec.Struct, frozen=True):
    """Add records to a log stream. Indices strictly increase, within and across appends; those at
    equal steps may be a range."""

    stream: str
    indices: tuple[int, ...] | range
    records: tuple[bytes, ...]


class Chop(msgspec.Struct, frozen=True):
    """Drop every record of a log stream whose index is below `index`, for good."""

    stream: str
    index: int


class Put(msgspec.Struct, frozen=True):
    """Set one fact of a table."""

    table: str
    key: str
    value: bytes


class Delete(msgspec.Struct, frozen=True):
    """Remove one fact of a table; fine if there is none."""

    table: str
    key: str


Write = Append | Chop | Put | Delete


class Send(msgspec.Struct, frozen=True):
    """Send `message` to a neighbour or a client. It may be lost, late, doubled, out of order."""

    to: PeerName
    message: Message


class Tell(msgspec.Struct, frozen=True):
    """Hand `message` back to the machine that asked for it: it is about itself."""

    message: Message


class Persist(msgspec.Struct, frozen=True):
    """Make all `writes` durable, all or none; only then carry out `then`.

    Writes of one machine become durable in the order they were asked for. Where there is no room
    for them (`StorageFullError`) nothing is written and `otherwise` is carried out instead. Any
    other failure of the disk stops the broker: what is durable is then found out by a restart.
    """

    writes: tuple[Write, ...]
    then: tuple[Effect, ...] = ()
    otherwise: tuple[Effect, ...] = ()

    def __post_init__(self) -> None:
        Made.count += 1


NO_ROOM = "the broker's disk is full, or it may open no more files"
"""What a client is told where `otherwise` has been carried out. Which of the two it is the log of
the broker says: here nothing is known of disks."""

Effect = Send | Tell | Persist
