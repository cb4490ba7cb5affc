"""Nack fan-in: a lost range is asked for once, however many below a broker miss it.

Statement: while a question is out (for `nack_forget`, on the asking broker's own clock), the same
broker does not send a nack for any of the same ticks again, unless it was told of them in between
(and forgot them, its cache being bounded), or now asks another member of the cell above. So the
number of nacks on a link for one loss does not depend on the number of children.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gapless.core.broker_messages import Knowledge, Nack, Purpose, Sideways
from gapless.core.events import EventBatch
from gapless.core.spans import SpanSet
from gapless.core.ticks import TICK_MAX, Span
from gapless.testing.checkers.checker import Checker
from gapless.testing.trace import show_span

if TYPE_CHECKING:
    from gapless.core.identity import Instant, PeerName, PubendName
    from gapless.core.messages import Message
    from gapless.node.config import Config
    from gapless.testing.checkers.checker import Broker
    from gapless.testing.record import Record

Question = tuple[str, int, int, object, str, str, Purpose]
"""Broker, incarnation, jumps of its clock and changes of its neighbours so far, to whom, pubend,
and what for: what will do as an answer to one may not do for another.

When a neighbour dies or returns, questions may be put again: they may have been lost with it."""


class NackFanIn(Checker):
    """Keeps the questions that are out, per broker and pubend."""

    promise = "one nack for one loss"

    def __init__(self, record: Record, config: Config) -> None:
        super().__init__(record, config)
        self._out: dict[Question, deque[tuple[Instant, Span]]] = {}

    def sent(self, broker: Broker, to: PeerName, message: Message) -> None:
        if isinstance(message, Sideways):
            message = message.message
        if not isinstance(message, Nack):
            return
        changes = broker.statistics().get("neighbour_changes")
        who = (broker.name, broker.incarnation, broker.clock_jumps, changes)
        key = (*who, to, message.pubend, message.purpose)
        now, out = broker.now, self._out.setdefault(key, deque())
        while out and out[0][0] <= now:
            out.popleft()
        for span in message.spans:
            for _, asked in out:
                if span.start < asked.end and asked.start < span.end:
                    raise self.violated(
                        f"{broker.name} asks {to} for {message.pubend} {show_span(span)} while "
                        f"its question for {show_span(asked)} is out"
                    )
        until = type(now)(now + self.config.nack_forget)
        out.extend((until, span) for span in message.spans)

    def received(self, broker: Broker, sender: PeerName, message: Message) -> None:
        if isinstance(message, Sideways):
            message = message.message
        if isinstance(message, Knowledge):
            for each in apart(message):
                self._answered(broker, message.pubend, each.span)
            if message.more:  # the rest is not being answered: to ask for it is right
                rest = Span(message.span.end, TICK_MAX + 1)
                self._answered(broker, message.pubend, rest)

    def _answered(self, broker: Broker, pubend: PubendName, span: Span) -> None:
        for key, out in self._out.items():
            if key[0] == broker.name and key[5] == pubend and out:
                left = deque[tuple["Instant", "Span"]]()
                for until, asked in out:
                    rest = SpanSet([asked])
                    rest.remove(span)
                    left.extend((until, part) for part in rest)
                self._out[key] = left


def apart(knowledge: Knowledge) -> list[Knowledge]:
    """The same as messages that each say all of their span."""
    if not knowledge.scattered:
        return [knowledge]
    return [
        replace(
            knowledge,
            span=Span(tick, tick + 1),
            ticks=(tick,),
            events=EventBatch((event,)),
            scattered=False,
        )
        for tick, event in zip(knowledge.ticks, knowledge.events, strict=True)
    ]
