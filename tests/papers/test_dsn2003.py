"""Bhola, Zhao, Auerbach: Scalably Supporting Durable Subscriptions in a Publish/Subscribe System,
DSN 2003: its figures, its formulas and the rules of sections 2 to 4.

Each docstring names the section. The paper's positions are inclusive (the last tick that is
consumed), ours are exclusive (the first that is not): `latestDelivered = 104` is `latest == 105`.
Where we depart from the paper the docstring begins with "Deviation".
"""

from __future__ import annotations

from gapless.core.broker_messages import Ack
from gapless.core.effects import Append
from gapless.core.identity import CellName, Instant
from gapless.core.ticks import PUBEND_BITS, Span
from gapless.core.token import Token
from gapless.durable.catch_up import CatchUp, CatchUpSource, LostSpan, Taker
from gapless.durable.consolidated import Consolidated, RecordsPersisted, SubscriptionBatch
from gapless.durable.filtered_log import FilteredLog
from gapless.knowledge.retention import Policy, lost_below
from gapless.knowledge.subend import Settled
from gapless.testing.memory_volume import MemoryVolume
from tests.bounds import so_long_as
from tests.durable.reports import Reports
from tests.durable.stand import Disk, Limits
from tests.durable.test_filtered_log import states
from tests.knowledge.notation import PUBEND, event, knowledge, show

LIMITS = Limits()
NOW = Instant(0)
S1, S2, S3 = 1, 2, 3


def advance(stream: Consolidated, disk: Disk, takers: dict[int, list[int]], through: int) -> None:
    """A batch is delivered and becomes durable."""
    ticks = sorted(takers)
    settled = Settled(ticks, [event(tick) for tick in ticks], [])
    disk.take(stream.advance(settled, [takers[tick] for tick in ticks], through, NOW))
    for _ in so_long_as(lambda: disk.waiting):
        for message in disk.sync():
            assert isinstance(message, RecordsPersisted)
            disk.take(stream.persisted(message, NOW))


# --- 2 system model ------------------------------------------------------------------------------


def test_2_a_checkpoint_token_is_a_vector_clock() -> None:
    """2: "a set of (pubend, timestamp) pairs is essentially a Vector Clock"."""
    before, after = Token({"p": 4, "q": 7}), Token({"p": 5, "q": 7})
    concurrent = Token({"p": 4, "q": 8})
    assert before < after
    assert not after.is_comparable(concurrent)


# --- 3 retention and release ---------------------------------------------------------------------


def test_3_the_example_policy_loses_up_to_109() -> None:
    """3: with T_r = 100, T_d = 115, T = 120 and maxRetain = 10 the lost prefix ends at 109."""
    released, delivered = 101 << PUBEND_BITS, 116 << PUBEND_BITS
    lost = lost_below(released, delivered, Instant(120), Policy(retention_time=10))
    assert lost == 110 << PUBEND_BITS


def test_3_without_a_policy_what_all_have_acknowledged_is_lost_and_no_more() -> None:
    """3: "even in the absence of any early-release policy … when t <= T_r(p)"."""
    assert lost_below(101, 116, Instant(10**9), Policy()) == 101


def test_3_each_node_keeps_the_minimum_of_both_positions() -> None:
    """3: "the minimum timestamp that all downstream SHBs have released", and "of all
    latestDelivered(p)"; "by definition the invariant T_r <= T_d holds"."""
    reports = Reports([CellName("east"), CellName("west")])
    reports.receive_ack(Ack(PUBEND, CellName("east"), 116, 106))
    reports.receive_ack(Ack(PUBEND, CellName("west"), 121, 101))
    assert (reports.delivered, reports.released) == (116, 101)


# --- 4.1 the consolidated stream and catch-up ----------------------------------------------------


def figure_1() -> tuple[Consolidated, Disk]:
    """latestDelivered = 104; of ticks 101 to 104 only 101 matched s1."""
    disk = Disk()
    stream = Consolidated(PUBEND, disk.volume, LIMITS)
    advance(stream, disk, {101: [S1], 103: [S2]}, 105)
    return stream, disk


def test_4_1_figure_1_the_doubt_horizon_moves_the_consolidated_stream() -> None:
    """4.1: "since the doubt horizon is now 106, the constream will deliver D3 … and to the PFS and
    then advance latestDelivered(p) to 106"."""
    stream, disk = figure_1()
    assert stream.latest == 105
    settled = Settled([106], [event(106)], [])
    disk.take(stream.advance(settled, [[S2]], 107, NOW))
    assert stream.latest == 105, "delivery to the filtered log is complete only once it is durable"
    [message] = disk.sync()
    assert isinstance(message, RecordsPersisted)
    stream.persisted(message, NOW)
    assert stream.latest == 107
    assert stream.log.read(S2, 100, 107).wanted == [103, 106]


def test_4_1_figure_1_the_catchup_stream_nacks_101_and_switches_over() -> None:
    """4.1: CT(s1, p) = 100: "the only D tick for s1 in the range [101, 105] is at timestamp 101 …
    set the tick value for 102-105 to S, and the one at 101 to Q, and initiated a nack for 101"."""
    stream, _ = figure_1()
    catch_up = CatchUp(Taker(S1), 101, CatchUpSource(stream.log), LIMITS)
    pieces, [nack] = catch_up.advance(stream.latest, 10, NOW)
    assert pieces == []
    assert show(nack) == "nack [101,102)"
    catch_up.receive_knowledge(knowledge("[101,102) D101 asked"), NOW)
    pieces, nacks = catch_up.advance(stream.latest, 10, NOW)
    assert pieces == [SubscriptionBatch([101], [event(101)], 105)]
    assert nacks == []
    assert catch_up.is_done(stream.latest)


def test_4_1_deviation_the_catchup_stream_takes_nothing_from_beyond_the_durable_position() -> None:
    """Deviation: in figure 1 the silence at 105 reaches the catchup stream from the istream. Ours
    ends at the durable position and gets the rest from the consolidated stream, in one step."""
    stream, disk = figure_1()
    settled = Settled([106], [event(106)], [])
    disk.take(stream.advance(settled, [[S1]], 107, NOW))  # delivered, not durable yet
    catch_up = CatchUp(Taker(S1), 102, CatchUpSource(stream.log), LIMITS)
    assert catch_up.advance(stream.latest, 10, NOW) == ([SubscriptionBatch([], [], 105)], [])
    assert stream.tail(S1, catch_up.position) == SubscriptionBatch([106], [event(106)], 107)


def test_4_1_the_stream_recovers_from_latest_delivered_onwards() -> None:
    """4.1: "when the constream recovers after a crash, it resumes delivery … from
    latestDelivered(p) onwards"."""
    stream, disk = figure_1()
    disk.take(stream.advance(Settled([106], [event(106)], []), [[S2]], 107, NOW))
    disk.crash()
    assert Consolidated(PUBEND, disk.volume, LIMITS).delivered == 105


def test_3_one_who_is_further_behind_than_is_retained_gets_exactly_one_gap() -> None:
    """3: "at risk of receiving a gap message if its CT(s, p) falls behind T(p) by more than
    maxRetain(p)"; 2: the gap is explicit, and after it nothing is missing."""
    disk = Disk()
    stream = Consolidated(PUBEND, disk.volume, LIMITS)
    advance(stream, disk, {tick: [S1] for tick in range(100, 120, 2)}, 120)
    catch_up = CatchUp(Taker(S1), 101, CatchUpSource(stream.log), LIMITS)
    catch_up.advance(stream.latest, 100, NOW)
    catch_up.receive_knowledge(knowledge("[102,110) lost<110 asked"), NOW)
    events = " ".join(f"D{tick}" for tick in range(110, 120, 2))
    catch_up.receive_knowledge(knowledge(f"[110,120) {events} asked"), NOW)
    pieces, _ = catch_up.advance(stream.latest, 100, NOW)
    ticks = list(range(110, 120, 2))
    # 109 is lost too, but the filtered log knows that it was silent.
    assert pieces == [
        LostSpan(Span(102, 109)),
        SubscriptionBatch(ticks, [event(tick) for tick in ticks], 120),
    ]


# --- 4.2 the persistent filtering subsystem ------------------------------------------------------

FIGURE_2 = {1: [S1, S3], 3: [S1, S2], 4: [S2, S3], 5: [S1]}
"""The text fixes s3's row only: 1 and 4; the others are ours."""


def test_4_2_figure_2_the_chain_of_s3_leads_from_4_to_1() -> None:
    """4.2: "all ticks from [6, 10] … to Q … ticks 1 and 4 are Q and 2 and 3 are S"."""
    volume = MemoryVolume()
    log = FilteredLog(PUBEND, volume, LIMITS)
    volume.commit(log.write(list(FIGURE_2), list(FIGURE_2.values()), 6))
    log.persisted()
    assert states(log.read(S3, 1, 11), 1) == "QSSQSQQQQQ"
    assert log.reads == 2


def test_4_2_figure_2_a_record_has_at_most_8_and_16_n_bytes() -> None:
    """Footnote 2: "a log record write of length 8 + 16 * n bytes"; ours has the 8 as its index, and
    numbers of 4 bytes. No record is written for tick 2, which nobody matched."""
    log = FilteredLog(PUBEND, MemoryVolume(), LIMITS)
    [append] = [
        write
        for write in log.write([1, 2, 3, 4, 5], [FIGURE_2.get(t, []) for t in range(1, 6)], 6)
        if isinstance(write, Append)
    ]
    assert append.indices == (1, 3, 4, 5)
    assert [8 + len(record) for record in append.records] == [28, 36, 36, 24]


def test_4_2_lost_ticks_are_a_prefix_that_is_the_same_for_all() -> None:
    """4.2: "the L ticks represent a prefix of time where everything is L"."""
    volume = MemoryVolume()
    log = FilteredLog(PUBEND, volume, LIMITS)
    volume.commit(log.write(list(FIGURE_2), list(FIGURE_2.values()), 6))
    log.persisted()
    chop = log.chop(4)
    assert chop
    volume.commit([chop])
    assert [states(log.read(s, 1, 6), 1) for s in (S1, S2, S3)] == ["LLLSQ", "LLLQS", "LLLQS"]
