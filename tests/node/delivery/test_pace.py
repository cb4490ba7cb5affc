"""How often what has become settled is handed out."""

from __future__ import annotations

from gapless.core.broker_messages import Knowledge
from gapless.core.client_messages import Deliveries, Receipt
from gapless.core.events import EventBatch
from gapless.core.identity import Instant, PubendName
from gapless.core.ticks import Span
from gapless.knowledge.subend import Subend
from gapless.node.config import Config
from gapless.node.delivery.pace import Pace
from tests.node.town import ALONE, ANN, Town, event, publish, subscribe

PUBEND = PubendName("news/0")
CONFIG = Config(
    delivery_pace=10,
    delivery_pace_behind=20,
    delivery_saved=100,
    delivery_pause_max=50,
    batch_events_max=3,
)


def subend(count: int = 1, name: PubendName = PUBEND) -> Subend:
    """One in which so many events wait."""
    made = Subend(name, 0, CONFIG)
    ticks = tuple(range(count))
    batch = EventBatch.join(event("red") for _ in ticks)
    made.receive_knowledge(Knowledge(name, Span(0, count + 1), ticks, batch), Instant(0))
    return made


def holds(pace: Pace, held: Subend, now: Instant) -> bool:
    return pace.holds(held.pubend, held.stream.event_count, held.stream.size, now)


def test_few_messages_never_make_anyone_wait() -> None:
    pace = Pace(CONFIG)
    for now in range(1_000, 1_200, 10):
        assert not holds(pace, subend(), Instant(now))
        pace.spend(1, Instant(now))
    assert pace.deadline is None


def test_many_at_once_use_up_what_was_saved_and_then_what_comes_waits() -> None:
    pace = Pace(CONFIG)
    pace.spend(10, Instant(1_000))
    assert not holds(pace, subend(), Instant(1_000))
    pace.spend(2, Instant(1_000))
    assert holds(pace, subend(), Instant(1_000))
    assert pace.deadline == 1_020
    assert pace.ripe(Instant(1_019)) == []
    assert pace.ripe(Instant(1_020)) == [PUBEND]
    assert pace.deadline is None, "it is handed out once"


def test_while_someone_catches_up_a_message_takes_more() -> None:
    pace = Pace(CONFIG)
    pace.spend(6, Instant(1_000), behind=True)
    assert holds(pace, subend(), Instant(1_000))
    assert pace.deadline == 1_020


def test_nobody_waits_longer_than_the_longest_pause() -> None:
    pace = Pace(CONFIG)
    pace.spend(1_000, Instant(1_000))
    assert holds(pace, subend(), Instant(1_000))
    assert pace.deadline == 1_050
    pace.spend(1_000, Instant(1_040))
    assert pace.deadline == 1_050, "nor does it wait for those who could not wait"
    assert pace.ripe(Instant(1_050)) == [PUBEND]
    assert not holds(pace, subend(), Instant(1_050))


def test_all_that_wait_are_handed_out_together() -> None:
    pace, other = Pace(CONFIG), PubendName("news/1")
    pace.spend(11, Instant(1_000))
    assert holds(pace, subend(), Instant(1_000))
    assert holds(pace, subend(name=other), Instant(1_005))
    assert pace.ripe(Instant(1_010)) == [PUBEND, other]
    assert not holds(pace, subend(), Instant(1_010))
    pace.spend(11, Instant(1_010))
    assert not holds(pace, subend(name=other), Instant(1_010)), "though the first has used it up"
    assert holds(pace, subend(), Instant(1_010)), "once"


def test_what_fills_a_message_and_silence_wait_for_nothing() -> None:
    pace = Pace(CONFIG)
    pace.spend(1_000, Instant(1_000))
    assert holds(pace, subend(2), Instant(1_000))
    assert not holds(pace, subend(3), Instant(1_000))
    assert not holds(pace, subend(0), Instant(1_000))
    large = Pace(Config(batch_bytes_max=1))
    large.spend(1_000_000, Instant(1_000))
    assert not holds(large, subend(1), Instant(1_000))


def test_a_broker_of_many_messages_gathers_for_subscribers_and_confirms_at_once() -> None:
    town = Town("h", ALONE, delivery_pace=1_000, delivery_saved=1, delivery_pause_max=2_000)
    town.connect()
    town.receive(ANN, subscribe(1))
    first = town.receive(ANN, publish("red"))
    assert [type(message) for _, message in first] == [Receipt, Deliveries]
    for colour in ("green", "blue"):
        sent = town.receive(ANN, publish(colour))
        assert [type(message) for _, message in sent] == [Receipt]
    later = [message for _, message in town.wait(2_000)]
    [message] = [each for each in later if isinstance(each, Deliveries) and each.ticks]
    assert message.events == EventBatch((event("green"), event("blue")))
