"""Subscription propagation in whole networks of real nodes: churn, survivors, failover, crashes.

All checkers watch. "No gap" compares with brute force over everything published: that is what full
flooding would deliver. The routing tables are compared with brute force once all is quiet.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from gapless.core.identity import BrokerName, CellName, ClientName
from gapless.node.config import MILLISECOND, Config
from gapless.node.network import Network, Topic
from gapless.node.node import Node
from gapless.testing.actors.clients import PublisherPlan, SubscriberPlan
from gapless.testing.links import LinkOptions
from gapless.testing.options import Options
from gapless.testing.planted.faults import parts_with
from gapless.testing.record import Violation
from gapless.testing.run import make_world, node_maker, play
from gapless.testing.shapes import cell
from gapless.testing.trace import Trace
from gapless.testing.workload import SYMBOLS
from tests.testing.cast import A_WHILE, P, Play, Q, T, tree

if TYPE_CHECKING:
    from gapless.node.parts import Parts

# --- churn ----------------------------------------------------------------------------------------


def churn(seconds: float) -> Options:
    """Ten brokers with four subscribers each, who make 1,000 changes a virtual second in all."""
    dice = random.Random(5)
    cells = [cell("p", 1), cell("m", 2, ["p"]), cell("n", 2, ["m"]), cell("o", 2, ["m"])]
    leaves = [BrokerName(f"s{number}") for number in range(10)]
    cells += [cell(leaf, 1, ["no"[i % 2]], subscribers=True) for i, leaf in enumerate(leaves)]
    conditions: dict[BrokerName, tuple[str, ...]] = {}
    for leaf in leaves:
        lows = [dice.randrange(100) for _ in range(40)]
        conditions[leaf] = tuple(
            f"symbol = '{dice.choice(SYMBOLS)}' AND price BETWEEN {low} AND {low + width}"
            for low, width in zip(lows, dice.choices(range(30), k=40), strict=True)
        )
    return Options(
        seed=0,
        network=Network(tuple(cells), (Topic(T, (P,)),)),
        config=Config(),
        links=LinkOptions(),
        offsets={},
        fault_rates={},
        duration=int(seconds * 1_000) * MILLISECOND,
        is_encoded=False,
        conditions=conditions,
        publishers=(
            PublisherPlan(
                name="P",
                broker=P,
                topic=T,
                is_named=True,
                event_count=int(200 * seconds),
                batch_max=3,
                window=20,
                pause=10 * MILLISECOND,
                patience=500 * MILLISECOND,
            ),
        ),
        subscribers=tuple(
            SubscriberPlan(
                name=f"{leaf}.{number}",
                broker=leaf,
                wishes=tuple((T, condition, "publisher") for condition in conditions[leaf]),
                pause=0,
                change_after=40 * MILLISECOND,
            )
            for leaf in leaves
            for number in range(4)
        ),
        durables=(),
        clock_jump_max=1,
        check_every=100,
    )


@pytest.mark.slow
def test_a_thousand_changes_a_second_lose_no_event_and_leave_the_right_tables() -> None:
    options = churn(seconds=2.0)
    world = make_world(options, random.Random(1), Trace(), node_maker(options))
    play(world, options)  # raises what a checker finds
    record = world.watch.record
    ends = sum(each.over for each in record.subscriptions.values())
    assert len(record.subscriptions) + ends >= 2_000
    assert record.deliveries > 100
    host = world.processes[P].node
    assert isinstance(host, Node)
    assert host.durable.interests.by_topic[T].filtered > 0


# --- a cell's last broker -------------------------------------------------------------------------


@pytest.mark.parametrize("survivor", ["ma", "mb", "mc"])
def test_one_broker_of_a_cell_is_enough_for_new_subscriptions_and_to_filter(survivor: str) -> None:
    play = Play(tree(3, "s", "z"))
    play.subscribe("z", "price < 10")
    play.run(A_WHILE)
    for member in ("ma", "mb", "mc"):
        if member != survivor:
            play.crash(member)
    play.run(A_WHILE)
    number = play.subscribe("s", "price > 90")
    play.run(A_WHILE)
    assert play.at("s")[0].started == [number]
    flooded = {name: play.interest(name).flooded for name in (P, survivor)}
    play.publish(P, 5, 50, 95)
    play.run(A_WHILE)
    assert (play.got("s"), play.got("z")) == ([95], [5])
    assert play.interest(P).filtered == 1
    assert play.interest(survivor).filtered == 2
    assert {name: play.interest(name).flooded for name in (P, survivor)} == flooded
    assert play.wrong() == []
    for member in ("ma", "mb", "mc"):
        play.restart(member)
    play.run(A_WHILE)
    play.publish(P, 6, 60, 96)
    play.run(A_WHILE)
    assert (play.got("s"), play.got("z")) == ([95, 96], [5, 6])


# --- load and failover ----------------------------------------------------------------------------


PUBLISHERS = [f"publisher {number}" for number in range(30)]
SOON = Config().heartbeat // 2
"""Time for a gap to be repaired (the old way may have kept some silence for later), but less than
a heartbeat, let alone the time after which a broker counts as dead."""


@pytest.mark.parametrize("is_noticed", [True, False])
def test_load_is_shared_and_moves_at_once_when_a_link_is_seen_to_break(is_noticed: bool) -> None:
    play = Play(tree(3, "s", pubends=16))
    play.subscribe("s", "price > 0")
    play.run(A_WHILE)
    for price, publisher in enumerate(PUBLISHERS, 1):
        play.publish(P, price, publisher=publisher)
    play.run(SOON)
    members = ("ma", "mb", "mc")
    assert all(play.carried.links[P, each] for each in members)
    assert all(play.carried.links[each, "s"] for each in members)
    assert sorted(play.got("s")) == list(range(1, 31))
    play.cut(P, "ma")
    if is_noticed:
        for one, other in ((P, "ma"), ("ma", P)):
            play.world.processes[BrokerName(one)].link_down(ClientName(other))
    before = play.carried.links[P, "ma"]
    for price, publisher in enumerate(PUBLISHERS, 101):
        play.publish(P, price, publisher=f"another {publisher}")
    play.run(SOON)
    arrived = sorted(play.got("s")[30:])
    assert (arrived == list(range(101, 131))) is is_noticed
    assert (play.carried.links[P, "ma"] == before) is is_noticed
    play.run(A_WHILE)
    assert sorted(play.got("s")[30:]) == list(range(101, 131)), "in the end, noticed or not"


# --- a host that crashes --------------------------------------------------------------------------


def host_restarts(parts: Parts | None = None) -> Play:
    """A subscription has started; its host crashes, and publishes before it knows of any."""
    play = Play(tree(2, "s"), parts)
    play.subscribe("s", "price > 5")
    play.run(A_WHILE)
    play.crash(P)
    play.restart(P)
    play.publish(P, 7)
    play.run(10 * MILLISECOND)
    assert not play.interest(P).branches[None].vector
    play.run(A_WHILE)
    return play


def test_a_host_that_forgot_all_subscriptions_remembers_that_there_were_some() -> None:
    play = host_restarts()
    assert play.got("s") == [7]
    assert play.interest(P).flooded == 1
    play.publish(P, 3, 8)
    play.run(A_WHILE)
    assert play.got("s") == [7, 8]
    assert play.interest(P).filtered == 1, "it has learnt them again"
    assert play.wrong() == []


def test_a_host_that_forgot_that_too_would_lose_an_event() -> None:
    with pytest.raises(Violation, match="no gap"):
        host_restarts(parts_with("forgets-stamp"))


# --- two hosts, and a leaf that is a relay --------------------------------------------------------


def crossing() -> Network:
    """Two hosts, one of which takes subscribers; between them a relay that takes some too, with
    one more such broker hanging on it."""
    cells = (
        cell("h", 1, subscribers=True),
        cell("p", 1, ["h"]),
        cell("q", 1, ["h"], subscribers=True),
        cell("f", 1, ["h"], subscribers=True),
    )
    return Network(cells, (Topic(T, (P, Q)),))


def test_every_subscriber_gets_what_it_wants_from_both_hosts_and_no_link_carries_more() -> None:
    play = Play(crossing())
    play.subscribe("f", "price > 90")
    play.subscribe("h", "price < 10")
    play.subscribe("q", "price = 50")
    play.run(A_WHILE)
    for host in (P, Q):
        play.publish(host, 5, 50, 70, 95)
    play.run(A_WHILE)
    assert play.got("f") == [95, 95]
    assert play.got("h") == [5, 5]
    assert play.got("q") == [50, 50]
    assert play.interest(P).filtered == 1, "all but the 70 is wanted beyond"
    assert play.interest(Q).filtered == 2, "its own subscribers need no link"
    assert play.interest("h").filtered == 2 + 2 + 1
    assert play.wrong() == []


def test_a_subscription_that_ends_frees_the_links_in_both_directions() -> None:
    play = Play(crossing())
    number = play.subscribe("f", "price > 10")
    play.subscribe("f", "price > 90")
    play.run(A_WHILE)
    play.unsubscribe("f", number)
    play.run(A_WHILE)
    assert play.wrong() == []
    for host in (P, Q):
        play.publish(host, 50, 95)
    play.run(A_WHILE)
    assert play.got("f") == [95, 95]
    assert (play.interest(P).filtered, play.interest(Q).filtered) == (1, 1)
    conditions = play.interest("h").statistics()["conditions"]
    assert conditions == {"p<f": 1, "p<h": 0, "p<q": 0, "q<f": 1, "q<h": 0}


@pytest.mark.parametrize("crashed", ["f", "h", "q"])
def test_a_broker_that_lost_its_subscribers_is_asked_for_nothing_any_more(crashed: str) -> None:
    play = Play(crossing())
    for leaf in ("f", "h", "q"):
        play.subscribe(leaf, "price > 0")
    play.run(A_WHILE)
    play.crash(crashed)
    play.restart(crashed)
    play.run(2 * A_WHILE)
    play.publish(P, 5)
    play.run(A_WHILE)
    assert play.wrong() == []
    assert play.got(crashed) == []
    relay = play.interest("h").branches[CellName("p")]
    assert [name for name, child in relay.children.items() if not child.conditions] == [crashed]
