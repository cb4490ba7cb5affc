"""The pubend and its publishers: what is refused, and what is recognised as a repeat."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.knowledge.host import Host, tick


def test_a_full_disk_refuses_all_that_waits_in_order() -> None:
    host = Host()
    host.volume.size_max = 0
    host.publish("a", name="ann", sequence=0, request=1)
    host.publish("b", name="ann", sequence=1, request=2)
    host.publish("c", request=3)
    host.sync()
    problem = "the broker's disk is full, or it may open no more files"
    assert host.refusals() == [(1, problem, True), (2, problem, True), (3, problem, True)]
    assert not host.disk
    host.publish("b", name="ann", sequence=1, request=4)
    assert host.refusals() == [(4, "event 0 of 'ann' is missing", True)]
    host.volume.size_max = None
    host.publish("a", "b", name="ann", sequence=0, request=5)
    host.sync()
    assert len(host.receipts()) == 1
    assert [text for _, text in host.log()] == ["a", "b"]


def test_a_repeat_in_flight_waits_for_the_first_and_gets_its_ticks() -> None:
    host = Host()
    host.publish("a", "b", name="ann", now=5)
    host.publish("a", "b", name="ann", now=6)
    assert host.receipts() == []
    host.sync_all(now=7)
    assert host.receipts() == [(tick(5), tick(6))] * 2
    assert len(host.log()) == 2


def test_a_durable_repeat_gets_the_first_receipt_also_after_a_restart() -> None:
    host = Host()
    host.publish("a", name="ann", now=5)
    host.sync()
    for each in (host, host.restart(now=9)):
        each.sent.clear()
        each.publish("a", name="ann", now=9)
        each.sync_all(now=9)
        assert each.receipts() == [(tick(5),)]
        assert len(each.log()) == 1


def test_of_a_partial_repeat_only_the_new_events_are_published() -> None:
    host = Host()
    host.publish("a", "b", name="ann", now=5)
    host.sync()
    host.publish("b", "c", name="ann", sequence=1, now=20)
    host.sync()
    assert host.receipts() == [(tick(5), tick(6)), (tick(6), tick(20))]
    assert [text for _, text in host.log()] == ["a", "b", "c"]


def test_a_hole_in_the_numbers_is_refused() -> None:
    host = Host()
    host.publish("a", name="ann", sequence=1, request=9)
    assert host.refusals() == [(9, "event 0 of 'ann' is missing", True)]
    assert not host.disk


def test_an_old_repeat_is_recognised_even_if_its_tick_is_forgotten() -> None:
    host = Host(receipts_max=1)
    for sequence, now in enumerate((5, 50)):
        host.publish("x", name="ann", sequence=sequence, now=now)
        host.sync()
    host.receipts()
    host.publish("x", "x", name="ann", sequence=0, now=60)
    host.sync()
    assert host.receipts() == [(-1, tick(50))]
    assert len(host.log()) == 2


def test_only_so_many_names_are_remembered_counting_those_not_yet_durable() -> None:
    host = Host(publishers_max=2)
    for request, name in enumerate(("ann", "bob", "cay", "bob")):
        host.publish("x", name=name, sequence=request // 3, request=request)
    assert host.refusals() == [(2, "too many named publishers", False)]
    host.sync_all()
    assert set(host.pubend.publishers.records) == {"ann", "bob"}
    assert len(host.receipts()) == 3


@given(
    st.lists(
        st.tuples(st.sampled_from(["send", "send", "sync", "full", "restart"]), st.integers(0, 9)),
        max_size=30,
    )
)
def test_a_publisher_that_retries_is_published_exactly_once_in_order(
    script: list[tuple[str, int]],
) -> None:
    """It sends from any number, again and again; the log is 0, 1, 2 … without repeats."""
    host, now = Host(receipts_max=2, publish_pending_max=5), 0
    for verb, sequence in script:
        now += 10
        match verb:
            case "send":
                host.publish(
                    str(sequence), str(sequence + 1), name="ann", sequence=sequence, now=now
                )
            case "sync" if host.disk:
                host.volume.size_max = None
                host.sync(now)
            case "full" if host.disk:
                host.volume.size_max = 0
                host.sync(now)
            case "restart":
                host = host.restart(now)
            case _:
                pass
    host.volume.size_max = None
    host.sync_all(now)
    texts = [int(text) for _, text in host.log()]
    assert texts == list(range(len(texts)))
