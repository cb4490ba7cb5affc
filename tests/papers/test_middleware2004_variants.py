"""Middleware 2004, section 3.7: vectors that go back, and empty changes that stay below.

The network and the notation are those of `test_middleware2004`.
"""

from __future__ import annotations

from gapless.core.broker_messages import SubscriptionChange
from gapless.core.identity import CellName
from gapless.core.outgoing import ToSiblings
from gapless.core.ticks import Span
from tests.papers.test_middleware2004 import (
    IBM,
    M1,
    M4,
    MSFT,
    N11,
    N12,
    N21,
    N31,
    NOW,
    NYSE,
    leaf,
    make_b,
    make_publisher_broker,
    only,
    routed,
    upward,
    vector,
)
from tests.propagation.decision import Reason, decide
from tests.propagation.requirement import Requirement, reaches
from tests.propagation.stand import TIMING
from tests.propagation.variants import FrugalBranch, SoftStamp, knows_exactly, may_start


def frugal(cell: CellName, upstream: CellName, below: dict[CellName, list[str]]) -> FrugalBranch:
    return FrugalBranch(cell, upstream, below, TIMING, history_max=64)


def test_3_7_a_vector_that_went_back_is_found_out_by_the_leaf() -> None:
    """3.7: without "persistent storage", leaves "perform monotonicity checking on message/silence
    V_m vectors and initiate negative-acknowledgments if monotonicity is violated"."""
    pb1 = make_publisher_broker()
    before = SoftStamp("PB1", first=1)
    before.advance(vector(2, 1, 1))
    sb1 = Requirement("SB1")
    sb1.start("stock/0", 100, 2)  # s2 starts with m3
    after = SoftStamp("PB1", first=1_000)  # a crash: PB1 knows nothing
    assert after.digest > before.digest
    assert routed(pb1, N21, after.vector, M4) == (False, Reason.FILTERED)
    doubt = sb1.see("stock/0", Span(120, 121), after.vector.get("SB1", 0))
    assert doubt is not None
    assert doubt.minimum == {"SB1": 2}
    assert not reaches(after.vector, doubt.minimum)  # so a relay that keeps it asks on
    after.advance(doubt.minimum)  # and PB1 stamps it anew
    assert routed(pb1, N21, after.vector, M4) == (True, Reason.INSUFFICIENT)
    assert sb1.see("stock/0", Span(121, 122), after.vector["SB1"]) is None


def test_3_7_an_empty_change_stays_below_and_vectors_are_raised_where_it_does() -> None:
    """3.7: "recorded at the last broker where such an empty update occurred"."""
    b1 = frugal(N21, N31, {N11: ["SB1"], N12: ["SB2"]})
    sb1, sb2 = leaf(1), leaf(2)
    up = upward(b1, only(sb2.update(s4=NYSE)))
    covered = only(sb1.update(s1=IBM))
    assert b1.receive_change(covered, NOW) == [ToSiblings(covered)]
    assert b1.raised(up.vector) == vector(1, 1)
    assert may_start(b1.raised(up.vector), "SB1", sb1.leaf.starts["s1"])


def test_3_7_only_a_vector_that_the_broker_had_is_raised() -> None:
    """Deviation (the paper is silent): membership, not "at least what was told above".

    SB1 adds y, SB2 drops its own y: both are empty at b1. A message of the old SB1 and the new
    SB2 was matched against no y at all, so it must not pass for one of the new SB1.
    """
    b1 = frugal(N21, N31, {N11: ["SB1"], N12: ["SB2"]})
    sb1, sb2 = leaf(1), leaf(2)
    told = upward(b1, only(sb2.update(y=IBM))).vector
    adds, drops = only(sb1.update(y=IBM)), only(sb2.update("y"))
    assert b1.receive_change(adds, NOW) == [ToSiblings(adds)]
    assert b1.receive_change(drops, NOW) == [ToSiblings(drops)]
    assert told == vector(0, 1)
    for known in (vector(0, 1), vector(1, 1), vector(1, 2)):
        assert b1.raised(known) == vector(1, 2)
    mixed = vector(0, 2)
    assert b1.raised(mixed) == mixed
    sibling = make_b()  # it got the second and not the first, and filters what is mixed
    sibling.receive_change(only(leaf(2).update(y=IBM)), NOW)
    sibling.receive_change(drops, NOW)
    assert routed(sibling, N11, mixed, M1) == (False, Reason.FILTERED)


def test_3_7_a_change_that_is_told_tells_of_all_that_stayed_below() -> None:
    """3.7 with 3.4: it applies to what was told last, and brings all that came since."""
    b1, pb1 = frugal(N21, N31, {N11: ["SB1"], N12: ["SB2"]}), make_publisher_broker()
    sb1, sb2 = leaf(1), leaf(2)
    pb1.receive_change(upward(b1, only(sb2.update(s4=NYSE))), NOW)
    b1.receive_change(only(sb1.update(s1=IBM)), NOW)
    up = upward(b1, only(sb2.update(s5=MSFT)))
    assert up == SubscriptionChange(N21, vector(1, 2), {"SB1": 0, "SB2": 1}, (MSFT,))
    pb1.receive_change(up, NOW)
    assert pb1.vector == vector(1, 2)


def test_3_7_a_broker_beyond_a_message_must_not_filter_it_where_vectors_are_raised() -> None:
    """Deviation from 3.5, for this variant only: the vectors must be equal.

    SB1 and SB2 want y. b1 knows (1, 2): SB2's y changed no root. b2 missed that, but knows that
    SB1's y has gone, and has told N31 so: (2, 1). Between N31 and the publisher a message of y with
    (1, 1) is on its way. If N31, being beyond it, filtered it, b1 would raise the silence to (1, 2)
    and SB2 would start with it, y lost.
    """
    sb1, sb2, cells = leaf(1), leaf(2), {N11: ["SB1"], N12: ["SB2"]}
    b1, b2 = frugal(N21, N31, cells), frugal(N21, N31, cells)
    n31 = frugal(N31, CellName("N41"), {N21: ["SB1", "SB2"]})
    first, old = only(sb1.update(y=IBM)), only(sb2.update(x=MSFT))
    for change in (first, old):
        b2.receive_change(change, NOW, from_sibling=True)
        n31.receive_change(upward(b1, change), NOW)
    b1.receive_change(only(sb2.update(y=IBM)), NOW)
    n31.receive_change(upward(b2, only(sb1.update("y"))), NOW)
    assert b1.vector == vector(1, 2)
    assert n31.vector == vector(2, 1)
    message = vector(1, 1)
    assert routed(n31, N21, message, M1) == (False, Reason.FILTERED)  # what would be wrong
    assert b1.raised(message) == vector(1, 2)
    assert may_start(b1.raised(message), "SB2", sb2.leaf.starts["y"])
    exact = knows_exactly(n31.vector, message, ["SB1", "SB2"])
    assert decide(exact, n31.matches(N21, M1)) == (True, Reason.INSUFFICIENT)
