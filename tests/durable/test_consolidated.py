"""The consolidated stream: nothing counts as delivered before it is durably logged."""

from __future__ import annotations

import pytest

from gapless.core.effects import Append, Persist
from gapless.core.identity import Instant
from gapless.core.ticks import Span
from gapless.durable.consolidated import Consolidated, RecordsPersisted, SubscriptionBatch
from gapless.knowledge.subend import Settled
from tests.durable.stand import PUBEND, Disk, Limits
from tests.durable.stand import limits as make_limits

LIMITS = Limits()


class Stand:
    """A consolidated stream and its disk."""

    def __init__(self, disk: Disk | None = None, **limits: int) -> None:
        self.limits = make_limits(**limits)
        self.disk = disk or Disk()
        self.machine = Consolidated(PUBEND, self.disk.volume, self.limits)

    def advance(self, takers: dict[int, list[int]], through: int, now: int = 0) -> None:
        ticks = sorted(takers)
        settled = Settled(ticks, [b"e%d" % tick for tick in ticks], [])
        effects = self.machine.advance(settled, [takers[t] for t in ticks], through, Instant(now))
        self.disk.take(effects)
        self.machine.check()

    def sync(self, now: int = 0) -> None:
        for message in self.disk.sync():
            assert isinstance(message, RecordsPersisted)
            self.disk.take(self.machine.persisted(message, Instant(now)))
        self.machine.check()

    def fire(self, now: int) -> None:
        self.disk.take(self.machine.fire(Instant(now)))
        self.machine.check()

    def restart(self) -> Stand:
        self.disk.crash()
        return Stand(self.disk)


def test_the_position_moves_when_the_log_is_durable_and_not_before() -> None:
    stand = Stand()
    stand.advance({3: [1], 5: [2]}, 6)
    assert (stand.machine.latest, stand.machine.delivered) == (0, 6)
    stand.sync()
    assert stand.machine.latest == 6
    assert stand.machine.log.read(2, 0, 6).wanted == [5]


def test_a_crash_before_the_sync_goes_back_to_what_is_durable() -> None:
    stand = Stand()
    stand.advance({3: [1]}, 4)
    stand.sync()
    stand.advance({7: [1]}, 8)
    again = stand.restart()
    assert (again.machine.latest, again.machine.delivered) == (4, 4)
    again.advance({7: [1]}, 8)
    again.sync()
    assert again.machine.log.read(1, 0, 8).wanted == [3, 7]


def test_what_comes_while_a_write_is_under_way_is_one_write_afterwards() -> None:
    stand = Stand()
    for tick in range(5):
        stand.advance({tick: [1]}, tick + 1)
    assert len(stand.disk.waiting) == 1
    stand.sync()
    assert stand.machine.latest == 1
    [persist] = stand.disk.waiting
    [append] = [each for each in persist.writes if isinstance(each, Append)]
    assert append.indices == (1, 2, 3, 4)
    stand.sync()
    assert stand.machine.latest == 5
    assert not stand.disk.waiting


def test_silence_alone_is_written_after_a_while() -> None:
    stand = Stand()
    stand.advance({}, 10, now=1)
    stand.advance({11: []}, 12, now=2)
    assert not stand.disk.waiting
    assert stand.machine.deadline == 1 + LIMITS.delivered_flush
    stand.fire(now=LIMITS.delivered_flush)
    assert not stand.disk.waiting
    stand.fire(now=1 + LIMITS.delivered_flush)
    stand.sync()
    assert stand.machine.latest == 12
    assert stand.machine.deadline is None


def test_silence_that_comes_during_a_write_is_written_too() -> None:
    stand = Stand()
    stand.advance({3: [1]}, 4)
    stand.advance({}, 9)
    stand.sync(now=7)
    assert stand.machine.deadline == 7 + LIMITS.delivered_flush
    stand.fire(now=7 + LIMITS.delivered_flush)
    stand.sync()
    assert stand.machine.latest == 9


def test_without_room_the_same_is_tried_again_and_nothing_is_lost() -> None:
    stand = Stand(filtered_pending_max=3)
    stand.disk.volume.size_max = 0
    stand.advance({3: [1]}, 4)
    stand.sync(now=5)
    assert (stand.machine.latest, stand.machine.deadline) == (0, 5 + LIMITS.storage_retry)
    stand.advance({5: [1]}, 6)
    stand.advance({7: [1]}, 8)
    assert stand.machine.is_full, "two wait and one is to be written again"
    stand.fire(now=5 + LIMITS.storage_retry)
    stand.disk.volume.size_max = None
    stand.sync()
    assert stand.machine.latest == 4
    stand.sync()
    assert stand.machine.latest == 8
    assert stand.machine.log.read(1, 0, 8).wanted == [3, 5, 7]


@pytest.mark.parametrize("limit", ["filtered_pending_max", "filtered_pending_bytes_max"])
def test_it_is_full_only_while_as_much_waits_as_may(limit: str) -> None:
    stand = Stand(None, **{limit: 3 if limit == "filtered_pending_max" else 6})
    full = []
    for tick in range(3):
        stand.advance({tick: [1]}, tick + 1)
        full.append(stand.machine.is_full)
    stand.sync()
    full.append(stand.machine.is_full)
    assert full == [False, False, True, False]


def test_the_tail_is_what_was_delivered_and_is_not_durable_yet() -> None:
    stand = Stand()
    stand.advance({3: [1, 2], 4: [2]}, 5)
    stand.advance({6: [1]}, 9)
    assert stand.machine.tail(1, 0) == SubscriptionBatch([3, 6], [b"e3", b"e6"], 9)
    assert stand.machine.tail(2, 4) == SubscriptionBatch([4], [b"e4"], 9)
    assert stand.machine.tail(2, 20) == SubscriptionBatch([], [], 20), (
        "a client may be ahead after a crash"
    )
    stand.sync()
    assert stand.machine.tail(1, 5) == SubscriptionBatch([6], [b"e6"], 9)


def test_a_stream_begins_once_and_durably() -> None:
    stand = Stand()
    stand.disk.take(stand.machine.begin(100, Instant(0)))
    stand.sync()
    assert stand.restart().machine.latest == 100
    with pytest.raises(AssertionError):
        stand.machine.begin(200, Instant(0))


def test_a_gap_in_the_consolidated_stream_is_an_error_of_ours() -> None:
    machine = Stand().machine
    with pytest.raises(AssertionError, match="I4"):
        machine.advance(Settled([], [], [(PUBEND, Span(1, 2))]), [], 3, Instant(0))


def test_a_chop_is_written_once() -> None:
    stand = Stand()
    stand.advance({3: [1], 5: [1]}, 6)
    stand.sync()
    [effect] = stand.machine.chop(4)
    assert isinstance(effect, Persist)
    stand.disk.take([effect])
    stand.disk.sync()
    assert stand.machine.chop(4) == []
    assert stand.disk.volume.bounds(stand.machine.log.stream)[0] == 4
