"""The messages by which a client publishes many events at once: all of them, or none.

Theory of operation
    A producer numbers its transactions, ascending. Events are staged under a transaction's number
    in parts, by any connections; a part numbers its events from 0, so that a repeated `Stage` is
    recognised. `Commit` names the parts that count, in their order; everything else is dropped.
    A number that is not above the last committed one is a repeat, whatever comes with it.
"""

from __future__ import annotations

from gapless.core.events import EventBatch
from gapless.core.identity import ProducerName, PubendName, TopicName, check_name
from gapless.core.lengths import Name
from gapless.core.messages import Message
from gapless.core.ticks import TICK_MAX

ONCE = "once/"
"""How the name of a producer begins that commits a single transaction, and will not ask much later
whether it did: only the newest of them are remembered."""

FORGOTTEN = -1
"""The tick and the count of a repeat that is older than the last committed transaction."""


def check_number(transaction: int) -> None:
    if not 0 <= transaction <= TICK_MAX:
        raise ValueError("transactions are numbered from 0 to 2^63 - 1")


class Stage(Message, frozen=True):
    """Keep these events for a transaction; `position` is the number of the first in its part."""

    topic: TopicName
    request: int
    producer: ProducerName
    transaction: int
    part: Name
    position: int
    events: EventBatch

    def __post_init__(self) -> None:
        check_name(self.producer, "producer")
        check_name(self.part, "part")
        check_number(self.transaction)
        if not len(self.events):
            raise ValueError("a stage needs at least one event")
        if self.position < 0:
            raise ValueError("the events of a part are numbered from 0")


class Commit(Message, frozen=True):
    """Publish exactly these parts, in this order. `counts` says how many events each part must
    have, or the broker refuses the transaction; a part with a count of 0 need not be staged."""

    topic: TopicName
    request: int
    producer: ProducerName
    transaction: int
    parts: tuple[Name, ...] = ()
    counts: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_name(self.producer, "producer")
        check_number(self.transaction)
        if len(set(self.parts)) != len(self.parts):
            raise ValueError("a transaction has each part once")
        if self.counts and len(self.counts) != len(self.parts):
            raise ValueError("either no part has a count, or each has")


class Committed(Message, frozen=True):
    """The transaction is published for good: `count` events from `first_tick` on, one pubend step
    apart, though the last of them may still be on their way. `repeated`: it was before."""

    request: int
    pubend: PubendName
    first_tick: int
    count: int
    repeated: bool = False
    unheard: bool = False  # nobody subscribes, and the topic keeps nothing: it is gone at once


class Abort(Message, frozen=True):
    """Drop what is staged: one part, or all of the transaction. One that is committed stays so."""

    topic: TopicName
    request: int
    producer: ProducerName
    transaction: int
    part: Name | None = None

    def __post_init__(self) -> None:
        check_name(self.producer, "producer")
        check_number(self.transaction)


class ProducerQuery(Message, frozen=True):
    """Which transaction of this producer was committed last?"""

    topic: TopicName
    request: int
    producer: ProducerName

    def __post_init__(self) -> None:
        check_name(self.producer, "producer")


class ProducerPosition(Message, frozen=True):
    """The last committed transaction; None if there is none."""

    request: int
    transaction: int | None = None


TransactionRequest = Stage | Commit | Abort | ProducerQuery
