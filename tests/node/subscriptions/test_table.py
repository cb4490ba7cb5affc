"""The table of named subscriptions: records, indexes and work lists agree, and nothing is left."""

from __future__ import annotations

import pytest

from gapless.core.client_messages import Forget, Subscribe
from gapless.core.identity import BrokerName, ClientName, SubscriptionName, TopicName
from gapless.core.token import Token
from gapless.durable.subscriptions import Definition, DurableSubscriptions
from gapless.node.config import Config
from gapless.node.subscriptions.record import Attacher, Ender, Happening, Phase, Unconfirmed
from gapless.node.subscriptions.table import ENDED_MAX, Table, Work
from gapless.testing.memory_volume import MemoryVolume

ANN, BOB = ClientName("ann"), ClientName("bob")
DESK = SubscriptionName("desk")
NEWS = TopicName("news")


def request(number: int, previous: str | None = None) -> Subscribe:
    there = BrokerName(previous) if previous else None
    token = {"news/0": 1} if previous else None
    return Subscribe(NEWS, number, number, name=DESK, token=token, previous=there)


class Bench:
    """A table over durable subscriptions whose writes never end."""

    def __init__(self) -> None:
        self.subscriptions = DurableSubscriptions(MemoryVolume(), Config())
        self.table = Table(self.subscriptions)

    def define(self, previous: str | None = None, name: SubscriptionName = DESK) -> Definition:
        there = BrokerName(previous) if previous else None
        return Definition(name=name, topic=NEWS, previous=there, owner="ann")

    def create(self, previous: str | None = None) -> int:
        self.table.await_start(DESK, request(1, previous))
        number = self.subscriptions.next_number
        self.subscriptions.create(self.define(previous), Token({}), {"news/0": 1})
        self.table.create(DESK)
        self.table.attach_later(DESK, number, Attacher(ANN, request(1)))
        self.table.end_start(DESK, request(1, previous))
        self.table.check()
        return number

    def live(self, previous: str | None = None) -> None:
        self.table.end_creation(DESK, self.create(previous))
        self.table.written(DESK)
        if previous:
            self.table.arrive(DESK)
        self.table.check()

    @property
    def phase(self) -> Phase | None:
        record = self.table.get(DESK)
        return record.phase if record is not None else None


def test_a_name_that_nobody_wants_any_more_leaves_nothing_behind() -> None:
    table = Bench().table
    table.claim(DESK)
    table.end_claim(DESK)
    table.await_start(DESK, request(1))
    table.end_start(DESK, request(1))
    assert table.get(DESK) is None
    table.check()


def test_the_last_client_to_come_is_attached_and_the_one_before_is_named() -> None:
    bench = Bench()
    number = bench.create()
    before = bench.table.attach_later(DESK, number, Attacher(BOB, request(7)))
    assert before is not None
    assert before.client == ANN
    assert not bench.table.attaching(ANN, 1)
    assert bench.table.attaching(BOB, 7)
    bench.table.check()
    assert bench.table.end_creation(DESK, number) == Attacher(BOB, request(7))
    assert not bench.table.attaching(BOB, 7)


def test_a_client_that_leaves_before_the_first_write_is_durable_is_not_attached() -> None:
    bench = Bench()
    number = bench.create()
    assert bench.table.numbers_attaching(ANN) == [1]
    assert bench.table.detach_later(ANN, 1)
    assert not bench.table.detach_later(ANN, 1)
    assert bench.table.end_creation(DESK, number) is None


def test_a_first_write_without_room_leaves_nothing_behind() -> None:
    bench = Bench()
    number = bench.create()
    bench.subscriptions.end(DESK)
    bench.table.fail(DESK)
    assert bench.phase is Phase.ABSENT, "the client that waits is still to be refused"
    bench.table.end_creation(DESK, number)
    assert bench.table.get(DESK) is None


def test_a_restart_finds_those_that_live_and_those_that_arrive() -> None:
    volume, config = MemoryVolume(), Config()
    subscriptions = DurableSubscriptions(volume, config)
    bench = Bench()
    for name, previous in (("desk", None), ("shop", "old")):
        definition = bench.define(previous, SubscriptionName(name))
        [persist] = subscriptions.create(definition, Token({}), {"news/0": 1})
        volume.commit(persist.writes)  # type: ignore[union-attr]  # it is a Persist
    table = Table(DurableSubscriptions(volume, config))
    table.check()
    desk, shop = table.get(DESK), table.get(SubscriptionName("shop"))
    assert desk is not None
    assert shop is not None
    assert (desk.phase, shop.phase) == (Phase.LIVE, Phase.ARRIVING)
    assert table.take(Work.HAND_OVER) == ["shop"]
    assert not table.has_work(*Work)


def test_a_client_that_came_back_while_it_arrived_is_next_when_that_is_settled() -> None:
    bench = Bench()
    bench.live(previous="old")
    bench.table.take(Work.HAND_OVER)
    bench.table.come_back_later(DESK, request(3, "other"))
    bench.table.settle(DESK)
    assert bench.phase is Phase.LIVE
    assert bench.table.take(Work.TAKE_BACK) == [DESK]
    assert bench.table.take_return(DESK) == request(3, "other")
    assert bench.table.take_return(DESK) is None


def test_an_end_is_remembered_and_a_move_is_not() -> None:
    bench = Bench()
    bench.live()
    definition = bench.define()
    bench.table.end_later(DESK, Ender(ANN, Forget(5, DESK)))
    bench.table.depart(definition)
    assert not bench.table.has_work(Work.END)
    bench.subscriptions.end(DESK)
    bench.table.end(definition, Happening.END)
    assert bench.table.ended(DESK) == definition.moves
    bench.table.ask_to_end(DESK, Ender(BOB, Forget(6, DESK)))
    left = bench.table.departed(DESK)
    assert left is not None
    assert [each.client for each in left.enders] == [ANN, BOB]
    assert bench.table.get(DESK) is None

    bench.live()
    bench.subscriptions.end(DESK)
    bench.table.end(definition, Happening.MOVE_OUT)
    assert bench.table.ended(DESK) is None
    bench.table.check()


def test_only_the_newest_ends_are_remembered() -> None:
    bench = Bench()
    bench.live()
    bench.subscriptions.end(DESK)
    bench.table.end(bench.define(), Happening.END)
    for number in range(ENDED_MAX):
        name = SubscriptionName(f"n{number}")
        bench.table.await_start(name, request(1))
        bench.table.create(name)
        bench.table.end(bench.define(name=name), Happening.END)
    assert bench.table.ended(DESK) is None


def test_what_waits_for_a_move_is_taken_once() -> None:
    bench = Bench()
    bench.live(previous="old")
    held = Unconfirmed(ANN, 3, {"news/0": 4})
    bench.table.hold(DESK, held)
    bench.table.end_later(DESK, Ender(ANN, Forget(5, DESK)))
    assert bench.table.names(Work.CONFIRM) == bench.table.names(Work.END) == [DESK]
    assert bench.table.take_unconfirmed(DESK) == [held]
    assert [each.client for each in bench.table.take_enders(DESK)] == [ANN]
    assert not bench.table.has_work(Work.CONFIRM, Work.END)


def test_the_check_sees_a_phase_that_the_disk_denies() -> None:
    bench = Bench()
    bench.live()
    bench.subscriptions.end(DESK)
    with pytest.raises(AssertionError, match="I1"):
        bench.table.check()
