"""A subscription moves to another broker, and release never passes its token meanwhile."""

from __future__ import annotations

import random

import pytest

from gapless.core.broker_messages import Ack, ReleaseEcho, ReleaseHold
from gapless.core.identity import (
    BrokerName,
    CellName,
    Instant,
    PubendName,
    SubscriptionName,
    TopicName,
)
from gapless.core.token import Token
from gapless.durable.hand_over import TRANSITIONS, Arrival, ForgetRequest, Step, may_forget
from gapless.durable.subscriptions import Definition, DurableSubscription
from tests.bounds import so_long_as
from tests.durable.reports import Reports
from tests.durable.stand import limits

TIMING = limits()
FIRST, SECOND = PubendName("news/0"), PubendName("news/1")
OLD, NEW = BrokerName("old"), BrokerName("new")
HERE = CellName("here")
SUBSCRIPTION = SubscriptionName("desk-7")


def arrive(*pubends: PubendName) -> Arrival:
    token = Token({FIRST: 50, SECOND: 60})
    topic = TopicName("news")
    definition = Definition(name=SUBSCRIPTION, topic=topic, moves=2, previous=OLD)
    ahead = Token({FIRST: 55, SECOND: 65})  # acknowledged, but not durable: it must not count
    subscription = DurableSubscription(
        7, definition, dict.fromkeys(pubends, 0), acknowledged=ahead, released=token
    )
    return Arrival(subscription, HERE, 9, TIMING, Instant(0))


def echo(pubend: PubendName, number: int = 9) -> ReleaseEcho:
    return ReleaseEcho(pubend, HERE, number)


def test_every_pubend_is_held_at_the_token_before_the_old_broker_may_forget() -> None:
    arrival = arrive(FIRST, SECOND)
    hold = [ReleaseHold(FIRST, HERE, 50, 9), ReleaseHold(SECOND, HERE, 60, 9)]
    assert arrival.fire(Instant(0)) == hold
    assert arrival.receive_echo(echo(FIRST), Instant(1)) == []
    arrival.check()
    assert arrival.receive_echo(echo(SECOND), Instant(2)) == [ForgetRequest(OLD, SUBSCRIPTION, 2)]
    arrival.check()
    arrival.receive_forgotten(OLD, 2)
    arrival.check()
    assert arrival.step is Step.DONE
    assert arrival.fire(Instant(10**9)) == []


def test_each_step_is_repeated_until_it_is_answered() -> None:
    arrival, second = arrive(FIRST, SECOND), TIMING.hand_over_repeat
    arrival.fire(Instant(0))
    arrival.receive_echo(echo(FIRST), Instant(1))
    assert arrival.fire(Instant(second - 1)) == []
    assert arrival.fire(Instant(second)) == [ReleaseHold(SECOND, HERE, 60, 9)]
    arrival.receive_echo(echo(SECOND), Instant(second))
    assert arrival.fire(Instant(2 * second)) == [ForgetRequest(OLD, SUBSCRIPTION, 2)]


def test_echoes_of_others_and_late_ones_change_nothing() -> None:
    arrival = arrive(FIRST)
    arrival.fire(Instant(0))
    assert arrival.receive_echo(echo(FIRST, number=8), Instant(1)) == []
    arrival.receive_forgotten(OLD, 2)
    steps = [arrival.step]  # nobody was told to forget yet
    arrival.receive_echo(echo(FIRST), Instant(1))
    assert arrival.receive_echo(echo(FIRST), Instant(2)) == []
    arrival.receive_forgotten(NEW, 2)
    arrival.receive_forgotten(OLD, 1)
    steps.append(arrival.step)
    assert steps == [Step.HOLDING, Step.HANDING_OVER]


def test_of_two_copies_it_is_agreed_which_is_forgotten() -> None:
    """It came back while an old request to forget it was on its way."""
    assert may_forget((1, "b"), (2, "a"))
    assert may_forget((2, "a"), (2, "b"))
    assert not may_forget((2, "b"), (2, "a"))
    assert not may_forget((3, "a"), (2, "b"))


def test_every_step_leads_on_and_the_last_nowhere() -> None:
    assert list(TRANSITIONS) == list(Step)
    assert [list(each.values()) for each in TRANSITIONS.values()] == [
        [Step.HANDING_OVER],
        [Step.DONE],
        [],
    ]


@pytest.mark.parametrize("is_hasty", [False, True])
def test_release_never_passes_the_token_however_messages_are_lost_and_overtake(
    is_hasty: bool,
) -> None:
    """The old broker holds at 50, the new one comes from 100. One that forgets without waiting
    for the echo is found out."""
    passed = False
    for seed in range(200):
        dice = random.Random(seed)
        cells = {OLD: CellName("old"), NEW: CellName("new")}
        reports = Reports(cells.values())
        sequence, released, wire = dict.fromkeys(cells, 0), {OLD: 50, NEW: 100}, list[object]()

        def report(
            broker: BrokerName,
            sequence: dict[BrokerName, int] = sequence,
            released: dict[BrokerName, int] = released,
            cells: dict[BrokerName, CellName] = cells,
        ) -> Ack:
            sequence[broker] += 1
            number = sequence[broker]
            return Ack(FIRST, cells[broker], 100, released[broker], broker, 1, number)

        for broker in cells:
            reports.receive_ack(report(broker))
        wire += [report(NEW), report(OLD)]
        released[NEW] = 50  # it is durable there: reports and holds say so from now on
        arrival = arrive(FIRST)
        now = 0
        for _ in so_long_as(lambda arrival=arrival: arrival.step is not Step.DONE):  # type: ignore[misc]
            now += TIMING.hand_over_repeat
            for out in arrival.fire(Instant(now)):
                if isinstance(out, ReleaseHold):
                    sequence[NEW] += 1
                    wire.append((out, sequence[NEW]))
            if is_hasty or arrival.step is Step.HANDING_OVER:
                released[OLD] = 100
                arrival.receive_forgotten(OLD, 2)
            wire += [report(broker) for broker in cells if dice.random() < 0.5]
            dice.shuffle(wire)
            while wire and dice.random() < 0.8:
                message = wire.pop()
                if dice.random() < 0.3:
                    continue
                if isinstance(message, Ack):
                    reports.receive_ack(message)
                elif isinstance(message, tuple):
                    hold, number = message
                    reports.hold(cells[NEW], NEW, 1, number, hold.tick)
                    arrival.receive_echo(echo(FIRST), Instant(now))
                passed |= reports.released > 50
    assert passed == is_hasty
