"""A batch keeps encoded events apart without knowing what is in them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.events import Event, EventBatch, EventRun
from gapless.core.identity import PubendName, TopicName
from gapless.core.ticks import Tick

pieces = st.lists(st.binary(max_size=5), max_size=8)


@given(pieces)
def test_a_batch_gives_back_the_events_it_was_joined_from(events: list[bytes]) -> None:
    batch = EventBatch.join(events)
    assert list(batch) == events
    assert [batch[index] for index in range(len(batch))] == events
    assert [batch[index - len(events)] for index in range(len(events))] == events


@given(pieces.flatmap(lambda p: st.tuples(st.just(p), st.sets(st.integers(0, max(len(p) - 1, 0))))))
def test_picking_keeps_the_chosen_events_in_order(case: tuple[list[bytes], set[int]]) -> None:
    events, chosen = case
    indices = sorted(index for index in chosen if index < len(events))
    assert list(EventBatch.join(events).pick(indices)) == [events[index] for index in indices]


def test_picking_everything_copies_nothing() -> None:
    batch = EventBatch.join([b"a", b"bc"])
    assert batch.pick([0, 1]) is batch


def test_an_index_outside_the_batch_is_an_error() -> None:
    batch = EventBatch.join([b"a", b"bc"])
    for index in (2, -3):
        with pytest.raises(IndexError):
            batch[index]


@given(pieces)
def test_a_run_gives_back_the_events_and_ticks_it_was_made_of(events: list[bytes]) -> None:
    ticks = [number << 40 for number in range(len(events))]
    run = EventRun.of(ticks, events)
    assert (len(run), run.cut(), run.tick_numbers()) == (len(events), tuple(events), tuple(ticks))
    assert run.data == b"".join(events)


@pytest.mark.parametrize(
    "parts",
    [
        (bytes(8), b"", b""),
        (bytes(8), bytes(3), b""),
        (bytes(8), b"\2\0\0\0", b"a"),
        (b"", b"", b"a"),
    ],
)
def test_a_run_whose_parts_do_not_agree_is_refused(parts: tuple[bytes, bytes, bytes]) -> None:
    with pytest.raises(ValueError, match="has a tick and an end"):
        EventRun(*parts)


def test_an_event_says_when_it_was_published_if_its_tick_is_a_time() -> None:
    place = (TopicName("t"), PubendName("t/0"))
    instant = 1_763_456_789_012_345
    event = Event({}, b"", *place, Tick(instant << 10 | 3))
    assert event.published == datetime(2025, 11, 18, 9, 6, 29, 12_345, tzinfo=UTC)
    assert Event({}, b"", *place, Tick(7)).published is None
    assert Event({}, b"", *place, Tick(-1)).published is None
