"""The backlog of one subscription: what has arrived and was not taken yet, and the positions.

Theory of operation
    Parts wait in the order of arrival: events or a gap, and the position after them. Taking an item
    moves the token past it; asking for more when a part is used up moves it to the end of that
    part. An application that asks for the next item has finished the one before: `finished` is the
    token of finished items only, which may be acknowledged automatically.
    Events stay encoded until they are taken. A reader of columns takes a part whole, as it came
    (`pop_encoded`), and parts of one pubend that wait behind each other as one, up to `events_max`.
    After a lost connection a durable subscription goes on from what it has received, or from before
    that. What comes twice is dropped here.
    Another thread may take items (`pop`) than the one that adds them. Only `load` changes what both
    use, and it is called while the other thread waits for it.

Invariants
    I1  ticks of events ascend per pubend (over all pubends in total order)
    I2  every tick below the token was handed out as an event, was silent, or was told as a gap
    I3  finished <= token <= received, pubend by pubend
    I4  a part without items is the newest of its pubend: silence takes no room
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from gapless.client.delivered_events import DeliveredEvents
from gapless.client.delivery import Gap, Silence
from gapless.client.telemetry import trace_columns, trace_delivery
from gapless.core.ticks import Span, Tick
from gapless.core.token import Token

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gapless.client.delivery import Delivery, Ticket
    from gapless.core.events import Event
    from gapless.core.identity import PubendName, TopicName


Positions = Mapping["PubendName | None", int]
"""By pubend; None stands for all of them."""

NOTHING: Positions = MappingProxyType({})


@dataclass(slots=True, eq=False)
class BacklogPart:
    """What arrived in one message: its items, and the position after them."""

    items: Sequence[Event | Gap]
    pubend: PubendName | None
    through: int
    tickets: tuple[Ticket, ...] = ()


class Backlog:
    """See the module docstring. `finish` is called with the ticket of each part that is done."""

    def __init__(
        self,
        topic: TopicName,
        finish: Callable[[Ticket], None],
        *,
        in_total: bool = False,
        silence: bool = False,
    ) -> None:
        self._topic = topic
        self._in_total = in_total
        self._finish = finish
        self._silence = silence
        self._parts: deque[BacklogPart] = deque()
        self._newest: dict[PubendName | None, BacklogPart] = {}  # by pubend: its last part
        self._current: BacklogPart | None = None
        self._encoded: DeliveredEvents | None = None  # of the current part, not yet taken
        self._items: deque[Delivery] = deque()  # what is to be taken after those
        self.events_max = 0  # of parts that are taken as one
        self._last: Delivery | None = None  # taken last; what came before it is finished
        self._finished: Delivery | None = None
        self._taken: dict[str, int] = {}  # of what was taken before that
        self._held: dict[PubendName | None, int] = {}  # taken from a shared backlog
        self._received: dict[str, int] = {}

    # --- positions ------------------------------------------------------------------------------

    def token(self, beyond: Positions = NOTHING) -> Token:
        """Everything below it was taken, or did not match, or was told as lost. `beyond`: positions
        of a shared backlog (`gapless.client.shared_backlog`)."""
        return Token(_moved(_moved(self._after(self._last), self._held), beyond))

    def finished(self, beyond: Positions = NOTHING) -> Token:
        """The token without the item taken last, which the application may be busy with."""
        return Token(_moved(self._after(self._finished), beyond))

    def received(self) -> Token:
        """Everything below it has arrived, taken or not."""
        return Token(self._received)

    def _after(self, item: Delivery | None) -> dict[str, int]:
        """The positions after this item."""
        positions = dict(self._taken)
        if item is None:
            return positions
        match item:
            case Gap(span=span):
                reached = span.end
            case Silence(through=through):
                reached = through
            case event:
                reached = event.tick + 1
        is_about_all = item.pubend is None or (self._in_total and not isinstance(item, Gap))
        for name in list(positions) if is_about_all else (str(item.pubend),):
            positions[name] = max(positions.get(name, 0), reached)
        return positions

    # --- adding ---------------------------------------------------------------------------------

    def take_over(self, finished: Positions, taken: Positions) -> None:
        """Go on from the positions of a shared backlog."""
        self._taken = _moved(self._taken, finished)
        self._received = _moved(self._received, taken)
        self._held = dict(taken)

    def start(self, starts: Mapping[str, int]) -> list[tuple[str, Span]]:
        """It counts from here on: the spans between what has arrived and this are missing."""
        missing = []
        for name, tick in starts.items():
            known = self._received.setdefault(name, tick)
            self._taken.setdefault(name, tick)
            if known < tick:
                missing.append((name, Span(known, tick)))
        return missing

    def add(
        self,
        pubend: PubendName | None,
        events: Sequence[Event],
        through: int,
        ticket: Ticket | None,
    ) -> bool:
        """Add a message; whether there is something new to take."""
        received = self._received
        if isinstance(events, DeliveredEvents) and events:
            events = events.beyond(received)
        elif events and events[0].tick < received.get(events[0].pubend, 0):
            events = [event for event in events if event.tick >= received[event.pubend]]
        for name in list(received) if pubend is None else (pubend,):
            if through > received.get(name, 0):
                received[name] = through
        tickets = () if ticket is None else (ticket,)
        return self._queue(BacklogPart(events, pubend, through, tickets))

    def add_gap(self, pubend: PubendName, span: Span) -> bool:
        start = max(span.start, self._received.get(pubend, 0))
        if start >= span.end:
            return False  # it was told before
        self._received[pubend] = span.end
        gap = Gap(self._topic, pubend, Span(start, span.end))
        return self._queue(BacklogPart([gap], pubend, span.end))

    def _queue(self, part: BacklogPart) -> bool:
        newest = self._newest.get(part.pubend)
        if not part.items and newest is not None:
            newest.through = max(newest.through, part.through)
            self._done(part)
            return False
        if not part.items and not self._silence and self.is_idle:
            # Everything is finished, and there is nothing to take.
            self._taken = _moved(self._taken, {part.pubend: part.through})
            self._done(part)
            return False
        self._newest[part.pubend] = part
        self._parts.append(part)
        return bool(part.items) or self._silence

    # --- taking ---------------------------------------------------------------------------------

    def pop(self) -> Delivery | None:
        """The next item of the current part."""
        self._decode()
        if not self._items:
            return None
        item = self._items.popleft()
        self._finished = self._last  # before the next line: it must not overtake
        self._last = item
        return item

    def look(self) -> Sequence[Delivery]:
        """What is left of the current part; it is not taken."""
        self._decode()
        return self._items

    def pop_all(self) -> list[Delivery]:
        """All that is left of the current part."""
        self._decode()
        if not self._items:
            return []
        items = list(self._items)
        self._items.clear()
        self._finished, self._last = self._last, items[-1]
        return items

    def pop_encoded(self) -> DeliveredEvents | list[Delivery]:
        """All events of the current part as they came; then all else that is left of it."""
        if self._encoded is None:
            return self.pop_all()
        events, self._encoded = self._encoded, None
        trace_columns(events)
        pubend = None if isinstance(events.pubends, tuple) else events.pubends
        self._finished = self._last
        self._last = Silence(self._topic, pubend, Tick(events.ticks[-1] + 1))
        return events

    def _decode(self) -> None:
        if self._encoded is not None:
            trace_delivery(self._encoded)
            self._items.extendleft(reversed(self._encoded))
            self._encoded = None

    def load(self) -> bool:
        """Call what was taken finished, and turn to the next part, if there is one."""
        part, self._current = self._current, None
        if self._held:
            self._taken, self._held = _moved(self._taken, self._held), {}
        if part is not None and part.pubend is not None:  # no item of it is beyond its end
            if part.through > self._taken.get(part.pubend, 0):
                self._taken = {**self._taken, part.pubend: part.through}
        else:
            self._taken = taken = self._after(self._last)
            if part is not None:
                self._taken = {name: max(tick, part.through) for name, tick in taken.items()}
        self._last = self._finished = None
        if part is not None:
            self._done(part)
        if not self._parts:
            return False
        self._take_up(self._next_part())
        return True

    def _next_part(self) -> BacklogPart:
        """The next part, together with those behind it that may be taken with it."""
        parts = self._parts
        joined = [parts.popleft()]
        count = len(joined[0].items)
        while (
            parts
            and parts[0].pubend == joined[0].pubend
            and (count := count + len(parts[0].items)) <= self.events_max
            and all(isinstance(each.items, DeliveredEvents) for each in (joined[0], parts[0]))
        ):
            joined.append(parts.popleft())
        if len(joined) == 1:
            return joined[0]
        last = joined[-1]
        events = DeliveredEvents.join([cast("DeliveredEvents", each.items) for each in joined])
        tickets = tuple([ticket for each in joined for ticket in each.tickets])
        if self._newest.get(last.pubend) is last:
            del self._newest[last.pubend]
        return BacklogPart(events, last.pubend, last.through, tickets)

    def _take_up(self, part: BacklogPart) -> None:
        self._current = part
        if self._newest.get(part.pubend) is part:
            del self._newest[part.pubend]
        if isinstance(part.items, DeliveredEvents):
            self._encoded = part.items or None
        else:  # a gap, or what waited in a shared backlog
            trace_delivery([each for each in part.items if not isinstance(each, Gap)])
            self._items.extend(part.items)
        if self._silence:
            encoded = isinstance(part.items, DeliveredEvents)
            last = part.items[-1] if part.items and not encoded else None
            if not isinstance(last, Gap) or last.span.end < part.through:
                self._items.append(Silence(self._topic, part.pubend, Tick(part.through)))

    @property
    def is_idle(self) -> bool:
        """Is everything that came taken and finished?"""
        return not (self._parts or self._current or self._last or self._held)

    @property
    def is_empty(self) -> bool:
        """Is there no part beyond the current one?"""
        return not self._parts

    @property
    def has_items(self) -> bool:
        return bool(self._items) or self._encoded is not None

    def drop(self) -> None:
        """Forget what was not taken."""
        parts = [*self._parts, *([self._current] if self._current else [])]
        self._parts.clear()
        self._newest.clear()
        self._items.clear()
        self._current = self._encoded = None
        for part in parts:
            self._done(part)

    def _done(self, part: BacklogPart) -> None:
        for ticket in part.tickets:
            self._finish(ticket)


def _moved(positions: dict[str, int], on: Positions) -> dict[str, int]:
    """Positions, each moved on if `on` is further."""
    for pubend, through in on.items():
        names = positions if pubend is None else (pubend,)
        positions = {**positions, **{n: max(through, positions.get(n, 0)) for n in names}}
    return positions
