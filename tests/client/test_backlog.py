"""Whatever comes, in whatever pieces and however often, is handed out once and in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from gapless.client.backlog import Backlog
from gapless.client.delivery import Gap, Silence, Ticket
from gapless.core.events import Event
from gapless.core.identity import PubendName, TopicName
from gapless.core.ticks import Span, Tick
from gapless.core.token import Token
from tests.client.desk import Desk

if TYPE_CHECKING:
    from collections.abc import Iterable

TOPIC, ZERO = TopicName("t"), PubendName("t/0")
EVENTS = range(0, 40, 4)
"""The ticks that match."""


def events(ticks: Iterable[int]) -> list[Event]:
    return [Event({}, b"", TOPIC, ZERO, Tick(tick)) for tick in ticks]


class Stream:
    """A broker's side: what matches from a position on, a piece at a time."""

    def __init__(self) -> None:
        self.finished: list[Ticket] = []
        self.backlog = Backlog(TOPIC, self.finished.append)
        self.backlog.start({ZERO: 0})
        self.sent = 0
        self.seen: list[int] = []

    def send(self, count: int) -> None:
        through = min(self.sent + count, 40)
        ticks = [tick for tick in EVENTS if self.sent <= tick < through]
        self.backlog.add(ZERO, events(ticks), through, Ticket(Desk(), 1, len(ticks), 1))
        self.sent = through

    def take(self, count: int) -> None:
        for _ in range(count):
            item = self.backlog.pop()
            if item is None:
                if not self.backlog.load():
                    return
                item = self.backlog.pop()
            if item is not None:
                assert isinstance(item, Event)
                self.seen.append(item.tick)

    def reconnect(self, back: int) -> None:
        """The broker goes on from what has come, or from a while before it."""
        self.sent = max(0, self.backlog.received().get(ZERO) - back)


steps = st.lists(
    st.tuples(st.sampled_from([Stream.send, Stream.take, Stream.reconnect]), st.integers(0, 15)),
    max_size=30,
)


@given(steps)
def test_every_event_is_taken_once_however_often_the_connection_is_lost(steps: list) -> None:  # type: ignore[type-arg]
    stream = Stream()
    for step, number in steps:
        step(stream, number)
        assert stream.seen == [tick for tick in EVENTS if tick < stream.backlog.token().get(ZERO)]
        assert stream.backlog.finished() <= stream.backlog.token()
    stream.send(40)
    stream.take(100)
    assert stream.seen == list(EVENTS)
    assert stream.backlog.token() == Token({ZERO: 40})


def test_credit_is_given_for_each_part_once() -> None:
    stream = Stream()
    for _ in range(5):
        stream.send(8)
    stream.take(5)
    stream.backlog.drop()
    assert len(stream.finished) == 5
    assert len(set(map(id, stream.finished))) == 5


def test_an_item_counts_as_finished_when_the_next_is_asked_for() -> None:
    stream = Stream()
    stream.send(9)  # 0, 4 and 8
    stream.take(2)
    assert stream.backlog.token() == Token({ZERO: 5})
    assert stream.backlog.finished() == Token({ZERO: 1})
    stream.reconnect(0)
    assert stream.backlog.finished() == Token({ZERO: 1}), "someone is still busy with it"
    stream.take(1)
    assert stream.backlog.finished() == Token({ZERO: 5})


def test_all_at_once_is_one_step() -> None:
    stream = Stream()
    stream.send(9)
    assert stream.backlog.load()
    assert stream.backlog.pop_all() == events([0, 4, 8])
    assert stream.backlog.pop_all() == []
    assert stream.backlog.token() == Token({ZERO: 9})
    assert stream.backlog.finished() == Token()


def test_a_gap_ends_where_what_came_before_it_was_told_begins() -> None:
    backlog = Backlog(TOPIC, lambda _: None, silence=True)
    backlog.start({ZERO: 10})
    assert backlog.add_gap(ZERO, Span(0, 20))
    assert not backlog.add_gap(ZERO, Span(5, 20))
    backlog.add(ZERO, [], 30, None)
    assert backlog.load()
    assert backlog.pop() == Gap(TOPIC, ZERO, Span(10, 20))
    assert backlog.token() == Token({ZERO: 20})
    assert backlog.pop() == Silence(TOPIC, ZERO, Tick(30))
    assert backlog.token() == Token({ZERO: 30})
