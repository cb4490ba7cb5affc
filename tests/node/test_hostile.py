"""What a client may send in whatever order: no broker ends by it, and nobody else loses anything.

Each case was found by `fuzz/node.py`, or would have been; the world is the fuzzer's: real nodes,
disks that answer late, messages that wait on their links.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fuzz.node import SECOND, World
from gapless.core.client_messages import (
    Acknowledge,
    CaughtUp,
    Deliveries,
    Done,
    Ended,
    Forget,
    PublisherPosition,
    PublisherQuery,
    Refused,
    Subscribe,
    Subscribed,
    Unsubscribe,
)
from gapless.core.effects import Persist, Put
from gapless.core.errors import ProtocolError, RequestError
from gapless.core.identity import (
    BrokerName,
    ClientName,
    PubendName,
    PublisherName,
    SubscriptionName,
    TopicName,
)
from gapless.core.range_messages import PositionsQuery
from gapless.core.topic_messages import CreateTopic
from gapless.node.directory.registry import FLOOR, FLOORS, registrar_of
from tests.bounds import so_long_as

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.core.effects import Effect
    from gapless.core.messages import Message

X, Y = SubscriptionName("x"), SubscriptionName("y")
T, Q = TopicName("t"), TopicName("q")


def world(network: str, *clients: str, owner: str = "") -> World:
    """One that is at rest, with clients that are called after their brokers: `a1` is at `a`."""
    made = World(network, 0, is_secure=False)
    calm(made)
    for each in clients:
        made.come(each[0], each, owner)
    return made


def calm(made: World, rounds: int = 12) -> None:
    for _ in range(rounds):
        made.calm(3)
        made.wait(SECOND)
        made.calm(3)


def subscribe(number: int, name: SubscriptionName | None = X, **more: Any) -> Subscribe:
    fields: dict[str, Any] = {"topic": T, "request": number, "subscription": number, "name": name}
    return Subscribe(**(fields | more))


def say(made: World, client: str, *messages: Message) -> None:
    """In one write: nothing comes in between."""
    for each in messages:
        made.say(client[0], client, each)


def last(made: World, client: str) -> Message:
    """The last answer."""
    return [each for each in made.heard[client] if not isinstance(each, Deliveries | CaughtUp)][-1]


# --- numbers and names are taken from the request on ----------------------------------------------


@pytest.mark.parametrize("then", ["leave", "forget", "attach"])
def test_a_number_is_taken_while_its_subscription_is_being_written(then: str) -> None:
    made = world("alone", "a1", "a2")
    say(made, "a1", subscribe(1, X), subscribe(1, Y, request=2))
    refused = last(made, "a1")
    assert isinstance(refused, Refused)
    assert (refused.request, "exists on this connection" in refused.problem) == (2, True)
    calm(made)
    if then == "leave":
        made.leave("a", "a1")
    elif then == "forget":
        say(made, "a1", Forget(3, X), Forget(4, Y))
    else:
        say(made, "a2", subscribe(1, X, request=3), subscribe(2, Y, request=4))
    calm(made)


def test_a_client_that_gives_up_before_it_is_durable_is_not_attached_and_has_its_number() -> None:
    made = world("alone", "a1")
    say(made, "a1", subscribe(1, X), Unsubscribe(1), subscribe(1, None, request=2))
    calm(made)
    answers = [each for each in made.heard["a1"] if isinstance(each, Subscribed)]
    assert [each.request for each in answers] == [2]
    assert made.nodes["a"].durable.subscriptions.get(X) is not None
    assert not list(made.nodes["a"].durable.named.table.sessions())


def test_a_name_that_ends_while_another_waits_for_it_is_claimed_anew() -> None:
    made = world("alone", "a1")
    say(made, "a1", CreateTopic(1, Q))
    for _ in so_long_as(lambda: Q not in made.nodes["a"].network.topic):
        made.write("a", "ok")
    say(made, "a1", subscribe(2, X, topic=Q), subscribe(3, X), Forget(4, X))
    assert made.nodes["a"].durable.named.table.departure(X) is not None
    assert (("a1", 2)) in made.nodes["a"].durable.requests.pending
    calm(made)
    answers = [type(each) for each in made.heard["a1"] if getattr(each, "request", 0) in (2, 4)]
    assert sorted(map(str, answers)) == sorted(map(str, [Done, Subscribed]))
    known, noted = (
        made.nodes["a"].durable.named.entry(X),
        made.nodes["a"].durable.homes.registry.entries[X],
    )
    assert known is not None
    assert (known.home, known.moves) == (noted.home, noted.moves)


# --- what clients claim about moves ---------------------------------------------------------------


def test_a_claim_of_absurd_moves_is_not_believed_and_harms_nobody() -> None:
    made = world("pair", "a1", "a2", "b1", "b2")
    for client, other in (("b1", "a"), ("a1", "b")):
        for number, moves in enumerate((1 << 60, (1 << 64) - 1, 1 << 33), 1):
            lie = subscribe(number, X, token={}, previous=BrokerName(other), moves=moves)
            say(made, client, lie)
            calm(made)
            say(made, client, Forget(9, X))
            calm(made)
    assert all(node.durable.homes.registry.floor < 1 << 33 for node in made.nodes.values())
    for number, client in enumerate(("a2", "b2")):
        say(made, client, subscribe(1, SubscriptionName(f"innocent {number}")))
        calm(made)
        assert isinstance(last(made, client), Subscribed)


def test_a_subscription_is_taken_over_with_the_registrars_count_where_the_clients_is_absurd() -> (
    None
):
    made = world("pair", "a1", "b1")
    say(made, "a1", subscribe(1, X))
    calm(made)
    before = made.nodes["a"].durable.subscriptions.get(X)
    assert before is not None
    say(made, "b1", subscribe(1, X, token={}, previous=BrokerName("a"), moves=1 << 60))
    calm(made)
    assert isinstance(last(made, "b1"), Subscribed)
    assert made.nodes["a"].durable.subscriptions.get(X) is None
    known = made.nodes["b"].durable.subscriptions.get(X)
    assert known is not None
    assert known.definition.moves == before.definition.moves + 1


def test_floors_on_disk_that_such_a_claim_left_are_survived() -> None:
    made = world("pair", "a1", "b1")
    for name in "ab":
        floor = (1 << 60) + 7
        made.volumes[name].commit([Put(FLOORS, FLOOR, floor.to_bytes(8, "little"))])
        made.restart(name)
        made.come(name, f"{name}1", "")
    calm(made)
    for client in ("a1", "b1"):
        say(made, client, subscribe(1, X), subscribe(2, Y), Forget(3, X), Forget(4, Y))
        calm(made)
        done = [each.request for each in made.heard[client] if isinstance(each, Done)]
        assert sorted(done) == [3, 4]
    say(made, "a1", subscribe(1, X))
    calm(made)
    told = last(made, "a1")
    assert isinstance(told, Subscribed)
    say(made, "b1", subscribe(1, X, token={}, previous=BrokerName("a"), moves=told.moves))
    calm(made)
    assert isinstance(last(made, "b1"), Subscribed)


# --- acknowledgements and moves -------------------------------------------------------------------


@pytest.mark.parametrize("tokens", ["client", "broker"])
def test_an_acknowledgement_by_name_waits_for_a_move(tokens: str) -> None:
    made = world("pair", "a1", "b1")
    say(made, "a1", subscribe(1, X))
    calm(made)
    moved = subscribe(1, X, token={}, previous=BrokerName("a"), tokens=tokens)
    say(made, "b1", moved)
    there = made.nodes["b"].durable.subscriptions
    steps = [("arrive", "a", "b", "taken"), ("arrive", "b", "a", "taken")]
    for _ in so_long_as(lambda: there.get(X) is None):
        made.wait(1_000)
        for what, *arguments in (*steps, ("write", "a", "ok"), ("write", "b", "ok")):
            if there.get(X) is None:
                getattr(made, what)(*arguments)
    for _ in so_long_as(lambda: made.nodes["b"].durable.named.table.session(X) is None):
        made.write("b", "ok")
    known = there.get(X)
    assert known is not None
    assert not known.definition.is_found
    token = {"t/0": 1}
    say(made, "b1", Acknowledge(0, token, 7, X), Acknowledge(1, token, 8))
    assert not any(isinstance(each, Done) for each in made.heard.get("b1", ()))
    calm(made)
    assert [each.request for each in made.heard["b1"] if isinstance(each, Done)] == [7, 8]
    assert known.released.get(PubendName("t/0")) >= 1


# --- cells of several brokers ---------------------------------------------------------------------


@pytest.mark.parametrize("broker", ["b", "c"])
def test_an_answer_finds_the_broker_that_asked_in_a_cell_of_two(broker: str) -> None:
    client = f"{broker}1"
    made = world("twins", client, "d1")
    say(made, "d1", subscribe(1, X))
    calm(made)
    say(made, client, *(subscribe(n, None, topic=TopicName(f"no {n}")) for n in range(9)))
    say(made, client, *(Forget(20 + n, SubscriptionName(f"no {n}")) for n in range(9)))
    say(made, client, Acknowledge(0, {}, 40, X), Forget(41, X))
    calm(made)
    answers = {each.request: each for each in made.heard[client] if isinstance(each, Refused)}
    assert sorted(answers) == [*range(9), *range(20, 29), 40, 41]
    assert answers[41].elsewhere == ("d",)


def test_a_subscription_may_say_that_it_comes_from_a_broker_that_has_none() -> None:
    for previous in "bc":
        made = world("twins", "a1", "d1")
        say(made, "a1", subscribe(1, X, token={}, previous=BrokerName(previous)))
        calm(made)
        known = made.nodes["a"].durable.subscriptions.get(X)
        assert known is not None
        assert known.definition.is_found


# --- a fault of ours ------------------------------------------------------------------------------


class FaultError(Exception):
    """What no part of a node raises."""


def fail(*_: object) -> list[Effect]:
    raise FaultError("planted")


def test_a_request_that_fails_inside_a_broker_costs_its_client_and_nobody_else() -> None:
    made = world("alone", "a1", "a2")
    node = made.nodes["a"]
    say(made, "a1", subscribe(1, X), subscribe(2, None))
    say(made, "a2", subscribe(1, Y), subscribe(2, None))
    calm(made)
    node.durable.ranges.receive = fail  # type: ignore[method-assign, assignment]
    with pytest.raises(RequestError) as caught:
        say(made, "a1", PositionsQuery(T, 3))
    assert isinstance(caught.value.__cause__, FaultError)
    assert "PositionsQuery" in caught.value.problem
    assert set(node.connections) == {"a2"}
    assert [name for name, _ in node.durable.named.table.sessions()] == [Y]
    with pytest.raises(ProtocolError, match="is not connected"):
        node.receive(ClientName("a1"), Forget(1, X), made.clock("a"))
    made.leave("a", "a1")  # as a driver does, which has dropped the link
    calm(made)
    say(made, "a2", PublisherQuery(7, T, PublisherName("p")))
    calm(made)
    assert isinstance(last(made, "a2"), PublisherPosition)


@pytest.mark.parametrize(
    "effect",
    [
        lambda: Persist(()),
        lambda: Ended(1),
        lambda: Done(1),
        lambda: Refused(1, "", ""),
        lambda: Subscribed(1, 1, {}),
        lambda: Deliveries(T, 1),
    ],
    ids=["a write", "ended", "done", "refused", "subscribed", "deliveries"],
)
def test_a_request_that_fails_after_it_had_an_effect_ends_the_broker(
    effect: Callable[[], object],
) -> None:
    """The effect is lost: it may have been a write, or what another client waits for."""
    made = world("alone", "a1")
    node = made.nodes["a"]

    def half(*_: object) -> list[Effect]:
        effect()
        raise FaultError("planted")

    node.durable.ranges.receive = half  # type: ignore[method-assign, assignment]
    with pytest.raises(FaultError):
        say(made, "a1", PositionsQuery(T, 3))


def test_a_request_that_breaks_what_all_share_ends_the_broker() -> None:
    made = world("alone", "a1")
    node = made.nodes["a"]

    def spoil(*_: object) -> list[Effect]:
        node.subscribers.subscription_count += 1
        raise FaultError("planted")

    node.durable.ranges.receive = spoil  # type: ignore[method-assign, assignment]
    with pytest.raises(AssertionError, match="I1"):
        say(made, "a1", PositionsQuery(T, 3))


def test_what_fails_while_others_are_served_ends_the_broker() -> None:
    made = world("alone", "a1")
    made.nodes["a"].durable.settle = fail  # type: ignore[method-assign, assignment]
    with pytest.raises(FaultError):
        say(made, "a1", subscribe(1, None))


def test_what_a_dropped_client_leaves_to_others_is_not_lost() -> None:
    """Its subscription of a reliable topic is withdrawn at the other broker."""
    made = world("pair", "a1", "b1")
    topic = TopicName("r")
    for broker in "ab":
        say(made, f"{broker}1", CreateTopic(1, topic, "reliable"))
        calm(made, 3)
    say(made, "a1", subscribe(1, None, topic=topic))
    calm(made)
    assert isinstance(last(made, "a1"), Subscribed)
    there = made.nodes["b"].services.by_name["reliable"].tree  # type: ignore[attr-defined]
    before = there.statistics()["subscriptions"]
    made.nodes["a"].durable.ranges.receive = fail  # type: ignore[method-assign, assignment]
    with pytest.raises(RequestError):
        say(made, "a1", PositionsQuery(T, 3))
    assert not made.queues["a", "b"]
    made.leave("a", "a1")
    assert made.queues["a", "b"], "it is told in the step that ends the link"
    calm(made)
    assert there.statistics()["subscriptions"] == before - 1


# --- whose a name is ------------------------------------------------------------------------------


@pytest.mark.parametrize("network", ["alone", "pair", "row"])
@pytest.mark.parametrize("kind", ["forget", "acknowledge"])
def test_the_name_of_another_is_refused_like_a_free_one_after_the_same_steps(
    network: str, kind: str
) -> None:
    """For every broker that has it and every one that is asked: the same messages and writes, and
    the answer in the same step. (`y` has the same registrar as `x`, and is free.)"""
    for home in (str(each) for each in World(network, 0, is_secure=True).names):
        made = world(network, f"{home}1", owner="ann")
        say(made, f"{home}1", subscribe(1, X))
        calm(made)
        for asked in made.names:
            free = like(made, X)
            steps = []
            for name in (X, free):
                client = f"{asked} asks for {name}"
                made.come(asked, client, "bob")
                ask = Forget(7, name) if kind == "forget" else Acknowledge(0, {}, 7, name)
                made.say(asked, client, ask)
                steps.append(
                    [
                        [len(queue) for queue in made.queues.values()],
                        [len(disk) for disk in made.disks.values()],
                        len(made.heard.get(client, ())),
                    ]
                )
                calm(made)
                [answer] = made.heard[client]
                assert isinstance(answer, Refused)
                problem = answer.problem.replace(f"'{name}'", "N")
                steps[-1].append((problem, answer.remedy, answer.elsewhere))
            assert steps[0] == steps[1]
        assert made.nodes[home].durable.subscriptions.get(X) is not None


def like(made: World, name: SubscriptionName) -> SubscriptionName:
    """Another name, of the same registrar."""
    network = made.nodes[made.names[0]].network
    others = (SubscriptionName(f"free {number}") for number in range(100))
    return next(
        each for each in others if registrar_of(network, each) == registrar_of(network, name)
    )


def test_what_was_made_before_security_is_for_those_who_administer_it_alone() -> None:
    made = world("pair", "a1")
    say(made, "a1", subscribe(1, X, condition="c = 'secret'"))
    calm(made)
    made.leave("a", "a1")
    for client in ("a2", "b2"):
        made.come(client[0], client, "bob")
        say(made, client, subscribe(1, X), subscribe(2, X, token={}), Forget(3, X))
        say(made, client, Acknowledge(0, {}, 4, X))
        calm(made)
        answers = [each for each in made.heard[client] if isinstance(each, Refused)]
        assert sorted(each.request for each in answers) == [1, 2, 3, 4]
        assert not any("secret" in each.problem or each.elsewhere for each in answers)
    say(made, "b2", subscribe(5, X, token={}, previous=BrokerName("a")))  # he says it was his
    calm(made)
    kept = made.nodes["a"].durable.subscriptions.get(X)
    assert kept is not None
    assert kept.definition.owner == ""

    node, now = made.nodes["a"], made.clock("a")
    made.clients["a"]["boss"] = None
    made._do("a", node.link_up(ClientName("boss"), now, "boss", T.__eq__))
    made.say("a", "boss", subscribe(1, X, condition="c = 'secret'", token={}))
    calm(made)
    assert isinstance(last(made, "boss"), Subscribed)
    made.say("a", "boss", Forget(2, X))
    calm(made)
    assert any(isinstance(each, Done) for each in made.heard["boss"])


def test_nobody_takes_the_name_of_another_by_saying_that_it_has_moved() -> None:
    made = world("row", "a1", owner="ann")
    say(made, "a1", subscribe(1, X))
    calm(made)
    for broker in "bc":
        made.come(broker, f"{broker}2", "bob")
        lie = subscribe(1, X, token={}, previous=BrokerName("a"), moves=5)
        say(made, f"{broker}2", lie)
        calm(made)
    made.leave("a", "a1")
    for broker in "abc":  # without a token: the registrar is asked
        made.come(broker, f"{broker}3", "ann")
        say(made, f"{broker}3", subscribe(1, X))
        calm(made)
    assert isinstance(last(made, "a3"), Subscribed)
    for client in ("b3", "c3"):
        answer = last(made, client)
        assert isinstance(answer, Refused)
        assert answer.elsewhere == ("a",) or "not allowed" in answer.problem
    registrar = registrar_of(made.nodes["a"].network, X)
    assert registrar is not None
    noted = made.nodes[registrar].durable.homes.registry.find(X)
    assert noted is not None
    assert noted.owner == "ann" or registrar != "a"
