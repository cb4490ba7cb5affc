"""Bhola, Strom, Bagchi, Zhao, Auerbach: Exactly-once Delivery in a Content-based Publish-Subscribe
System, DSN 2002: the rules of its abstract model (section 2), sentence by sentence.

Each docstring names the section and quotes a few words of the rule. Where we depart from the paper
the name of the test says so and its docstring begins with "Deviation". Sections 2.3 and 2.4 follow
in `test_dsn2002_delivery.py`.
"""

from __future__ import annotations

from itertools import permutations, product
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.broker_messages import Knowledge
from gapless.core.errors import ProtocolError
from gapless.core.identity import CellName, Instant
from gapless.core.ticks import Span, pubend_number_of
from gapless.knowledge.stream import KnowledgeStream
from gapless.testing.lattice import ABOVE, JOIN, Belief, StrictStream, lower, reachable
from tests.knowledge.host import NUMBER, Host, tick
from tests.knowledge.notation import (
    CONFIG,
    PUBEND,
    ack,
    knowledge,
    make_relay,
    make_subend,
    nack,
    show,
    show_out,
    ticks_of,
)

if TYPE_CHECKING:
    from gapless.knowledge.subend import Subend

Q, D, DONE, S, F, E = (Belief(letter) for letter in ("Q", "D", "D*", "S", "F", "E"))
NOW = Instant(0)


def tell(machine: Subend, *texts: str) -> list[int]:
    """What is delivered after all of this was said."""
    got = list[int]()
    for text in texts:
        machine.receive_knowledge(knowledge(text), NOW)
        got += machine.take(machine.horizon, NOW).ticks
    return got


# --- 2.1 streams, knowledge, curiosity ------------------------------------------------------------


def test_2_1_the_six_states_form_a_lattice() -> None:
    """2.1: "organized into a lattice": every two states have exactly one least upper bound."""
    for left, right in product(Belief, Belief):
        bounds = reachable(left) & reachable(right)
        assert JOIN[left, right] in bounds
        assert bounds == reachable(JOIN[left, right])


def test_2_1_unknown_is_the_bottom_and_error_the_top() -> None:
    """2.1: Q is "lack of knowledge"; fig. 2."""
    assert reachable(Q) == set(Belief)
    assert reachable(E) == {E}


def test_2_1_final_is_the_greatest_lower_bound_of_done_and_silence() -> None:
    """2.1: F is "the greatest lower bound of D* and S"."""
    below_both = {each for each in Belief if {DONE, S} <= reachable(each)}
    assert below_both == {Q, F}
    assert F in reachable(Q)


def test_2_1_done_is_above_data() -> None:
    """2.1: D* is a data message that "every downstream subscriber" has delivered."""
    assert DONE in ABOVE[D]


def test_2_1_error_is_reached_by_contradiction_only() -> None:
    """2.1: E "should never be reached": only data against silence leads there."""
    states = set(Belief) - {E}
    clashes = {frozenset((a, b)) for a, b in product(states, states) if JOIN[a, b] is E}
    assert clashes == {frozenset((D, S)), frozenset((DONE, S))}


def test_2_1_silence_and_done_are_lowered_to_final() -> None:
    """2.1: "any S or D* tick is automatically lowered to F"."""
    assert [lower(each) for each in (Q, D, DONE, S, F)] == [Q, D, F, F, F]


def test_2_1_deviation_final_and_silence_are_one_state_of_a_stream() -> None:
    """Deviation, as in 2.1.1 ("F and S are treated the same"): known and not an event."""
    stream = KnowledgeStream()
    stream.learn(Span(0, 3), [1], [b"x"])
    stream.settle(Span(3, 5))
    assert ticks_of(stream.known) == {0, 1, 2, 3, 4}
    assert stream.events_in(Span(0, 9))[0] == [1]


def test_2_1_deviation_an_event_stays_where_silence_was_thought() -> None:
    """Deviation: subscriptions change, so D joins S to D; a strict stream objects."""
    stream = KnowledgeStream()
    stream.learn(Span(0, 3), [], [])
    assert stream.learn(Span(1, 2), [1], [b"x"]) == [Span(1, 2)]
    strict = StrictStream()
    strict.learn(Span(0, 3), [], [])
    with pytest.raises(AssertionError, match="silent tick 1"):
        strict.learn(Span(1, 2), [1], [b"x"])


def test_2_1_two_different_events_at_one_tick_are_refused() -> None:
    """2.1: the data "is part of the value", so another one is a contradiction."""
    stream = KnowledgeStream()
    stream.learn(Span(0, 3), [1], [b"x"])
    with pytest.raises(ProtocolError):
        stream.learn(Span(0, 3), [1], [b"y"])


def test_2_1_accumulation_is_the_least_upper_bound_in_any_order() -> None:
    """2.1: a node goes to "the lattice least upper bound" of what it knew and what comes."""
    said = ["[0,4) D1", "[2,6) D5", "[0,4) D1", "[6,7)"]
    outcomes = set()
    for order in permutations(said):
        stream = KnowledgeStream()
        for text in order:
            message = knowledge(text)
            stream.learn(message.span, message.ticks, message.events.events)
        outcomes.add((tuple(stream.known), tuple(stream.events_in(Span(0, 9))[0])))
    assert outcomes == {((Span(0, 7),), (1, 5))}


def test_2_1_any_stream_but_the_pubend_may_forget() -> None:
    """2.1: "only the pubends store information stably": a relay that forgot asks upstream."""
    fresh = make_relay("all")
    assert show_out(fresh.receive_nack("a1", CellName("all"), nack("[0,5)"), NOW)) == [
        "above: nack [0,5)"
    ]
    host = Host()
    host.publish("x", now=5)
    host.sync()
    again = host.restart(now=9)
    again.ask(f"[0,{tick(6)})", now=9)
    assert [each for said in again.told() for each in said.ticks] == [tick(5)]


def test_2_1_outputs_may_be_lost_delayed_and_out_of_order() -> None:
    """2.1: an output "can be lost or delayed": what was lost is asked for until it comes."""
    machine = make_subend()
    assert tell(machine, "[4,6) D5", "[2,3)") == []
    asked = machine.fire(Instant(CONFIG.gap_patience))
    assert list(map(show, asked)) == ["nack [0,2) [3,4)"]
    again = machine.fire(Instant(CONFIG.gap_patience + CONFIG.nack_repeat))
    assert again == asked
    assert tell(machine, "[3,4) D3 asked", "[0,2) D0 asked") == [0, 3, 5]


# --- 2.1.1 curiosity ------------------------------------------------------------------------------


def test_2_1_1_without_failures_nobody_is_ever_curious() -> None:
    """2.1.1: "subscribers will never need to be curious"; transient gaps close by themselves."""
    machine = make_subend()
    tell(machine, "[0,4) D1", "[6,8)", "[4,6) D5")
    assert machine.fire(Instant(CONFIG.gap_patience)) == []


def test_2_1_1_a_neutral_tick_is_sent_once_and_its_silence_need_not_be_sent() -> None:
    """2.1.1, N: data "may be sent but need not be re-sent", and silence "need not be sent"."""
    machine = make_relay("red")
    assert show_out(machine.receive_knowledge(knowledge("[0,2) D1:red"), NOW)) == [
        "red: [0,2) D1:red"
    ]
    assert machine.receive_knowledge(knowledge("[0,2) D1:red"), NOW) == []
    assert machine.receive_knowledge(knowledge("[2,4) D3:blue"), NOW) == []


def test_2_1_1_a_curious_tick_is_sent_again() -> None:
    """2.1.1, C: some subscriber below "has an increased need to know"."""
    machine = make_relay("red")
    machine.receive_knowledge(knowledge("[0,4) D1:red D3:blue"), NOW)
    out = machine.receive_nack("red1", CellName("red"), nack("[0,4)"), NOW)
    assert show_out(out) == ["*red1: [0,4) D1:red asked"]


def test_2_1_1_what_is_acknowledged_is_final_and_what_is_final_is_acknowledged() -> None:
    """2.1.1: a tick that becomes F "is assigned a curiosity of A and vice-versa"."""
    machine = make_relay("red", "all")
    machine.receive_knowledge(knowledge("[0,4) D1:blue D3:red"), NOW)
    machine.receive_ack(ack("red", 4), NOW)
    final = machine.receive_nack("red1", CellName("red"), nack("[0,4)"), NOW)
    assert show_out(final) == ["*red1: [0,4) final<4 asked"]
    machine.receive_ack(ack("all", 4), NOW)
    machine.receive_knowledge(knowledge("[4,9) D5:green"), NOW)
    assert machine.outlets[CellName("red")].settled == 9  # silence needs no acknowledgement


def test_2_1_1_a_parent_is_done_with_a_tick_when_all_its_children_are() -> None:
    """2.1.1: "When all child nodes" are anti-curious, the parent can be, too."""
    machine = make_relay("a", "b", "all")
    machine.receive_knowledge(knowledge("[0,9) D1:a D2:b"), NOW)
    acked = []
    for cell, delivered in (("a", 9), ("b", 5), ("all", 7), ("b", 9)):
        machine.receive_ack(ack(cell, delivered), NOW)
        acked.append(machine.acked)
    assert acked == [-1, -1, 5, 7]


def test_2_1_1_curiosity_stops_at_the_first_stream_that_knows() -> None:
    """2.1.1: "some upstream node will answer the curiosity"."""
    machine = make_relay("all")
    machine.receive_knowledge(knowledge("[3,9) D5"), NOW)
    out = machine.receive_nack("a1", CellName("all"), nack("[0,9)"), NOW)
    assert show_out(out) == ["*a1: [3,9) D5 asked", "above: nack [0,3)"]


def test_2_1_1_a_stream_that_does_not_advance_makes_curious() -> None:
    """2.1.1: "the message stream is not advancing": the pubend asks for its acknowledgement."""
    host = Host()
    host.publish("x", now=0)
    host.sync()
    host.fire(CONFIG.ack_expected)
    assert host.expected == [tick(0) + 1]
    machine = make_subend()
    assert list(map(show, machine.expect(5, NOW))) == ["nack [0,5)"]


# --- 2.2 pubends ----------------------------------------------------------------------------------


@given(st.lists(st.sampled_from(["publish", "disk", "idle", "ack"]), max_size=25))
def test_2_2_the_stream_of_a_pubend_is_final_then_data_or_final_then_unknown(
    script: list[str],
) -> None:
    """2.2: the form "F* [D|F]* Q∞": past, present, future."""
    host, now = Host(idle_silence=5, promise_step=10, release_delay=1), 0
    for verb in script:
        now += 7
        match verb:
            case "publish":
                host.publish("x", now=now)
            case "disk" if host.disk:
                host.sync(now)
            case "ack":
                host.pubend.acknowledge(host.pubend.end, Instant(now))
            case _:
                host.fire(now)
    while host.pubend.release.next_chop_end > host.pubend.released:
        host.sync(now)  # of what is being chopped nothing is said
    released, end = host.pubend.released, host.pubend.end
    if end == 0:
        return
    _, answers = host.pubend.receive_nack(nack(f"[0,{end})"), Instant(now))
    answers = [said for said in answers if said.requested]
    assert (answers[0].span.start, answers[-1].span.end) == (0, end)
    assert [said.final_below for said in answers if said.final_below] == [released] * (released > 0)
    assert all(released <= each < end for said in answers for each in said.ticks)


def test_2_2_each_message_has_a_tick_of_its_own_and_all_older_ticks_are_final() -> None:
    """2.2: "assigns F to all older ticks since the previous D"."""
    host = Host()
    for now in (5, 9):
        host.publish("x", now=now)
        host.sync()
    first, second = host.told()
    assert (first.span, first.ticks) == (Span(0, tick(5) + 1), (tick(5),))
    assert (second.span, second.ticks) == (Span(tick(5) + 1, tick(9) + 1), (tick(9),))


def test_2_2_what_is_logged_is_published_and_what_is_not_is_not() -> None:
    """2.2: those "not logged are considered not published"."""
    host = Host()
    host.publish("logged", now=5)
    host.sync()
    host.publish("not logged", now=6)
    assert len(host.told()) == 1
    again = host.restart(now=9)
    assert [text for _, text in again.log()] == ["logged"]


def test_2_2_an_idle_pubend_turns_unknown_ticks_into_final_ones() -> None:
    """2.2: "When no new message has been published for long enough"."""
    host = Host()
    host.fire(now=8)
    host.sync(now=8)
    assert host.told() == [Knowledge(PUBEND, Span(0, tick(8) - NUMBER))]


def test_2_2_silence_may_be_assigned_ahead_to_help_a_merge() -> None:
    """2.2: "pre-assigning F to some number of future ticks". We do so when a merge asks."""
    host = Host()
    host.ask(f"[0,{tick(500)})", now=8)
    host.sync(now=8)
    assert host.told()[-1].span.end == tick(500)
    host.publish("x", now=9)
    host.sync(now=9)
    assert host.receipts()[0][0] >= tick(500)


def test_2_2_two_pubends_of_a_topic_never_share_a_tick() -> None:
    """2.2: ticks "whose low-order bits correspond to its pubend number"."""
    host = Host()
    for now in (0, 0, 3, 3):
        host.publish("x", "y", now=now)
        host.sync()
    ticks = [each for said in host.told() for each in said.ticks]
    assert {pubend_number_of(each) for each in ticks} == {NUMBER}  # type: ignore[arg-type]


def test_2_2_deviation_a_promise_of_silence_is_stable_before_it_is_told() -> None:
    """Deviation: the paper logs messages only; a restart must not contradict told silence."""
    host = Host()
    host.fire(now=8)
    assert host.told() == []
    host.sync(now=8)
    told = host.told()[-1].span.end
    assert host.restart(now=0).pubend.end >= told
