"""Who stands behind a node id: known from the file, learnt from messages, bounded."""

from __future__ import annotations

from gapless.core.identity import BrokerName
from gapless.node.address_book import SPACE, AddressBook, mentioned
from gapless.scribe import messages as m
from tests.node.ring import star
from tests.wire.multicast_samples import INNER, NODE

FAR = m.Contact(BrokerName("far"), "10.0.0.1:7117")
FARTHER = m.Contact(BrokerName("farther"), "10.0.0.2:7117")


def test_brokers_of_the_file_are_known_and_nothing_that_is_said_changes_that() -> None:
    book = AddressBook(star(2), 10)
    known = m.Contact(BrokerName("b1"))
    assert book.find(SPACE.node_id("b1")) == known
    book.learn([m.Contact(BrokerName("b1"), "6.6.6.6:6")])
    assert book.find(SPACE.node_id("b1")) == known
    assert book.address_of(BrokerName("b1")) == ""


def test_others_are_learnt_and_the_one_heard_of_longest_ago_is_forgotten() -> None:
    book = AddressBook(star(1), 2)
    book.learn([FAR, FARTHER, FAR, m.Contact(BrokerName("third"), "10.0.0.3:1")])
    book.check()
    assert book.find(SPACE.node_id("farther")) is None
    assert book.address_of(BrokerName("far")) == "10.0.0.1:7117"
    assert [each.name for each in book.joined] == ["far", "third"]


def test_one_without_an_address_cannot_be_reached_so_it_is_not_learnt() -> None:
    book = AddressBook(star(1), 2)
    book.learn([m.Contact(BrokerName("far"))])
    assert book.joined == []


def test_a_stranger_is_told_of_all_and_one_of_the_file_of_those_who_are_not_in_it() -> None:
    book = AddressBook(star(2), 10)
    book.learn([FAR])
    leaves = tuple(SPACE.node_id(name) for name in ("b0", "far", "nobody", "b0"))
    probe = m.Probe(1, leaves)
    assert book.of([probe], all_of_them=False) == (FAR,)
    assert book.of([probe, probe], all_of_them=True) == (m.Contact(BrokerName("b0")), FAR)


def test_every_message_that_may_make_its_receiver_send_to_a_third_names_that_one() -> None:
    """All that carry a node id besides paths and ballots, which nobody is addressed by."""
    silent = m.Adopted | m.Heartbeat | m.Prepare | m.Outvoted | m.TreeEvent | m.Appended
    for each in INNER:
        carries = str(int(NODE)) in str(each) and not isinstance(each, silent | m.Published)
        assert (NODE in mentioned(each)) == carries, each
