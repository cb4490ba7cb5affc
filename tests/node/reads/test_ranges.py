"""What a client reads of a log: all that matches, in order, within bounds, and what is lost."""

from __future__ import annotations

from typing import Any

from gapless.core.client_messages import Refused, Subscribe
from gapless.core.events import EventBatch
from gapless.core.identity import PubendName, SubscriptionName, TopicName
from gapless.core.range_messages import Positions, PositionsQuery, RangeRead, ReadRange
from gapless.core.ticks import Span
from tests.bounds import so_long_as
from tests.node.town import ALONE, ANN, NEWS, TOWN, Town, colours, publish

ONE = ALONE.replace('["h", "h"]', '["h"]')
PUBEND = PubendName("news/0")
ALL = Span(0, 1 << 62)


def make(*published: str, **limits: Any) -> Town:
    town = Town("h", ONE, **limits)
    town.connect()
    for colour in published:
        town.receive(ANN, publish(colour))
    return town


def read(town: Town, span: Span = ALL, condition: str = "", events_max: int = 0) -> RangeRead:
    message = ReadRange(NEWS, 7, PUBEND, span, condition, events_max)
    [(to, answer)] = town.receive(ANN, message)
    assert to == ANN
    assert isinstance(answer, RangeRead)
    assert answer.request == 7
    return answer


def read_on(town: Town, condition: str = "", events_max: int = 0) -> tuple[list[str], int]:
    """All there is, and in how many steps."""
    found: list[str] = []
    span = ALL
    for step in so_long_as(lambda: True):
        answer = read(town, span, condition, events_max)
        found += colours(answer.events)
        assert answer.span is not None
        assert answer.span.start == span.start
        assert all(answer.span.start <= tick < answer.span.end for tick in answer.ticks)
        if not answer.more:
            return found, step + 1
        span = Span(answer.span.end, span.end)
    raise AssertionError


def test_all_that_matches_comes_in_order_up_to_what_is_settled() -> None:
    town = make("red", "blue", "red")
    answer = read(town, condition="colour = 'red'")
    assert colours(answer.events) == ["red", "red"]
    assert answer.span == Span(0, town.node.durable.streams.pubends[PUBEND].end)
    assert not answer.more


def test_a_step_looks_at_a_bounded_part_of_the_log_whatever_matches() -> None:
    town = make(*["red", "blue"] * 10, range_bytes_max=60)
    found, steps = read_on(town, "colour = 'blue'")
    assert found == ["blue"] * 10
    assert steps > 5
    assert read_on(town, "colour = 'blue'") == (found, steps)


def test_everything_comes_as_it_stands_for_who_takes_it_so() -> None:
    town = make(*["red", "blue"] * 10, range_bytes_max=60)
    found, at, steps = list[bytes](), 0, 0
    more = True
    while more:
        assert steps < 100
        message = ReadRange(NEWS, 7, PUBEND, Span(at, 1 << 62), whole=True)
        [(_, answer)] = town.receive(ANN, message)
        assert isinstance(answer, RangeRead)
        assert (answer.ticks, answer.span is not None, answer.run is not None) == ((), True, True)
        assert answer.span is not None
        assert answer.run is not None
        assert all(at <= tick < answer.span.end for tick in answer.run.tick_numbers())
        found += answer.run.cut()
        at, more, steps = answer.span.end, answer.more, steps + 1
    assert colours(EventBatch.join(found)) == ["red", "blue"] * 10
    assert steps > 2
    assert at == town.node.durable.streams.pubends[PUBEND].end


def test_a_choice_is_not_as_it_stands() -> None:
    town = make("red", "blue", "red")
    for condition, limit in (("colour = 'red'", 0), ("", 2)):
        message = ReadRange(NEWS, 7, PUBEND, ALL, condition, limit, whole=True)
        [(_, answer)] = town.receive(ANN, message)
        assert isinstance(answer, RangeRead)
        assert (len(answer.events), answer.run) == (2, None)


def test_a_limit_ends_a_step_before_the_next_event_that_matches() -> None:
    town = make("red", "blue", "red", "blue", "red")
    answer = read(town, condition="colour = 'red'", events_max=2)
    assert colours(answer.events) == ["red", "red"]
    assert answer.more
    assert read_on(town, "colour = 'red'", 1) == (["red"] * 3, 3)


def test_nothing_is_said_of_what_is_not_settled() -> None:
    town = make("red")
    end = town.node.durable.streams.pubends[PUBEND].end
    assert read(town, Span(end, end + 10)).span is None


def test_what_was_released_is_told() -> None:
    town = make("red", "blue")
    pubend = town.node.durable.streams.pubends[PUBEND]
    start = pubend.store.scan(pubend.stream, 0, 1 << 62)[0][0]
    town.wait(5_000_000)  # nobody wants it any more
    assert pubend.released > start
    answer = read(town, Span(start, pubend.released))
    assert (answer.lost_below, answer.span) == (pubend.released, Span(start, pubend.released))
    after = read(town, Span(start, pubend.end))
    assert after.lost_below == pubend.released
    assert not after.ticks


def test_positions_tell_what_can_be_read_and_where_the_rest_is() -> None:
    town = make("red")
    pubend = town.node.durable.streams.pubends[PUBEND]
    [(_, answer)] = town.receive(ANN, PositionsQuery(NEWS, 3))
    assert answer == Positions(3, {"news/0": (pubend.released, pubend.end)})
    far = Town("l", TOWN)
    far.connect()
    far.flush()
    [(_, answer)] = far.receive(ANN, PositionsQuery(NEWS, 3))
    assert answer == Positions(3, {}, {"news/0": "s"})


def test_what_cannot_be_read_here_is_refused_with_what_to_do() -> None:
    town, far = make(), Town("l", TOWN)
    far.connect()
    far.flush()
    for at, message, remedy in (
        (town, ReadRange(TopicName("sport"), 1, PUBEND, ALL), "Create"),
        (town, ReadRange(NEWS, 1, PubendName("news/9"), ALL), "news/0"),
        (town, ReadRange(NEWS, 1, PUBEND, ALL, "colour ="), "^"),
        (far, ReadRange(NEWS, 1, PUBEND, ALL), "one of: s"),
    ):
        [(_, answer)] = at.receive(ANN, message)
        assert isinstance(answer, Refused)
        assert remedy in answer.remedy


def test_a_subscription_from_the_earliest_event_holds_all_of_it_and_silence_is_no_loss() -> None:
    town = make()
    town.wait(5_000_000)  # nobody needs what was before
    town.receive(ANN, Subscribe(NEWS, 1, 1, "", name=SubscriptionName("all"), earliest=True))
    town.wait(5_000_000)
    pubend = town.node.durable.streams.pubends[PUBEND]
    assert pubend.released == pubend.past.born
    town.receive(ANN, publish("red"))
    answer = read(town)
    assert colours(answer.events) == ["red"]
    assert not answer.lost_below


def test_what_is_being_released_is_neither_read_nor_lost_but_to_be_asked_for_again() -> None:
    town = make("red", "blue", "red")
    pubend = town.node.durable.streams.pubends[PUBEND]
    ticks = pubend.store.scan(pubend.stream, 0, 1 << 62)[0]
    pubend.release.delivered = pubend.release.needed_from = pubend.end
    pubend.release.chop_end, pubend.release.next_chop_end = ticks[1], ticks[2]
    first = read(town, Span(ticks[0], pubend.end))
    assert (first.span, first.lost_below, first.more) == (Span(*ticks[:2]), ticks[1], True)
    [(_, later)] = town.receive(ANN, ReadRange(NEWS, 7, PUBEND, Span(ticks[1], pubend.end)))
    assert isinstance(later, Refused)
    assert later.retry
    assert colours(read(town, Span(ticks[2], pubend.end)).events) == ["red"]
