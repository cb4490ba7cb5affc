"""Silence where the filtered log knows of an event: only the pubend's own word makes it a loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gapless.core.identity import Instant
from gapless.testing.memory_volume import MemoryVolume
from tests.durable.test_catch_up import Stand, even, make_log
from tests.knowledge.notation import knowledge, show

if TYPE_CHECKING:
    from gapless.core.broker_messages import Nack
    from gapless.durable.filtered_log import FilteredLog


class Court(Stand):
    """The same, which shows what is asked of the pubend itself as `whole`."""

    def __init__(self, log: FilteredLog, **options: Any) -> None:
        super().__init__(log, **options)
        self.delivered: list[str] = []

    def proceed(self, *texts: str) -> list[str]:
        """Learn this and go on; what is asked then."""
        nacks = [
            nack
            for text in texts
            for nack in self.machine.receive_knowledge(knowledge(text), Instant(0))
        ]
        pieces, more = self.machine.advance(self.latest, 100, Instant(0))
        self.machine.check()
        self.delivered += map(self.show, pieces)
        return [self.ask(nack) for nack in [*nacks, *more]]

    def repeat(self) -> list[str]:
        due = self.machine.deadline
        assert due is not None
        return [self.ask(nack) for nack in self.machine.fire(due)]

    def ask(self, nack: Nack) -> str:
        return show(nack) + (" whole" if nack.minimum is not None else "")


def test_silence_where_an_event_was_is_doubted_and_lost_when_the_pubend_says_so_too() -> None:
    court = Court(make_log(2, 5, 8, end=10))
    assert court.proceed() == ["nack [2,3) [5,6) [8,9)"]
    asked = court.proceed("[2,3) catching-up", "[5,6) catching-up", "[8,9) D8 catching-up")
    assert asked == ["nack [2,3) [5,6) whole"]
    assert court.delivered == ["|2"], "nothing is believed yet"
    assert court.proceed("[2,3) whole", "[5,6) whole") == []
    assert court.delivered == ["|2", "gap [2,6)", "D8 |10"]
    assert court.is_done


def test_a_cache_that_was_mistaken_loses_nothing() -> None:
    court = Court(make_log(2, 5, end=10))
    court.proceed()
    assert court.proceed("[0,10) catching-up") == ["nack [2,3) [5,6) whole"]
    court.proceed("[2,3) D2 whole", "[5,6) D5 whole")
    assert court.delivered == ["|2", "D2 D5 |10"]


def test_what_some_cache_still_has_is_delivered_though_the_pubend_has_lost_it() -> None:
    """Others who asked the pubend itself are answered first: that is not heard here."""
    court = Court(make_log(2, 5, end=10))
    court.proceed()
    assert court.proceed("[2,3) whole") == ["nack [2,3) whole"]
    court.proceed("[2,6) D2 D5 asked scattered catching-up")
    assert court.delivered == ["|2", "D2 D5 |10"]


def test_the_next_window_is_asked_of_caches_first_again() -> None:
    court = Court(make_log(2, 5, end=10, catch_up_window=1))
    court.proceed()
    court.proceed("[2,3) catching-up")
    assert court.proceed("[2,3) whole") == ["nack [5,6)"]
    assert court.proceed("[5,6) D5 catching-up") == []
    assert court.delivered == ["|2", "gap [2,3)", "D5 |10"]


def test_a_question_that_is_repeated_goes_where_it_went() -> None:
    court = Court(make_log(2, 3, 8, end=10))
    court.proceed()
    assert court.proceed("[3,4) catching-up") == ["nack [3,4) whole"]
    assert court.repeat() == ["nack [3,4) whole", "nack [2,3) [8,9)"]
    assert court.proceed("[3,4) catching-up") == [], "it is asked for already"
    court.proceed("[2,3) D2 catching-up", "[8,9) D8", "[3,4) whole")
    assert court.delivered == ["|2", "D2 |3", "gap [3,4)", "D8 |10"]


def test_more_than_one_question_takes_is_asked_for_when_it_is_repeated() -> None:
    log = make_log(1, 3, 5, end=10, nack_spans_max=2)
    court = Court(log, fetch=lambda ticks: [None] * len(ticks))
    assert court.proceed() == ["nack [1,2) [3,4)"]
    assert court.proceed("[0,10) catching-up") == ["nack [1,2) [3,4) whole"]
    assert court.proceed("[1,2) whole", "[3,4) whole") == ["nack [5,6) whole"]
    court.proceed("[5,6) whole")
    assert court.delivered == ["|1", "gap [1,6)", "|10"]


def test_silence_is_silence_where_the_log_knows_of_no_event() -> None:
    """Before `since` it knows nothing, and between wanted ticks there is nothing."""
    court = Court(make_log(7, end=10), since=6, matches=even)
    assert court.proceed() == ["nack [0,6) whole"]
    assert court.proceed("[0,6) D4 whole") == ["nack [7,8) whole"]
    court.proceed("[6,10) D7 whole")
    assert court.delivered == ["D4 |6", "|7", "D7 |10"]


def test_one_that_asks_the_pubend_for_everything_need_not_ask_twice() -> None:
    court = Court(make_log(7, end=10), since=6, matches=even)
    court.proceed()
    court.proceed("[0,6) whole")
    assert court.proceed("[7,8) whole") == []
    assert court.delivered == ["|6", "|7", "gap [7,8)", "|10"]


def test_where_the_filtered_log_is_damaged_the_pubend_itself_is_asked_for_everything() -> None:
    """Caches on the way hold silence that was filtered for others."""
    log = make_log(2, 5, 8, end=10)
    assert isinstance(log.store, MemoryVolume)
    log.store.corrupt(log.stream, 5)
    court = Court(log)
    [question] = court.proceed()
    assert question.endswith(" whole")


def test_what_was_released_needs_no_second_word() -> None:
    court = Court(make_log(2, 5, end=10))
    court.proceed()
    assert court.proceed("[2,3) lost<3 catching-up", "[5,6) D5 catching-up") == []
    assert court.delivered == ["|2", "gap [2,3)", "D5 |10"]
