"""Names of publishers: each owner has a share, idle ones make room, nothing is published twice."""

from __future__ import annotations

import pytest

from gapless.core.client_messages import PublisherPosition, Receipt, Refused
from gapless.core.identity import PublisherName
from gapless.knowledge.receipts import UNHEARD_OF
from gapless.node.config import Config
from tests.knowledge.host import Host

IDLE = Config().publisher_idle
NOW = 1_000


def open_name(host: Host, name: str, now: int = NOW, owner: str = "") -> PublisherPosition | str:
    """Its place, or why it is refused."""
    host.take_over(name, "client", request=9, now=now, owner=owner)
    host.sync_all(now)
    (_, said) = host.sent.pop()
    if isinstance(said, PublisherPosition):
        return said
    assert isinstance(said, Refused)
    assert not said.retry
    return said.problem


def publish(host: Host, name: str, sequence: int, term: int, now: int) -> Receipt | str:
    host.publish("x", name=name, sequence=sequence, term=term, now=now)
    host.sync_all(now)
    (_, said) = host.sent.pop()
    if isinstance(said, Receipt):
        return said
    assert isinstance(said, Refused)
    return said.remedy


def names(host: Host) -> list[str]:
    return sorted(host.pubend.publishers.records)


@pytest.mark.parametrize("restarts", [False, True])
def test_who_has_its_share_of_names_is_refused_and_others_are_not(restarts: bool) -> None:
    host = Host(publishers_max=8)
    for number in range(2):
        assert not isinstance(open_name(host, f"a{number}", owner="ann"), str)
    if restarts:
        host = host.restart(NOW)
    refused = open_name(host, "a2", owner="ann")
    assert refused == (
        "too many named publishers: 'ann' has 2 names of publishers, and one principal may have 2"
    )
    assert not isinstance(open_name(host, "a1", owner="ann"), str), "one that is known goes on"
    assert not isinstance(open_name(host, "b0", owner="bob"), str)


def test_at_the_bound_the_name_that_was_idle_for_longest_makes_room() -> None:
    host = Host(publishers_max=2)
    open_name(host, "old", NOW)
    open_name(host, "new", NOW + 10)
    assert open_name(host, "third", NOW + IDLE - 1) == "too many named publishers"
    assert not isinstance(open_name(host, "third", NOW + IDLE), str)
    assert names(host) == names(host.restart(0)) == ["new", "third"]
    assert open_name(host, "old", NOW + IDLE) == "too many named publishers"


def test_who_publishes_is_not_idle() -> None:
    host = Host(publishers_max=2)
    place = open_name(host, "old", NOW)
    open_name(host, "new", NOW + 10)
    assert isinstance(place, PublisherPosition)
    publish(host, "old", 0, place.term, NOW + 20)
    open_name(host, "third", NOW + 20 + IDLE)
    assert names(host) == ["old", "third"]


def test_at_its_share_an_owner_loses_an_idle_name_of_its_own() -> None:
    host = Host(publishers_max=8)
    open_name(host, "b0", NOW, owner="bob")
    for number in range(2):
        open_name(host, f"a{number}", NOW + 1, owner="ann")
    open_name(host, "a2", NOW + 1 + IDLE, owner="ann")
    assert names(host) == ["a1", "a2", "b0"]
    assert host.pubend.publishers.account.held("ann") == 2
    again = host.restart(0).pubend.publishers
    assert again.account.held("ann") == 2
    assert again.account.held("bob") == 1


@pytest.mark.parametrize("restarts", [False, True])
def test_a_late_retry_under_a_forgotten_name_is_refused_and_never_published(restarts: bool) -> None:
    host = Host(publishers_max=1)
    place = open_name(host, "feed", NOW)
    assert isinstance(place, PublisherPosition)
    first = publish(host, "feed", 0, place.term, NOW)
    assert isinstance(first, Receipt)
    later = NOW + 2 * IDLE
    open_name(host, "other", later)
    if restarts:
        host = host.restart(later)
    for sequence in (0, 1):
        assert publish(host, "feed", sequence, place.term, later) == UNHEARD_OF
    assert len(host.volume.scan(host.pubend.stream, 0, 1 << 62)[0]) == 1
    host = Host(host.volume, later, publishers_max=2)
    again = open_name(host, "feed", now=5)  # the clock was set back
    assert isinstance(again, PublisherPosition)
    assert again.sequence == 0
    assert again.term > place.term, "no term is given twice"


def test_once_a_name_was_forgotten_one_that_was_not_opened_could_be_it() -> None:
    host = Host(publishers_max=1)
    assert isinstance(publish(host, "feed", 0, 0, NOW), Receipt)
    open_name(host, "other", NOW + 2 * IDLE)
    host = Host(host.volume, publishers_max=9)
    assert publish(host, "feed", 0, 0, NOW + 2 * IDLE) == UNHEARD_OF
    assert isinstance(open_name(host, "feed", NOW + 2 * IDLE), PublisherPosition)


def test_a_name_that_is_struck_off_leaves_room_and_one_in_use_is_not() -> None:
    host = Host(publishers_max=1)
    open_name(host, "feed", owner="ann")
    publishers = host.pubend.publishers
    host.publish("x", name="feed", term=publishers.place(PublisherName("feed"))[1])
    assert publishers.strike(PublisherName("feed")) is None, "an event of it is being written"
    host.sync_all()
    writes = publishers.strike(PublisherName("feed"))
    assert writes is not None
    host.volume.commit(writes)
    host.pubend.check()
    assert names(host) == names(host.restart(0)) == []
    assert not isinstance(open_name(host, "other"), str)


def test_names_that_could_not_be_written_take_no_room() -> None:
    host = Host(publishers_max=1)
    host.volume.size_max = 0
    host.take_over("feed", "client", owner="ann")
    host.sync_all()
    host.volume.size_max = None
    assert host.pubend.publishers.account.total == 0
    assert not isinstance(open_name(host, "other"), str)
