"""The frontier is the nearest that can be reached, in every direction."""

from __future__ import annotations

from gapless.core.identity import BrokerName
from gapless.tree.connections import Reach
from gapless.tree.frontier import Frontier, explore
from gapless.tree.neighbourhood import Neighbourhood


def frontier(**reach: str) -> Frontier:
    """From `a`, in the tree a-b, b-c, b-d, c-e."""
    names = [("a", "b"), ("b", "c"), ("b", "d"), ("c", "e")]
    edges = [(BrokerName(x), BrokerName(y)) for x, y in names]
    states = {BrokerName(name): Reach(state) for name, state in reach.items()}
    near = Neighbourhood(BrokerName("a"), 3, edges)
    return explore(near, lambda broker: states.get(broker, Reach.IDLE))


def test_who_is_up_hides_all_behind_it() -> None:
    assert frontier(b="up", c="failed", d="up") == Frontier(active=(BrokerName("b"),))


def test_who_has_failed_is_stepped_over_in_every_direction() -> None:
    found = frontier(b="failed", c="failed", d="up", e="up")
    assert (found.active, found.failed) == (("d", "e"), ("b", "c"))


def test_nobody_is_bypassed_before_he_has_failed() -> None:
    found = frontier(b="connecting", c="up")
    assert (found.active, found.awaited) == ((), ("b",))


def test_those_behind_a_failed_one_are_reached_for() -> None:
    assert frontier(b="failed").wanted == ("c", "d", "b")
