"""Effects: what a machine wants done. Plain values; the driver or the simulator does them.

Theory of operation
    A machine never acts. It returns effects, in order, and whoever drives it carries them out.
    `Persist` is a write that carries its replies: nothing in `then` leaves before the disk has
    said that all of `writes` is durable. If that never happens, `then` never happens.

Source: the contract between etcd's raft and its disk, in idea.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gapless.core.identity import PeerName
    from gapless.core.messages import Message


@dataclass(frozen=True, slots=True)
class Append:
    """Add records to a log stream. Indices strictly increase, within and across appends; those at
    equal steps may be a range."""

    stream: str
    indices: tuple[int, ...] | range
    records: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Chop:
    """Drop every record of a log stream whose index is below `index`, for good."""

    stream: str
    index: int


@dataclass(frozen=True, slots=True)
class Put:
    """Set one fact of a table."""

    table: str
    key: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove one fact of a table; fine if there is none."""

    table: str
    key: str


Write = Append | Chop | Put | Delete


@dataclass(frozen=True, slots=True)
class Send:
    """Send `message` to a neighbour or a client. It may be lost, late, doubled, out of order."""

    to: PeerName
    message: Message


@dataclass(frozen=True, slots=True)
class Tell:
    """Hand `message` back to the machine that asked for it: it is about itself."""

    message: Message


@dataclass(frozen=True, slots=True)
class Persist:
    """Make all `writes` durable, all or none; only then carry out `then`.

    Writes of one machine become durable in the order they were asked for. Where there is no room
    for them (`StorageFullError`) nothing is written and `otherwise` is carried out instead. Any
    other failure of the disk stops the broker: what is durable is then found out by a restart.
    """

    writes: tuple[Write, ...]
    then: tuple[Effect, ...] = ()
    otherwise: tuple[Effect, ...] = ()


Effect = Send | Tell | Persist
