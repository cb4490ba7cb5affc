"""The count of a chain against brute force: the sorted ticks that a subscription took."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.durable import chain_count
from gapless.durable.chain_count import Budget, ChainCount
from gapless.durable.filtered_log import FilteredLog
from gapless.testing.memory_volume import MemoryVolume
from tests.durable.stand import PUBEND, Limits
from tests.durable.test_filtered_log import write

STEP = st.tuples(
    st.lists(st.sampled_from([[], [1], [2], [1, 2]]), max_size=12),  # takers of the next events
    st.integers(0, 15),  # how far the position moves
    st.integers(0, 9),  # what a look may walk
)


@given(steps=st.lists(STEP, max_size=8), every=st.integers(1, 4))
def test_a_count_is_what_counting_by_hand_gives_or_a_lower_bound_that_says_so(
    steps: list[tuple[list[list[int]], int, int]], every: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chain_count, "MARK_EVERY", every)
        volume = MemoryVolume()
        log = FilteredLog(PUBEND, volume, Limits())
        count = ChainCount(log, 1, lambda ticks: sum(100 + tick for tick in ticks))
        tick, position, taken = 1, 0, list[int]()
        for takers, move, room in steps:
            some = {tick + n: each for n, each in enumerate(takers) if each}
            tick += len(takers) + 1
            taken += [at for at, each in some.items() if 1 in each]
            write(log, volume, some, tick)
            position += move
            wanted = [at for at in taken if at >= position]
            for budget in (room, room, 1_000):
                found = count.look(position, Budget(budget))
                count.check()
                if found.is_exact:
                    assert found.events == len(wanted)
                    assert found.size == sum(100 + at for at in wanted)
                    assert found.oldest == (wanted[0] if wanted else None)
                assert found.events <= len(wanted)
            assert found.is_exact, "the last look had room enough"
            for number in range(1, len(wanted) + 1):
                assert count.newest(number) == wanted[-number]
            assert count.newest(0) is None
            for later in range(position, tick):
                rest = [at for at in wanted if at >= later]
                assert count.count_from(later).events == len(rest)


def test_a_later_look_walks_what_is_new_and_no_more_than_a_mark_apart() -> None:
    volume = MemoryVolume()
    log = FilteredLog(PUBEND, volume, Limits())
    write(log, volume, {tick: [1] for tick in range(1, 20_001)}, 20_001)
    count = ChainCount(log, 1, None)
    assert count.look(1, Budget(100_000))[0] == 20_000
    write(log, volume, {tick: [1] for tick in range(20_001, 20_011)}, 20_011)
    before = log.reads
    assert count.look(10_001, Budget(100_000))[0] == 10_010
    assert log.reads - before <= 3 * chain_count.MARK_EVERY


def test_a_long_chain_is_a_lower_bound_until_looks_have_walked_it() -> None:
    volume = MemoryVolume()
    log = FilteredLog(PUBEND, volume, Limits())
    write(log, volume, {tick: [1] for tick in range(1, 5_001)}, 5_001)
    count = ChainCount(log, 1, None)
    looks = [count.look(1, Budget(1_000)) for _ in range(7)]
    assert [each.is_exact for each in looks] == [False] * 5 + [True] * 2
    assert 1_000 <= looks[0].events < 2_000
    assert looks[-1].events == 5_000
