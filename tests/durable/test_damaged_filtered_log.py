"""A damaged filtered log hides nothing: what it cannot know any more is unknown, never silence."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from gapless.durable.filtered_log import FilteredLog, Trail
from gapless.testing.memory_volume import MemoryVolume
from tests.durable.stand import PUBEND, Limits
from tests.durable.test_filtered_log import states, write

TAKERS = range(4)
END = 60


def read_all(log: FilteredLog, taker: int) -> str:
    """All that the log says to one taker, a letter for each tick."""
    at, letters, trail = 0, "", Trail()
    for _ in range(10 * END):
        if at == END:
            return letters
        reading = log.read(taker, at, END, trail=trail)
        letters += states(reading, at)
        at = max(at, reading.through)
    raise AssertionError("it says the same for ever")


@pytest.mark.parametrize("seed", range(60))
def test_a_tick_that_a_taker_has_is_never_silent_whatever_is_damaged(seed: int) -> None:
    dice = Random(seed)
    limits = replace(
        Limits(),
        filtered_read_max=dice.randint(1, 5),
        filtered_walk_max=dice.randint(6, 40),
        filtered_replay_max=dice.choice([3, 20, 1_000]),
    )
    volume = MemoryVolume()
    log = FilteredLog(PUBEND, volume, limits)
    truth: dict[int, set[int]] = {}
    at = 0
    while at < END:
        through = min(END, at + dice.randint(1, 9))
        batch = {
            tick: sorted(dice.sample(TAKERS, dice.randint(0, 3)))
            for tick in range(at, through)
            if dice.random() < 0.6
        }
        truth |= {tick: set(some) for tick, some in batch.items() if some}
        write(log, volume, batch, through)
        at = through
    damaged = dice.sample(sorted(truth), min(len(truth), dice.randint(1, 3)))
    for tick in damaged:
        volume.corrupt(log.stream, tick)
    for life in range(3):
        for taker in TAKERS:
            letters = read_all(log, taker)
            assert len(letters) == END
            for tick, some in truth.items():
                assert taker not in some or letters[tick] == "Q", (life, taker, tick)
            behind = max(damaged)
            for tick in range(behind + 1, END):  # where nothing is damaged, all is known
                assert (letters[tick] == "Q") == (taker in truth.get(tick, ())), (taker, tick)
        volume.reopen()
        log = FilteredLog(PUBEND, volume, limits)
        if life == 0:  # and goes on being written to, with or without snapshots
            for tick in range(END, END + 30):
                write(log, volume, {tick: [9]}, tick + 1)
            volume.reopen()
            log = FilteredLog(PUBEND, volume, limits)
