"""What may be released: never what someone who keeps up has not got."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.broker_messages import Ack
from gapless.core.effects import Append
from gapless.core.identity import BrokerName, CellName, Instant
from gapless.core.ticks import PUBEND_BITS, TICK_MAX
from gapless.knowledge.retention import LogSize, Policy, lost_below
from gapless.testing.memory_volume import MemoryVolume
from tests.durable.reports import Reports
from tests.durable.stand import PUBEND

EAST, WEST = CellName("east"), CellName("west")
A, B = BrokerName("a"), BrokerName("b")
positions = st.integers(0, 40).map(lambda instant: instant << PUBEND_BITS)


def ack(
    cell: CellName, delivered: int, released: int, number: int, reporter: BrokerName = A
) -> Ack:
    return Ack(PUBEND, cell, delivered, released, reporter, epoch=1, sequence=number)


@given(
    positions,
    positions,
    st.integers(0, 40),
    st.one_of(st.none(), st.integers(0, 40)),
    st.one_of(st.none(), positions),
)
def test_a_tick_is_lost_by_the_rule_of_the_paper_or_by_size(
    released: int, delivered: int, now: int, time: int | None, fitting: int | None
) -> None:
    policy = Policy(retention_time=time, retention_bytes=None if fitting is None else 1)
    released = min(released, delivered)
    lost = lost_below(released, delivered, Instant(now), policy, fitting or 0)
    for tick in range(0, 41 << PUBEND_BITS, 1 << (PUBEND_BITS - 1)):
        too_old = time is not None and (now << PUBEND_BITS) - tick > time << PUBEND_BITS
        too_much = fitting is not None and tick < fitting
        assert (tick < lost) == (tick < released or (tick < delivered and (too_old or too_much)))


@given(st.lists(st.integers(1, 9), max_size=20), st.integers(0, 60), st.integers(0, 20))
def test_the_end_of_the_log_that_fits_is_found(sizes: list[int], bytes_max: int, chop: int) -> None:
    log = LogSize()
    for tick, size in enumerate(sizes):
        log.append(tick, size)
    log.chop(chop)
    kept = dict(list(enumerate(sizes))[min(chop, max(len(sizes) - 1, 0)) :])
    assert log.total == sum(kept.values())
    start = log.fitting_from(bytes_max)
    fits = sum(size for tick, size in kept.items() if tick >= start) <= bytes_max
    assert fits or start == len(sizes) - 1, "the newest batch always fits"
    assert not start or start == min(kept) or sum(sizes[start - 1 :]) > bytes_max


def test_the_size_of_a_log_is_found_again_after_a_restart() -> None:
    volume = MemoryVolume()
    assert LogSize.of(volume, "log").total == 0
    records = (b"x" * 400_000,) * 4
    volume.commit([Append("log", (5, 6, 7, 8), records)])
    log = LogSize.of(volume, "log")
    assert log.total == 1_600_000
    assert log.fitting_from(800_000) == 7


def test_the_minima_are_those_of_the_slowest_cell_and_wait_for_all() -> None:
    reports = Reports([EAST, WEST])
    reports.receive_ack(ack(EAST, 50, 40, 1))
    assert (reports.delivered, reports.released) == (0, 0)
    reports.receive_ack(ack(WEST, 30, 20, 1))
    assert (reports.delivered, reports.released) == (30, 20)
    reports.check()


def test_the_newest_report_counts_even_if_it_is_lower() -> None:
    reports = Reports([EAST])
    reports.receive_ack(ack(EAST, 50, 40, 2))
    reports.hold(EAST, A, 1, 3, 10)
    assert (reports.delivered, reports.released) == (50, 10)
    reports.receive_ack(ack(EAST, 45, 40, 2))
    assert (reports.delivered, reports.released) == (50, 10), "late: sent before the hold"
    reports.receive_ack(ack(EAST, 60, 55, 4))
    assert (reports.delivered, reports.released) == (60, 55)
    reports.receive_ack(Ack(PUBEND, EAST, 60, 20, A, epoch=2, sequence=1))
    assert reports.released == 20, "a restarted reporter counts from one again"


def test_of_two_that_speak_for_a_cell_the_lower_counts_until_one_is_gone() -> None:
    reports = Reports([EAST])
    reports.receive_ack(ack(EAST, 50, 40, 9, A))
    reports.receive_ack(ack(EAST, 50, 10, 1, B))
    assert reports.released == 10
    reports.forget(EAST, B)
    assert reports.released == 40
    reports.forget(EAST, A)
    assert reports.released == 40, "the last word stays, or all would be released"


def test_no_more_is_released_than_was_delivered() -> None:
    reports = Reports([EAST])
    reports.receive_ack(ack(EAST, 30, 99, 1))
    assert reports.released == 30
    reports.check()


@pytest.mark.parametrize("policy", [Policy(), Policy(retention_time=1), Policy(retention_bytes=0)])
def test_what_is_not_delivered_everywhere_is_never_released(policy: Policy) -> None:
    assert lost_below(0, 7, Instant(10**6), policy, TICK_MAX) in (0, 7)
