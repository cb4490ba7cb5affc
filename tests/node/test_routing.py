"""Routing: who is alive, who gets a message, and by which way."""

from __future__ import annotations

import pytest

from gapless.core.broker_messages import AckExpected, Nack, Sideways
from gapless.core.effects import Effect, Send
from gapless.core.identity import BrokerName, CellName, Instant, PubendName
from gapless.core.messages import Ping, Pong
from gapless.core.ticks import Span
from gapless.node.network import parse_network
from gapless.node.routing import Routing
from tests.node.town import CONFIG, TOWN

M1, M2, S, L, R = (BrokerName(name) for name in ("m1", "m2", "s", "l", "r"))
MIDDLE, LEFT = CellName("middle"), CellName("left")
NEWS = PubendName("news/0")
QUESTION = AckExpected(NEWS, 5)
HEARTBEAT, DEAD = CONFIG.heartbeat, CONFIG.dead_after
KEYS = [f"news/{number}" for number in range(200)]


def routing(name: str) -> Routing:
    return Routing(BrokerName(name), parse_network(TOWN), CONFIG, Instant(0))


def receivers(effects: list[Effect]) -> list[str]:
    return [effect.to for effect in effects if isinstance(effect, Send)]


def pick(machine: Routing, key: str, now: int = 0) -> str:
    [to] = receivers(machine.send(MIDDLE, key, QUESTION, Instant(now)))
    return to


def test_neighbours_are_the_siblings_and_the_members_of_linked_cells() -> None:
    assert routing("m1").peers == (L, M2, R, S)
    assert routing("s").peers == (M1, M2)
    assert routing("l").siblings == ()


def test_a_choice_is_stable_and_spreads_over_the_members() -> None:
    one, two = routing("s"), routing("s")
    chosen = [pick(one, key) for key in KEYS]
    assert chosen == [pick(two, key) for key in reversed(KEYS)][::-1]
    assert 50 < chosen.count(M1) < 150


def test_different_senders_choose_alike() -> None:
    assert [pick(routing("l"), key) for key in KEYS] == [pick(routing("r"), key) for key in KEYS]


def test_when_a_member_dies_only_its_own_keys_move_and_they_come_back() -> None:
    machine = routing("s")
    before = [pick(machine, key) for key in KEYS]
    machine.lose(M1, Instant(0))
    assert {pick(machine, key) for key in KEYS} == {M2}
    assert machine.failovers == before.count(M1)
    machine.receive_pong(M1, Instant(1))
    assert [pick(machine, key, now=1) for key in KEYS] == before


def test_everybody_is_pinged_at_every_heartbeat() -> None:
    machine = routing("m1")
    assert receivers(machine.fire(Instant(0))) == list(machine.peers)
    assert machine.fire(Instant(HEARTBEAT - 1)) == []
    assert machine.fire(Instant(HEARTBEAT)) == [Send(peer, Ping(2)) for peer in machine.peers]


def test_a_ping_is_answered_with_its_number() -> None:
    assert routing("m1").answer(L, Ping(7)) == [Send(L, Pong(7))]


def test_only_an_answer_proves_life_so_a_link_dead_one_way_is_dead() -> None:
    """Pings of the other side come in, our own are lost on the way: it gives no answer."""
    machine = routing("s")
    for now in range(0, 2 * DEAD, HEARTBEAT):
        machine.fire(Instant(now))
        machine.answer(M1, Ping(now))
        machine.receive_pong(M2, Instant(now))
    now = Instant(2 * DEAD - HEARTBEAT)
    assert not machine.is_live(M1, now)
    assert machine.is_live(M2, now)


@pytest.mark.parametrize(("now", "alive"), [(DEAD - 1, True), (DEAD, False)])
def test_a_neighbour_is_dead_when_its_time_is_over(now: int, alive: bool) -> None:
    assert routing("s").is_live(M1, Instant(now)) == alive


def test_without_a_link_of_our_own_a_sibling_passes_the_message_on() -> None:
    machine = routing("m1")
    machine.lose(L, Instant(0))
    effects = machine.send(LEFT, NEWS, QUESTION, Instant(0))
    assert effects == [Send(M2, Sideways(LEFT, QUESTION))]
    assert machine.sideways == 1


def test_a_nack_goes_to_the_sibling_itself() -> None:
    machine, nack = routing("m1"), Nack(NEWS, (Span(0, 5),))
    machine.lose(S, Instant(0))
    assert machine.send(CellName("source"), NEWS, nack, Instant(0)) == [Send(M2, nack)]


def test_what_came_sideways_never_goes_sideways_again() -> None:
    machine = routing("m1")
    assert machine.send_direct(LEFT, NEWS, QUESTION, Instant(0)) == [Send(L, QUESTION)]
    machine.lose(L, Instant(0))
    assert machine.send_direct(LEFT, NEWS, QUESTION, Instant(0)) == []


def test_with_nobody_alive_a_message_is_lost_like_on_a_broken_link() -> None:
    assert routing("m1").send(LEFT, NEWS, QUESTION, Instant(DEAD)) == []


def test_a_fact_is_shared_with_all_siblings() -> None:
    assert receivers(routing("m1").share(QUESTION)) == [M2]
    assert routing("s").share(QUESTION) == []


def test_a_broker_with_no_neighbour_needs_no_deadline() -> None:
    alone = parse_network('[[cell]]\nname = "a"\nbrokers = [{ name = "x" }]')
    machine = Routing(BrokerName("x"), alone, CONFIG, Instant(0))
    assert machine.deadline is None
    assert machine.fire(Instant(9)) == []


def test_what_was_sent_to_one_that_died_may_be_lost_and_what_went_to_others_is_not() -> None:
    machine = routing("s")
    mine = next(key for key in KEYS if pick(machine, key) == M1)
    other = next(key for key in KEYS if pick(machine, key) == M2)
    machine.fire(Instant(0))
    machine.lose(M1, Instant(0))
    before, after = machine.look(Instant(0))
    assert (sorted(before), sorted(after)) == ([M1, M2], [M2])
    assert machine.has_lost(MIDDLE, mine, before, after)
    assert not machine.has_lost(MIDDLE, other, before, after)
    machine.receive_pong(M1, Instant(1))
    assert machine.deadline == 1, "that someone is back is worth a look at once"
    assert not machine.has_lost(MIDDLE, mine, *machine.look(Instant(1))), "the other one has it"


def test_once_there_is_a_way_again_what_was_sent_before_may_be_lost() -> None:
    machine = routing("s")
    for member in (M1, M2):
        machine.lose(member, Instant(0))
    machine.look(Instant(0))
    machine.receive_pong(M2, Instant(1))
    assert machine.has_lost(MIDDLE, NEWS, *machine.look(Instant(1)))


def test_a_death_is_noticed_when_it_is_due_and_not_at_the_next_ping() -> None:
    machine = routing("s")
    for now in (0, HEARTBEAT, 2 * HEARTBEAT):
        machine.fire(Instant(now))
    machine.receive_pong(M1, Instant(5))
    machine.receive_pong(M2, Instant(2 * HEARTBEAT))
    machine.fire(Instant(3 * HEARTBEAT))
    assert machine.deadline == 5 + DEAD
