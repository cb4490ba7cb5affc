"""The messages by which an administrator sees which names a topic remembers, and strikes some off.

A pubend remembers its named publishers, its producers of transactions and the transactions that are
open, up to a bound. Names that are no longer needed take room from others: with these messages an
administrator finds and removes them.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from gapless.core.identity import PubendName, TopicName, check_name
from gapless.core.lengths import Name
from gapless.core.messages import Message
from gapless.core.ticks import TICK_MAX

RosterKind = Literal["publishers", "producers", "transactions"]

ROSTER_ENTRIES_MAX = 10_000
"""Entries in one answer."""


class RosterQuery(Message, frozen=True):
    """Which names does the broker that is asked remember for this topic?"""

    topic: TopicName
    request: int
    of: RosterKind = "publishers"


class RosterEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A publisher and its next number; a producer and its last transaction; or a transaction that
    is open, of this producer."""

    name: Name
    pubend: PubendName
    number: int = 0
    owner: Name = ""  # the principal that used it first, if it is known
    heard_us: int = 0  # when it was last heard of; 0: not known
    bytes: int = 0  # staged


class Roster(Message, frozen=True):
    """The names, sorted by pubend and name. `more`: some did not fit into the answer."""

    request: int
    entries: tuple[RosterEntry, ...] = ()
    more: bool = False


class Strike(Message, frozen=True):
    """Forget this publisher or producer, or drop this open transaction, for good. What a publisher
    sends later under its old opening is refused. A transaction that a producer repeats is published
    again, if its name was struck off meanwhile."""

    topic: TopicName
    request: int
    of: RosterKind
    name: Name
    number: int = 0  # of the transaction

    def __post_init__(self) -> None:
        check_name(self.name, "publisher or producer")
        if not 0 <= self.number <= TICK_MAX:
            raise ValueError("transactions are numbered from 0 to 2^63 - 1")


RosterRequest = RosterQuery | Strike
