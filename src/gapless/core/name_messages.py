"""The messages about names of durable subscriptions: among brokers, to and from a registrar.

A registrar knows at which broker each name is at home. Of two statements about one name the one
with more moves holds; where both have moved as often, that of the greater broker.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from gapless.core.identity import BrokerName, SubscriptionName
from gapless.core.lengths import AnyCount, Name, Prose
from gapless.core.messages import Message

Want = Literal["claim", "look", "tell", "free"]


class NameEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """The broker where a name is at home, how often it has moved, and its owner."""

    home: BrokerName
    moves: AnyCount = 0
    owner: Name = ""
    epoch: AnyCount = 0  # of the broker that made the claim; `number` counts its claims
    number: AnyCount = 0
    altered: AnyCount = 0  # how often its condition has changed
    lost: AnyCount = (
        0  # a life at `home` never ended: one more than the epoch of its claim; 0: none
    )

    def __post_init__(self) -> None:
        if self.moves < 0:
            raise ValueError("moves count from 0")

    @property
    def rank(self) -> tuple[int, str]:
        """Of two entries for one name, the one with the greater rank holds."""
        return self.moves, self.home


class NameQuestion(Message, frozen=True):
    """Put to the registrar of a name, again and again until it is answered.

    `claim`: it is not here; is it free, or where is it? `look`: where is it? `tell`: it is here.
    `free`: it was here, and is no more. `known`: what the sender knows or remembers of it.
    """

    name: SubscriptionName
    sender: BrokerName
    receiver: BrokerName
    want: Want
    epoch: AnyCount
    number: AnyCount
    known: NameEntry | None = None
    owner: Name = ""


class NameAnswer(Message, frozen=True):
    """What the registrar has noted, durably; none: the name is free. With a `problem`, it has noted
    nothing."""

    name: SubscriptionName
    sender: BrokerName
    receiver: BrokerName
    number: AnyCount
    entry: NameEntry | None = None
    problem: Prose = ""


class NamesQuestion(Message, frozen=True):
    """From a registrar that may have lost its disk: tell me all names of mine that are with you.
    `run`: of the registrar."""

    sender: BrokerName
    receiver: BrokerName
    run: AnyCount


class NamesTold(Message, frozen=True):
    """The answer, when each of them is noted. `moves`: none here has moved more often."""

    sender: BrokerName
    receiver: BrokerName
    run: AnyCount
    moves: AnyCount = 0
