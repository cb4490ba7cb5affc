"""The relay within its bounds: what it caches, answers at once, and remembers of questions."""

from __future__ import annotations

from gapless.core.identity import Instant
from tests.knowledge.notation import make_relay, show_out
from tests.knowledge.relay_steps import ask, tell


def test_the_cache_and_the_messages_are_bounded_in_bytes_too() -> None:
    machine = make_relay("all", cache_bytes_max=10, batch_bytes_max=8)
    assert tell(machine, "[0,5) D1:12345 D2:12345 D3:1") == [
        "all: [0,2) D1:12345",
        "all: [2,5) D2:12345 D3:1",
    ]
    assert machine.stream.size == 6


def test_a_long_answer_ends_with_word_that_there_is_more() -> None:
    machine = make_relay("all", answer_bytes_max=4)
    tell(machine, "[0,9) D1 D2 D3 D6")
    assert ask(machine, "all", "[0,4) [5,8)") == ["*all1: [0,3) D1 D2 asked more"]
    assert ask(machine, "all", "[3,4) [5,8)") == [
        "*all1: [3,4) D3 asked",
        "*all1: [5,8) D6 asked",
    ]


def test_after_word_that_there_is_more_the_rest_may_be_asked_for_at_once() -> None:
    machine = make_relay("all")
    assert ask(machine, "all", "[0,9)") == ["above: nack [0,9)"]
    assert ask(machine, "all", "[0,9)") == [], "held back: the question is out"
    assert tell(machine, "[0,3) D1 asked more") == ["*all1: [0,3) D1 asked more"]
    assert ask(machine, "all", "[3,9)") == ["above: nack [3,9)"]


def test_a_long_answer_does_not_keep_what_lies_before_it_from_being_asked_for() -> None:
    """Found by seed 1118: the part below a cut answer was neither answered nor asked for."""
    machine = make_relay("all", answer_bytes_max=4)
    tell(machine, "[5,9) D5 D6 D7")
    assert ask(machine, "all", "[0,9)") == [
        "*all1: [5,7) D5 D6 asked more",
        "above: nack [0,5)",
    ]
    assert ask(machine, "all", "[0,5) [7,9)") == ["*all1: [7,9) D7 asked"], "[0,5) is being asked"


def test_word_that_there_is_more_leaves_the_questions_before_it_out() -> None:
    machine = make_relay("all")
    ask(machine, "all", "[0,9)")
    tell(machine, "[5,7) D5 asked more")
    assert ask(machine, "all", "[0,5) [7,9)") == ["above: nack [7,9)"]


def test_open_questions_can_be_put_again_at_once() -> None:
    machine = make_relay("all", "red")
    ask(machine, "all", "[0,5)")
    ask(machine, "red", "[3,9)")
    assert show_out(machine.ask_again(Instant(1))) == ["above: nack [0,9)"]
    tell(machine, "[0,9) asked")
    assert machine.ask_again(Instant(2)) == []


def test_open_questions_of_every_purpose_are_put_again() -> None:
    """The member of the cell above that was asked may be dead: catch-ups need its answer too."""
    machine = make_relay("all")
    for purpose in ("", " catching-up", " whole"):
        ask(machine, "all", f"[0,5){purpose}")
    assert show_out(machine.ask_again(Instant(1))) == [
        "above: nack [0,5)",
        "above: nack [0,5) catching-up",
        "above: nack [0,5) whole",
    ]


def test_only_so_many_questions_of_a_neighbour_are_remembered() -> None:
    machine = make_relay("all", nack_spans_max=2)
    ask(machine, "all", "[0,1) [2,3) [4,5)")
    assert tell(machine, "[0,9) asked") == ["*all1: [0,1) asked", "*all1: [2,3) asked"]


def test_what_a_neighbour_has_just_asked_is_remembered_before_its_older_questions() -> None:
    """It may have had the answers to those from another broker, and never asks again."""
    machine = make_relay("all", nack_spans_max=2)
    ask(machine, "all", "[0,1) [2,3)")
    ask(machine, "all", "[6,7)")
    assert tell(machine, "[0,9) asked") == ["*all1: [0,1) asked", "*all1: [6,7) asked"]
