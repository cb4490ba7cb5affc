"""A branch: order, loss and doubles; what lags asks; what is not exact is told to nobody."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING, Any

import pytest

from gapless.core.broker_messages import SubscriptionChange, SubscriptionNack, SubscriptionState
from gapless.core.errors import ProtocolError
from gapless.core.identity import BrokerName, CellName, Instant
from gapless.core.outgoing import ToBroker, ToCell, ToSiblings
from gapless.propagation.branch import Branch
from gapless.propagation.condition import CONDITIONS_MAX
from tests.propagation.stand import TIMING, Limits

if TYPE_CHECKING:
    from gapless.propagation.actions import Outgoing

NOW = Instant(0)
UP, OWN, ONE, TWO, DEEP = map(CellName, ("up", "own", "one", "two", "deep"))
PARENT = BrokerName("up1")


def make_branch(timing: Limits = TIMING) -> Branch:
    return Branch(OWN, UP, {ONE: ["a"], TWO: ["b"], DEEP: ["x", "y"]}, timing)


def step(time: int, added: str = "", removed: str = "") -> SubscriptionChange:
    """A change of leaf `a`."""
    gone = (removed,) if removed else ()
    return SubscriptionChange(ONE, {"a": time}, {"a": time - 1}, (added,) if added else (), gone)


def ups(out: list[Outgoing]) -> list[object]:
    return [each.message for each in out if isinstance(each, ToCell) and each.cell == UP]


def deep_state(x: int, y: int, *conditions: str) -> SubscriptionState:
    return SubscriptionState(DEEP, {"x": x, "y": y}, conditions)


STEPS = (step(1, "p = 1"), step(2, "p > 0", "p = 1"), step(3, "p = 5", "p > 0"))


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_changes_may_come_in_any_order_and_twice(order: tuple[int, ...]) -> None:
    branch, sent = make_branch(), list[object]()
    for number in (*order, *order):
        sent += ups(branch.receive_change(STEPS[number], NOW))
        branch.check()
    assert branch.vector == {"a": 3}
    assert list(branch.children[ONE].conditions.values()) == ["p = 5"]
    assert len(sent) == 3
    assert branch.deadline is None
    assert branch.pending_changes == []


def test_a_broker_that_lags_waits_a_moment_then_asks_and_asks_again() -> None:
    branch = make_branch()
    assert branch.receive_change(STEPS[1], NOW) == [ToSiblings(STEPS[1])]
    assert branch.deadline == TIMING.lag_patience
    nack = ToCell(ONE, SubscriptionNack(ONE, {"a": 2}))
    assert branch.fire(Instant(TIMING.lag_patience - 1)) == []
    assert branch.fire(Instant(TIMING.lag_patience)) == [nack]
    again = Instant(TIMING.lag_patience + TIMING.lag_repeat)
    assert branch.deadline == again
    assert branch.fire(again) == [nack]
    state = SubscriptionState(ONE, {"a": 2}, ("p > 0",))
    [change] = ups(branch.receive_state(state, again))
    assert change == SubscriptionChange(OWN, {"a": 2}, dict.fromkeys("abxy", 0), ("p > 0",))
    assert branch.deadline is None


def test_a_message_that_counts_on_more_makes_a_broker_ask() -> None:
    branch = make_branch()
    branch.notice({"a": 1, "elsewhere": 7}, NOW)
    assert branch.fire(Instant(TIMING.lag_patience)) == [
        ToCell(ONE, SubscriptionNack(ONE, {"a": 1}))
    ]


def test_only_so_many_changes_wait_and_the_oldest_goes() -> None:
    branch = make_branch(Limits(changes_pending_max=2))
    for time in (3, 4, 5):
        branch.receive_change(step(time, f"p = {time}"), NOW)
        branch.check()
    assert [each.change.vector["a"] for each in branch.pending_changes] == [4, 5]
    branch.receive_state(SubscriptionState(ONE, {"a": 3}, ("p = 3",)), NOW)
    assert branch.vector == {"a": 5}


def test_a_state_that_comes_again_is_passed_on_whole() -> None:
    """It was repeated by a leaf whose change was lost above us."""
    branch = make_branch()
    branch.receive_change(step(1, "p = 1"), NOW)
    state = SubscriptionState(ONE, {"a": 1}, ("p = 1",))
    out = branch.receive_state(state, NOW)
    assert ups(out) == [SubscriptionState(OWN, {"a": 1}, ("p = 1",))]
    assert ToSiblings(state) in out
    assert branch.receive_state(state, NOW, from_sibling=True) == []


def test_an_old_state_changes_nothing() -> None:
    branch = make_branch()
    branch.receive_state(deep_state(2, 2, "p = 2"), NOW)
    assert branch.receive_state(deep_state(1, 1, "p = 1"), NOW) == []
    assert branch.receive_state(deep_state(1, 2, "p = 1"), NOW, from_sibling=True) == []
    assert list(branch.children[DEEP].conditions.values()) == ["p = 2"]


def test_what_a_leaf_repeats_gets_on_though_it_comes_by_way_of_a_broker_that_lags() -> None:
    """`y` has told it all, and the one that passes it on knows nothing of `x`."""
    branch = make_branch()
    branch.receive_state(deep_state(2, 2, "p = 2"), NOW)
    again = SubscriptionState(DEEP, {"y": 2}, ("p = 1",))
    assert branch.receive_state(again, NOW) == [
        ToCell(UP, SubscriptionState(OWN, {"x": 2, "y": 2}, ("p = 2",)))
    ]
    branch.check()
    assert list(branch.children[DEEP].conditions.values()) == ["p = 2"]


def test_states_that_cannot_be_compared_are_united_and_asked_about() -> None:
    branch = make_branch()
    branch.receive_state(deep_state(2, 1, "p = 2"), NOW)
    out = branch.receive_state(deep_state(1, 2, "p = 1"), NOW)
    branch.check()
    assert branch.vector == {"x": 2, "y": 2}
    assert branch.matches(DEEP, {"p": 1})
    assert branch.matches(DEEP, {"p": 2})
    assert ups(out) == []
    assert branch.fire(Instant(TIMING.lag_patience)) == [
        ToCell(DEEP, SubscriptionNack(DEEP, {"x": 2, "y": 2}))
    ]
    out = branch.receive_state(deep_state(2, 2, "p = 3"), NOW)
    branch.check()
    assert not branch.matches(DEEP, {"p": 1})
    assert ups(out) == [SubscriptionState(OWN, {"x": 2, "y": 2}, ("p = 3",))]


def test_what_is_not_exact_is_told_to_nobody() -> None:
    """A condition hidden by one that is there by mistake would be missing above for good."""
    branch = make_branch()
    branch.receive_state(deep_state(2, 1, "p > 0"), NOW)
    branch.receive_state(deep_state(1, 2, "p = 7"), NOW)  # in truth, `p > 0` may be gone by now
    assert ups(branch.receive_change(step(1, "p = 1"), NOW)) == []
    assert branch.receive_nack(PARENT, SubscriptionNack(OWN, {"a": 1}), NOW) == []
    out = branch.receive_state(deep_state(2, 2, "p = 7"), NOW)
    whole = SubscriptionState(OWN, {"a": 1, "x": 2, "y": 2}, ("p = 1", "p = 7"))
    assert ups(out) == [whole]
    assert ToBroker(PARENT, whole) in out


def test_a_nack_is_answered_by_the_first_that_knows_enough() -> None:
    branch = make_branch()
    branch.receive_change(step(1, "p = 1"), NOW)
    state = SubscriptionState(OWN, {"a": 1}, ("p = 1",))
    assert branch.receive_nack(PARENT, SubscriptionNack(OWN, {"a": 1}), NOW) == [
        ToBroker(PARENT, state)
    ]
    assert branch.receive_nack(PARENT, SubscriptionNack(OWN, {"b": 1}), NOW) == []
    [nack] = branch.fire(Instant(TIMING.lag_patience))
    assert nack == ToCell(TWO, SubscriptionNack(TWO, {"b": 1}))
    out = branch.receive_state(SubscriptionState(TWO, {"b": 1}, ("s = 'x'",)), NOW)
    both = SubscriptionState(OWN, {"a": 1, "b": 1}, ("p = 1", "s = 'x'"))
    assert ToBroker(PARENT, both) in out


def test_what_is_covered_in_a_child_s_own_set_is_not_kept() -> None:
    """Else it would stay for ever: nobody tells us that it has gone."""
    branch = make_branch()
    branch.receive_state(deep_state(1, 1, "p > 0"), NOW)
    more = SubscriptionChange(DEEP, {"x": 2}, {"x": 1}, ("p > 5",))  # made without knowing y's
    [up] = ups(branch.receive_change(more, NOW))
    assert isinstance(up, SubscriptionChange)
    assert (up.added, up.constraint) == ((), {"a": 0, "b": 0, "x": 1, "y": 1})
    assert list(branch.children[DEEP].conditions.values()) == ["p > 0"]
    branch.check()


def test_two_children_may_want_the_same() -> None:
    branch = make_branch()
    branch.receive_change(step(1, "p = 1"), NOW)
    other = SubscriptionChange(TWO, {"b": 1}, {"b": 0}, ("p = 1",))
    [up] = ups(branch.receive_change(other, NOW))
    assert isinstance(up, SubscriptionChange)
    assert (up.added, up.constraint["a"]) == ((), 1)
    [up] = ups(branch.receive_change(step(2, removed="p = 1"), NOW))
    assert isinstance(up, SubscriptionChange)
    assert up.removed == ()
    assert branch.matches(TWO, {"p": 1})
    assert not branch.matches(ONE, {"p": 1})


@pytest.mark.parametrize(
    "message",
    [
        SubscriptionChange(CellName("stranger"), {"a": 1}, {"a": 0}),
        SubscriptionChange(ONE, {"b": 1}, {"b": 0}),
        SubscriptionChange(ONE, {"a": 1}, {"b": 0}),
        SubscriptionChange(ONE, {"a": 1}, {"a": 0}, ("p = 1", "p = 1 OR s = 'x'")),
        SubscriptionState(ONE, {"b": 1}),
        SubscriptionState(ONE, {"a": 1}, ("p = 1", "p >")),
        SubscriptionChange(ONE, {"a": 1}, {"a": 0}, ("p = 1",), ("p > 1 OR",)),
        SubscriptionChange(ONE, {"a": 1}, {"a": 0}, ("p = 1", "q = '" + "x" * 70_000 + "'")),
        SubscriptionState(ONE, {"a": 1}, ("p = 1", "(" * 60_000)),
        SubscriptionState(
            ONE, {"a": 1}, ("p = 1", " AND ".join(f"(a{n} OR b)" for n in range(99)))
        ),
        SubscriptionState(ONE, {"a": 1}, ("p = 1", "FALSE")),
        SubscriptionState(ONE, {"a": 1}, ("p = 1", "a = 1e400", "\ud800", "\0")),
        SubscriptionState(ONE, {"a": 1}, ("p = 1",) * (CONDITIONS_MAX + 1)),
    ],
    ids=lambda message: str(message)[:60],
)
def test_nonsense_is_refused_and_changes_nothing(
    message: SubscriptionChange | SubscriptionState,
) -> None:
    branch = make_branch()
    is_change = isinstance(message, SubscriptionChange)
    receive: Any = branch.receive_change if is_change else branch.receive_state
    with pytest.raises(ProtocolError) as refusal:
        receive(message, NOW)
    assert len(str(refusal.value)) < 1_000
    assert branch.vector == {}
    assert len(branch.graph) == 0
    assert branch.deadline is None
