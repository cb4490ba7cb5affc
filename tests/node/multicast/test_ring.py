"""Brokers in the ring of the multicast service: they come, go, crash, join and come back."""

from __future__ import annotations

import pytest

from gapless.core.client_messages import Subscribed
from gapless.core.effects import Send
from gapless.core.identity import BrokerName
from gapless.node.config import Config
from gapless.node.directory.owner import ranking
from gapless.node.multicast.name_book import NameBook
from gapless.node.multicast.ring import make_member, proximity
from gapless.node.multicast.survey import UNMEASURED, Survey
from gapless.node.network import parse_network
from gapless.scribe.messages import Ringed, Seat
from tests.node.ring import Ring, root_of, told, topic

orders = pytest.mark.parametrize("ordered", [False, True])


@orders
def test_when_the_root_is_gone_another_takes_over_and_nothing_ordered_is_missed(
    ordered: bool,
) -> None:
    ring = Ring(5, topic(ordered=ordered))
    for name in ring.places:
        ring.subscribe(name)
    root = root_of(ring)
    source = next(name for name in ring.places if name != root)
    ring.publish(source, "red")
    del ring.places[root]
    ring.publish(source, "blue")
    ring.run(30)
    ring.publish(source, "green")
    ring.run(5)
    wanted = ["red", "blue", "green"]
    for name in ring.places:
        got = ring.got(name)
        assert got == wanted if ordered else set(got) >= {"red", "green"}
        assert all(colour for _, colour in ring.stream(name))


def test_one_that_comes_back_is_in_the_ring_again_and_takes_new_subscribers() -> None:
    ring = Ring(5, topic(ordered=True))
    for name in ring.places:
        ring.subscribe(name)
    root = root_of(ring)
    del ring.places[root]
    ring.run(20)
    ring.now += 1  # type: ignore[assignment]
    ring.start(root)
    ring.run(20)
    ring.subscribe(root)
    ring.run(5)
    ring.publish(root, "red")
    ring.run(5)
    assert all(ring.got(name) == ["red"] for name in ring.places)


def test_a_topic_created_later_is_found_by_its_owner_at_its_root() -> None:
    ring = Ring(3)
    assert all(place.service.member is None for place in ring.places.values())
    news = topic(ordered=True)
    for name, place in ring.places.items():
        place.network.put_topic(news)
        ring.do(name, place.service.add(news, ring.now))
    ring.run(10)
    ring.subscribe("b0")
    ring.publish("b2", "red")
    ring.run(3)
    assert ring.got("b0") == ["red"]


def test_half_a_network_begins_no_ordered_topic() -> None:
    ring = Ring(4, topic(ordered=True), is_started=False)
    owner, second, third, _ = ranking(ring.network, topic().name)
    ring.start(owner)
    ring.start(second)
    ring.run(20)
    assert ring[owner].statistics()["leaf_set"] == [second]
    assert all(not place.service.member.roots.groups for place in ring.places.values())  # type: ignore[union-attr]
    ring.join("x", owner)
    ring.run(20)
    assert all(not place.service.member.roots.groups for place in ring.places.values())  # type: ignore[union-attr]
    ring.start(third)
    ring.run(20)
    assert any(place.service.member.roots.groups for place in ring.places.values())  # type: ignore[union-attr]


def test_a_clean_leave_is_noticed_at_once() -> None:
    ring = Ring(4, topic())
    ring.do("b1", ring["b1"].leave(ring.now))
    del ring.places["b1"]
    ring.settle()
    gone = ring["b0"].book.id_of(BrokerName("b1"))
    for place in ring.places.values():
        assert place.service.member is not None
        assert gone not in place.service.member.pastry.contacts.leaves


def test_a_broker_that_knows_of_no_topic_takes_no_part() -> None:
    ring = Ring(2)
    assert ring["b0"].deadline is None
    assert ring["b0"].statistics() == {}
    assert ring["b0"].receive(BrokerName("b1"), Ringed(()), ring.now) == []
    assert [e for e in ring["b0"].fire(ring.now) if isinstance(e, Send)] == []


def test_brokers_that_are_in_no_file_join_and_are_served_like_others() -> None:
    ring = Ring(4, topic(ordered=True))
    ring.join("x", "b1")
    ring.run(3)
    ring.join("y", "x")
    ring.run(10)
    for name, place in ring.places.items():
        figures = place.service.statistics()
        assert sorted(figures["leaf_set"]) == sorted({*ring.places} - {name})  # type: ignore[call-overload]
        assert figures["unsent"] == 0
    for name in ring.places:
        ring.subscribe(name)
    ring.run(2)
    ring.publish("y", "red")
    ring.publish("b0", "blue")
    ring.run(2)
    assert all(ring.got(name) == ["red", "blue"] for name in ring.places)


def test_one_that_joins_begins_nothing_by_itself() -> None:
    ring = Ring(2, topic(ordered=True), is_started=False)
    place = ring.join("x", "b0")
    ring.subscribe("x")
    ring.run(30)
    assert place.service.member is not None
    assert not place.service.member.is_active
    ring.start("b0")
    ring.start("b1")
    ring.run(10)
    assert len(told(ring, "x", Subscribed)) == 1
    ring.publish("x", "red")
    ring.run(2)
    assert ring.got("x") == ["red"]


def test_one_that_joined_goes_on_when_it_is_linked_again_elsewhere() -> None:
    ring = Ring(3, topic())
    ring.join("x", "b1")
    ring.run(3)
    ring.do("x", ring["x"].join(BrokerName("b2"), ring.now))
    ring.run(3)
    assert sorted(ring["x"].statistics()["leaf_set"]) == ["b0", "b1", "b2"]  # type: ignore[call-overload]


def test_a_broken_link_makes_a_dead_root_known_sooner_than_its_silence() -> None:
    ring = Ring(5, topic(ordered=True))
    for name in ring.places:
        ring.subscribe(name)
    root = root_of(ring)
    source = next(name for name in ring.places if name != root)
    del ring.places[root]
    for name in ring.places:
        ring.do(name, ring[name].link_down(BrokerName(root), ring.now))
    ring.publish(source, "red")
    ring.run(5)  # less than `dead_after`
    assert all(ring.got(name) == ["red"] for name in ring.places)


def test_a_broken_link_to_one_that_lives_changes_nothing() -> None:
    ring = Ring(5, topic())
    for name in ring.places:
        ring.subscribe(name)
    before = {name: ring[name].statistics() for name in ring.places}
    for name in ring.places:
        ring.do(name, ring[name].link_down(BrokerName(root_of(ring)), ring.now))
    ring.run(5)
    assert {name: ring[name].statistics() for name in ring.places} == before


def test_an_owner_that_comes_back_as_root_does_not_begin_the_topic_anew() -> None:
    for name in (f"t{number}" for number in range(100)):
        ring = Ring(5, topic(name, ordered=True), is_started=False)
        owner = ranking(ring.network, topic(name).name)[0]
        for broker in ring.network.cell_of:
            ring.start(broker)
        if root_of(ring, name) == owner:
            break
    ring.run(6)
    others = [each for each in ring.places if each != owner]
    for each in others:
        ring.subscribe(each, to=name)
    ring.publish(others[0], "red", to=name)
    del ring.places[owner]
    ring.now += 1  # type: ignore[assignment]
    ring.start(owner)
    ring.run(20)
    ring.publish(others[0], "blue", to=name)
    ring.run(5)
    for each in others:
        (red, _), (blue, _) = ring.stream(each)
        assert blue == red + 1024


def test_near_in_the_network_file_is_near_in_the_ring() -> None:
    """Until it is measured: links between cells count; whoever is in no file is farther than all
    who are."""
    names = [BrokerName(f"b{index}") for index in range(5)]
    network = parse_network(
        "".join(
            f'[[cell]]\nname = "{name}"\nbrokers = [{{ name = "{name}" }}]\n'
            f"links = [{'' if before is None else repr(str(before))}]\n"
            for before, name in zip([None, *names], names, strict=False)
        )
    )
    book = NameBook(network, 10)
    survey = Survey(proximity(names[1], network, book), 10)
    member = make_member(Seat(book.id_of(names[1]), 1), survey, Config())
    stranger = book.id_of(BrokerName("x"))
    member.pastry.members.hear_of([stranger, *(book.id_of(name) for name in names)])
    links = [
        (distance - UNMEASURED, book.find(node)) for distance, node in member.pastry.contacts.nearby
    ]
    assert sorted(links[:-1]) == [(1, "b0"), (1, "b2"), (2, "b3"), (3, "b4")]
    assert member.pastry.contacts.nearby[-1][1] == stranger
