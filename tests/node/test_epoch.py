"""The number of a broker's life: higher than all before it, whatever the clock says."""

from __future__ import annotations

from gapless.core.effects import Persist
from gapless.core.identity import Instant
from gapless.node.config import Config
from gapless.node.epoch import Epoch, EpochPersisted
from gapless.testing.memory_volume import MemoryVolume


def begun(volume: MemoryVolume, now: int) -> Epoch:
    epoch = Epoch(volume, Config(), Instant(now))
    [write] = epoch.fire(Instant(now))
    assert isinstance(write, Persist)
    durable = [epoch.is_durable]
    volume.commit(write.writes)
    epoch.persisted(EpochPersisted(), Instant(now))
    assert [*durable, epoch.is_durable] == [False, True]
    return epoch


def test_an_epoch_is_higher_than_those_before_though_the_clock_was_set_back() -> None:
    volume = MemoryVolume()
    numbers = [begun(volume, now).number for now in (1_000, 50, 50, 2_000)]
    assert numbers == [1_000, 1_001, 1_002, 2_000]


def test_an_epoch_that_found_no_room_is_tried_again() -> None:
    epoch = Epoch(MemoryVolume(), Config(), Instant(0))
    assert epoch.fire(Instant(0))
    epoch.persisted(EpochPersisted(ok=False), Instant(0))
    assert not epoch.is_durable
    assert epoch.deadline == Config().storage_retry
    assert epoch.fire(Instant(Config().storage_retry))
