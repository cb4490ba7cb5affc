"""Zhao, Sturman, Bhola: Subscription Propagation in Highly-Available Publish/Subscribe Middleware,
Middleware 2004: its worked examples, and the rules of sections 3 and 4.

The network is that of figure 1: PB1 in N31; b1 and b2 in N21, above SB1 (N11) and SB2 (N12); N22
above SB3 (N13). A vector (1, 2, 3) is of SB1, SB2, SB3. Where we depart from the paper the name of
the test says so and its docstring begins with "Deviation" or "Erratum".
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import pytest

from gapless.core.broker_messages import SubscriptionChange, SubscriptionNack, SubscriptionState
from gapless.core.identity import BrokerName, CellName, Instant
from gapless.core.outgoing import ToBroker, ToCell, ToSiblings
from gapless.filters.filter import Filter
from gapless.propagation.branch import Branch
from gapless.propagation.delivery import DeliveryStart
from gapless.propagation.stamp import Stamp
from gapless.propagation.sufficiency import is_sufficient
from gapless.testing.memory_volume import MemoryVolume
from tests.propagation.actors import LooseBranch
from tests.propagation.decision import Decision, Reason, decide
from tests.propagation.stand import TIMING, LeafStand, carry_out
from tests.propagation.variants import may_start

if TYPE_CHECKING:
    from gapless.core.broker_messages import Propagated, Vector
    from gapless.core.events import Value

NOW = Instant(0)
N11, N12, N13, N21, N22, N31 = map(CellName, ("N11", "N12", "N13", "N21", "N22", "N31"))
IBM = "stock = 'nyse:ibm'"
T = "p > 19 AND stock = 'nyse:t'"
MSFT = "stock = 'nasdaq:msft'"
NYSE = "stock LIKE 'nyse:%'"
S2 = f"{IBM} AND p > 90 OR {T} OR {MSFT}"


def vector(*times: int) -> Vector:
    return {f"SB{number}": time for number, time in enumerate(times, start=1) if time}


def make_b(kind: type[Branch] = Branch) -> Branch:
    return kind(N21, N31, {N11: ["SB1"], N12: ["SB2"]}, TIMING)


def make_publisher_broker(kind: type[Branch] = Branch) -> Branch:
    return kind(N31, None, {N21: ["SB1", "SB2"], N22: ["SB3"]}, TIMING)


def leaf(number: int) -> LeafStand:
    return LeafStand(f"SB{number}", f"N1{number}", "N21" if number < 3 else "N22")


def only(messages: list[Propagated]) -> SubscriptionChange:
    [change] = messages
    assert isinstance(change, SubscriptionChange)
    return change


def upward(branch: Branch, change: SubscriptionChange) -> SubscriptionChange:
    """What the broker that got the change sends up."""
    [up] = [
        each.message
        for each in branch.receive_change(change, NOW)
        if isinstance(each, ToCell) and each.cell == branch.upstream
    ]
    assert isinstance(up, SubscriptionChange)
    branch.check()
    return up


class Figure1:
    """The network after s1 at SB1, s4 at SB2 and something at SB3 are known everywhere."""

    def __init__(self) -> None:
        self.sb1, self.sb2, self.sb3 = leaf(1), leaf(2), leaf(3)
        self.b1, self.b2, self.pb1 = make_b(), make_b(), make_publisher_broker()
        for stand, condition in ((self.sb1, IBM), (self.sb2, NYSE)):
            change = only(stand.update(s=condition))
            self.b2.receive_change(change, NOW, from_sibling=True)
            self.pb1.receive_change(upward(self.b1, change), NOW)
        other = Branch(N22, N31, {N13: ["SB3"]}, TIMING)
        self.pb1.receive_change(upward(other, only(self.sb3.update(s="p = 0"))), NOW)

    def subscribe_s2(self) -> SubscriptionChange:
        return only(self.sb1.update(s2=S2))


def event(stock: str, price: int) -> dict[str, Value]:
    return {"stock": stock, "p": price}


def routed(branch: Branch, cell: CellName, message: Vector, one: dict[str, Value]) -> Decision:
    """The decision of a broker for a message of this vector."""
    sufficient = is_sufficient(branch.vector, message, branch.children[cell].leaves)
    return decide(sufficient, branch.matches(cell, one))


# --- 3.3 virtual times ----------------------------------------------------------------------------


def test_example_1_start_times_and_clock() -> None:
    """3.3, Example 1: s2's conjunctions start at 1, 2, 2; s2 at 2; SB1 moves on to 3."""
    sb1 = leaf(1)
    sb1.update(s1=IBM)
    assert sb1.leaf.starts["s1"] == 1
    assert sb1.leaf.clock == 2
    sb1.update(s2=S2)
    graph = sb1.leaf.graph
    starts = sorted(graph.start_of(one) for one in Filter.parse(S2).conjunctions)
    assert starts == [1, 2, 2]
    assert sb1.leaf.starts["s2"] == 2
    assert sb1.leaf.clock == 3


def test_3_3_a_covered_subscription_starts_early_and_moves_no_clock() -> None:
    """3.3: the clock advances "only ... if the set of root nodes is changed"."""
    sb2 = leaf(2)
    sb2.update(s4=NYSE)
    assert sb2.update(s5=IBM, s6=T) == []
    assert (sb2.leaf.starts["s5"], sb2.leaf.clock) == (1, 2)


def test_3_3_unsubscribing_uncovers_what_was_covered() -> None:
    """3.3: a root goes, what it covered is a root and keeps its start time."""
    sb2 = leaf(2)
    sb2.update(s4=NYSE)
    sb2.update(s5=IBM)
    change = only(sb2.update("s4"))
    assert (change.added, change.removed) == ((IBM,), (NYSE,))
    assert sb2.leaf.starts["s5"] == 1


# --- 3.4 propagation ------------------------------------------------------------------------------


def test_example_2_the_change_of_a_leaf() -> None:
    """3.4, Example 2: SB1, 2, {+t, +msft}, N11, cons = (SB1: 1)."""
    assert Figure1().subscribe_s2() == SubscriptionChange(
        N11, {"SB1": 2}, {"SB1": 1}, tuple(sorted((T, MSFT)))
    )


def test_example_3_what_is_covered_is_aggregated_away() -> None:
    """3.4, Example 3: +msft only, for the old vector of b1; PB1 goes on to (2, 1, 1)."""
    figure = Figure1()
    assert figure.b1.vector == vector(1, 1)
    assert figure.pb1.vector == vector(1, 1, 1)
    up = upward(figure.b1, figure.subscribe_s2())
    assert up == SubscriptionChange(N21, {"SB1": 2}, {"SB1": 1, "SB2": 1}, (MSFT,))
    assert figure.b1.vector == vector(2, 1)
    figure.pb1.receive_change(up, NOW)
    assert figure.pb1.vector == vector(2, 1, 1)


def test_3_4_a_change_that_only_adds_and_passes_whole_keeps_its_constraint() -> None:
    """3.4: "pure additive change and no aggregation": "unchanged"."""
    figure = Figure1()
    up = upward(figure.b1, only(figure.sb1.update(s9=MSFT)))
    assert up.constraint == {"SB1": 1}
    up = upward(figure.b1, only(figure.sb1.update("s9")))
    assert up.constraint == vector(2, 1)


def test_3_4_siblings_get_the_incoming_change_and_keep_quiet() -> None:
    """3.4: "The original receiving broker ... then forwards the new incremental change"."""
    figure = Figure1()
    change = figure.subscribe_s2()
    assert ToSiblings(change) in figure.b1.receive_change(change, NOW)
    assert figure.b2.receive_change(change, NOW, from_sibling=True) == []
    assert figure.b2.vector == figure.b1.vector
    assert figure.b2.receive_change(change, NOW) == []  # a duplicate


def counter_example(kind: type[Branch]) -> Branch:
    """PB1 after b1 aggregated SB1's t under nyse:*, and b2 has told that nyse:* is gone."""
    b1, b2, pb1 = make_b(kind), make_b(kind), make_publisher_broker(kind)
    sb1, sb2 = leaf(1), leaf(2)
    for change in (only(sb1.update(s1=IBM)), only(sb2.update(s4=NYSE))):
        b2.receive_change(change, NOW, from_sibling=True)
        pb1.receive_change(upward(b1, change), NOW)
    by_b1 = upward(b1, only(sb1.update(t=T, msft=MSFT)))
    by_b2 = upward(b2, only(sb2.update("s4")))
    assert by_b1.constraint == vector(1, 1)
    pb1.receive_change(by_b2, NOW)
    assert pb1.vector == vector(1, 2)
    pb1.receive_change(by_b1, NOW)
    return pb1


def test_3_4_a_constraint_as_a_lower_bound_would_lose_a_subscription() -> None:
    """Deviation: "satisfies" must mean "equals": with "at least", PB1 is at (2, 2) without t."""
    loose = counter_example(LooseBranch)
    assert loose.vector == vector(2, 2)
    assert routed(loose, N21, vector(2, 2), event("nyse:t", 20)) == (False, Reason.FILTERED)


def test_3_4_a_change_that_was_overtaken_is_not_applied_but_asked_about() -> None:
    """Deviation: an overtaken change makes the broker ask for a state, as a lagging one does."""
    pb1 = counter_example(Branch)
    assert pb1.vector == vector(1, 2)
    assert routed(pb1, N21, vector(2, 2), event("nyse:t", 20)).passes
    due = pb1.deadline
    assert due is not None
    assert pb1.fire(due) == [ToCell(N21, SubscriptionNack(N21, vector(2, 2)))]


# --- 3.5 routing, 3.6 start -----------------------------------------------------------------------

M1, M2 = event("nyse:ibm", 95), event("nyse:t", 20)
M3, M4 = event("nyse:ibm", 98), event("nyse:t", 22)


def routing_figure() -> Figure1:
    """b1 has heard of s2, b2 has not."""
    figure = Figure1()
    figure.pb1.receive_change(upward(figure.b1, figure.subscribe_s2()), NOW)
    assert figure.b1.vector == vector(2, 1)
    assert figure.b2.vector == vector(1, 1)
    return figure


def test_example_4_a_broker_that_knows_enough_filters() -> None:
    """3.5, Example 4: with V_m (1, 1, 1) the tests hold at both; m1 goes to SB1."""
    figure, message = routing_figure(), vector(1, 1, 1)
    assert routed(figure.b1, N11, message, M1) == (True, Reason.MATCHED)
    assert is_sufficient(figure.b1.vector, message, ["SB1"])
    assert is_sufficient(figure.b2.vector, message, ["SB1"])


def test_example_4_erratum_m2_does_not_match_what_b2_knows_of_n11() -> None:
    """Erratum: the text says that m2 is sent to SB1; but b2 knows nyse:ibm only for N11."""
    figure, message = routing_figure(), vector(1, 1, 1)
    assert routed(figure.b2, N11, message, M2) == (False, Reason.FILTERED)
    assert routed(figure.b2, N12, message, M2) == (True, Reason.MATCHED)


def test_example_4_a_broker_that_lags_lets_pass() -> None:
    """3.5, Example 4: with V_m (2, 1, 1) b1 has a match for m3; b2's test fails for m4."""
    figure, message = routing_figure(), vector(2, 1, 1)
    assert routed(figure.b1, N11, message, M3) == (True, Reason.MATCHED)
    assert routed(figure.b2, N11, message, M4) == (True, Reason.INSUFFICIENT)


def test_example_5_delivery_starts_with_m3_and_not_with_m1() -> None:
    """3.6, Example 5: V_m(SB1) is 1 in m1, below s2.vst == 2; m3 has 2."""
    assert not may_start(vector(1, 1, 1), "SB1", 2)
    assert may_start(vector(2, 1, 1), "SB1", 2)
    starts = DeliveryStart("SB1")
    m1, m3 = 101, 103  # their ticks
    starts.learn("PB1", 1, vector(1, 1, 1))
    starts.see("PB1", "stock/0", m1, 1)
    assert starts.start_of("stock/0", 2) is None
    assert not starts.see("PB1", "stock/0", m3, 2)  # a digest that is not known starts nothing
    starts.learn("PB1", 2, vector(2, 1, 1))
    assert starts.see("PB1", "stock/0", m3, 2)
    assert starts.start_of("stock/0", 2) == m3


# --- 3.5, 4 crashes -------------------------------------------------------------------------------


def test_4_a_leaf_comes_back_with_a_later_time_and_its_whole_state() -> None:
    """4: VT "greater than all previous values"; "a full state update"; "advances its VT by one"."""
    figure = Figure1()
    used = figure.sb1.leaf.clock - 1
    [state] = figure.sb1.begin({"durable": MSFT})
    assert isinstance(state, SubscriptionState)
    assert state.vector["SB1"] > used
    assert state.conditions == (MSFT,)
    assert figure.sb1.leaf.clock == state.vector["SB1"] + 1
    figure.b1.receive_state(state, NOW)
    assert not figure.b1.matches(N11, M1)  # what did not survive is gone
    assert figure.b1.matches(N11, event("nasdaq:msft", 1))


def test_4_a_broker_that_crashed_knows_nothing_and_lets_everything_pass() -> None:
    """4: "an empty conjunction DAG and resetting its V_b vector to all 0's"."""
    fresh = make_b()
    for cell in (N11, N12):
        assert routed(fresh, cell, vector(1, 1, 1), M1) == (True, Reason.INSUFFICIENT)


def stamped() -> tuple[Stamp, MemoryVolume]:
    volume = MemoryVolume()
    stamp = Stamp("PB1", volume)
    carry_out(stamp, volume, stamp.advance(vector(2, 1, 1)))
    assert stamp.vector == vector(2, 1, 1)
    return stamp, volume


def test_3_5_a_publishers_broker_that_crashed_keeps_its_highest_vector() -> None:
    """3.5: "a persistent record of the highest V_m"; a started subscription stays covered."""
    before, volume = stamped()
    after = Stamp("PB1", volume)
    assert (after.vector, after.digest) == (before.vector, before.digest)
    empty = make_publisher_broker()
    assert routed(empty, N21, after.vector, M4) == (True, Reason.INSUFFICIENT)


def test_3_5_without_that_record_a_started_subscription_would_miss_messages() -> None:
    """3.5, the reason: with V_m back at 0 an empty broker may filter everything."""
    stamped()
    forgetful = Stamp("PB1", MemoryVolume())
    empty = make_publisher_broker()
    assert routed(empty, N21, forgetful.vector, M4) == (False, Reason.FILTERED)


def test_3_5_a_leaf_that_stays_away_keeps_no_other_from_starting() -> None:
    """Deviation: after a crash of PB1 the paper waits for V_b >= highest V_m; we use the join."""
    _, volume = stamped()
    after = Stamp("PB1", volume)
    carry_out(after, volume, after.advance(vector(3, 0, 1)))  # SB2 is not heard of
    assert after.vector == vector(3, 1, 1)


@pytest.mark.parametrize("down", list(combinations(range(3), 2)))
def test_5_2_any_one_broker_of_a_cell_is_enough(down: tuple[int, ...]) -> None:
    """5.2: "Even in the absence of a majority of brokers in a cell" new subscriptions are served.

    The one that is left has missed the first change: it asks, is told, and serves the next.
    """
    cell = [make_b() for _ in range(3)]
    pb1, sb1 = make_publisher_broker(), leaf(1)
    first = only(sb1.update(s1=IBM))
    pb1.receive_change(upward(cell[down[0]], first), NOW)
    [left] = [each for number, each in enumerate(cell) if number not in down]
    second = only(sb1.update(s2=MSFT))
    left.receive_change(second, NOW)
    due = left.deadline
    assert due is not None
    assert left.fire(due) == [ToCell(N11, SubscriptionNack(N11, {"SB1": 2}))]
    asker = BrokerName("b")
    [answer] = carry_out(sb1.leaf, sb1.volume, sb1.leaf.receive_nack(asker, NOW))
    assert isinstance(answer, ToBroker)
    assert isinstance(answer.message, SubscriptionState)
    sent = left.receive_state(answer.message, NOW)
    [up] = [each.message for each in sent if isinstance(each, ToCell)]
    assert isinstance(up, SubscriptionChange)
    pb1.receive_change(up, NOW)
    assert pb1.vector == {"SB1": 1}  # it was made for a vector of nothing: PB1 asks in turn
    nack = pb1.fire(pb1.deadline or NOW)[0].message
    assert isinstance(nack, SubscriptionNack)
    [told] = left.receive_nack(BrokerName("PB1"), nack, NOW)
    assert isinstance(told.message, SubscriptionState)
    pb1.receive_state(told.message, NOW)
    assert pb1.vector == {"SB1": 2}
    assert pb1.matches(N21, event("nasdaq:msft", 1))
    assert pb1.matches(N21, M1)
