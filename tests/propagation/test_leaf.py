"""A leaf: its clock shows no time twice, nothing leaves too early, what is lost is repeated."""

from __future__ import annotations

from gapless.core.broker_messages import SubscriptionChange, SubscriptionState
from gapless.core.effects import Persist, Tell
from gapless.core.identity import BrokerName, CellName, Instant
from gapless.core.outgoing import ToBroker, ToCell
from gapless.filters.filter import Filter
from gapless.propagation.leaf import ClockPersisted, Leaf
from gapless.testing.memory_volume import MemoryVolume
from tests.propagation.stand import MS, TIMING, LeafStand, carry_out, messages


def make_leaf(volume: MemoryVolume) -> Leaf:
    return Leaf(BrokerName("l"), CellName("L"), (CellName("m"),), volume, TIMING)


def subscribe(leaf: Leaf, key: str, condition: str, now: int = 0) -> list[object]:
    actions = leaf.update({key: Filter.parse(condition)}, [], Instant(now))
    leaf.check()
    return list(messages(actions))


def done(leaf: Leaf, write: Persist, *, ok: bool = True, now: int = 0) -> list[object]:
    [effect] = write.then if ok else write.otherwise
    assert isinstance(effect, Tell)
    assert isinstance(effect.message, ClockPersisted)
    return list(messages(leaf.persisted(effect.message, Instant(now))))


def first_write(leaf: Leaf) -> Persist:
    [write] = leaf.begin({}, Instant(0))
    assert isinstance(write, Persist)
    return write


def test_nothing_leaves_before_the_clock_s_bound_is_durable() -> None:
    leaf = make_leaf(MemoryVolume())
    write = first_write(leaf)
    assert subscribe(leaf, "a", "p = 1") == []
    assert leaf.receive_nack(BrokerName("m1"), Instant(0)) == []
    change, state = done(leaf, write)
    assert isinstance(change, SubscriptionChange)
    assert change.vector == {"l": 1}
    assert isinstance(state, SubscriptionState)


def test_a_first_time_is_not_shown_before_it_is_durable() -> None:
    """It depends on the broker's clock, which may be earlier after a crash."""
    leaf = Leaf(BrokerName("l"), CellName("L"), (CellName("m"),), MemoryVolume(), TIMING, first=900)
    write = first_write(leaf)
    assert leaf.receive_nack(BrokerName("m1"), Instant(0), 850) == []
    leaf.check()
    [state] = done(leaf, write)
    assert isinstance(state, SubscriptionState)
    assert state.vector == {"l": 899}


def test_a_bound_without_room_is_tried_again() -> None:
    leaf = make_leaf(MemoryVolume())
    write = first_write(leaf)
    subscribe(leaf, "a", "p = 1")
    assert done(leaf, write, ok=False, now=5) == []
    assert leaf.deadline == 5 + TIMING.change_wait
    assert leaf.fire(Instant(5)) == []
    [again] = leaf.fire(leaf.deadline)
    assert isinstance(again, Persist)
    assert len(done(leaf, again)) == 1


def test_the_bound_is_moved_ahead_of_need() -> None:
    """No change waits for the disk, if the disk keeps up."""
    stand = LeafStand("l", "L", "m")
    for number in range(50):
        before = stand.leaf.bound
        assert len(stand.update(more={f"s{number}": f"p = {number}"})) == 1
        assert stand.leaf.clock - 1 <= before


def test_a_restart_goes_on_after_every_time_that_may_have_been_used() -> None:
    stand = LeafStand("l", "L", "m")
    for life in range(3):
        stand.update(more={f"s{life}": f"p = {life}"})
        used = stand.leaf.clock - 1
        [state] = stand.begin({})
        assert isinstance(state, SubscriptionState)
        assert state.vector["l"] > used
        assert state.conditions == ()


def test_a_crash_before_the_write_ends_uses_no_time() -> None:
    volume = MemoryVolume()
    leaf = make_leaf(volume)
    first_write(leaf)  # never done
    subscribe(leaf, "a", "p = 1")
    assert make_leaf(volume).clock == 1


def test_a_batch_is_one_step_and_its_order_does_not_matter() -> None:
    stand = LeafStand("l", "L", "m")
    stand.update(old="p > 1")
    [change] = stand.update("old", narrow="p > 5", other="s = 'x'")
    assert isinstance(change, SubscriptionChange)
    assert change.added == ("p > 5", "s = 'x'")
    assert change.removed == ("p > 1",)
    assert stand.leaf.clock == 3
    assert stand.leaf.starts == {"narrow": 1, "other": 2}  # `narrow` was covered all along


def test_a_batch_that_leaves_the_roots_alone_is_no_step() -> None:
    stand = LeafStand("l", "L", "m")
    stand.update(one="p > 1")
    assert stand.update("one", two="p > 1", never="FALSE") == []
    assert stand.leaf.clock == 2
    assert stand.leaf.starts == {"two": 1, "never": 0}


def test_an_overdue_change_brings_the_whole_state_and_patience_doubles() -> None:
    stand = LeafStand("l", "L", "m")
    stand.update(a="p = 1")
    wait = TIMING.change_wait
    assert stand.leaf.see("P", 0, Instant(wait - 1)) == []
    [state] = messages(stand.leaf.see("P", 0, Instant(wait)))
    assert state == SubscriptionState(CellName("L"), {"l": 1}, ("p = 1",))
    assert stand.leaf.see("P", 0, Instant(3 * wait - 1)) == []
    assert len(stand.leaf.see("P", 0, Instant(3 * wait))) == 1
    assert stand.leaf.see("P", 1, Instant(30 * wait)) == []
    assert stand.leaf.expectation.sent_changes == []


def test_every_source_must_have_seen_a_change() -> None:
    stand = LeafStand("l", "L", "m")
    stand.update(a="p = 1")
    stand.leaf.see("Q", 0, Instant(MS))
    stand.leaf.see("P", 1, Instant(MS))
    assert len(stand.leaf.see("Q", 0, Instant(TIMING.change_wait))) == 1


def test_a_source_that_turns_up_late_and_lags_is_told() -> None:
    stand = LeafStand("l", "L", "m")
    stand.update(a="p = 1")
    stand.leaf.see("P", 1, Instant(MS))
    wait = stand.leaf.expectation.wait
    assert stand.leaf.see("Q", 0, Instant(10 * MS)) == []
    assert stand.leaf.see("P", 0, Instant(10 * MS + wait)) == []  # an old message of P, late
    assert len(stand.leaf.see("Q", 0, Instant(10 * MS + wait))) == 1
    assert stand.leaf.see("Q", 1, Instant(20 * MS + wait)) == []
    assert stand.leaf.expectation.sent_changes == []
    stand.leaf.check()


def test_the_wait_follows_what_was_seen_but_not_repeats() -> None:
    stand = LeafStand("l", "L", "m")
    for number in range(20):
        stand.update(now=number * MS * 1000, more={f"s{number}": f"p = {number}"})
        stand.leaf.see("P", number + 1, Instant(number * MS * 1000 + 10 * MS))
    assert stand.leaf.expectation.wait == TIMING.change_wait_shortest
    stand.leaf.check()


def test_two_sources_may_turn_up_late() -> None:
    stand = LeafStand("l", "L", "m")
    stand.update(a="p = 1")
    stand.leaf.see("P", 1, Instant(MS))
    wait = stand.leaf.expectation.wait
    for source in ("Q", "R"):
        assert stand.leaf.see(source, 0, Instant(10 * MS)) == []
        stand.leaf.check()
    assert len(stand.leaf.see("R", 0, Instant(10 * MS + wait))) == 1


def test_who_wants_a_time_that_has_not_come_gets_all_there_is_under_that_time() -> None:
    stand = LeafStand("l", "L", "m")
    stand.update(a="p = 1")
    asker, leaf, now = BrokerName("m1"), stand.leaf, Instant(MS)
    assert leaf.receive_nack(asker, now, wanted=1) == [
        ToBroker(asker, SubscriptionState(CellName("L"), {"l": 1}, ("p = 1",)))
    ], "it has been"
    asked = leaf.receive_nack(asker, now, wanted=700)
    assert all(isinstance(each, Persist) for each in asked), "no time before its bound is durable"
    assert carry_out(leaf, stand.volume, asked) == [
        ToCell(CellName("m"), SubscriptionState(CellName("L"), {"l": 700}, ("p = 1",)))
    ], "all there are upstream, for whoever does not hear of it takes the next change for overdue"
    [change] = stand.update(b="p = 2")
    assert isinstance(change, SubscriptionChange)
    assert (change.vector, change.constraint) == ({"l": 701}, {"l": 700})
    assert leaf.starts == {"a": 1, "b": 701}
    leaf.check()
