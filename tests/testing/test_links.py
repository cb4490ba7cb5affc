"""Links: what faults do to messages between brokers, and what a broken connection loses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.identity import BrokerName, ClientName
from gapless.core.messages import Message, Ping
from gapless.testing.links import LinkOptions
from tests.testing.standin import Simple, make_world

if TYPE_CHECKING:
    from gapless.testing.world import World

A, B = BrokerName("a"), BrokerName("b")
COUNT = 200


def arrivals(world: World) -> list[int]:
    """Send numbered pings from a to b; the numbers in the order they came."""
    for number in range(COUNT):
        world.send(A, B, Ping(number))
    world.run(1_000_000)
    return heard(world)


def heard(world: World) -> list[int]:
    node = world.processes[B].node
    assert isinstance(node, Simple)
    return [message.number for _, message in node.heard if isinstance(message, Ping)]


def test_a_clean_link_delivers_everything_once_in_order() -> None:
    assert arrivals(make_world()) == list(range(COUNT))


def test_loss_loses_about_its_share() -> None:
    came = arrivals(make_world(links=LinkOptions(loss=0.3)))
    assert came == sorted(set(came))
    assert 0.5 * COUNT < len(came) < 0.9 * COUNT


def test_duplication_doubles_some_and_loses_none() -> None:
    came = arrivals(make_world(links=LinkOptions(duplicate=0.3)))
    assert sorted(set(came)) == list(range(COUNT))
    assert len(came) > COUNT


def test_overtaking_changes_the_order_only() -> None:
    came = arrivals(make_world(links=LinkOptions(overtake=0.3)))
    assert sorted(came) == list(range(COUNT))
    assert came != sorted(came)


def test_a_cut_is_one_way_and_ends() -> None:
    world = make_world()
    world.links.cut(A, B)
    assert arrivals(world) == []
    world.send(B, A, Ping(7))
    world.run(10_000)
    other = world.processes[A].node
    assert isinstance(other, Simple)
    assert [message for _, message in other.heard] == [Ping(7)]
    world.links.mend(A, B)
    assert arrivals(world) == list(range(COUNT))


def test_a_stalled_link_lets_go_of_what_it_held_or_swallows_it() -> None:
    for swallows in (False, True):
        world = make_world()
        world.links.stall(A, B, swallows=swallows)
        assert arrivals(world) == []
        world.links.release(A, B)
        world.run(1_000_000)
        assert heard(world) == ([] if swallows else list(range(COUNT)))


def test_the_next_messages_can_be_lost_on_purpose() -> None:
    world = make_world()
    world.links.lose_next(A, B, 3)
    assert arrivals(world) == list(range(3, COUNT))


def test_a_crash_loses_what_is_under_way_to_it() -> None:
    world = make_world()
    world.send(A, B, Ping(1))
    world.processes[B].crash(down_for=0)
    world.run(0)
    world.send(A, B, Ping(2))
    world.run(10_000)
    assert heard(world) == [2]


class Listening:
    """A client that remembers."""

    def __init__(self) -> None:
        self.told: list[Message] = []
        self.is_cut_off = False

    def tell(self, message: Message) -> None:
        self.told.append(message)

    def cut_off(self) -> None:
        self.is_cut_off = True


def test_a_connection_is_reliable_until_it_breaks_and_loses_what_is_under_way() -> None:
    world = make_world(links=LinkOptions(loss=0.5, duplicate=0.5, overtake=0.5))
    client, name = Listening(), ClientName("c")
    connection = world.connect(name, client, B)
    assert connection is not None
    for number in range(COUNT):
        connection.send(Ping(number))
    world.run(1_000_000)
    assert heard(world) == list(range(COUNT))
    assert [type(message).__name__ for message in client.told] == ["Pong"] * COUNT
    connection.send(Ping(COUNT))
    world.processes[B].crash()
    world.run(1_000_000)
    assert client.is_cut_off
    assert len(client.told) == COUNT
    assert world.connect(ClientName("d"), client, B) is None
