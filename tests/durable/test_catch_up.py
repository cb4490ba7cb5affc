"""One subscriber's way back: what it asks for, how much of it, and what it tells of losses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gapless.core.identity import Instant
from gapless.core.ticks import Span
from gapless.durable.catch_up import CatchUp, CatchUpSource, LostSpan, Taker
from gapless.durable.filtered_log import FilteredLog
from gapless.testing.memory_volume import MemoryVolume
from tests.durable.stand import limits
from tests.knowledge.notation import PUBEND, event, knowledge, show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.durable.consolidated import SubscriptionBatch

TAKER = 1


def make_log(*ticks: int, end: int, start: int = 0, **changes: int) -> FilteredLog:
    """A log in which the taker wants these ticks, and another one all."""
    volume = MemoryVolume()
    log = FilteredLog(PUBEND, volume, limits(**changes))
    takers = [[TAKER, 2] if tick in ticks else [2] for tick in range(end)]
    volume.commit(log.write(range(end), takers, end))
    log.persisted()
    chop = log.chop(start)
    if chop:
        volume.commit([chop])
    return log


class Stand:
    """A catch-up whose questions and deliveries are shown as text."""

    def __init__(self, log: FilteredLog, start: int = 0, **options: Any) -> None:
        self.latest = log.end
        names = ("since", "matches")
        taker = Taker(TAKER, **{name: options.pop(name) for name in names if name in options})
        self.machine = CatchUp(taker, start, CatchUpSource(log, **options), log.timing)
        self.nacks: list[str] = []

    def go(self, credit: int = 100, now: int = 0) -> list[str]:
        """What is delivered: `D3 D5 |9` for events, then the position; `gap [3,5)`."""
        pieces, nacks = self.machine.advance(self.latest, credit, Instant(now))
        self.machine.check()
        self.nacks += map(show, nacks)
        return [self.show(piece) for piece in pieces]

    def show(self, piece: SubscriptionBatch | LostSpan) -> str:
        if isinstance(piece, LostSpan):
            return f"gap {piece.span}"
        assert piece.events == [event(tick) for tick in piece.ticks]
        return " ".join([*(f"D{tick}" for tick in piece.ticks), f"|{piece.through}"])

    def tell(self, *texts: str) -> None:
        for text in texts:
            nacks = self.machine.receive_knowledge(knowledge(text), Instant(0))
            self.machine.check()
            self.nacks += map(show, nacks)

    def asked(self) -> list[str]:
        nacks, self.nacks = self.nacks, []
        return nacks

    @property
    def is_done(self) -> bool:
        return self.machine.is_done(self.latest)


def test_exactly_the_wanted_ticks_are_asked_for_and_the_rest_is_silence() -> None:
    stand = Stand(make_log(3, 4, 7, end=10))
    assert stand.go() == ["|3"]
    assert stand.asked() == ["nack [3,5) [7,8)"]
    stand.tell("[7,8) D7")
    assert stand.go() == []
    stand.tell("[3,5) D3 D4")
    assert stand.go() == ["D3 D4 D7 |10"]
    assert stand.is_done


def test_answers_may_come_in_any_order_twice_and_with_others_between() -> None:
    stand = Stand(make_log(1, 3, 5, 6, 8, end=10))
    assert stand.go() == ["|1"]
    stand.tell("[6,7) D6", "[3,4) D3", "[6,7) D6")
    assert stand.go() == []
    stand.tell("[3,4) D3", "[4,6) D4 D5")
    assert stand.go() == []
    assert stand.asked() == ["nack [1,2) [3,4) [5,7) [8,9)"]
    stand.tell("[1,2) D1")
    assert stand.go() == ["D1 D3 D5 D6 |8"]
    stand.tell("[8,9) D8")
    assert stand.go() == ["D8 |10"]
    assert stand.asked() == []
    assert stand.is_done


def test_of_scattered_events_the_wanted_are_taken_and_nothing_else_is_learnt() -> None:
    stand = Stand(make_log(1, 3, 5, 8, end=10))
    assert stand.go() == ["|1"]
    stand.tell("[1,8) D1 D4 D5 D7 asked scattered")
    assert stand.go() == ["D1 |3"]
    stand.tell("[3,9) D3 D5 D8 asked scattered")
    assert stand.go() == ["D3 D5 D8 |10"]
    assert stand.is_done


def test_what_has_arrived_is_not_asked_for_again() -> None:
    stand = Stand(make_log(1, 3, 5, end=10))
    stand.go()
    stand.tell("[3,4) D3")
    due = stand.machine.deadline
    assert due is not None
    assert [show(nack) for nack in stand.machine.fire(due)] == ["nack [1,2) [5,6)"]


def test_no_more_is_asked_for_than_one_question_takes() -> None:
    stand = Stand(make_log(1, 3, 5, end=10, nack_spans_max=2))
    assert stand.go() == ["|1"]
    stand.tell("[1,2) D1", "[3,4) D3")
    assert stand.go() == ["D1 D3 |5"]
    assert stand.asked() == ["nack [1,2) [3,4)", "nack [5,6)"]


def test_one_that_wants_nothing_is_done_at_once() -> None:
    stand = Stand(make_log(end=10), start=4)
    assert stand.go() == ["|10"]
    assert stand.asked() == []
    assert stand.is_done


def test_one_that_is_ahead_has_nothing_to_catch_up_with() -> None:
    stand = Stand(make_log(3, end=10), start=12)
    assert stand.is_done
    assert stand.go() == []


def test_no_more_is_asked_for_than_the_window_takes() -> None:
    stand = Stand(make_log(*range(10), end=10, catch_up_window=4))
    stand.go()
    assert stand.asked() == ["nack [0,4)"]
    stand.tell("[0,4) D0 D1 D2 D3")
    assert stand.go() == ["D0 D1 D2 D3 |4"]
    assert stand.asked() == ["nack [4,8)"]


def test_no_more_is_asked_for_than_the_client_has_credit_for() -> None:
    stand = Stand(make_log(*range(10), end=10))
    stand.go(credit=0)
    assert stand.asked() == []
    stand.go(credit=2)
    assert stand.asked() == ["nack [0,2)"]
    stand.tell("[0,2) D0 D1")
    assert stand.go(credit=1) == ["D0 |1"]
    assert stand.go(credit=0) == []
    assert stand.asked() == []
    assert stand.go(credit=3) == ["D1 |2"]
    assert stand.asked() == ["nack [2,4)"]


def test_what_was_not_asked_for_is_not_delivered() -> None:
    """Answers to others may come by: with events for others, or beyond the window."""
    stand = Stand(make_log(3, 6, end=10, catch_up_window=1))
    stand.go()
    stand.tell("[0,10) D3 D4 D5 D6")
    assert stand.go() == ["D3 |6"]
    assert stand.asked() == ["nack [3,4)", "nack [6,7)"]


def test_when_the_stream_has_moved_on_the_log_is_read_again() -> None:
    log = make_log(3, end=10)
    stand = Stand(log)
    stand.go()
    store = log.store
    assert isinstance(store, MemoryVolume)
    store.commit(log.write([12, 15], [[TAKER], [2]], 20))
    log.persisted()
    stand.latest = log.end
    stand.tell("[3,4) D3")
    assert stand.go() == ["D3 |10", "|12"]
    assert not stand.is_done
    assert stand.asked() == ["nack [3,4)", "nack [12,13)"]
    stand.tell("[12,13) D12")
    assert stand.go() == ["D12 |20"]
    assert stand.is_done


def test_a_question_without_an_answer_is_repeated() -> None:
    stand = Stand(make_log(3, end=10))
    stand.go()
    due = stand.machine.deadline
    assert due is not None
    assert [show(nack) for nack in stand.machine.fire(due)] == ["nack [3,4)"]


@pytest.mark.parametrize("word", ["lost", "final"])
def test_what_is_lost_in_a_row_is_one_gap_whatever_pieces_the_news_comes_in(word: str) -> None:
    """Final is lost too: whoever says so did not count on one who still wants it."""
    stand = Stand(make_log(2, 4, 5, 8, end=10))
    assert stand.go() == ["|2"]
    for text in ("[2,3)", "[4,5)", "[5,6)"):
        stand.tell(f"{text} {word}<6")
        assert stand.go() == [], "the loss may go on"
    stand.tell("[8,9) D8")
    assert stand.go() == ["gap [2,6)", "D8 |10"]


def test_losses_with_an_event_between_them_are_two_gaps() -> None:
    stand = Stand(make_log(2, 4, 6, 8, end=10))
    stand.go()
    stand.tell("[4,5) D4", "[2,3) lost<3", "[6,7) lost<7", "[8,9) D8")
    assert stand.go() == ["gap [2,3)", "D4 |6", "gap [6,7)", "D8 |10"]


def test_a_gap_at_the_end_is_told_before_the_switch_over() -> None:
    stand = Stand(make_log(2, 8, end=10))
    stand.go()
    stand.tell("[2,3) lost<10", "[8,9) lost<10")
    assert stand.go() == ["gap [2,9)", "|10"]
    assert stand.is_done


def test_what_is_known_to_be_lost_is_not_asked_for_any_more() -> None:
    stand = Stand(make_log(*range(1, 9), end=10, catch_up_window=2))
    stand.go()
    stand.tell("[1,3) lost<8")
    assert stand.go() == []
    assert stand.asked() == ["nack [1,3)", "nack [8,9)"]
    stand.tell("[8,9) D8")
    assert stand.go() == ["gap [1,8)", "D8 |10"]


def test_what_the_log_has_chopped_is_a_gap_without_asking() -> None:
    stand = Stand(make_log(2, 7, end=10, start=6))
    assert stand.go() == []
    assert stand.asked() == ["nack [7,8)"]
    stand.tell("[7,8) D7")
    assert stand.go() == ["gap [0,6)", "D7 |10"]


def even(_: Any, events: Any) -> list[int]:
    return [i for i, each in enumerate(events) if int(each[1:]) % 2 == 0]


def test_what_the_log_does_not_know_is_asked_for_as_a_whole_and_filtered_here() -> None:
    stand = Stand(make_log(7, 9, end=10), since=6, matches=even)
    pieces, [nack] = stand.machine.advance(10, 100, Instant(0))
    assert pieces == []
    assert (nack.spans, nack.minimum) == ((Span(0, 6),), {})
    stand.tell("[0,6) D1 D2 D4 D5")
    assert stand.go() == ["D2 D4 |6", "|7"]
    assert stand.asked() == ["nack [7,8) [9,10)"], "from there on the log knows"
    stand.tell("[7,8) D7", "[9,10) D9")
    assert stand.go() == ["D7 D9 |10"]


def test_beyond_what_the_log_does_not_know_nothing_is_asked_for_twice() -> None:
    stand = Stand(make_log(5, 7, end=10), since=4, matches=even)
    stand.go()
    stand.tell("[0,4) D2")
    stand.go()
    stand.asked()
    stand.tell("[5,6) D5")
    assert stand.go() == ["D5 |7"]
    assert stand.asked() == []


def test_a_whole_that_is_more_than_the_window_is_asked_for_again_when_there_is_room() -> None:
    stand = Stand(make_log(end=10, catch_up_window=2), since=10, matches=even)
    stand.go()
    assert stand.asked() == ["nack [0,10)"]
    stand.tell("[0,10) D0 D2 D4 D6 D8")
    assert stand.go() == ["D0 D2 |4"]
    assert stand.asked() == ["nack [4,10)"]
    stand.tell("[4,10) D4 D6 D8")
    assert stand.go() == ["D4 D6 |8"]
    stand.tell("[8,10) D8")
    assert stand.go() == ["D8 |10"]


def test_a_loss_reaches_into_what_the_log_does_not_know() -> None:
    stand = Stand(make_log(end=10), since=10, matches=even)
    stand.go()
    stand.tell("[0,4) lost<4", "[4,10) D4 D5")
    assert stand.go() == ["gap [0,4)", "D4 |10"]


def test_a_subscription_newer_than_the_durable_position_is_not_done_before_its_beginning() -> None:
    """After a crash the consolidated stream goes on from before the subscription was made."""
    stand = Stand(make_log(end=4), start=5, since=10, matches=even)
    assert not stand.is_done
    stand.go()
    assert stand.asked() == ["nack [5,10)"]
    stand.tell("[5,10) D6 D7")
    assert stand.go() == ["D6 |10"]
    assert stand.is_done


def test_a_log_with_more_to_look_at_than_one_read_may_is_read_in_several_steps() -> None:
    log = make_log(*range(9), end=10, filtered_walk_max=4)
    stand = Stand(log)
    for _ in range(2):
        assert stand.go() == []
        assert stand.machine.deadline == 1, "to be called again at once, in a step of its own"
    stand.go()
    assert stand.asked() == ["nack [0,1)"]
    stand.tell("[0,1) D0")
    assert stand.go() == ["D0 |1"]
    assert stand.asked() == ["nack [1,5)"]


def test_events_too_large_to_wait_together_are_asked_for_one_after_the_other() -> None:
    """What is let go of is not mistaken for silence, nor silence for something wanted."""
    log = make_log(1, 3, end=5, waiting_bytes_max=3)
    stand, got = Stand(log), list[str]()
    got += stand.go()
    stand.tell("[1,2) D1", "[3,4) D3")
    got += stand.go()
    due = stand.machine.deadline
    assert due is not None
    stand.nacks += [show(nack) for nack in stand.machine.fire(due)]
    assert stand.asked()[-1] == "nack [3,5)"
    stand.tell("[3,5) D3 D4")
    assert got + stand.go() == ["|1", "D1 |3", "D3 |5"]


# --- where the pubend's log is at hand ------------------------------------------------------------


class Shelf:
    """Events that are at hand, and which were looked for."""

    def __init__(self, *ticks: int, at_once: int = 100) -> None:
        self.ticks = ticks
        self.at_once = at_once
        self.looked: list[list[int]] = []

    def fetch(self, ticks: Sequence[int]) -> list[bytes | None]:
        self.looked.append(list(ticks))
        found = [event(tick) if tick in self.ticks else None for tick in ticks]
        return found[: self.at_once]


def test_what_is_at_hand_is_taken_and_not_asked_for() -> None:
    shelf = Shelf(3, 4, 7)
    stand = Stand(make_log(3, 4, 7, end=10), fetch=shelf.fetch)
    assert stand.go() == ["D3 D4 D7 |10"]
    assert stand.is_done
    assert stand.asked() == []
    assert shelf.looked == [[3, 4, 7]]
    assert stand.machine.open_count == 0


def test_what_is_not_at_hand_is_asked_for() -> None:
    stand = Stand(make_log(1, 3, 5, 7, end=10), fetch=Shelf(3, 7).fetch)
    assert stand.go() == ["|1"]
    assert stand.asked() == ["nack [1,2) [5,6)"]
    stand.tell("[1,2) D1 asked scattered")
    assert stand.go() == ["D1 D3 |5"]
    stand.tell("[5,6) lost<6 asked")
    assert stand.go() == ["gap [5,6)", "D7 |10"]
    assert stand.asked() == []
    assert stand.is_done


def test_what_is_too_much_at_a_time_is_asked_for() -> None:
    stand = Stand(make_log(1, 3, 5, end=10), fetch=Shelf(1, 3, 5, at_once=1).fetch)
    assert stand.go() == ["D1 |3"]
    assert stand.asked() == ["nack [3,4) [5,6)"]


def test_more_than_one_question_takes_is_at_hand_in_one_window() -> None:
    log = make_log(*range(10), end=10, nack_spans_max=2, catch_up_window=8)
    shelf = Shelf(*range(10))
    stand = Stand(log, fetch=shelf.fetch)
    turns = [(stand.go(), stand.machine.is_waiting) for _ in range(2)]
    assert turns == [(["D0 D1 D2 D3 D4 D5 D6 D7 |8"], True), (["D8 D9 |10"], False)]
    assert shelf.looked == [[*range(8)], [8, 9]]


def test_no_more_is_taken_than_there_is_credit_or_room_for() -> None:
    stand = Stand(make_log(*range(10), end=10), fetch=Shelf(*range(10)).fetch)
    assert stand.go(credit=5) == ["D0 D1 D2 |3"], "half of it is for others"
    assert stand.go(credit=0) == []
    assert not stand.machine.is_waiting, "its client has no room: it is not its turn that it lacks"
    pieces, nacks = stand.machine.advance(stand.latest, 100, Instant(0), room=2)
    assert [stand.show(piece) for piece in pieces] == ["D3 D4 |5"]
    assert nacks == []
    assert stand.machine.advance(stand.latest, 100, Instant(0), room=0) == ([], [])
    assert stand.machine.is_waiting


# --- what was released ----------------------------------------------------------------------------


def test_where_it_is_known_what_was_released_that_is_one_gap_and_nobody_is_asked() -> None:
    log = make_log(*range(1, 1_000, 2), end=1_000)
    stand = Stand(log, released=lambda: 996)
    assert stand.go() == [], "the loss may go on"
    assert stand.asked() == ["nack [997,998) [999,1000)"]
    assert log.reads == 2
    stand.tell("[997,998) D997", "[999,1000) D999")
    assert stand.go() == ["gap [0,996)", "D997 D999 |1000"]


def test_one_that_wanted_nothing_of_what_was_released_has_lost_nothing() -> None:
    stand = Stand(make_log(1, 8, end=10), start=2, released=lambda: 7)
    assert stand.go() == ["|8"]
    assert stand.asked() == ["nack [8,9)"]


def test_what_is_released_meanwhile_is_not_asked_for() -> None:
    released = [0]
    log = make_log(*range(1, 20, 2), end=20, catch_up_window=2)
    stand = Stand(log, released=lambda: released[0])
    stand.go()
    assert stand.asked() == ["nack [1,2) [3,4)"]
    released[0] = 16
    stand.tell("[1,2) D1", "[3,4) D3")
    assert stand.go() == ["D1 D3 |5"]
    assert stand.asked() == ["nack [17,18) [19,20)"]
    stand.tell("[17,18) D17", "[19,20) D19")
    assert stand.go() == ["gap [5,16)", "D17 D19 |20"]


def test_an_answer_that_tells_how_much_is_lost_ends_the_window_and_what_follows_it() -> None:
    log = make_log(*range(1, 20, 2), end=20, catch_up_window=3, filtered_read_max=4)
    stand = Stand(log)
    stand.go()
    assert stand.asked() == ["nack [1,2) [3,4) [5,6)"]
    stand.tell("[1,2) lost<14 asked catching-up")
    assert stand.go() == []
    assert stand.asked() == ["nack [15,16) [17,18) [19,20)"]
    stand.tell("[15,20) D15 D17 D19")
    assert stand.go() == ["gap [1,14)", "D15 D17 D19 |20"]


def test_an_event_that_has_arrived_stays_where_all_around_it_is_lost() -> None:
    stand = Stand(make_log(1, 3, 5, 7, end=10))
    stand.go()
    stand.tell("[3,4) D3", "[1,2) lost<6 asked catching-up", "[7,8) D7")
    assert stand.go() == ["gap [1,2)", "D3 |5", "gap [5,6)", "D7 |10"]
