"""A host that has lost its stamp does not know what it must not filter, and filters nothing until
every leaf has told it; whoever else has forgotten, missed something or is away.

It has its log, and knows when its pubends were born: with a whole disk it would lose these too, and
tell everybody of a gap, behind which an event that is filtered by mistake could hide."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gapless.core.identity import BrokerName
from gapless.node.config import MILLISECOND
from gapless.node.parts import Parts
from gapless.propagation.stamp import STAMPS, Stamp
from gapless.testing.planted.faults import parts_with
from gapless.testing.record import Violation
from tests.testing.cast import A_WHILE, P, Play, tree

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gapless.core.effects import Persist

RELAYS = ("ma", "mb")


def lose_stamp(play: Play) -> None:
    """At the host, which comes back at once."""
    play.crash(P)
    play.world.processes[P].disk.lose(STAMPS)
    play.restart(P)


# --- who remembers for it -------------------------------------------------------------------------


def host_loses_stamp(*forgetful: str, wait: int = 0, parts: Parts | None = None) -> Play:
    """A subscription has started; its host loses its stamp, these relays restart, and after a while
    (at once: before it has heard of anybody) it publishes."""
    play = Play(tree(2, "s"), parts)
    play.subscribe("s", "price > 5")
    play.run(A_WHILE)
    for relay in forgetful:
        play.crash(relay)
        play.restart(relay)
    lose_stamp(play)
    play.run(wait)
    play.publish(P, 7)
    play.run(10 * MILLISECOND)
    assert wait or not play.interest(P).branches[None].vector
    play.run(A_WHILE)
    return play


@pytest.mark.parametrize("wait", [0, A_WHILE])
@pytest.mark.parametrize("forgetful", [(), ("ma",), RELAYS])
def test_nothing_is_filtered_before_the_leaf_was_heard_again(
    forgetful: tuple[str, ...], wait: int
) -> None:
    play = host_loses_stamp(*forgetful, wait=wait)
    assert play.got("s") == [7]
    assert play.interest(P).flooded == (wait == 0)
    play.publish(P, 3, 8)
    play.run(A_WHILE)
    assert play.got("s") == [7, 8]
    assert play.interest(P).filtered == 1, "it has learnt what is wanted"
    assert play.wrong() == []


@pytest.mark.parametrize("wait", [0, A_WHILE])
@pytest.mark.parametrize("forgetful", [(), RELAYS])
def test_a_host_that_takes_leaves_for_new_would_lose_events_until_something_changes(
    forgetful: tuple[str, ...], wait: int
) -> None:
    with pytest.raises(Violation, match="no gap"):
        host_loses_stamp(*forgetful, wait=wait, parts=parts_with("forgets-stamp"))


# --- who has missed something ---------------------------------------------------------------------


class TrustsRelays(Stamp):
    """Takes of a leaf that it has forgotten whatever anybody on the way knows."""

    def begin(self, leaves: Iterable[str] = ()) -> list[Persist]:
        self._begins = 1
        return super().begin(leaves)


def relay_lags(parts: Parts | None = None) -> Play:
    """Of two relays one has missed a change that has started. Then the host loses its stamp, and
    the other relay is gone: the only one there is to ask knows less than the host knew."""
    play = Play(tree(2, "s"), parts)
    play.subscribe("s", "price > 90")
    play.run(A_WHILE)
    play.cut(*RELAYS)
    started = play.subscribe("s", "price < 10")
    play.run(50 * MILLISECOND)
    assert started in play.at("s")[0].started
    one, two = (play.interest(relay).branches for relay in RELAYS)
    [(direction, ahead)], behind = one.items(), two
    assert behind[direction].vector != ahead.vector
    play.crash(RELAYS[0])
    lose_stamp(play)
    play.run(A_WHILE)
    play.publish(P, 5, 50, 95)
    play.run(A_WHILE)
    return play


def test_a_relay_that_lags_is_not_believed() -> None:
    play = relay_lags()
    assert play.got("s") == [5, 95]
    assert play.interest(P).filtered == 1
    play.restart(RELAYS[0])
    play.run(A_WHILE)
    assert play.wrong() == []


def test_a_relay_that_is_believed_would_lose_what_it_missed() -> None:
    with pytest.raises(Violation, match="no gap"):
        relay_lags(Parts(stamp=TrustsRelays))


# --- who is away ----------------------------------------------------------------------------------


def test_a_leaf_that_never_came_holds_up_nobody() -> None:
    play = Play(tree(2, "s", "z"))
    play.crash("z")
    lose_stamp(play)
    play.run(A_WHILE)
    number = play.subscribe("s", "price > 5")
    play.run(A_WHILE)
    assert play.at("s")[0].started == [number]
    play.publish(P, 3, 7)
    play.run(A_WHILE)
    assert play.got("s") == [7]
    before = play.carried.links["ma", "s"] + play.carried.links["mb", "s"]
    play.publish(P, 4)
    play.run(A_WHILE)
    assert play.interest(P).flooded == 3, "somebody at z may want it"
    assert play.carried.links["ma", "s"] + play.carried.links["mb", "s"] == before
    play.restart("z")
    play.run(A_WHILE)
    play.publish(P, 4)
    play.run(A_WHILE)
    assert play.interest(P).filtered == 1
    assert play.wrong() == []


def test_a_host_whose_clock_is_far_ahead_filters_nothing_and_loses_nothing() -> None:
    """Its leaf does not follow it into the future, from where it could not go back."""
    play = Play(tree(2, "s"))
    play.subscribe("s", "price > 5")
    play.run(A_WHILE)
    leaf = play.interest("s").leaf
    assert leaf is not None
    time = leaf.clock
    play.world.processes[P].jump(3_600_000 * MILLISECOND)
    lose_stamp(play)
    play.run(A_WHILE)
    play.publish(P, 3, 7)
    play.run(A_WHILE)
    assert play.got("s") == [7]
    assert (leaf.clock, play.interest(P).filtered) == (time, 0)
    later = play.subscribe("s", "price < 2")
    play.run(A_WHILE)
    play.publish(P, 1)
    play.run(A_WHILE)
    assert later in play.at("s")[0].started
    assert play.got("s") == [7, 1]


def test_a_clock_that_is_a_little_ahead_is_followed() -> None:
    play = Play(tree(2, "s"))
    play.subscribe("s", "price > 5")
    play.run(A_WHILE)
    play.world.processes[BrokerName("s")].jump(-10_000 * MILLISECOND)
    lose_stamp(play)
    play.run(A_WHILE)
    play.publish(P, 3, 7)
    play.run(A_WHILE)
    assert play.got("s") == [7]
    assert play.interest(P).filtered == 1
    assert play.wrong() == []
