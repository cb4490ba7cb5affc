"""The relay: what goes on to which cell, what is asked upstream, and what is acknowledged."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gapless.core.errors import ProtocolError
from gapless.core.identity import BrokerName, CellName, Instant
from gapless.core.ticks import PUBEND_BITS, Span
from gapless.knowledge.neighbours import PUBLISHER_ORDER, TOTAL_ORDER
from tests.knowledge.notation import (
    CONFIG,
    ack,
    knowledge,
    make_relay,
    ms,
    show_out,
    spans,
)
from tests.knowledge.relay_steps import acked, ask, tell

if TYPE_CHECKING:
    from gapless.knowledge.relay import Relay

FLUSH, FORGET, ACK_DELAY = CONFIG.silence_flush, CONFIG.nack_forget, CONFIG.ack_delay


# --- knowledge ------------------------------------------------------------------------------------


def test_each_cell_gets_what_passes_its_edge_and_silence_for_the_rest() -> None:
    machine = make_relay("red", "all")
    assert tell(machine, "[0,5) D1:red D3:blue") == [
        "red: [0,5) D1:red",
        "all: [0,5) D1:red D3:blue",
    ]


def test_a_hundred_filtered_events_and_one_match_are_one_message() -> None:
    machine, out = make_relay("red"), list[str]()
    for tick in range(100):
        out += tell(machine, f"[{tick},{tick + 1}) D{tick}:blue", now=tick)
    out += tell(machine, "[100,101) D100:red", now=100)
    assert out == ["red: [0,101) D100:red"]


def test_silence_that_waits_for_no_event_is_sent_after_a_while() -> None:
    machine = make_relay("red")
    assert tell(machine, "[0,4) D1:blue", now=7) == []
    assert tell(machine, "[4,6)", now=8) == []
    assert machine.deadline == 7 + FLUSH
    assert machine.fire(Instant(7 + FLUSH - 1)) == []
    assert show_out(machine.fire(Instant(7 + FLUSH))) == ["red: [0,6)"]
    assert machine.deadline is None


def test_silence_that_fills_a_hole_is_sent_at_once() -> None:
    machine = make_relay("red")
    assert tell(machine, "[5,6) D5:red") == ["red: [5,6) D5:red"]
    assert tell(machine, "[0,5) D1:blue") == ["red: [0,5)"]


def test_within_the_broker_silence_never_waits() -> None:
    machine = make_relay(PUBLISHER_ORDER)
    assert tell(machine, "[0,4)") == ["@publisher-order: [0,4)"]


def test_silence_under_a_higher_digest_does_not_wait() -> None:
    """It is what lets a new subscription start, however idle the topic is."""
    machine = make_relay("all")
    assert tell(machine, "[0,4)") == [], "silence alone waits"
    news = replace(knowledge("[4,6)"), digest=2)
    told = show_out(machine.receive_knowledge(news, Instant(0)))
    machine.check()
    assert told == ["all: [0,4)", "all: [4,6)"], "in order, each under its own digest"
    assert show_out(machine.receive_knowledge(replace(news, span=Span(6, 8)), Instant(0))) == []


def test_what_a_cell_was_told_is_not_told_again() -> None:
    machine = make_relay("all")
    assert tell(machine, "[0,5) D3") == ["all: [0,5) D3"]
    assert tell(machine, "[0,5) D3") == []
    assert tell(machine, "[3,7) D3 D6") == ["all: [5,7) D6"]


def test_many_events_go_out_in_several_messages_that_cover_all() -> None:
    machine = make_relay("all", batch_events_max=2)
    assert tell(machine, "[0,9) D1 D2 D4 D5 D7") == [
        "all: [0,4) D1 D2",
        "all: [4,7) D4 D5",
        "all: [7,9) D7",
    ]


def test_the_cache_is_bounded_and_an_older_question_goes_further_up() -> None:
    machine = make_relay("all", cache_events_max=2)
    tell(machine, "[0,5) D1 D2 D3")
    assert machine.stream.event_count == 2
    assert ask(machine, "all", "[0,3)") == ["*all1: [2,3) D2 asked", "above: nack [0,2)"]


def test_an_answer_from_before_the_cache_passes_through() -> None:
    machine = make_relay("all", "red", cache_events_max=1)
    tell(machine, "[0,5) D1:red D2 D3")
    ask(machine, "all", "[0,3)")
    assert tell(machine, "[0,3) D1:red D2 asked") == ["*all1: [0,3) D1:red D2 asked"]
    assert machine.stream.base == 3


def test_what_a_cell_needs_no_more_is_final_for_it_and_not_asked_upstream() -> None:
    machine = make_relay("red", "all")
    machine.receive_ack(ack("red", 6), Instant(0))
    assert ask(machine, "red", "[0,9)") == ["*red1: [0,6) final<6 asked", "above: nack [6,9)"]
    assert ask(machine, "red", "[2,4)") == ["*red1: [2,4) final<4 asked"]
    assert ask(machine, None, "[0,2)", asker="twin") == ["above: nack [0,2)"]


def test_what_upstream_calls_final_is_passed_on_to_those_who_asked_and_is_not_cached() -> None:
    machine = make_relay("red", "all")
    ask(machine, "all", "[2,9)")
    assert tell(machine, "[2,9) D8 final<5 asked") == [
        "*all1: [2,5) final<5 asked",
        "*all1: [5,9) D8 asked",
    ]
    assert list(machine.stream.known) == spans("[5,9)")


def test_loss_is_told_to_those_who_asked_and_is_not_cached() -> None:
    machine = make_relay("all", "red")
    ask(machine, "all", "[0,6) catching-up")
    ask(machine, "red", "[2,6)")
    assert tell(machine, "[0,6) D5 lost<4 asked catching-up") == [
        "*all1: [0,4) lost<4 asked catching-up",
        "*all1: [4,6) D5 asked catching-up",
        "*red1: [4,6) asked",
    ]
    assert list(machine.stream.known) == spans("[4,6)")
    assert tell(machine, "[0,4) lost<4 asked catching-up") == []
    # To the one who goes on delivering it is not lost but final: that is another answer.
    assert tell(machine, "[0,4) final<4 asked") == ["*red1: [2,4) final<4 asked"]


@pytest.mark.parametrize("text", ["[0,6) D3:other", "[0,6) D3:other lost<2 asked"])
def test_a_contradicting_event_changes_nothing(text: str) -> None:
    machine = make_relay("all")
    ask(machine, "all", "[0,3)")
    tell(machine, "[3,5) D3:blue")
    before = repr(state(machine))
    with pytest.raises(ProtocolError, match="tick 3"):
        machine.receive_knowledge(knowledge(text), Instant(9))
    assert repr(state(machine)) == before


def state(machine: Relay) -> object:
    """All that a relay holds, in a form that compares by value."""
    stream = machine.stream
    return copy.deepcopy(
        (
            machine.outlets,
            vars(machine.questions),
            machine.acked,
            machine.deadline,
            machine.nacks_sent,
        )
    ), (stream.base, list(stream.known), stream.event_count)


# --- curiosity ------------------------------------------------------------------------------------


def test_fifty_cells_that_ask_for_the_same_make_one_question_upstream() -> None:
    cells = [f"cell{i}" for i in range(50)]
    machine = make_relay(*cells)
    out = [line for cell in cells for line in ask(machine, cell, "[0,9)")]
    assert out == ["above: nack [0,9)"]
    answered = tell(machine, "[0,9) asked")
    assert sorted(answered) == sorted(f"*{cell}1: [0,9) asked" for cell in cells)
    assert machine.nacks_sent == 1


def test_a_repeated_question_passes_again_once_the_first_is_forgotten() -> None:
    machine = make_relay("red", "all")
    assert ask(machine, "red", "[0,9)") == ["above: nack [0,9)"]
    assert ask(machine, "all", "[5,12)", now=FORGET - 1) == ["above: nack [9,12)"]
    assert ask(machine, "all", "[5,12)", now=FORGET) == ["above: nack [5,9)"]


def test_an_answer_goes_only_to_those_who_asked() -> None:
    machine = make_relay("red", "all")
    ask(machine, "red", "[0,4)")
    assert tell(machine, "[0,9) D1:red D6:red asked") == ["*red1: [0,4) D1:red asked"]
    assert machine.questions.open_questions == {}


def test_news_goes_on_even_where_part_of_it_was_asked_for() -> None:
    machine = make_relay("red", "all")
    ask(machine, "red", "[0,4)")
    assert tell(machine, "[0,9) D1:red D6:red") == [
        "*red1: [0,4) D1:red",
        "red: [4,9) D6:red",
        "all: [0,9) D1:red D6:red",
    ]


def test_an_answer_passes_the_edge_of_the_cell_that_asked() -> None:
    machine = make_relay("red")
    tell(machine, "[0,9) D1:red D6:blue")
    assert ask(machine, "red", "[0,9)") == ["*red1: [0,9) D1:red asked"]


def test_a_sibling_that_asks_gets_everything() -> None:
    machine = make_relay("red")
    tell(machine, "[0,4) D1:red D2:blue")
    assert ask(machine, None, "[0,6)", asker="twin") == [
        "*twin: [0,4) D1:red D2:blue asked",
        "above: nack [4,6)",
    ]
    assert tell(machine, "[4,6) D5:blue asked") == ["*twin: [4,6) D5:blue asked"]


def test_a_question_has_a_bounded_number_of_spans() -> None:
    machine = make_relay("all", nack_spans_max=2)
    assert ask(machine, "all", "[0,1) [2,3) [4,5)") == ["above: nack [0,1) [2,3)"]
    assert ask(machine, "all", "[4,5)") == ["above: nack [4,5)"]


# --- acknowledgements -----------------------------------------------------------------------------


def test_what_all_cells_have_is_acknowledged_once_and_a_little_later() -> None:
    machine = make_relay("red", "all")
    tell(machine, "[0,9) D1:red D6:red")
    assert acked(machine, "red", 9) == []
    assert acked(machine, "all", 5, now=ms(500)) == ["above: ack 5"]
    assert acked(machine, "all", 9, now=ms(900)) == ["above: ack 9"]


def test_filtered_ticks_need_no_acknowledgement() -> None:
    machine = make_relay("red", "all")
    tell(machine, "[0,4) D1:red D2:blue")
    assert acked(machine, "red", 4) == []
    tell(machine, "[4,9) D6:blue D8:blue")
    assert acked(machine, "all", 9) == ["above: ack 9"]


def test_an_acknowledgement_never_moves_back() -> None:
    machine = make_relay("all")
    tell(machine, "[0,9)")
    assert acked(machine, "all", 9) == ["above: ack 9"]
    machine.receive_ack(ack("all", 4, released=9), Instant(0))
    assert machine.fire(Instant(CONFIG.ack_delay)) == []
    assert machine.acked == 9


def test_what_durable_subscriptions_need_may_move_back_by_a_newer_report() -> None:
    machine = make_relay("all")
    tell(machine, "[0,9)")
    acked(machine, "all", 9)
    assert machine.released == 9
    machine.receive_ack(replace(ack("all", 9, released=3), sequence=2), Instant(0))
    machine.receive_ack(replace(ack("all", 9, released=8), sequence=1), Instant(0))
    assert machine.released == 3
    twins = replace(ack("all", 9, released=9), reporter=BrokerName("twin"))
    machine.receive_ack(twins, Instant(0))
    assert machine.released == 3
    machine.forget_reporter(CellName("all"), BrokerName(""), Instant(0))
    assert machine.released == 9


def test_one_who_catches_up_gets_what_its_cell_has_delivered_long_ago() -> None:
    machine = make_relay("all")
    tell(machine, "[0,9) D1")
    acked(machine, "all", 9)
    assert ask(machine, "all", "[0,3)") == ["*all1: [0,3) final<3 asked"]
    assert ask(machine, "all", "[0,3) catching-up") == ["*all1: [0,3) D1 asked catching-up"]


def test_one_who_wants_the_whole_gets_it_from_the_source_and_unfiltered() -> None:
    machine = make_relay("red")
    tell(machine, "[0,9) D1:blue")
    assert ask(machine, "red", "[0,3) whole") == ["above: nack [0,3) whole"]
    assert tell(machine, "[0,3) D1:blue asked catching-up") == []
    assert tell(machine, "[0,3) D1:blue asked whole") == ["*red1: [0,3) D1:blue asked whole"]


def test_after_a_restart_nothing_is_acknowledged_before_every_cell_was_heard() -> None:
    machine = make_relay("red", "all")
    tell(machine, "[5,9) D8")
    assert acked(machine, "red", 9) == []
    assert machine.acked == -1
    assert acked(machine, "all", 7) == ["above: ack 7"]


def test_with_no_cell_below_all_that_is_known_is_acknowledged() -> None:
    machine = make_relay()
    tell(machine, "[0,9) D4")
    assert show_out(machine.fire(Instant(ACK_DELAY))) == ["above: ack 9"]


def test_an_expected_acknowledgement_is_asked_of_those_who_owe_it() -> None:
    machine = make_relay("red", "all")
    tell(machine, "[0,9) D4:red")
    acked(machine, "red", 9)
    assert show_out(machine.receive_ack_expected(9, Instant(0))) == ["all: ack expected 9"]
    machine.receive_ack(ack("all", 9), Instant(0))
    assert show_out(machine.receive_ack_expected(9, Instant(0))) == ["above: ack 9"]
    assert machine.deadline is None


def test_acknowledged_events_stay_cached_for_a_while() -> None:
    machine = make_relay("all", past_window=2)
    late = 3 << PUBEND_BITS
    tell(machine, f"[0,{late}) D1 D{late - 1}")
    acked(machine, "all", late)
    assert machine.stream.base == 1 << PUBEND_BITS
    assert machine.stream.event_count == 1


def test_what_was_acknowledged_is_no_longer_asked_for() -> None:
    machine = make_relay("all")
    ask(machine, "all", "[0,9)")
    machine.receive_ack(ack("all", 5), Instant(0))
    assert tell(machine, "[0,9) D2 D7 asked") == ["*all1: [5,9) D7 asked"]


def test_a_merge_counts_while_it_is_there() -> None:
    machine = make_relay(PUBLISHER_ORDER)
    tell(machine, "[0,9)")
    machine.receive_ack(ack(PUBLISHER_ORDER, 4), Instant(0))
    machine.add_cell(TOTAL_ORDER, 6)
    machine.check()
    assert acked(machine, PUBLISHER_ORDER, 9) == ["above: ack 6"]
    ask(machine, TOTAL_ORDER, "[9,12)", asker=TOTAL_ORDER)
    machine.remove_cell(TOTAL_ORDER)
    assert machine.questions.open_questions == {}
    assert tell(machine, "[9,12) D10") == ["@publisher-order: [9,12) D10"]
    assert acked(machine, PUBLISHER_ORDER, 12) == ["above: ack 12"]


# --- any order ------------------------------------------------------------------------------------

steps = st.lists(
    st.tuples(
        st.sampled_from(["tell", "tell", "ask", "ack", "flush"]),
        st.sampled_from(["red", "blue"]),
        st.integers(0, 19),
        st.integers(1, 6),
    ),
    max_size=30,
)


@given(
    st.lists(st.sampled_from(["", "red", "blue"]), min_size=26, max_size=26),
    steps,
    st.integers(1, 3),
)
def test_in_any_order_nobody_is_told_what_is_not_true(
    truth: list[str], script: list[tuple[str, str, int, int]], room: int
) -> None:
    """Every message to a cell is the truth through its filter, and no ack runs ahead of a cell."""
    machine, delivered = make_relay("red", "blue", cache_events_max=room), {"red": 0, "blue": 0}
    for now, (verb, cell, start, length) in enumerate(script):
        where, end = f"[{start},{start + length})", start + length
        match verb:
            case "tell":
                words = [f"D{t}:{truth[t]}" for t in range(start, end) if truth[t]]
                out = tell(machine, " ".join([where, *words]), now)
            case "ask":
                out = ask(machine, cell, where, now)
            case "ack":
                delivered[cell] = max(delivered[cell], start)
                machine.receive_ack(ack(cell, start), Instant(now))
                out = []
            case _:
                out = show_out(machine.fire(Instant(now + FLUSH)))
        machine.check()
        for line in out:
            to, _, text = line.strip("*").partition(": ")
            if to != "above":
                told, name = knowledge(text), to.strip("1")
                assert told.final_below <= max(machine.outlets[CellName(name)].settled, 0)
                low = max(told.span.start, told.final_below)
                wanted = [t for t in range(low, told.span.end) if truth[t] == name]
                assert list(told.ticks) == wanted
        for name, low in delivered.items():
            needed = [t for t in range(low, max(machine.acked, 0)) if truth[t] == name]
            assert not needed, f"{name} still needs {needed}"


def test_how_far_the_pubend_has_released_goes_down_with_what_it_says() -> None:
    machine = make_relay("all", "red")
    assert tell(machine, "[4,6) D5 lost<3") == ["all: [4,6) D5 lost<3"]
    assert machine.lost_below == 3
    machine.fire(Instant(CONFIG.silence_flush))
    assert tell(machine, "[6,9) D7:red lost<5") == [
        "all: [6,9) D7:red lost<5",
        "red: [6,9) D7:red lost<5",
    ]


def test_that_is_never_told_of_ticks_that_the_message_tells_of() -> None:
    """Silence that waited may lie below it: nobody below has lost anything there."""
    machine = make_relay("all", "red")
    tell(machine, "[4,6) D5")
    assert tell(machine, "[6,9) D7:red lost<5") == [
        "all: [6,9) D7:red lost<5",
        "red: [4,9) D7:red lost<4",
    ]


def test_one_who_has_lost_much_of_what_he_asked_for_is_told_so_once() -> None:
    machine = make_relay("all")
    ask(machine, "all", "[1,2) [3,4) [6,7) [9,10) catching-up")
    assert tell(machine, "[1,7) lost<8 asked catching-up") == [
        "*all1: [1,7) lost<8 asked catching-up"
    ]
    assert tell(machine, "[9,10) D9 asked catching-up") == ["*all1: [9,10) D9 asked catching-up"]
