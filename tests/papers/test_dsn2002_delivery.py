"""DSN 2002, sections 2.3 and 2.4, sentence by sentence: subends, filters and merges.

See `test_dsn2002.py` for sections 2.1 and 2.2 and how to read the docstrings.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.broker_messages import Knowledge
from gapless.core.identity import Instant, PubendName
from gapless.core.ticks import Span
from gapless.knowledge.merge import Merge
from gapless.knowledge.subend import Subend
from tests.knowledge.notation import (
    CONFIG,
    knowledge,
    make_relay,
    make_subend,
    show,
    show_out,
)

NOW = Instant(0)


def tell(machine: Subend, *texts: str) -> list[int]:
    """What is delivered after all of this was said."""
    got = list[int]()
    for text in texts:
        machine.receive_knowledge(knowledge(text), NOW)
        got += machine.take(machine.horizon, NOW).ticks
    return got


def two_inputs() -> Merge:
    names = [PubendName(str(number)) for number in range(2)]
    return Merge({name: make_subend(0, name) for name in names}, CONFIG)


def say(machine: Merge, number: int, text: str) -> None:
    machine.receive_knowledge(knowledge(text, PubendName(str(number))), NOW)


# --- 2.3 subends ----------------------------------------------------------------------------------

truths = st.sets(st.integers(0, 19))


@given(truths, st.permutations(range(10)))
def test_2_3_safety_b_ticks_ascend_and_each_is_delivered_once(
    truth: set[int], order: list[int]
) -> None:
    """2.3, safety (b): "its associated tick is later" than all delivered before."""
    machine, got = make_subend(), list[int]()
    for low in (*order, *order):
        words = [f"D{t}" for t in (2 * low, 2 * low + 1) if t in truth]
        got += tell(machine, " ".join([f"[{2 * low},{2 * low + 2})", *words]))
        assert got == sorted(set(got))
    assert got == sorted(truth)


def test_2_3_safety_a_what_passes_the_filters_of_a_path_is_delivered_and_nothing_else() -> None:
    """2.3, safety (a): "the AND of the filter predicates along the path"."""
    upper, lower_relay = make_relay("red"), make_relay("red", "blue")
    got = list[str]()
    for out in upper.receive_knowledge(knowledge("[0,6) D1:red D3:blue D5:red"), NOW):
        assert isinstance(out.message, Knowledge)
        got += show_out(lower_relay.receive_knowledge(out.message, NOW))
    assert got == ["red: [0,6) D1:red D5:red"]


@given(truths, st.sets(st.integers(0, 9)), st.sets(st.integers(0, 9)))
def test_2_3_liveness_what_is_published_is_delivered_once_losses_stop(
    truth: set[int], lost: set[int], lost_answers: set[int]
) -> None:
    """2.3, liveness: "it will eventually be delivered"."""
    machine, got, now, round_number = make_subend(), list[int](), 0, 0

    def say(where: Span, suffix: str = "") -> list[int]:
        words = [f"D{t}" for t in sorted(truth) if t in where]
        return tell(machine, " ".join([str(where), *words]) + suffix)

    for low in range(10):
        got += say(Span(2 * low, 2 * low + 2)) if low not in lost else []
    asked = machine.expect(20, NOW)
    while machine.horizon < 20:
        answered = round_number not in lost_answers
        for where in [each for question in asked for each in question.spans if answered]:
            got += say(where, " asked")
        round_number += 1
        assert round_number < 50
        if machine.deadline is not None:
            now = max(now, machine.deadline)
            asked = machine.fire(Instant(now))
    assert got == sorted(truth)


def test_2_3_nothing_later_than_the_doubt_horizon_is_delivered() -> None:
    """2.3: data beyond is delayed "until the Q ticks have been resolved"."""
    machine = make_subend()
    assert tell(machine, "[0,2) D1", "[4,6) D5") == [1]
    assert tell(machine, "[2,3) D2") == [2]
    assert tell(machine, "[3,4)") == [5]


def test_2_3_the_doubt_horizon_is_monotonic() -> None:
    """2.3: "a monotonic doubt horizon"."""
    machine, before = make_subend(), 0
    for text in ("[0,2)", "[4,6) D5", "[0,1)", "[2,4)", "[1,3)", "[9,10)"):
        tell(machine, text)
        assert machine.horizon >= before
        before = machine.horizon


def test_2_3_the_horizon_is_the_first_tick_still_in_doubt() -> None:
    """2.3: "all ticks t < D": exclusive, as our spans are. (DSN 2003 counts inclusively.)"""
    machine = make_subend()
    tell(machine, "[0,5) D4")
    assert machine.horizon == 5
    assert 4 in Span(0, machine.horizon)


def test_2_3_a_subend_marks_gaps_curious_eventually() -> None:
    """2.3: "(eventually) gaps as C": not at once, but after some patience."""
    machine = make_subend()
    tell(machine, "[4,6)")
    assert machine.fire(Instant(CONFIG.gap_patience - 1)) == []
    assert list(map(show, machine.fire(Instant(CONFIG.gap_patience)))) == ["nack [0,4)"]


def test_2_3_in_publisher_order_pubends_do_not_wait_for_each_other() -> None:
    """2.3: streams of several publishers may be "interleaved arbitrarily"."""
    one, other = make_subend(), Subend(PubendName("news/1"), 0, CONFIG)
    assert tell(one, "[0,9) D7") == [7]
    assert other.horizon == 0


@given(st.dictionaries(st.integers(0, 11), st.integers(0, 1)), st.data())
def test_2_3_in_total_order_all_get_the_same(truth: dict[int, int], draw: st.DataObject) -> None:
    """2.3: the merge is deterministic, so two clients "will receive the same stream"."""
    pieces = [(n, low) for n in (0, 1) for low in range(0, 12, 3)]
    streams = []
    for _ in range(2):
        machine, got = two_inputs(), list[int]()
        for number, low in draw.draw(st.permutations(pieces)):
            here = [f"D{t}" for t in range(low, low + 3) if truth.get(t) == number]
            say(machine, number, " ".join([f"[{low},{low + 3})", *here]))
            got += machine.take(NOW).ticks
        streams.append(got)
    assert streams[0] == streams[1] == sorted(truth)


# --- 2.4 filter and merge operations --------------------------------------------------------------


def test_2_4_a_filter_passes_what_matches_and_makes_the_rest_final() -> None:
    """2.4: a filter passes a matching D "unchanged", "otherwise it converts it to an F"."""
    machine = make_relay("red")
    out = machine.receive_knowledge(knowledge("[0,4) D1:red D2:blue"), NOW)
    assert show_out(out) == ["red: [0,4) D1:red"]


def test_2_4_unknown_ticks_stay_unknown_behind_a_filter() -> None:
    """2.4: only D and F pass; nothing is said of a Q tick."""
    machine = make_relay("red")
    machine.receive_knowledge(knowledge("[0,2) D1:red"), NOW)
    out = machine.receive_knowledge(knowledge("[4,6) D5:red"), NOW)
    assert show_out(out) == ["red: [4,6) D5:red"]


@pytest.mark.parametrize(
    ("left", "right", "position", "delivered"),
    [
        ("[0,1) D0", "[0,1)", 1, [0]),  # D and F: D
        ("[0,1)", "[0,1)", 1, []),  # F and F: F
        ("[0,1)", "", 0, []),  # F and Q: Q
        ("[0,1) D0", "", 0, []),  # D and Q: known, but not deliverable yet
    ],
)
def test_2_4_a_merge_passes_data_and_is_silent_only_if_all_inputs_are(
    left: str, right: str, position: int, delivered: list[int]
) -> None:
    """2.4: passes a D "to its output, but passes F only if all inputs are F"."""
    machine = two_inputs()
    say(machine, 0, left)
    if right:
        say(machine, 1, right)
    assert machine.take(NOW).ticks == delivered
    assert machine.position == position


def test_2_4_silence_is_lazier_than_data() -> None:
    """2.4: "silence propagates more lazily than data"."""
    machine = make_relay("red")
    assert machine.receive_knowledge(knowledge("[0,2) D1:blue"), NOW) == []
    assert machine.deadline == CONFIG.silence_flush
    out = machine.receive_knowledge(knowledge("[2,3) D2:red"), NOW)
    assert show_out(out) == ["red: [0,3) D2:red"]
