"""What is staged is durable, recognised when it comes again, and given back when it is over."""

from __future__ import annotations

from gapless.core.effects import Delete
from gapless.node.config import Config
from tests.knowledge.teller import Teller

EXPIRY = Config().transaction_expiry


def test_a_repeated_stage_is_recognised_also_where_it_overlaps() -> None:
    teller = Teller()
    teller.stage("abc")
    assert teller.stage("abc") == "done"
    assert teller.stage("bcde", position=1) == "done"
    assert teller.stage("bc", position=1, sync=False) == "done"
    assert teller.commit("p") == "committed 5"
    assert teller.log() == "abcde"


def test_a_repeat_of_what_is_being_written_is_put_off() -> None:
    teller = Teller()
    teller.stage("ab", sync=False)
    assert teller.stage("ab", sync=False) == "later: these events are being written"
    teller.sync_all()
    assert teller.stage("ab") == "done"


def test_a_hole_is_refused() -> None:
    teller = Teller()
    teller.stage("ab")
    assert teller.stage("d", position=3) == "later: event 2 of the part is missing"
    assert teller.stage("z", part="q", position=1) == "no: part 'q' is not there any more"


def test_what_is_staged_survives_a_restart() -> None:
    teller = Teller()
    teller.stage("ab")
    teller.stage("x", part="q")
    teller = teller.restart()
    assert teller.stage("ab") == "done"
    teller.stage("c", position=2)
    assert teller.commit("q", "p") == "committed 4"
    assert teller.log() == "xabc"


def test_what_comes_behind_a_write_without_room_does_not_count_now_or_after_a_restart() -> None:
    teller = Teller()
    teller.stage("a")
    teller.stage("b", position=1, sync=False)
    teller.stage("c", position=2, sync=False)
    teller.volume.size_max = 0
    teller.sync()
    teller.volume.size_max = None
    teller.sync()
    assert teller.said(2) == "later: the broker's disk is full, or it may open no more files"
    assert teller.said(3) == "later: earlier events of the part are missing"
    teller.stage("b", position=1)
    teller = teller.restart()
    assert teller.stage("c", position=2) == "done"
    assert teller.commit("p") == "committed 3"
    assert teller.log() == "abc"


def test_a_first_write_without_room_leaves_nothing() -> None:
    teller = Teller()
    teller.volume.size_max = 0
    assert teller.stage("a") == "later: the broker's disk is full, or it may open no more files"
    teller.volume.size_max = None
    assert teller.pubend.transactions.open_count == 0
    assert teller.stage("a") == "done"
    assert teller.restart().commit("p") == "committed 1"


def test_what_is_not_heard_of_for_long_is_dropped_and_its_space_given_back() -> None:
    teller = Teller()
    teller.stage("a", number=1)
    teller.fire(EXPIRY // 2)
    teller.stage("b", number=2)
    assert teller.staged_records() == 2
    teller.fire(EXPIRY // 2)
    teller.sync_all()
    assert teller.staged_records() == 1
    assert teller.commit("p", number=1) == "no: part 'p' is not staged"
    assert teller.stage("x", position=1, number=1) == "no: part 'p' is not there any more"
    assert teller.commit("p", number=2) == "committed 1"
    assert teller.pubend.transactions.stages.staged_bytes == 0


def test_a_restart_begins_to_count_anew() -> None:
    teller = Teller()
    teller.stage("a")
    teller.fire(EXPIRY - 1)
    teller = teller.restart()
    teller.fire(EXPIRY - 1)
    assert teller.commit("p") == "committed 1"


def test_an_aborted_transaction_is_gone_with_all_its_parts() -> None:
    teller = Teller()
    teller.stage("a")
    teller.stage("b", part="q")
    assert teller.abort() == "done"
    assert teller.staged_records() == 0
    assert teller.restart().commit("p") == "no: part 'p' is not staged"
    assert teller.abort() == "done"


def test_an_aborted_part_may_be_staged_anew_and_stays_gone_over_a_restart() -> None:
    teller = Teller()
    teller.stage("old")
    teller.stage("x", part="q")
    assert teller.abort(part="p") == "done"
    assert teller.stage("new") == "done"
    teller = teller.restart()
    assert teller.commit("q", "p") == "committed 4"
    assert teller.log() == "xnew"


def test_an_abort_of_what_is_committed_does_nothing() -> None:
    teller = Teller(batch_events_max=1)
    teller.stage("abc")
    teller.commit("p", sync=False)
    assert teller.abort(sync=False) == "later: the transaction is being committed"
    teller.sync()
    assert teller.abort(sync=False) == "done"
    teller.sync_all()
    assert teller.log() == "abc"


def test_an_abort_while_events_are_written_takes_them_with_it() -> None:
    teller = Teller()
    teller.stage("a", sync=False)
    teller.abort(sync=False)
    teller.stage("b", sync=False)
    teller.sync_all()
    assert teller.said(1) == "no: the transaction was ended meanwhile"
    assert teller.said(3) == "done"
    assert teller.restart().commit("p") == "committed 1"
    assert teller.staged_records() == 0


def test_no_more_is_staged_than_there_is_room_for() -> None:
    teller = Teller(staged_bytes_max=300)
    assert teller.stage("a" * 20) == "done"
    later = "later: the pubend has no room to stage more"
    assert teller.stage("b" * 20, part="q", number=2) == later
    teller.commit("p")
    assert teller.stage("b" * 20, part="q", number=2) == "done"


def test_a_transaction_that_never_fits_is_not_asked_to_try_again() -> None:
    teller = Teller(staged_bytes_max=300)
    assert teller.stage("a" * 20) == "done"
    never = "no: the transaction has more than staged_bytes_max, 300 bytes"
    assert teller.stage("b" * 20, part="q") == never
    assert teller.commit("p") == "committed 20"


def test_a_transaction_of_which_nothing_is_left_gives_its_space_back_at_once() -> None:
    teller = Teller()
    teller.stage("a", part="p")
    teller.stage("b", part="q", sync=False)
    teller.abort(part="p", sync=False)
    teller.volume.size_max = 0
    teller.sync()
    teller.volume.size_max = None
    teller.sync_all()
    assert [teller.said(request) for request in (2, 3)] == [
        "later: the broker's disk is full, or it may open no more files",
        "done",
    ]
    assert (teller.staged_records(), teller.pubend.transactions.open_count) == (0, 0)


def test_no_more_waits_for_the_disk_than_there_is_memory_for() -> None:
    teller = Teller(publish_pending_bytes_max=300)
    assert teller.stage("a" * 99, sync=False) == "", "one alone always may"
    later = "later: more is being staged than the disk has taken"
    assert teller.stage("b", number=2, sync=False) == later
    teller.sync_all()
    assert teller.said(1) == "done"
    assert teller.stage("b", number=2, sync=False) == ""
    assert teller.stage("c", number=3, sync=False) == ""
    assert teller.stage("d", number=4, sync=False) == later
    teller.sync_all()
    assert teller.stage("d", number=4) == "done"


def test_what_no_record_can_hold_is_refused_before_it_is_written() -> None:
    teller = Teller()
    assert teller.stage("a", part="q") == "done"
    large = ["x" * (8 << 20), "y" * (8 << 20)]
    said = teller.stage(large)
    assert said.startswith("no: a stage of 167772")
    assert said.endswith("bytes is more than one record takes")
    assert teller.stage(large[:1]) == "done"
    assert teller.commit("p", "q") == "committed 2"


def test_slots_are_used_again_so_that_streams_do_not_grow_in_number() -> None:
    teller = Teller()
    for number in range(1, 20):
        teller.stage("ab", number=number)
        teller.commit("p", number=number)
        teller = teller.restart()
    assert [each for each in teller.volume.streams() if each.startswith("stage/")] == [
        "stage/0/news/0"
    ]


def test_records_of_a_slot_that_could_not_be_given_back_belong_to_nobody() -> None:
    teller = Teller()
    teller.stage("old")
    teller.abort(sync=False)
    lost = teller.disk.popleft()  # a disk so full that not even this goes through
    assert any(isinstance(write, Delete) for write in lost.writes)
    teller.do(lost.otherwise)
    assert teller.said(2) == "later: the broker's disk is full, or it may open no more files"
    assert teller.stage("new") == "done"
    teller = teller.restart()
    assert teller.commit("p") == "committed 3"
    assert teller.log() == "new"
