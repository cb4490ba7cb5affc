"""Who takes a publisher's name over begins where nothing is taken back, nor comes in between."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.client_messages import PublisherPosition, Receipt, Refused
from gapless.core.identity import PublisherName
from gapless.knowledge.receipts import TAKEN_OVER, UNHEARD_OF
from tests.knowledge.host import Host

FEED = PublisherName("feed")


def answers(host: Host, client: str = "next") -> list[object]:
    found: list[object] = [message for to, message in host.sent if to == client]
    host.sent.clear()
    return found


def take(host: Host, client: str = "next", now: int = 0, opening: int = 0) -> PublisherPosition:
    """Take the name over, and let the disk go on until that is answered."""
    host.take_over("feed", client, now=now, opening=opening)
    host.sync_all()
    position = answers(host, client)[-1]
    assert isinstance(position, PublisherPosition)
    return position


def publish(host: Host, text: str, sequence: int, term: int, client: str = "c") -> object:
    host.sent.clear()
    host.publish(text, name="feed", sequence=sequence, term=term, client=client)
    host.sync_all()
    [answer] = answers(host, client)
    return answer


def test_the_number_is_told_when_what_waits_is_durable() -> None:
    host = Host()
    host.publish("a", "b", name="feed")
    host.publish("c", name="feed", sequence=2)  # waits for the first write
    host.take_over("feed", "next", request=5)
    assert answers(host) == []
    place = host.restart(0).pubend.publishers.place(FEED)
    assert place == (0, 0, 0), "a crash would take it all back"


def test_the_number_counts_all_that_was_published_before_it_was_asked_for() -> None:
    host = Host()
    host.publish("a", "b", name="feed")
    host.publish("c", name="feed", sequence=2)
    host.take_over("feed", "next", request=5)
    host.sync()
    assert answers(host) == []
    host.sync()
    assert answers(host) == [PublisherPosition(5, 3, 1)]
    assert host.restart(0).pubend.publishers.place(FEED) == (3, 1, 0)


@pytest.mark.parametrize(("name", "number"), [("feed", 1), ("new", 0)])
def test_a_term_is_told_when_it_is_durable_though_all_events_are(name: str, number: int) -> None:
    host = Host()
    host.publish("a", name="feed")
    host.sync_all()
    host.take_over(name, "next", request=6)
    assert answers(host) == []
    place = host.restart(0).pubend.publishers.place(PublisherName(name))
    assert place == (number, 0, 0), "a crash would let the one before go on"
    host.sync()
    assert answers(host) == [PublisherPosition(6, number, 1)]


def test_where_nothing_could_be_written_it_is_asked_for_again_and_nobody_is_shut_out() -> None:
    host = Host()
    host.volume.size_max = 0
    host.publish("a", name="feed")
    host.take_over("feed", "next", request=7)
    host.sync_all()
    [refused] = answers(host)
    assert isinstance(refused, Refused)
    assert (refused.request, refused.retry) == (7, True)
    host.volume.size_max = None
    assert isinstance(publish(host, "a", 0, term=0), Receipt)
    assert take(host).sequence == 1


def test_as_many_wait_as_may() -> None:
    host = Host(publish_pending_max=2)
    host.publish("a", name="feed")
    for number in range(3):
        host.take_over("feed", "next", request=number)
    [refused] = answers(host)
    assert isinstance(refused, Refused)
    assert (refused.request, refused.retry) == (2, True)


def test_a_name_that_is_taken_over_is_remembered_as_one_of_those_that_may_be() -> None:
    host = Host(publishers_max=1)
    host.take_over("other", "next")  # which waits for the disk
    for _ in range(2):
        host.take_over("feed", "next", request=3)
        [refused] = host.refusals()
        assert refused == (3, "too many named publishers", False)
        host.sync_all()
        answers(host)


def test_nothing_counts_of_the_one_before_from_the_moment_its_name_is_asked_for() -> None:
    """Wherever it comes from, and also while the new term is still being written."""
    host = Host()
    host.publish("a", name="feed", client="before")
    host.sync_all()
    host.take_over("feed", "next")
    for client in ("before", "before, connected again"):
        host.sent.clear()
        host.publish("late", name="feed", sequence=1, request=8, client=client)
        [refused] = answers(host, client)
        assert isinstance(refused, Refused)
        assert (refused.request, refused.retry, refused.remedy) == (8, False, TAKEN_OVER)
        assert "'feed' was taken over" in refused.problem
    host.sync_all()
    [position] = answers(host)
    assert position == PublisherPosition(0, 1, 1)
    host.publish("b", name="feed", sequence=1, client="next", term=1)
    host.publish("c", name="feed", sequence=2, client="next, connected again", term=1)
    host.sync_all()
    assert [record for _, record in host.log()] == ["a", "b", "c"]


def test_what_the_one_before_sends_is_no_repeat_of_what_the_next_has_published() -> None:
    """The hole that terms close: a receipt for an event that is nowhere."""
    host = Host()
    old = take(host, "old")
    assert isinstance(publish(host, "a", 0, old.term), Receipt)
    new = take(host, "new")
    assert new.sequence == 1
    assert isinstance(publish(host, "b", 1, new.term), Receipt)
    for each in (host, host.restart(5)):
        refused = publish(each, "lost", 1, old.term)
        assert isinstance(refused, Refused)
        assert not refused.retry
        assert isinstance(publish(each, "b", 1, new.term), Receipt), "a repeat is recognised"
        assert [record for _, record in each.log()] == ["a", "b"]


def test_a_take_over_within_one_write_counts_from_where_it_stands() -> None:
    host = Host()
    host.publish("x", name="other")  # keeps the disk busy
    host.publish("a", name="feed")
    host.take_over("feed", "one", request=1)
    host.take_over("feed", "two", request=2)
    host.sync_all()
    assert [m for _, m in host.sent if isinstance(m, PublisherPosition)] == [
        PublisherPosition(1, 1, 1),
        PublisherPosition(2, 1, 2),
    ]
    assert isinstance(publish(host, "b", 1, term=1), Refused)
    assert isinstance(publish(host, "b", 1, term=2), Receipt)


def test_who_asks_twice_goes_on_with_the_answer_that_it_got() -> None:
    host = Host()
    take(host)  # its answer got lost with the connection
    position = take(host, "next, connected again")
    assert isinstance(publish(host, "a", 0, position.term), Receipt)


def test_who_takes_a_name_back_may_use_it_and_who_had_it_last_may_not() -> None:
    host = Host()
    terms = [take(host, client).term for client in ("first", "second", "first", "first")]
    assert terms == sorted(set(terms))
    for term in terms:
        assert isinstance(publish(host, "x", 0, term), Receipt) is (term == terms[-1])


def test_a_term_is_of_its_time_and_goes_on_where_the_clock_was_set_back() -> None:
    host = Host()
    assert [take(host, now=now).term for now in (700, 700, 650, 900)] == [700, 701, 702, 900]
    assert take(host.restart(300), now=300).term == 901


def test_who_was_told_by_a_volume_that_is_lost_is_refused_and_told_to_begin_again() -> None:
    old = take(Host(), now=700)
    host = Host()
    refused = publish(host, "a", 4, old.term)
    assert isinstance(refused, Refused)
    assert (refused.retry, refused.remedy) == (False, UNHEARD_OF)
    new = take(host, now=900)
    assert isinstance(publish(host, "b", 0, new.term), Receipt)
    assert isinstance(publish(host, "a", 0, old.term), Refused), "its term is no other's"


steps = st.tuples(
    st.sampled_from(["send", "send", "send", "open", "open", "full", "restart"]),
    st.sampled_from(["ann", "bob"]),
    st.sampled_from([0, 1, 9]),  # how many writes end before the next step
)


@given(st.lists(steps, max_size=20))
def test_a_receipt_is_for_an_event_that_is_there_whoever_had_the_name(
    script: list[tuple[str, str, int]],
) -> None:
    """Two processes use one name and know nothing of each other: each goes on with the numbers and
    the term that it was told last, over restarts and full disks."""
    host = Host(receipts_max=2, publish_pending_max=5)
    places = {"ann": (0, 0)}  # she never asks before she begins
    asked: dict[int, str] = {}
    for request, (verb, process, writes) in enumerate(script):
        host.volume.size_max = 0 if verb == "full" else None
        match verb:
            case "send" if process in places:
                number, term = places[process]
                asked[request] = text = f"{request} of {process}"
                where = partial(host.publish, name="feed", sequence=number, term=term)
                where(text, request=request, client=process)
                places[process] = number + 1, term
            case "open":
                host.take_over("feed", process, request=request)
            case "restart":
                host = host.restart(0)
            case _:
                pass
        for _ in range(writes):
            if host.disk:
                host.sync()
        stored = [text for _, text in host.log()]
        assert len(set(stored)) == len(stored)
        for client, answer in host.sent:
            if isinstance(answer, PublisherPosition):
                places[client] = answer.sequence, answer.term
            elif isinstance(answer, Receipt):
                assert asked[answer.request] in stored
        host.sent.clear()


@pytest.mark.parametrize("restarts", [False, True])
def test_a_question_that_comes_late_takes_the_name_from_nobody_of_the_same_opening(
    *, restarts: bool
) -> None:
    host = Host()
    first = take(host, now=5, opening=77)
    assert isinstance(publish(host, "a", 0, first.term), Receipt)
    if restarts:
        host = host.restart(6)
    late = take(host, "old connection", now=9, opening=77)
    assert (late.sequence, late.term) == (1, first.term)
    assert isinstance(publish(host, "b", 1, first.term), Receipt)
    other = take(host, now=9, opening=78)
    assert other.term > first.term
    assert isinstance(publish(host, "c", 2, first.term), Refused)
