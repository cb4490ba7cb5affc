"""Durable subscriptions: kept through restarts, released only by what is durable."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.client_messages import Ended
from gapless.core.effects import Put, Send
from gapless.core.errors import UsageError
from gapless.core.identity import BrokerName, ClientName, Instant, SubscriptionName, TopicName
from gapless.core.token import Token
from gapless.durable.subscriptions import Definition, DurableSubscriptions, SubscriptionPersisted
from tests.bounds import so_long_as
from tests.durable.stand import PUBEND, Disk, limits

OTHER = "news/1"


def answer(number: int) -> Send:
    return Send(ClientName("client"), Ended(number))


class Stand:
    """Subscriptions and their disk."""

    def __init__(self, disk: Disk | None = None, **changes: int) -> None:
        self.disk = disk or Disk()
        self.limits = limits(**changes)
        self.machine = DurableSubscriptions(self.disk.volume, self.limits)

    def create(self, name: str, start: int = 10, **fields: Any) -> None:
        definition = Definition(name=SubscriptionName(name), topic=TopicName("news"), **fields)
        token = Token({PUBEND: start, OTHER: start})
        since = {str(PUBEND): 10, OTHER: 10}
        then, otherwise = (answer(1),), (answer(0),)
        self.disk.take(
            self.machine.create(definition, token, since, then=then, otherwise=otherwise)
        )
        self.machine.check()

    def acknowledge(self, name: str, tick: int, now: int = 0, number: int = 0) -> None:
        token = Token({PUBEND: tick, "foreign": 99})
        then = (answer(number),) if number else ()
        effects = self.machine.acknowledge(SubscriptionName(name), token, Instant(now), then=then)
        self.disk.take(effects)
        self.machine.check()

    def end(self, name: str) -> None:
        self.disk.take(self.machine.end(SubscriptionName(name), then=(answer(2),)))
        self.machine.check()

    def sync(self, now: int = 0) -> None:
        for message in self.disk.sync():
            assert isinstance(message, SubscriptionPersisted)
            self.disk.take(self.machine.persisted(message, Instant(now)))
        self.machine.check()

    def fire(self, now: int) -> None:
        self.disk.take(self.machine.fire(Instant(now)))
        self.machine.check()

    def released(self) -> int | None:
        return self.machine.released(PUBEND)

    def answers(self) -> list[int]:
        sent, self.disk.sent = self.disk.sent, []
        return [s.message.subscription for s in sent if isinstance(s.message, Ended)]

    def names(self) -> dict[str, int]:
        return {str(each.definition.name): each.number for each in self.machine.all()}

    def restart(self) -> Stand:
        self.disk.crash()
        return Stand(self.disk)


def test_a_subscription_is_confirmed_when_it_is_durable_and_survives_a_restart() -> None:
    stand = Stand()
    stand.create("a", condition="price > 90", order="total", owner="desk", tokens="broker", moves=3)
    assert stand.answers() == []
    assert stand.released() == 10, "release is held from the first moment"
    stand.sync()
    assert stand.answers() == [1]
    again = stand.restart()
    before, after = (
        stand.machine.get(SubscriptionName("a")),
        again.machine.get(SubscriptionName("a")),
    )
    assert before == after
    assert after is not None
    assert after.definition.condition == "price > 90"
    assert again.released() == 10
    assert len(again.machine) == 1


def test_a_subscription_that_is_not_durable_at_a_crash_never_was() -> None:
    stand = Stand()
    stand.create("a")
    again = stand.restart()
    assert again.names() == {}
    assert again.released() is None


def test_numbers_are_never_given_twice() -> None:
    stand = Stand()
    stand.create("a")
    stand.create("b")
    stand.sync()
    stand.sync()
    stand.end("b")
    stand.sync()
    again = stand.restart()
    again.create("b")
    assert again.names() == {"a": 0, "b": 2}


def test_a_subscription_for_which_there_is_no_room_is_refused_and_holds_nothing() -> None:
    stand = Stand()
    stand.disk.volume.size_max = 0
    stand.create("a")
    stand.sync()
    assert stand.answers() == [0]
    assert stand.names() == {}
    assert stand.released() is None


def test_one_for_which_there_was_no_room_may_have_been_acknowledged_meanwhile() -> None:
    stand = Stand()
    stand.disk.volume.size_max = 0
    stand.create("a")
    stand.acknowledge("a", 12)
    stand.sync()
    stand.fire(10**9)
    assert stand.names() == {}


def test_release_is_the_least_of_all_and_only_of_what_is_durable() -> None:
    stand = Stand()
    stand.create("a")
    stand.create("b")
    stand.sync()
    stand.sync()
    stand.acknowledge("a", 50)
    stand.acknowledge("b", 30)
    assert stand.released() == 10
    stand.fire(now=stand.limits.released_flush)
    assert stand.released() == 10
    stand.sync()
    assert stand.released() == 30
    assert stand.machine.released(OTHER) == 10  # type: ignore[arg-type]
    assert stand.restart().released() == 30


def test_one_that_ends_holds_release_until_that_is_durable() -> None:
    stand = Stand()
    stand.create("a")
    stand.create("b", start=70)
    stand.sync()
    stand.sync()
    stand.end("a")
    assert stand.names() == {"b": 1}
    assert stand.released() == 10
    assert Stand(stand.disk).names() == {"a": 0, "b": 1}, "after a crash it is still there"
    stand.sync()
    assert stand.released() == 70
    assert stand.restart().names() == {"b": 1}


def test_acknowledgements_are_gathered_and_each_subscription_is_written_once() -> None:
    stand = Stand()
    for name in "abc":
        stand.create(name)
        stand.sync()
    for tick in range(20, 30):
        stand.acknowledge("a", tick, now=tick)
        stand.acknowledge("b", tick, now=tick)
    assert stand.machine.deadline == 20 + stand.limits.released_flush
    assert not stand.disk.waiting
    stand.fire(now=20 + stand.limits.released_flush)
    [persist] = stand.disk.waiting
    assert [write.key for write in persist.writes if isinstance(write, Put)] == ["a", "b"]


def test_a_token_kept_here_is_answered_when_it_is_durable_and_in_groups() -> None:
    stand = Stand()
    stand.create("a", tokens="broker")
    stand.create("b", tokens="broker")
    stand.sync()
    stand.sync()
    stand.answers()
    stand.acknowledge("a", 20, number=20)
    for tick in range(21, 30):
        stand.acknowledge("a", tick, number=tick)
        stand.acknowledge("b", tick)
    assert len(stand.disk.waiting) == 1, "the others wait for the write under way"
    assert stand.answers() == []
    stand.sync()
    assert stand.answers() == [20]
    assert len(stand.disk.waiting) == 1
    stand.sync()
    assert stand.answers() == list(range(21, 30))
    assert not stand.disk.waiting
    assert stand.released() == 29
    kept = stand.restart().machine.get(SubscriptionName("a"))
    assert kept is not None
    assert kept.released.get(PUBEND) == 29


def test_without_room_an_acknowledgement_is_written_later_and_answered_then() -> None:
    stand = Stand()
    stand.create("a", tokens="broker")
    stand.sync()
    stand.answers()
    stand.disk.volume.size_max = 0
    stand.acknowledge("a", 1 << 60, number=7)
    stand.sync(now=5)
    assert stand.answers() == []
    assert stand.machine.deadline == 5 + stand.limits.storage_retry
    stand.disk.volume.size_max = None
    stand.fire(now=5 + stand.limits.storage_retry)
    stand.sync()
    assert stand.answers() == [7]
    assert stand.released() == 1 << 60


def test_a_token_that_is_behind_or_foreign_changes_nothing() -> None:
    stand = Stand()
    stand.create("a", start=50)
    stand.sync()
    stand.acknowledge("a", 20)
    assert stand.machine.deadline is None
    kept = stand.machine.get(SubscriptionName("a"))
    assert kept is not None
    assert kept.acknowledged == Token({PUBEND: 50, OTHER: 50})


def test_an_acknowledgement_of_one_that_has_ended_is_not_counted_for_its_successor() -> None:
    stand = Stand()
    stand.create("a")
    stand.sync()
    stand.acknowledge("a", 40, number=1)
    stand.end("a")
    stand.create("a", start=12)
    for _ in range(3):
        stand.sync()
    assert stand.released() == 12
    assert stand.restart().released() == 12


@pytest.mark.parametrize("has_room", [True, False])
def test_one_may_end_while_its_acknowledgement_waits_or_has_no_room(has_room: bool) -> None:
    stand = Stand()
    for name in "ab":
        stand.create(name)
        stand.sync()
    if has_room:
        stand.acknowledge("a", 40)
        stand.end("a")
    else:
        stand.disk.volume.size_max = 0
        stand.acknowledge("a", 1 << 60, number=1)
        stand.end("a")
        stand.sync()
        stand.disk.volume.size_max = None
    stand.sync()
    stand.fire(now=10**9)
    for _ in so_long_as(lambda: stand.disk.waiting):
        stand.sync()
    assert list(stand.disk.volume.items("released")) == ["b"]
    assert stand.restart().names() == {"b": 1}


def test_a_move_that_is_settled_is_remembered() -> None:
    stand = Stand()
    stand.create("a", moves=1, previous="old")
    stand.sync()
    stand.disk.take(stand.machine.settle_move(SubscriptionName("a")))
    stand.sync()
    kept = stand.restart().machine.get(SubscriptionName("a"))
    assert kept is not None
    assert (kept.definition.moves, kept.definition.previous) == (1, None)
    moved = replace(kept.definition, moves=2, previous=BrokerName("east"))
    stand.disk.take(stand.machine.redefine(moved))
    stand.sync()
    assert stand.restart().machine.all()[0].definition == moved


@pytest.mark.parametrize("name", ["", "a\n", "x" * 513])
def test_a_bad_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="printable"):
        Stand().create(name)


def test_one_too_many_and_one_that_exists_are_refused() -> None:
    stand = Stand(durable_subscriptions_max=1)
    stand.create("a")
    with pytest.raises(UsageError, match="another name"):
        stand.create("a")
    with pytest.raises(UsageError, match="limit"):
        stand.create("b")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["create", "acknowledge", "end", "sync", "sync", "fire", "crash"]),
            st.sampled_from("abc"),
            st.integers(10, 99),
        ),
        max_size=50,
    )
)
def test_whatever_happens_release_never_passes_what_a_restart_would_find(
    steps: list[tuple[str, str, int]],
) -> None:
    stand, now = Stand(), 0
    for what, name, tick in steps:
        now += stand.limits.released_flush
        known = stand.machine.get(SubscriptionName(name)) is not None
        if what == "create" and not known:
            stand.create(name, start=tick)
        elif what == "acknowledge" and known:
            stand.acknowledge(name, tick, now=now, number=tick % 2)
        elif what == "end" and known:
            stand.end(name)
        elif what == "sync" and stand.disk.waiting:
            stand.sync(now)
        elif what == "fire":
            stand.fire(now)
        elif what == "crash":
            stand = stand.restart()
            stand.machine.check()
        durable = DurableSubscriptions(stand.disk.volume, stand.limits)
        held = [each.released.get(PUBEND) for each in durable.all()]
        least = stand.released()
        assert not held or (least is not None and least <= min(held))
