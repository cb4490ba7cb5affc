"""Who takes a publisher's name over begins where nothing is taken back, nor comes in between."""

from __future__ import annotations

from gapless.core.client_messages import PublisherPosition, Receipt, Refused
from gapless.core.identity import PublisherName
from tests.knowledge.host import Host

FEED = PublisherName("feed")


def answers(host: Host, client: str = "next") -> list[object]:
    found: list[object] = [message for to, message in host.sent if to == client]
    host.sent.clear()
    return found


def test_the_number_is_told_when_what_waits_is_durable() -> None:
    host = Host()
    host.publish("a", "b", name="feed")
    host.publish("c", name="feed", sequence=2)  # waits for the first write
    host.take_over("feed", "next", request=5)
    assert answers(host) == []
    assert host.restart(0).pubend.following(FEED) == 0, "a crash would take it all back"


def test_the_number_counts_all_that_was_published_before_it_was_asked_for() -> None:
    host = Host()
    host.publish("a", "b", name="feed")
    host.publish("c", name="feed", sequence=2)
    host.take_over("feed", "next", request=5)
    host.sync()
    assert answers(host) == []
    host.sync()
    assert answers(host) == [PublisherPosition(5, 3)]
    assert host.restart(0).pubend.following(FEED) == 3


def test_nobody_waits_for_what_others_publish() -> None:
    host = Host()
    host.publish("a", name="feed")
    host.sync_all()
    host.publish("b", name="other")
    for name, number in (("feed", 1), ("new", 0)):
        host.take_over(name, "next", request=6)
        assert answers(host) == [PublisherPosition(6, number)]


def test_where_nothing_could_be_written_it_is_asked_for_again() -> None:
    host = Host()
    host.volume.size_max = 0
    host.publish("a", name="feed")
    host.take_over("feed", "next", request=7)
    host.sync_all()
    [refused] = answers(host)
    assert isinstance(refused, Refused)
    assert (refused.request, refused.retry) == (7, True)
    host.take_over("feed", "next", request=8)
    assert answers(host) == [PublisherPosition(8, 0)]


def test_as_many_wait_as_may() -> None:
    host = Host(publish_pending_max=2)
    host.publish("a", name="feed")
    for number in range(3):
        host.take_over("feed", "next", request=number)
    [refused] = answers(host)
    assert isinstance(refused, Refused)
    assert (refused.request, refused.retry) == (2, True)


def test_what_comes_late_over_the_connection_of_before_is_not_taken() -> None:
    host = Host()
    host.publish("a", name="feed", client="before")
    host.sync_all()
    host.take_over("feed", "next")
    host.sent.clear()
    host.publish("late", name="feed", sequence=1, request=8, client="before")
    [refused] = answers(host, "before")
    assert isinstance(refused, Refused)
    assert (refused.request, refused.retry) == (8, False)
    assert "'feed' was taken over" in refused.problem
    host.publish("b", name="feed", sequence=1, client="next")
    host.publish("c", name="feed", sequence=2, client="next, connected again")
    host.sync_all()
    assert [record for _, record in host.log()] == ["a", "b", "c"]


def test_who_takes_a_name_back_may_use_it_and_who_had_it_last_may_not() -> None:
    host = Host()
    host.publish("a", name="feed", client="first")
    host.sync_all()
    host.take_over("feed", "second")
    host.take_over("feed", "first")
    host.take_over("feed", "first")  # opened twice
    for client, is_taken in (("first", True), ("second", False)):
        host.sent.clear()
        host.publish("x", name="feed", sequence=1, client=client)
        host.sync_all()
        [answer] = answers(host, client)
        assert isinstance(answer, Receipt) is is_taken, client
