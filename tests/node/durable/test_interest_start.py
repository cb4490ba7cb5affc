"""Interest: where subscriptions start, and what a host of pubends puts on its messages."""

from __future__ import annotations

from gapless.core.broker_messages import (
    SubscriptionNack,
    SubscriptionState,
)
from gapless.core.identity import CellName
from gapless.filters.filter import Filter
from gapless.node.config import Config
from gapless.testing.memory_volume import MemoryVolume
from tests.node.stand import (
    BLUE,
    GATHER,
    ONE,
    PATIENCE,
    RED,
    TWO_WAYS,
    ZERO,
    Stand,
    change,
    news,
    state,
)
from tests.node.town import ALONE, NEWS

# --- where a subscription starts ------------------------------------------------------------------


def test_pubends_hosted_here_need_no_propagation_and_start_at_once() -> None:
    alone = Stand("h", ALONE)
    alone.subscribe(1, RED)
    assert alone.interest.leaf is None
    assert alone.interest.deadline is None
    assert alone.start() == {ZERO: 0, ONE: 0}


def test_a_subscription_starts_with_the_first_message_that_reckons_with_it() -> None:
    leaf = Stand("l")
    leaf.subscribe(1, RED)
    assert leaf.start() is None, "not even told yet"
    leaf.update()
    leaf.interest.has_news = False
    for early in (news(0, 1, {}), news(10, 2, {"r": 4}), news(20, 3)):
        leaf.learn("m1", early)
        assert leaf.start() is None
    leaf.learn("m1", news(30, 4, {"l": 1}))
    assert leaf.interest.has_news
    assert leaf.start() == {ZERO: 30}
    leaf.learn("m1", news(40, 4))
    assert leaf.start() == {ZERO: 30}


def test_an_answer_to_a_question_starts_nothing_for_its_ticks_are_older_than_its_vector() -> None:
    leaf = Stand("l")
    leaf.ask(1, RED)
    leaf.learn("m1", news(0, 4, {"l": 1}, requested=True))
    assert leaf.start() is None
    leaf.learn("m1", news(10, 4))
    assert leaf.start() == {ZERO: 10}


def test_each_pubend_starts_by_itself_and_the_subscription_with_the_last() -> None:
    """The northern host has subscribers: its own pubend is there at once, the other is not."""
    north = Stand("n", TWO_WAYS)
    north.ask(1, RED)
    assert north.start() is None
    north.learn("m1", news(500, 1, {"n": 1}, ONE))
    assert north.start() == {ZERO: 0, ONE: 500}
    east = Stand("e", TWO_WAYS)
    east.ask(1, RED)
    east.learn("m1", news(30, 1, {"e": 1}, ZERO))
    assert east.start() is None
    east.learn("m2", news(700, 9, {"e": 1}, ONE))
    assert east.start() == {ZERO: 30, ONE: 700}


def test_a_subscription_that_survived_a_crash_is_known_from_the_beginning() -> None:
    volume = MemoryVolume()
    Stand("l", volume=volume).ask(1, RED)
    leaf = Stand("l", volume=volume, survivors={("ann", 1): Filter.parse(RED)})
    [(to, told)] = leaf.begun
    assert isinstance(told, SubscriptionState)
    assert (to, told.conditions) == ("m1", (RED,))
    leaf.learn("m1", news(30, 4, told.vector))
    assert leaf.start() == {ZERO: 30}
    assert leaf.ask(2, BLUE) == [("m1", change("left", "l", told.vector["l"] + 1, BLUE))]


def test_a_subscription_may_go_on_under_another_key() -> None:
    leaf = Stand("l")
    leaf.ask(1, RED)
    leaf.interest.rename(("ann", 1), ("bob", 7))
    leaf.unsubscribe(1)
    assert leaf.interest.deadline is None
    leaf.interest.unsubscribe(("bob", 7), leaf.now)
    assert leaf.wait(GATHER) == [("m1", change("left", "l", 2, removed=(RED,)))]


# --- the stamp of a host --------------------------------------------------------------------------


def test_a_first_digest_is_not_used_before_it_is_durable() -> None:
    """It depends on the clock, so that after a crash it might be another one."""
    host = Stand("s", now=5_000_000, is_full=True)
    assert host.interest.stamped(news(0, 0)).digest == 0
    assert not host.interest.vectors.test(ZERO, 5_000, CellName("middle"))
    host.is_full = False
    host.wait(Config().lag_repeat)
    assert host.interest.stamped(news(0, 0)).digest == 5_001
    assert not host.interest.vectors.test(ZERO, 5_001, CellName("middle")), "nobody was heard yet"
    host.receive("m1", state("middle", {"l": 5_000, "r": 5_000}))
    assert host.interest.vectors.test(ZERO, 5_001, CellName("middle"))


def test_a_vector_that_found_no_room_is_tried_again_until_it_does() -> None:
    host = Stand("s")
    host.receive("m1", state("middle", {"l": 1, "r": 1}))
    host.is_full = True
    host.receive("m1", change("middle", "l", 2, RED))
    host.wait(3 * Config().lag_repeat)
    assert host.interest.stamped(news(0, 0)).digest == 2
    host.is_full = False
    host.wait(Config().lag_repeat)
    assert host.interest.stamped(news(0, 0)).digest == 3
    assert host.interest.deadline is None


def test_a_change_under_a_time_that_found_no_room_waits_for_it() -> None:
    leaf = Stand("l", is_full=True)
    assert leaf.ask(1, RED) == []
    assert leaf.wait(Config().change_wait - GATHER - 1) == []
    leaf.is_full = False
    assert leaf.wait(1) == [("m1", change("left", "l", 1, RED))]


def test_a_host_of_pubends_puts_what_it_knows_on_its_messages() -> None:
    host = Stand("s")
    assert host.interest.stamped(news(0, 0)).digest == 2
    host.receive("m1", state("middle", {"l": 4, "r": 1}, RED))
    assert host.interest.stamped(news(0, 0)).digest == 3
    assert host.interest.statistics()["vector"] == {"l": 4, "r": 1}


def test_a_host_that_knows_of_nobody_asks_all_and_lets_everything_pass_meanwhile() -> None:
    host = Stand("s", now=5_000_000)
    assert host.interest.statistics()["vector"] == {"l": 5_000, "r": 5_000}
    question = SubscriptionNack(CellName("middle"), {"l": 5_000, "r": 5_000}, NEWS)
    assert host.wait(PATIENCE) == [("m1", question)]
    host.receive("m1", state("middle", {"l": 5_000}, RED))
    assert not host.interest.vectors.test(ZERO, 5_001, CellName("middle"))
    assert host.wait(Config().lag_repeat) == [("m1", question)]
    host.receive("m1", state("middle", {"l": 5_000, "r": 5_007}, RED))
    assert host.interest.vectors.test(ZERO, 5_001, CellName("middle"))
    assert host.interest.deadline is None


def test_after_a_crash_a_host_asks_for_all_that_its_messages_count_on() -> None:
    volume = MemoryVolume()
    before = Stand("s", volume=volume)
    before.receive("m1", state("middle", {"l": 4, "r": 1}, RED))
    after = Stand("s", volume=volume, now=5_000_000)
    assert after.interest.stamped(news(0, 0)).digest == 3
    assert not after.interest.vectors.test(ZERO, 3, CellName("middle"))
    question = SubscriptionNack(CellName("middle"), {"l": 4, "r": 1}, NEWS)
    assert after.wait(PATIENCE) == [("m1", question)]
    after.receive("m1", state("middle", {"l": 4, "r": 1}, RED))
    assert after.interest.vectors.test(ZERO, 3, CellName("middle"))
    assert after.interest.stamped(news(0, 0)).digest == 3, "nothing new, no new digest"


def test_statistics_tell_what_passed_and_what_is_known() -> None:
    relay = Stand("m1", TWO_WAYS)
    relay.receive("e", change("east", "e", 1, RED, BLUE))
    assert relay.interest.statistics() == {
        "filtered": 0,
        "flooded": 0,
        "started_ahead": 0,
        "conditions": {"north<east": 2, "south<east": 2, "south<north": 0},
        "vector": {},
    }
    host = Stand("n", TWO_WAYS)
    host.receive("m1", change("middle", "e", 1, RED))
    figures = host.interest.statistics()
    assert figures["conditions"] == {"here<middle": 1}
    assert figures["vector"] == {"e": 1}
