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
    from gapless.core.identity import BrokerName
    from gapless.core.messages import Message


@dataclass(frozen=True, slots=True)
class Append:
    """Add records to a log stream. Indices strictly increase, within and across appends."""

    stream: str
    indices: tuple[int, ...]
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
    """Send `message` to a neighbour. It may be lost, late, doubled or out of order."""

    to: BrokerName
    message: Message


@dataclass(frozen=True, slots=True)
class Persist:
    """Make all `writes` durable, all or none; only then carry out `then`."""

    writes: tuple[Write, ...]
    then: tuple[Effect, ...] = ()


Effect = Send | Persist
