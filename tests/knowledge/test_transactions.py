"""A transaction's events are published all, once, side by side and in order; or not at all."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapless.core.broker_messages import Nack
from gapless.core.ticks import Span
from gapless.core.transaction_messages import FORGOTTEN, Committed
from gapless.knowledge.receipts import STEP
from gapless.node.config import Config
from tests.bounds import so_long_as
from tests.knowledge.notation import PUBEND
from tests.knowledge.teller import Teller

EXPIRY, RETRY, IDLE = Config().transaction_expiry, Config().storage_retry, Config().idle_silence


def are_consecutive(ticks: list[int]) -> bool:
    return all(b - a == STEP for a, b in pairwise(ticks))


# --- all, once, in order --------------------------------------------------------------------------


def test_nothing_is_seen_before_the_commit_and_everything_after() -> None:
    teller = Teller(now=7)
    assert teller.stage("abc") == "done"
    teller.fire(IDLE)
    teller.sync_all()
    assert (teller.log(), teller.told()) == ("", "")
    assert teller.commit("p") == "committed 3"
    assert (teller.log(), teller.told()) == ("abc", "abc")
    assert are_consecutive(teller.ticks())


def test_parts_come_in_the_order_of_the_commit_and_the_others_never() -> None:
    teller = Teller()
    for part, text in (("second", "cd"), ("loser", "xyz"), ("first", "ab")):
        teller.stage(text, part=part)
    teller.stage("e", part="second", position=2)
    assert teller.commit("first", "second") == "committed 5"
    assert teller.log() == "abcde"
    assert teller.staged_records() == 0


def test_the_answer_waits_for_the_disk() -> None:
    teller = Teller()
    assert teller.stage("a", sync=False) == ""
    teller.sync()
    assert teller.said(1) == "done"
    assert teller.commit("p", sync=False) == ""
    teller.sync()
    assert teller.said(2) == "committed 1"


def test_a_repeated_commit_is_answered_as_the_first_was_and_changes_nothing() -> None:
    teller = Teller()
    teller.stage("ab")
    teller.commit("p")
    first = teller.answers[teller.request]
    teller.stage("zz", part="other")  # whatever comes with it
    assert teller.staged_records() == 0
    assert teller.commit("other") == "repeated 2"
    again = teller.answers[teller.request]
    assert isinstance(first, Committed)
    assert isinstance(again, Committed)
    assert (again.first_tick, again.pubend) == (first.first_tick, first.pubend)
    assert teller.log() == "ab"
    restarted = teller.restart()
    assert restarted.commit("p") == "repeated 2"
    assert restarted.last() == 1


def test_a_repeat_of_an_older_transaction_is_recognised_without_its_ticks() -> None:
    teller = Teller()
    for number in (4, 9):
        teller.stage("a", number=number)
        teller.commit("p", number=number)
    assert teller.commit("p", number=4) == f"repeated {FORGOTTEN}"
    assert teller.last() == 9
    assert teller.last("another") is None


def test_a_transaction_may_be_empty_and_counts_all_the_same() -> None:
    teller = Teller()
    assert teller.commit() == "committed 0"
    assert teller.commit("p", counts=(0,), number=2) == "committed 0"
    assert teller.restart().last() == 2
    assert teller.log() == ""


def test_what_a_part_should_hold_can_be_said_and_is_checked() -> None:
    teller = Teller()
    teller.stage("ab")
    assert teller.commit("p", counts=(3,)) == "no: part 'p' has 2 events, not 3"
    assert teller.commit("q") == "no: part 'q' is not staged"
    assert teller.commit("p", "q", counts=(2, 0)) == "committed 2"


def test_a_commit_while_its_part_is_written_is_put_off() -> None:
    teller = Teller()
    teller.stage("a", sync=False)
    assert teller.commit("p", sync=False) == "later: part 'p' is still being written"
    teller.sync_all()
    assert teller.commit("p") == "committed 1"


# --- between other events -------------------------------------------------------------------------


def test_no_publication_comes_between_the_events_of_a_transaction() -> None:
    teller = Teller(batch_events_max=2)
    teller.stage("abcde")
    teller.publish("1", sync=False)
    teller.commit("p", sync=False)
    teller.publish("2", sync=False)
    teller.sync_all()
    assert teller.log() == "1abcde2"
    assert teller.told() == "1abcde2"
    assert are_consecutive(teller.ticks()[1:6])


def test_publications_and_transactions_take_turns() -> None:
    teller = Teller()
    for number in (1, 2):
        teller.stage("ab"[number - 1], number=number, producer=f"job-{number}")
    teller.publish("1", sync=False)
    for number in (1, 2):
        teller.commit("p", number=number, producer=f"job-{number}", sync=False)
    teller.publish("2", sync=False)
    teller.sync_all()
    assert teller.log() == "1a2b"


def test_no_silence_is_promised_while_a_transaction_is_copied() -> None:
    teller = Teller(batch_events_max=1)
    teller.stage("abc")
    teller.commit("p", sync=False)
    teller.sync()
    teller.fire(10 * IDLE)
    assert teller.told() == "a"
    assert max(each.span.end for each in teller.known) == teller.ticks()[0] + 1
    teller.sync_all()
    assert teller.told() == "abc"


# --- crashes and full disks -----------------------------------------------------------------------


@pytest.mark.parametrize("syncs", range(1, 6))
def test_after_a_crash_a_committed_transaction_is_completed_at_its_own_ticks(syncs: int) -> None:
    teller = Teller(now=5, batch_events_max=1)
    teller.fire(IDLE)
    teller.sync_all()  # so that silence is promised ahead
    teller.stage("ab", part="one")
    teller.stage("cde", part="two")
    teller.commit("two", "one", sync=False)
    teller.sync(syncs)
    assert teller.said(teller.request) == "committed 5"
    restarted = teller.restart()
    restarted.fire(0)
    restarted.publish("X")
    assert restarted.log() == "cdeabX"
    assert are_consecutive(restarted.ticks()[:5])
    assert restarted.staged_records() == 0
    spans = [(each.span.start, each.span.end) for each in restarted.known]
    assert all(a[1] == b[0] for a, b in pairwise(spans))


def test_a_promise_that_another_broker_recalls_waits_until_a_transaction_is_copied() -> None:
    teller = Teller(now=5, batch_events_max=1)
    teller.stage("abc")
    teller.commit("p", sync=False)
    teller.sync()
    restarted = teller.restart()
    recalled = restarted.ticks()[0] + 100 * STEP
    restarted.recall(recalled)
    restarted.fire(0)
    restarted.sync_all()
    restarted.publish("X")
    assert restarted.log() == "abcX"
    assert are_consecutive(restarted.ticks()[:3])
    assert restarted.ticks()[3] >= recalled


def test_a_promise_that_another_broker_recalls_counts_after_a_refused_write_too() -> None:
    teller = Teller(now=5)
    teller.publish("a", sync=False)
    recalled = 1000 * STEP
    teller.recall(recalled)
    teller.volume.size_max = 0
    teller.sync_all()
    teller.volume.size_max = None
    teller.publish("b")
    assert teller.ticks()[0] >= recalled


def test_a_crash_before_the_commit_is_durable_leaves_it_staged() -> None:
    teller = Teller()
    teller.stage("ab")
    teller.commit("p", sync=False)
    restarted = teller.restart()
    restarted.fire(0)
    restarted.sync_all()
    assert restarted.log() == ""
    assert restarted.stage("c", position=2) == "done"
    assert restarted.commit("p") == "committed 3"
    assert restarted.log() == "abc"


def test_a_commit_without_room_is_off_and_may_be_tried_again() -> None:
    teller = Teller()
    teller.stage("ab")
    teller.volume.size_max = 0
    assert teller.commit("p") == "later: the broker's disk is full, or it may open no more files"
    teller.volume.size_max = None
    assert teller.log() == ""
    assert teller.commit("p") == "committed 2"


def test_a_disk_that_fills_up_in_the_middle_delays_the_rest_and_whoever_waits() -> None:
    teller = Teller(batch_events_max=1)
    teller.stage("abc")
    teller.commit("p", sync=False)
    teller.sync()
    teller.volume.size_max = 0
    teller.sync()
    teller.publish("X", sync=False)
    assert not teller.disk
    assert teller.told() == "a"
    teller.volume.size_max = None
    teller.fire(RETRY)
    teller.sync_all()
    assert teller.told() == "abcX"


# --- bounds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "writes"),
    [
        ({"batch_events_max": 2, "copy_batches_max": 2}, ["abcd", "efgh", "ij"]),
        ({"batch_events_max": 2, "copy_batches_max": 3}, ["abcdef", "ghij"]),
        ({"batch_bytes_max": 3, "copy_batches_max": 3}, ["abcdefghi", "j"]),
        ({"batch_bytes_max": 1, "batch_events_max": 9, "copy_batches_max": 1}, list("abcdefghij")),
    ],
)
def test_a_write_takes_so_many_batches_of_a_transaction_over_all_its_records(
    limits: dict[str, Any], writes: list[str]
) -> None:
    teller = Teller(**limits)
    for position, text in ((0, "abc"), (3, "defgh"), (8, "ij")):
        teller.stage(text, position=position)
    teller.commit("p", sync=False)
    seen = [teller.log()]
    for _ in so_long_as(lambda: teller.disk or teller.has_more_to_tell):
        if teller.has_more_to_tell:
            teller.fire(0)
        else:
            teller.sync()
        seen.append(teller.log())
    assert [text[len(before) :] for before, text in pairwise(seen) if text != before] == writes
    assert are_consecutive(teller.ticks())
    assert teller.told() == "abcdefghij"
    for each in teller.known:
        assert len(each.events) <= limits.get("batch_events_max", 1_000)
        assert sum(map(len, each.events)) <= limits.get("batch_bytes_max", 1 << 20)


def test_what_a_write_took_is_told_batch_by_batch_while_the_next_is_written() -> None:
    teller = Teller(batch_events_max=2, copy_batches_max=2)
    teller.stage("abcdefghij")
    teller.commit("p", sync=False)
    teller.sync()
    assert teller.told() == "ab"
    teller.publish("X", sync=False)
    teller.sync()  # the next write is quicker than what is told
    assert (teller.log(), teller.told()) == ("abcdefgh", "abcd")
    assert not teller.disk, "two writes are not told: there is no third"
    teller.fire(0)
    assert (len(teller.disk), teller.told()) == (1, "abcdef")
    teller.sync()
    assert (teller.log(), teller.told()) == ("abcdefghij", "abcdefgh")
    assert not teller.disk, "X has to wait until all is told"
    assert teller.pubend.end == teller.ticks()[7] + 1
    restarted = teller.restart()
    assert restarted.pubend.end > restarted.ticks()[-1], "what is in the log is settled"
    teller.fire(0)
    assert teller.told() == "abcdefghij"
    teller.sync()
    assert teller.told() == teller.log() == "abcdefghijX"


def test_a_transaction_is_told_before_the_next_one_gets_ticks() -> None:
    teller = Teller(batch_events_max=1, copy_batches_max=4)
    for number, text in ((1, "abc"), (2, "def")):
        teller.stage(text, number=number)
    teller.commit("p", number=1, sync=False)
    teller.commit("p", number=2, sync=False)
    teller.sync()
    assert (teller.told(), len(teller.disk)) == ("a", 0)
    teller.sync_all()
    assert teller.told() == teller.log() == "abcdef"
    assert are_consecutive(teller.ticks()[:3])
    assert teller.ticks() == sorted(set(teller.ticks()))


def test_only_so_many_transactions_are_open_at_once() -> None:
    teller = Teller(transactions_max=2)
    assert [teller.stage("a", number=number) for number in (1, 2)] == ["done", "done"]
    assert teller.stage("a", number=3) == "later: 2 transactions are open, which is the limit"
    assert teller.commit(number=3) == "later: 2 transactions are open, which is the limit"
    teller.commit("p", number=2)  # and 1 with it: it can never be committed any more
    assert teller.stage("a", number=3) == "done"
    assert teller.staged_records() == 1


def test_only_so_many_producers_are_remembered() -> None:
    teller = Teller(producers_max=2)
    teller.commit(producer="one")
    teller.stage("a", producer="two")
    assert teller.stage("a", producer="three") == "no: too many producers"
    assert teller.commit(producer="three") == "no: too many producers"
    assert teller.stage("a", producer="one", number=2) == "done"


def test_of_producers_of_one_transaction_only_the_newest_are_remembered() -> None:
    teller = Teller(producers_max=1, producers_once_max=2)
    teller.commit(producer="kept")
    for number, name in enumerate(["once/c", "once/b", "once/a"]):
        teller.stage("abc"[number], producer=name)
        assert teller.commit("p", producer=name).startswith("committed")
    assert teller.commit("p", producer="once/b").startswith("repeated")
    assert teller.commit("p", producer="once/c") == "no: part 'p' is not staged"
    teller = teller.restart()
    teller.stage("d", producer="once/d")
    assert teller.commit("p", producer="once/d").startswith("committed")
    assert teller.commit("p", producer="once/a").startswith("repeated")
    assert teller.commit("p", producer="once/b") == "no: part 'p' is not staged"
    assert teller.stage("x", producer="other") == "no: too many producers"
    assert "".join(teller.log()) == "abcd"


def test_who_is_forgotten_goes_with_the_commit_that_takes_the_place() -> None:
    teller = Teller(producers_once_max=1)
    teller.commit(producer="once/a")
    teller.commit(producer="once/b", sync=False)
    teller.sync()  # and a crash before anything else is written
    restarted = teller.restart()
    restarted.pubend.check()
    assert (restarted.last("once/a"), restarted.last("once/b")) == (None, 1)


@settings(max_examples=60)
@given(st.data())
def test_any_mix_of_writes_crashes_and_full_disks_ends_in_whole_transactions(
    data: st.DataObject,
) -> None:
    """Each letter is an event of its own; upper case is published, lower case staged."""
    batch, copy = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2))
    teller = Teller(batch_events_max=batch, copy_batches_max=copy)
    wanted: dict[int, str] = {}
    for number in range(1, 5):
        text = "".join(chr(97 + 6 * (number - 1) + i) for i in range(data.draw(st.integers(1, 5))))
        if teller.stage(text, number=number) != "done":
            teller.volume.size_max = None
            assert teller.stage(text, number=number) == "done"
        wanted[number] = text
        teller.publish(chr(64 + number), sync=False)
        said = teller.commit("p", number=number, sync=False)
        for _ in range(data.draw(st.integers(0, 6))):
            action = data.draw(st.sampled_from(["sync", "sync", "crash", "full", "fire"]))
            if action == "crash":
                teller = teller.restart()
                teller.fire(0)
            elif action == "full":
                teller.volume.size_max = 0 if teller.volume.size_max is None else None
            elif action == "fire":
                teller.fire(RETRY)
            elif teller.disk:
                teller.sync()
        teller.volume.size_max = None
        teller.fire(RETRY)
        teller.sync_all()
        if not said.startswith(("committed", "repeated")):
            said = teller.commit("p", number=number)
        assert said.startswith(("committed", "repeated"))
        log = "".join(each for each in teller.log() if each.islower())
        assert log == "".join(wanted.values())
        for each in wanted.values():
            assert each in teller.log()
    assert teller.staged_records() == 0


# --- a damaged disk -------------------------------------------------------------------------------


@pytest.mark.parametrize("restarted", [True, False], ids=["restarted", "at once"])
def test_a_transaction_whose_staged_events_are_damaged_is_refused_whole_and_can_be_staged_again(
    restarted: bool,
) -> None:
    teller = Teller()
    teller.stage("ab")
    teller.stage("cd", position=2)
    [stream] = [each for each in teller.volume.streams() if each.startswith("stage/")]
    teller.volume.corrupt(stream, 1)
    if restarted:
        teller = teller.restart()
    answer = teller.commit("p")
    assert answer != "committed 4"
    assert "staged" in answer
    assert teller.log() == ""
    teller.stage("abcd", part="again", number=2)
    assert teller.commit("again", number=2) == "committed 4"
    assert teller.log() == "abcd"


@pytest.mark.parametrize("restarted", [True, False], ids=["restarted", "at once"])
def test_what_is_damaged_of_a_committed_transaction_is_lost_and_told(restarted: bool) -> None:
    teller = Teller(now=5, batch_events_max=2)
    teller.stage("ab")
    teller.stage("cd", position=2)
    teller.stage("ef", position=4)
    assert teller.commit("p", sync=False) == ""
    [stream] = [each for each in teller.volume.streams() if each.startswith("stage/")]
    teller.volume.corrupt(stream, 2)
    teller.sync()  # the commit is durable, with what goes into one write
    if restarted:
        teller = teller.restart()
        teller.fire(0)
    teller.sync_all()
    copied = "ab" if restarted else "abcd"
    assert (teller.log(), teller.staged_records()) == (copied, 0)
    teller.publish("g")
    first, *_, last = teller.ticks()
    nack = Nack(PUBEND, (Span(first + len(copied) * STEP, last),))
    damaged = [
        each.span for each in teller.pubend.receive_nack(nack, teller.now)[1] if each.damaged
    ]
    assert damaged == [Span(first + len(copied) * STEP, first + 6 * STEP)]
    assert last >= first + 6 * STEP, "its ticks are used by nobody else"
    again = teller.restart()
    again.publish("h")
    assert (again.log(), again.commit("p")) == (f"{copied}gh", "repeated 6")


def test_a_committed_transaction_lacks_nothing_where_damage_is_in_a_part_that_does_not_count() -> (
    None
):
    teller = Teller(batch_events_max=2)
    teller.stage("xy", part="loser")
    teller.stage("abcd")
    assert teller.commit("p", sync=False) == ""
    [stream] = [each for each in teller.volume.streams() if each.startswith("stage/")]
    teller.volume.corrupt(stream, 0)
    teller.sync()
    teller = teller.restart()
    teller.fire(0)
    teller.sync_all()
    assert (teller.log(), teller.pubend.past.lost_spans) == ("abcd", [])


def test_a_lost_rest_waits_for_room_on_the_disk() -> None:
    teller = Teller(batch_events_max=1)
    teller.stage("ab")
    teller.stage("cd", position=2)
    teller.commit("p", sync=False)
    [stream] = [each for each in teller.volume.streams() if each.startswith("stage/")]
    teller.volume.corrupt(stream, 1)
    for _ in range(2):
        teller.sync()
    teller.volume.size_max = 0
    teller.sync_all()
    assert teller.log() == "ab"
    teller.volume.size_max = None
    teller.fire(RETRY)
    teller.sync_all()
    assert teller.staged_records() == 0
    assert len(teller.restart().pubend.past.lost_spans) == 1
