"""A stamp: what is in use is durable, and nothing ever goes back."""

from __future__ import annotations

from gapless.core.effects import Persist, Tell
from gapless.propagation.stamp import Stamp, StampPersisted
from gapless.testing.memory_volume import MemoryVolume
from tests.propagation.stand import carry_out


def told(write: Persist, *, ok: bool = True) -> StampPersisted:
    [effect] = write.then if ok else write.otherwise
    assert isinstance(effect, Tell)
    assert isinstance(effect.message, StampPersisted)
    return effect.message


def test_a_vector_is_not_used_before_it_is_durable() -> None:
    stamp = Stamp("P", MemoryVolume())
    [write] = stamp.advance({"a": 1})
    assert (stamp.digest, stamp.vector) == (1, {})
    assert stamp.persisted(told(write)) == []
    assert (stamp.digest, stamp.vector) == (2, {"a": 1})
    stamp.check()


def test_what_grows_during_a_write_gathers_for_the_next() -> None:
    stamp = Stamp("P", MemoryVolume())
    [write] = stamp.advance({"a": 1})
    assert stamp.advance({"a": 2}) == []
    assert stamp.advance({"a": 2, "b": 5}) == []
    [second] = stamp.persisted(told(write))
    assert stamp.vector == {"a": 1}
    assert stamp.persisted(told(second)) == []
    assert (stamp.digest, stamp.vector) == (3, {"a": 2, "b": 5})


def test_a_write_without_room_is_tried_again_with_the_next_advance() -> None:
    stamp = Stamp("P", MemoryVolume())
    [write] = stamp.advance({"a": 1})
    assert stamp.persisted(told(write, ok=False)) == []
    assert stamp.vector == {}
    [again] = stamp.advance({"a": 1})
    stamp.persisted(told(again))
    assert stamp.vector == {"a": 1}


def test_a_restart_goes_on_from_the_highest_vector() -> None:
    volume = MemoryVolume()
    stamp = Stamp("P", volume)
    carry_out(stamp, volume, stamp.advance({"a b": 1, "c": 3}))
    again = Stamp("P", volume)
    assert (again.digest, again.vector) == (2, {"a b": 1, "c": 3})
    assert again.advance({"c": 2}) == []
    carry_out(again, volume, again.advance({"c": 4}))
    assert (again.digest, again.vector) == (3, {"a b": 1, "c": 4})


def test_leaves_that_were_never_heard_of_or_forgotten_count_from_the_present_on() -> None:
    volume = MemoryVolume()
    stamp = Stamp("P", volume, first=100)
    [write] = stamp.begin(["a", "b"])
    assert (stamp.is_in_use, stamp.vector, stamp.coming) == (False, {}, {"a": 100, "b": 100})
    assert stamp.begin() == [], "it is being written"
    carry_out(stamp, volume, [write])
    assert (stamp.is_in_use, stamp.digest, stamp.vector) == (True, 101, {"a": 100, "b": 100})
    stamp.check()
    carry_out(stamp, volume, stamp.advance({"a": 107}))
    again = Stamp("P", volume, first=200)
    assert again.begin(["a", "b"]) == []
    assert again.is_in_use, "it has forgotten nothing"
    later = Stamp("P", volume, first=300)
    carry_out(later, volume, later.begin(["a", "b", "c"]))
    assert (later.digest, later.vector) == (103, {"a": 107, "b": 100, "c": 300})


def test_such_leaves_are_not_forgotten_for_want_of_room() -> None:
    volume = MemoryVolume()
    stamp = Stamp("P", volume, first=100)
    [write] = stamp.begin(["a"])
    assert stamp.persisted(told(write, ok=False)) == []
    assert not stamp.is_in_use
    carry_out(stamp, volume, stamp.advance({}))
    assert (stamp.is_in_use, stamp.vector) == (True, {"a": 100})
