"""Who stands behind a node id: known from the file, learnt from messages, bounded."""

from __future__ import annotations

from gapless.core.identity import BrokerName
from gapless.node.multicast.name_book import SPACE, NameBook, mentioned
from gapless.scribe import messages as m
from tests.node.ring import star
from tests.wire.multicast_samples import INNER, NODE

FAR, FARTHER, THIRD = map(BrokerName, ("far", "farther", "third"))


def test_brokers_of_the_file_are_known_from_the_start() -> None:
    book = NameBook(star(2), 1)
    book.learn([BrokerName("b0"), BrokerName("b1")])
    book.check()
    assert book.find(SPACE.node_id("b1")) == "b1"
    assert book.is_in_file(BrokerName("b1"))


def test_others_are_learnt_and_the_one_heard_of_longest_ago_is_forgotten() -> None:
    book = NameBook(star(1), 2)
    book.learn([FAR, FARTHER, FAR, THIRD])
    book.check()
    assert book.find(SPACE.node_id("farther")) is None
    assert book.find(SPACE.node_id("far")) == FAR
    assert not book.is_in_file(FAR)


def test_a_stranger_is_told_of_all_and_one_of_the_file_of_those_who_are_not_in_it() -> None:
    book = NameBook(star(2), 10)
    leaves = tuple(SPACE.node_id(name) for name in ("b0", "far", "nobody", "b0"))
    probe = m.Probe(1, leaves)
    assert book.of([probe], all_of_them=False) == ()
    book.learn([FAR])
    assert book.of([probe], all_of_them=False) == (FAR,)
    assert book.of([probe, probe], all_of_them=True) == ("b0", FAR)


def test_every_message_that_may_make_its_receiver_send_to_a_third_names_that_one() -> None:
    """All that carry a node id besides paths and ballots, which nobody is addressed by."""
    silent = m.Adopted | m.Heartbeat | m.Prepare | m.Outvoted | m.TreeEvent | m.Appended
    for each in INNER:
        carries = str(int(NODE)) in str(each) and not isinstance(each, silent | m.Published)
        assert (NODE in mentioned(each)) == carries, each
