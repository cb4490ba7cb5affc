"""The processor: one thing at a time, in order, and what it leads to when it is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.client_messages import Consumed, Deliveries, Publish
from gapless.core.effects import Persist, Send
from gapless.core.events import EventBatch
from gapless.core.identity import ClientName, Instant, PubendName, TopicName
from gapless.testing.clock import START
from gapless_lab.experiments.durable.processor import Costs, Processor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gapless.core.effects import Effect
    from gapless.core.identity import PeerName
    from gapless.core.messages import Message

COSTS = Costs(step=10, event_in=100, message_out=1_000, event_out=10_000, event_alone=100_000)
CLIENT = ClientName("c")
EVENT = EventBatch.join([b"e"])
TOPIC, PUBEND = TopicName("t"), PubendName("t/0")


class Echo:
    """Sends every message back; fires once, at `deadline`."""

    def __init__(self) -> None:
        self.deadline: Instant | None = None
        self.handled: list[object] = []

    def start(self, now: Instant) -> list[Effect]:
        return []

    def receive(self, sender: PeerName, message: Message, now: Instant) -> list[Effect]:
        self.handled.append(message)
        return [Send(sender, message)]

    def fire(self, now: Instant) -> list[Effect]:
        self.deadline = None
        self.handled.append("fired")
        return []

    def link_up(self, peer: PeerName, now: Instant) -> list[Effect]:
        self.handled.append("up")
        return []

    def link_down(self, peer: PeerName, now: Instant) -> list[Effect]:
        self.handled.append("down")
        return []

    def check(self) -> None:
        pass

    def statistics(self) -> Mapping[str, object]:
        return {}


def at(microseconds: int) -> Instant:
    return Instant(START + microseconds)


def test_what_a_message_leads_to_leaves_when_it_has_been_handled() -> None:
    processor = Processor(Echo(), COSTS)
    assert processor.receive(CLIENT, Consumed(1), at(0)) == []
    assert processor.deadline == at(10 + 1_000)
    assert processor.fire(at(1_009)) == []
    assert processor.fire(at(1_010)) == [Send(CLIENT, Consumed(1))]
    assert processor.deadline is None


def test_messages_wait_in_line_and_so_does_the_end_of_a_link() -> None:
    echo = Echo()
    processor = Processor(echo, COSTS)
    processor.receive(CLIENT, Consumed(1), at(0))
    processor.receive(CLIENT, Consumed(2), at(1))
    processor.link_down(CLIENT, at(2))
    assert echo.handled == [Consumed(1)]
    processor.fire(at(1_010))
    assert echo.handled == [Consumed(1), Consumed(2)]
    assert processor.fire(at(2_020)) == [Send(CLIENT, Consumed(2))]
    assert echo.handled[-1] == "down"


def test_a_timer_that_is_due_goes_before_what_waits() -> None:
    echo = Echo()
    processor = Processor(echo, COSTS)
    processor.receive(CLIENT, Consumed(1), at(0))
    processor.receive(CLIENT, Consumed(2), at(0))
    echo.deadline = at(500)
    processor.fire(at(1_010))
    assert echo.handled == [Consumed(1), "fired"]


def test_busy_time_counts_for_the_second_in_which_it_began() -> None:
    processor = Processor(Echo(), COSTS)
    processor.receive(CLIENT, Consumed(1), at(0))
    processor.fire(at(1_010))
    processor.receive(CLIENT, Consumed(1), at(2_500_000))
    assert processor.busy_us == {0: 1_010, 2: 1_010}


def test_events_cost_on_the_way_in_and_out_and_more_for_one_that_catches_up() -> None:
    processor = Processor(Echo(), COSTS)
    publish = Publish(TOPIC, 1, EVENT)
    level = Deliveries(TOPIC, 9, PUBEND, (1,), EVENT, ((1,),))
    alone = Deliveries(TOPIC, 9, PUBEND, (1,), EVENT, ((1,),), only=1)
    assert processor.cost(publish, []) == 110
    assert processor.cost(None, [Send(CLIENT, level)]) == 11_010
    assert processor.cost(None, [Send(CLIENT, alone)]) == 111_010
    assert processor.cost(None, [Persist((), (Send(CLIENT, level),))]) == 11_010
