"""The pubend: ticks, the group commit, silence that holds, and what it answers."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.broker_messages import Knowledge
from gapless.core.effects import Chop, Put, Tell
from gapless.core.identity import Instant
from gapless.core.ticks import CLOCK_MAX, INSTANT_MAX, PUBEND_BITS, Span, pubend_number_of
from gapless.knowledge.pubend import LAST_TICK, OVER, PROMISES, Persisted
from gapless.knowledge.retention import Policy
from gapless.testing.memory_volume import MemoryVolume
from tests.knowledge.host import NUMBER, Host, tick
from tests.knowledge.notation import CONFIG, PUBEND

IDLE, STEP = CONFIG.idle_silence, CONFIG.promise_step


def ticks_of(told: list[Knowledge]) -> list[int]:
    return [each for knowledge in told for each in knowledge.ticks]


def covers_without_holes(told: list[Knowledge], start: int = 0) -> bool:
    """Everything ever told is one run of spans, one after the other."""
    bounds = [start, *(bound for each in told for bound in (each.span.start, each.span.end))]
    return all(bounds[i] == bounds[i + 1] for i in range(0, len(bounds) - 1, 2))


# --- the group commit -----------------------------------------------------------------------------


def test_nothing_leaves_before_the_write_is_durable() -> None:
    host = Host()
    host.publish("a", now=7)
    assert (host.sent, host.known) == ([], [])
    host.sync(now=8)
    assert host.receipts() == [(tick(7),)]
    assert ticks_of(host.told()) == [tick(7)]
    assert host.log() == [(tick(7), "a")]


def test_what_is_published_during_a_write_goes_into_the_next_as_one() -> None:
    host = Host()
    for event in "abc":
        host.publish(event, now=7)
    assert len(host.disk) == 1
    host.sync(now=9)
    assert host.receipts() == [(tick(7),)]
    host.sync(now=9)
    assert host.receipts() == [(tick(9),), (tick(10),)]
    assert not host.disk
    assert [len(each.ticks) for each in host.told()] == [1, 2]


def test_a_large_publication_has_ticks_one_step_apart() -> None:
    host = Host()
    host.publish("a", "b", "c", now=5)
    host.sync()
    assert host.receipts() == [(tick(5), tick(6), tick(7))]


def test_one_write_has_a_bounded_number_of_events() -> None:
    host = Host(batch_events_max=2)
    for event in "abcde":
        host.publish(event)
    host.sync_all()
    assert [len(each.ticks) for each in host.told()] == [1, 2, 2]


def test_more_than_may_wait_is_refused_and_may_be_tried_again() -> None:
    host = Host(publish_pending_max=2)
    host.publish("a", "b", "c", request=1)
    host.publish("d", request=2)
    problem = "the pubend has more to write than it can take"
    assert host.refusals() == [(2, problem, True)]
    host.sync()
    host.publish("d", request=3)
    host.sync()
    assert [text for _, text in host.log()] == ["a", "b", "c", "d"]


@given(
    st.lists(
        st.tuples(st.sampled_from(["publish", "sync", "fire"]), st.integers(-50, 50)), max_size=40
    )
)
def test_ticks_ascend_and_silence_never_lies_whatever_the_clock_does(
    script: list[tuple[str, int]],
) -> None:
    """The clock may jump back; all that is told follows on without a hole."""
    host, now, told = Host(idle_silence=10, promise_step=20), 100, list[Knowledge]()
    for verb, step in script:
        now = max(0, now + step)
        match verb:
            case "publish":
                before = host.pubend.end
                host.publish("x", now=now)
                assert host.pubend.end == before
            case "sync" if host.disk:
                host.sync(now)
            case _:
                host.fire(now)
        told += host.told()
    ticks = ticks_of(told)
    assert all(earlier < later for earlier, later in pairwise(ticks))
    assert all(pubend_number_of(each) == NUMBER for each in ticks)  # type: ignore[arg-type]
    assert covers_without_holes(told)
    assert [each for each, _ in host.log() if each < host.pubend.end] == ticks


def test_an_event_is_never_older_than_the_clock_says() -> None:
    host = Host()
    for now in (5, 9, 9, 3):
        host.publish("x", now=now)
        host.sync(now)
    assert host.receipts() == [(tick(5),), (tick(9),), (tick(10),), (tick(11),)]


def test_repeats_that_wait_for_a_slow_disk_are_bounded_too() -> None:
    host = Host(publish_pending_max=3)
    for request in range(9):
        host.publish("a", name="ann", request=request)
    assert [request for request, _, _ in host.refusals()] == [4, 5, 6, 7, 8]
    host.sync_all()
    assert len(host.receipts()) == 4


# --- silence --------------------------------------------------------------------------------------


def test_a_promise_is_durable_before_silence_is_told() -> None:
    host = Host()
    host.fire(now=10)
    assert host.known == []
    assert len(host.disk) == 1
    host.sync(now=10)
    assert [each.span for each in host.told()] == [Span(0, 10 << PUBEND_BITS)]
    assert host.pubend.promise == (10 + STEP) << PUBEND_BITS


def test_within_a_promise_silence_costs_no_write() -> None:
    host = Host()
    host.fire(now=0)
    host.fire(now=IDLE)
    host.sync(now=IDLE)
    host.told()
    host.fire(now=2 * IDLE)
    assert not host.disk
    assert [each.span.end for each in host.told()] == [(2 * IDLE) << PUBEND_BITS]


def test_an_idle_pubend_speaks_at_once_when_there_is_news_to_carry() -> None:
    """A new vector goes out with its silence, long before the pause of an idle pubend is over."""
    host = Host()
    host.fire(now=0)
    host.sync(now=0)
    host.told()
    soon = IDLE // 10
    host.fire(now=soon)
    assert host.told() == [], "it pauses"
    host.speak(now=soon)
    assert [each.span.end for each in host.told()] == [soon << PUBEND_BITS]


def test_an_idle_pubend_pauses_longer_the_longer_it_is_idle() -> None:
    host, pauses = Host(), list[int]()
    for now in (4 * IDLE, 32 * IDLE, 160 * IDLE, 1_000_000 * IDLE):
        host.fire(now)
        host.sync_all(now)
        assert host.pubend.deadline is not None
        pauses.append(host.pubend.deadline - now)
    assert pauses == [IDLE, 2 * IDLE, 10 * IDLE, CONFIG.idle_silence_longest]


def test_no_silence_is_told_while_an_event_is_being_written() -> None:
    host = Host()
    host.fire(now=1)
    host.publish("a", now=5)
    host.sync(now=IDLE)
    host.fire(now=IDLE + 5)
    host.ask("[0,9999999)", now=IDLE + 5)
    assert host.told() == []
    host.sync(now=IDLE + 5)
    assert host.told()[-1].span == Span(0, tick(5) + 1)


def test_a_restart_never_reuses_a_tick_that_was_promised_silent() -> None:
    host = Host()
    host.fire(now=1_000)
    host.sync(now=1_000)
    promised = host.pubend.promise
    again = host.restart(now=500)
    assert again.pubend.end == promised
    again.publish("x", now=500)
    again.sync(now=500)
    assert again.receipts()[0][0] >= promised


def test_what_was_not_synced_before_a_crash_was_never_published() -> None:
    host = Host()
    host.publish("a", now=5)
    host.sync()
    host.publish("b", now=6)
    again = host.restart(now=7)
    assert again.log() == [(tick(5), "a")]
    again.publish("c", now=7)
    again.sync()
    assert again.log() == [(tick(5), "a"), (tick(7), "c")]


def test_a_full_disk_makes_no_promise_and_tries_again_later() -> None:
    host = Host()
    host.volume.size_max = 0
    host.fire(now=10)
    host.sync(now=10)
    assert host.told() == []
    host.volume.size_max = None
    host.fire(now=10 + IDLE)
    host.sync(now=10 + IDLE)
    assert [each.span.end for each in host.told()] == [(10 + IDLE) << PUBEND_BITS]


def test_silence_ahead_of_the_clock_is_told_to_those_who_ask_within_limits() -> None:
    host = Host(clock_skew_max=100)
    host.ask(f"[0,{50 << PUBEND_BITS})", now=10)
    host.sync_all(now=10)
    assert host.told()[-1].span.end == 50 << PUBEND_BITS
    host.ask(f"[0,{500 << PUBEND_BITS})", now=10)
    host.sync_all(now=10)
    assert host.told()[-1].span.end == 110 << PUBEND_BITS


# --- answers and release --------------------------------------------------------------------------


def test_a_question_is_answered_from_the_log() -> None:
    host = Host()
    for now in (5, 20):
        host.publish(f"at {now}", now=now)
        host.sync(now)
    host.told()
    host.ask(f"[{tick(2)},{tick(20)}) [{tick(20)},{tick(20) + 1})", now=21)
    first, second = host.told()
    assert (first.span, first.ticks) == (Span(tick(2), tick(20)), (tick(5),))
    assert (second.ticks, second.events.events) == ((tick(20),), (b"at 20",))
    assert first.requested
    assert second.requested


def test_a_long_answer_ends_before_the_first_event_that_did_not_fit() -> None:
    host = Host(answer_bytes_max=1_000)
    for now in (1, 2, 3):
        host.publish("x" * 600, now=now)
        host.sync(now)
    host.told()
    host.ask(f"[0,{tick(9)})", now=3)
    [answer] = host.told()
    assert answer.ticks == (tick(1),)
    assert answer.span == Span(0, tick(2))
    assert answer.more
    host.ask(f"[{answer.span.end},{tick(3)}) [{tick(3)},{tick(9)})", now=3)
    second, third = host.told()
    assert (second.ticks, second.more) == ((tick(2),), False)
    assert (third.ticks, third.more) == ((tick(3),), False)


def test_publications_wait_within_a_bound_of_bytes() -> None:
    host = Host(publish_pending_bytes_max=1_000, batch_bytes_max=1_000)
    host.publish("x" * 900, request=1)
    host.publish("x" * 200, request=2)
    assert [(request, retry) for request, _, retry in host.refusals()] == [(2, True)]
    host.sync(1)
    host.publish("x" * 2_000, request=3)
    host.sync(2)
    assert len(host.receipts()) == 2, "whatever comes alone is taken"


def test_a_write_is_bounded_in_bytes() -> None:
    host = Host(batch_bytes_max=1_000)
    for request in range(5):
        host.publish("x" * 400, request=request)
    host.sync_all(1)
    assert [len(each.ticks) for each in host.told()] == [1, 2, 2]


def test_acknowledged_events_are_released_together_and_final_from_then_on() -> None:
    host = Host()
    for now in (5, 20):
        host.publish("x", now=now)
        host.sync(now)
    host.told()
    host.pubend.acknowledge(tick(6), Instant(30))
    host.pubend.acknowledge(tick(7), Instant(31))
    assert host.pubend.released == 0
    host.fire(30 + CONFIG.release_delay)
    assert Chop(host.pubend.stream, tick(7)) in host.disk[0].writes
    host.sync_all(now=30 + CONFIG.release_delay)
    assert host.log() == [(tick(20), "x")]
    host.told()
    host.ask(f"[0,{tick(20) + 1})", now=40)
    first, second = host.told()
    assert (first.span, first.final_below) == (Span(0, tick(7)), tick(7))
    assert (second.span.start, second.ticks) == (tick(7), (tick(20),))
    again = host.restart(now=50)
    assert again.pubend.released == tick(7)


@pytest.mark.parametrize("policy", [Policy(retention_time=100), Policy(retention_bytes=1)])
def test_a_policy_of_retention_releases_what_nobody_has_acknowledged(policy: Policy) -> None:
    host = Host(policy=policy)
    for now in (5, 1_000):
        host.publish("x", now=now)
        host.sync(now)
    host.pubend.acknowledge(tick(1_000) + 1, Instant(1_000), released=0)
    host.fire(1_000 + CONFIG.release_delay)
    host.sync_all(1_000 + CONFIG.release_delay)
    assert tick(5) < host.pubend.released <= tick(1_000) + 1
    kept = Host(policy=Policy())
    kept.publish("x", now=5)
    kept.sync(5)
    kept.pubend.acknowledge(tick(5) + 1, Instant(6), released=0)
    kept.fire(10 + CONFIG.release_delay)
    kept.sync_all(10 + CONFIG.release_delay)
    assert kept.pubend.released == 0


def test_while_the_log_is_being_chopped_nothing_is_said_of_what_goes() -> None:
    host = Host()
    for now in (5, 20):
        host.publish("x", now=now)
        host.sync(now)
    host.pubend.acknowledge(tick(7), Instant(30))
    host.fire(30 + CONFIG.release_delay)
    host.told()
    host.ask(f"[0,{tick(20) + 1})", now=40)
    [known] = host.told()
    assert (known.span.start, known.ticks) == (tick(7), (tick(20),))
    assert host.pubend.released == 0
    assert host.restart(now=50).pubend.released == 0, "a crash keeps what was not chopped"


def test_a_chop_without_room_is_tried_again() -> None:
    host = Host()
    host.publish("x", now=5)
    host.sync(5)
    host.pubend.acknowledge(tick(6), Instant(30))
    host.fire(30 + CONFIG.release_delay)
    [persist] = [each for each in host.disk if isinstance(each.writes[0], Chop)]
    host.disk.remove(persist)
    [failed] = persist.otherwise
    assert isinstance(failed, Tell)
    assert isinstance(failed.message, Persisted)
    host.pubend.persisted(failed.message, Instant(40 + CONFIG.release_delay))
    host.ask(f"[0,{tick(6)})", now=40)
    assert host.told()[-1].ticks == (tick(5),), "it is still there"
    host.fire(50 + 2 * CONFIG.release_delay)
    host.sync_all(60 + 2 * CONFIG.release_delay)
    assert host.pubend.released == tick(5) + 1


def test_an_acknowledgement_beyond_the_end_counts_up_to_the_end() -> None:
    host = Host()
    host.publish("x", now=5)
    host.sync()
    host.pubend.acknowledge(tick(99), Instant(6))
    host.pubend.check()
    assert host.pubend.release.delivered == host.pubend.end


def test_a_missing_acknowledgement_is_asked_for_ever_more_rarely() -> None:
    host, due = Host(ack_expected_longest=2 * CONFIG.ack_expected), list[int]()
    host.publish("x", now=0)
    host.sync()
    for now in range(0, 10 * CONFIG.ack_expected, CONFIG.ack_expected):
        host.fire(now)
        due += [now] * len(host.expected)
        host.expected.clear()
    once = CONFIG.ack_expected
    assert due == [once, 3 * once, 5 * once, 7 * once, 9 * once]


@pytest.mark.parametrize("sign", ["a question", "an acknowledgement of some of it"])
def test_a_missing_acknowledgement_is_asked_for_often_again_once_somebody_is_heard(
    sign: str,
) -> None:
    host, once, due = Host(), CONFIG.ack_expected, list[int]()
    for now in (0, 1):
        host.publish("x", now=now)
        host.sync()
    for now in range(0, 12 * once, once):
        if now == 4 * once and sign == "a question":
            host.ask("[0,9)", now=now)
        elif now == 4 * once:
            host.pubend.acknowledge(tick(0) + 1, Instant(now))
        host.fire(now)
        due += [now // once] * len(host.expected)
        host.expected.clear()
    assert due == [1, 3, 7, 9], "after 1, 2 and 4; then 2 again, where else it would be 8"


def test_an_acknowledged_pubend_expects_nothing() -> None:
    host = Host()
    host.publish("x", now=0)
    host.sync()
    host.pubend.acknowledge(tick(1), Instant(1))
    host.fire(10 * CONFIG.ack_expected)
    assert host.expected == []


def test_after_a_restart_what_is_in_the_log_is_expected_to_be_acknowledged() -> None:
    host = Host()
    host.publish("x", now=5)
    host.sync()
    again = host.restart(now=10)
    again.fire(10 + CONFIG.ack_expected)
    assert again.expected == [tick(5) + 1]


def test_an_answer_of_the_disk_to_an_older_life_means_nothing() -> None:
    host = Host()
    host.publish("x", now=5)
    assert host.pubend.persisted(Persisted(PUBEND, 99), Instant(6)) == ([], [])
    host.pubend.check()
    assert host.pubend.batch.requests


def test_a_promise_that_time_has_passed_when_it_is_durable_is_told_and_not_chased() -> None:
    """As on a slow disk, or with thousands of idle pubends: it would never say a word."""
    host = Host()
    host.fire(now := IDLE)
    promise = (now + STEP) << PUBEND_BITS
    host.sync(now := now + 10 * STEP)
    assert [each.span for each in host.told()] == [Span(0, promise)]
    assert not host.disk
    host.fire(now + STEP)  # only time makes it go on
    assert len(host.disk) == 1
    host.sync(now + STEP)
    assert [each.span for each in host.told()] == [Span(promise, now + STEP << PUBEND_BITS)]


def test_silence_that_was_asked_for_beyond_such_a_promise_is_told_later() -> None:
    host = Host()
    host.fire(now := IDLE)
    promise, wanted = (now + STEP) << PUBEND_BITS, (now + 20 * STEP) << PUBEND_BITS
    host.ask(f"[0,{wanted})", now)
    host.sync(now + 10 * STEP)
    assert host.told()[-1].span == Span(0, promise)
    host.fire(now + 11 * STEP)
    host.sync(now + 11 * STEP)
    assert host.told()[-1].span == Span(promise, wanted)


# --- clocks that cannot be ------------------------------------------------------------------------


def test_a_clock_that_was_beyond_the_end_of_time_leaves_ticks_for_all_that_follows() -> None:
    """For a moment the clock was in the year 2300, with a publication and promises of silence."""
    host = Host(now=10)
    late = INSTANT_MAX + 50 * 365 * 24 * 3_600 * 1_000_000
    host.publish("a", now=late)
    host.sync_all(late)
    [(first,)] = host.receipts()
    assert first == tick(CLOCK_MAX)
    for _ in range(3):
        host.fire(late := late + 10 * IDLE)
        host.sync_all(late)
    host = host.restart(now=1_000)
    host.publish("b", "c", now=1_000)
    host.sync_all(1_000)
    [ticks] = host.receipts()
    assert first < ticks[0] < ticks[1] < LAST_TICK
    host.fire(1_000 + IDLE)
    host.sync_all(1_000 + IDLE)
    assert [text for _, text in host.log()] == ["a", "b", "c"]


@pytest.mark.parametrize("beyond", [0, CONFIG.promise_step << PUBEND_BITS, (1 << 64) - 1])
def test_where_silence_was_promised_up_to_the_end_of_time_publications_are_refused(
    beyond: int,
) -> None:
    """As versions that believed any clock have left it on disk: it starts, and says what to do."""
    volume = MemoryVolume()
    promise = min((INSTANT_MAX << PUBEND_BITS) + beyond, (1 << 64) - 1)
    volume.commit([Put(PROMISES, PUBEND, promise.to_bytes(8, "little"))])
    host = Host(volume, now=1_000)
    for now in range(1_000, 1_000 + 5 * IDLE, IDLE):
        host.fire(now)
        host.sync_all(now)
    host.publish("a", now=2_000)
    host.take_over("name", "client", now=2_000)
    assert [(problem, retry) for _, problem, retry in host.refusals()] == [(OVER, False)] * 2
    assert not host.disk
    host.ask("[1,9)", now=2_000)  # what is there is served


def test_one_who_catches_up_is_told_in_one_answer_all_that_is_lost() -> None:
    host = Host()
    for now in range(5, 15):
        host.publish("x", now=now)
        host.sync(now)
    host.pubend.acknowledge(tick(12), Instant(30))
    host.fire(30 + CONFIG.release_delay)
    host.sync_all(now=30 + CONFIG.release_delay)
    host.told()
    asked = " ".join(f"[{tick(now)},{tick(now) + 1})" for now in range(5, 15))
    host.ask(f"{asked} catching-up", now=40)
    lost, kept = host.told()
    assert (lost.span, lost.lost_below) == (Span(tick(5), tick(11) + 1), tick(12))
    assert kept.scattered
    assert kept.ticks == (tick(12), tick(13), tick(14))
    host.publish("x", now=2_000_000)
    host.sync(2_000_000)
    assert host.told()[-1].lost_below == tick(12), "and whoever listens learns how far that is"


def test_what_one_who_catches_up_wants_is_read_in_several_steps_if_it_is_large() -> None:
    host = Host(answer_bytes_max=1_000)
    for now in range(5, 15):
        host.publish("x" * 400, now=now)
        host.sync(now)
    host.told()
    asked = " ".join(f"[{tick(now)},{tick(now) + 1})" for now in range(5, 15))
    host.ask(f"{asked} catching-up", now=40)
    steps = [[each.ticks for each in host.told()]]
    for at in range(41, 45):
        assert host.pubend.deadline == at or len(steps) > 3
        host.fire(at)
        steps.append([each.ticks for each in host.told()])
    ticks = [[one for some in each for one in some] for each in steps]
    assert ticks[:4] == [
        [tick(5), tick(6), tick(7)],
        [tick(8), tick(9), tick(10)],
        [tick(11), tick(12), tick(13)],
        [tick(14)],
    ]
