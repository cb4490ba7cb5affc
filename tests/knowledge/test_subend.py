"""The subend: however knowledge comes, it delivers the same; and it asks for what is missing."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.errors import ProtocolError
from gapless.core.identity import Instant
from gapless.core.ticks import Span
from tests.bounds import so_long_as
from tests.knowledge.notation import (
    CONFIG,
    PUBEND,
    event,
    knowledge,
    make_subend,
    ms,
    show,
    span,
    spans,
)

if TYPE_CHECKING:
    from gapless.knowledge.subend import Subend

LIMIT = 24
pieces = st.tuples(st.integers(0, LIMIT - 1), st.integers(1, LIMIT)).map(
    lambda pair: Span(min(pair[0], pair[1] - 1), max(pair[0] + 1, pair[1]))
)
PATIENCE, REPEAT = CONFIG.gap_patience, CONFIG.nack_repeat


def piece(truth: set[int], where: Span) -> str:
    return " ".join([str(where), *(f"D{tick}" for tick in sorted(truth) if tick in where)])


def tell(machine: Subend, text: str, now: int = 0) -> list[str]:
    nacks = machine.receive_knowledge(knowledge(text), Instant(now))
    machine.check()
    return [show(nack) for nack in nacks]


def fire(machine: Subend, now: int) -> list[str]:
    nacks = machine.fire(Instant(now))
    machine.check()
    return [show(nack) for nack in nacks]


def take(machine: Subend, now: int = 0) -> list[int]:
    settled = machine.take(machine.horizon, Instant(now))
    machine.check()
    assert settled.events == [event(tick) for tick in settled.ticks]
    return settled.ticks


@given(st.sets(st.integers(0, LIMIT - 1)), st.lists(pieces, max_size=20), st.data())
def test_any_arrival_order_split_and_repetition_delivers_the_same(
    truth: set[int], told: list[Span], draw: st.DataObject
) -> None:
    machine, got = make_subend(), list[int]()
    rest = [Span(low, low + 4) for low in range(0, LIMIT, 4)]
    for now, where in enumerate(draw.draw(st.permutations(told + rest))):
        tell(machine, piece(truth, where), now)
        got += take(machine, now)
        assert got == sorted(tick for tick in truth if tick < machine.horizon)
    assert got == sorted(truth)
    assert machine.horizon == LIMIT


@given(
    st.sets(st.integers(0, LIMIT - 1)), st.lists(pieces, max_size=6), st.integers(1, 3), st.data()
)
def test_with_any_losses_and_little_room_it_asks_until_it_has_all(
    truth: set[int], told: list[Span], room: int, draw: st.DataObject
) -> None:
    """Answers may be partial, too; after a bounded number of questions everything is there."""
    machine, got, now = make_subend(waiting_events_max=room, nack_spans_max=2), list[int](), 0
    for where in [*told, Span(LIMIT - 1, LIMIT)]:
        tell(machine, piece(truth, where), now)
        got += take(machine, now)
    for _ in range(12 * LIMIT):
        if machine.deadline is None:
            break
        now = max(now, machine.deadline)
        for nack in machine.fire(Instant(now)):
            for where in nack.spans:
                end = draw.draw(st.integers(where.start + 1, where.end))
                tell(machine, piece(truth, Span(where.start, end)) + " asked", now)
        got += take(machine, now)
    assert got == sorted(truth)
    assert machine.horizon == LIMIT


def test_nothing_past_a_gap_is_delivered() -> None:
    machine = make_subend()
    tell(machine, "[0,5) D2")
    tell(machine, "[8,10) D9")
    assert take(machine) == [2]
    assert (machine.horizon, machine.seen) == (5, 10)
    tell(machine, "[5,8) D6")
    assert take(machine) == [6, 9]


def test_a_gap_is_asked_for_when_patience_ends_and_not_before() -> None:
    machine = make_subend()
    tell(machine, "[5,8)", now=ms(1))
    assert machine.deadline == ms(1) + PATIENCE
    assert fire(machine, ms(1) + PATIENCE - 1) == []
    assert fire(machine, ms(1) + PATIENCE) == ["nack [0,5)"]


def test_a_gap_that_closes_by_itself_is_never_asked_for() -> None:
    machine = make_subend()
    tell(machine, "[5,8)")
    tell(machine, "[0,5)", now=ms(10))
    assert fire(machine, PATIENCE) == []
    assert machine.deadline is None


def test_only_what_is_still_unknown_is_asked_for() -> None:
    machine = make_subend()
    tell(machine, "[9,10)")
    tell(machine, "[2,4) D3")
    assert fire(machine, PATIENCE) == ["nack [0,2) [4,9)"]


def test_an_unanswered_question_is_repeated_ever_more_rarely() -> None:
    machine = make_subend(nack_repeat_longest=4 * REPEAT)
    tell(machine, "[5,8)")
    asked, now = list[int](), 0
    for _ in so_long_as(lambda: len(asked) < 5):
        assert machine.deadline is not None
        now = machine.deadline
        if fire(machine, now):
            asked.append(now)
    waits = [later - earlier for earlier, later in itertools.pairwise(asked)]
    assert waits == [REPEAT, 2 * REPEAT, 4 * REPEAT, 4 * REPEAT]


def test_being_called_early_does_not_repeat_a_question() -> None:
    """A node calls all its machines when one of them is due."""
    machine = make_subend()
    tell(machine, "[5,8)")
    assert fire(machine, PATIENCE) == ["nack [0,5)"]
    assert fire(machine, PATIENCE + ms(1)) == []
    assert machine.deadline == PATIENCE + REPEAT


def test_progress_makes_it_ask_often_again() -> None:
    machine = make_subend()
    tell(machine, "[5,8)")
    for now in (PATIENCE, PATIENCE + REPEAT, PATIENCE + 3 * REPEAT):
        assert fire(machine, now) == ["nack [0,5)"]
    now = PATIENCE + 3 * REPEAT
    tell(machine, "[0,2) asked", now)
    assert fire(machine, now + 4 * REPEAT) == ["nack [2,5)"]
    assert fire(machine, now + 5 * REPEAT) == []
    assert fire(machine, now + 6 * REPEAT) == ["nack [2,5)"]


def test_a_long_list_of_gaps_is_asked_for_in_pieces_each_when_the_last_has_come() -> None:
    machine = make_subend(nack_spans_max=2)
    for where in ("[1,2)", "[3,4)", "[5,6)", "[7,8)"):
        tell(machine, where)
    assert fire(machine, PATIENCE) == ["nack [0,1) [2,3)"]
    assert tell(machine, "[0,1) D0 asked", PATIENCE) == []
    assert take(machine, PATIENCE) == [0]
    assert tell(machine, "[2,3) asked", PATIENCE) == ["nack [4,5) [6,7)"]


def test_an_expected_tick_is_asked_for_at_once() -> None:
    machine = make_subend()
    tell(machine, "[0,5)")
    assert [show(nack) for nack in machine.expect(9, Instant(0))] == ["nack [5,9)"]
    machine.check()
    assert machine.expect(5, Instant(0)) != []
    tell(machine, "[5,9) D8 asked")
    assert machine.expect(9, Instant(0)) == []
    assert take(machine) == [8]


def test_what_waits_is_bounded_and_the_rest_is_asked_for_when_there_is_room() -> None:
    machine = make_subend(waiting_events_max=2)
    tell(machine, "[5,10) D5 D6 D7 D8")
    assert machine.stream.event_count == 2
    assert fire(machine, PATIENCE) == ["nack [0,5)"]
    tell(machine, "[0,5) asked", PATIENCE)
    assert take(machine, PATIENCE) == [5, 6]
    assert fire(machine, 2 * PATIENCE) == ["nack [7,10)"]
    tell(machine, "[7,10) D7 D8 asked", 2 * PATIENCE)
    assert take(machine, 2 * PATIENCE) == [7, 8]
    assert fire(machine, 100 * REPEAT) == []
    assert machine.deadline is None


def test_lost_spans_are_told_as_such_in_their_place() -> None:
    machine = make_subend()
    tell(machine, "[0,8) D6 lost<4 asked")
    settled = machine.take(5, Instant(0))
    assert (settled.ticks, settled.lost) == ([], [(PUBEND, span("[0,4)"))])
    assert machine.take(8, Instant(0)).lost == []


def test_final_ticks_are_silence_and_end_the_gap() -> None:
    machine = make_subend()
    tell(machine, "[5,8) D6")
    tell(machine, "[0,5) final<5 asked")
    settled = machine.take(8, Instant(0))
    assert (settled.ticks, settled.lost) == ([6], [])


def test_what_was_delivered_is_never_called_lost_afterwards() -> None:
    machine = make_subend()
    tell(machine, "[0,4) D2")
    tell(machine, "[0,8) lost<6 asked")
    settled = machine.take(8, Instant(0))
    assert (settled.ticks, settled.lost) == ([2], [(PUBEND, span("[4,6)"))])


@pytest.mark.parametrize("text", ["[0,9) D3:other D8", "[0,9) D3:other D8 lost<2 asked"])
def test_a_contradicting_event_changes_nothing(text: str) -> None:
    machine = make_subend()
    tell(machine, "[2,4) D3")
    before = (machine.horizon, machine.seen, machine.deadline, list(machine.stream.known))
    with pytest.raises(ProtocolError, match="tick 3"):
        machine.receive_knowledge(knowledge(text), Instant(5))
    after = (machine.horizon, machine.seen, machine.deadline, list(machine.stream.known))
    assert before == after


def test_it_starts_where_it_is_told() -> None:
    machine = make_subend(start=10)
    tell(machine, "[5,12) D6 D11")
    assert take(machine) == [11]
    assert list(machine.stream.known) == spans("")


def test_when_there_is_more_the_next_question_follows_at_once() -> None:
    machine = make_subend()
    tell(machine, "[10,11)")
    assert fire(machine, PATIENCE) == ["nack [0,10)"]
    assert tell(machine, "[0,4) asked more", PATIENCE + 1) == ["nack [4,10)"]
    assert tell(machine, "[4,10) asked", PATIENCE + 2) == []


def test_what_waits_is_bounded_in_bytes() -> None:
    machine = make_subend(waiting_bytes_max=5)
    tell(machine, "[2,9) D3 D5 D7")
    assert machine.stream.size == 4
    assert machine.stream.end == 7, "the newest was let go of, with all after it"


def test_an_answer_without_room_for_it_is_not_followed_by_the_same_question() -> None:
    """Found by seeds 100113 and 100135: a full subend and its relay asked and answered for ever."""
    machine = make_subend(waiting_events_max=1)
    tell(machine, "[5,6) D5")
    assert fire(machine, PATIENCE) == ["nack [0,5)"]
    assert tell(machine, "[8,9) D8 asked more", PATIENCE) == []
    assert machine.deadline is not None, "it will be asked for when the gap has closed"
