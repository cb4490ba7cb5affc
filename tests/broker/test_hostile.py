"""What a client can do to a real broker over a socket: at most, lose its own link."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from gapless.core.client_messages import (
    Acknowledge,
    Done,
    Forget,
    Receipt,
    Refused,
    Subscribe,
    Subscribed,
)
from gapless.core.identity import PubendName, SubscriptionName, TopicName
from gapless.core.messages import Goodbye
from gapless.core.range_messages import PositionsQuery, ReadRange
from gapless.core.ticks import Span
from gapless.core.topic_messages import CreateTopic
from tests.broker.stage import ByHand, make_broker, publication, run

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.core.effects import Effect
    from gapless.core.messages import Message

T, Q = TopicName("t"), TopicName("q")
X, Y = SubscriptionName("x"), SubscriptionName("y")


class FaultError(Exception):
    """What no part of a broker raises."""


def fail(*_: object) -> list[Effect]:
    raise FaultError("planted")


def test_a_fault_in_one_request_closes_one_link_and_is_logged_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker:
            broker._pump.node.durable.ranges.receive = fail  # type: ignore[method-assign, assignment]
            good, bad = await ByHand.connect(broker), await ByHand.connect(broker)
            good.send(Subscribe(T, 1, 1))
            await good.read_until(Subscribed)
            bad.send(Subscribe(T, 1, 1, name=X))
            await bad.read_until(Subscribed)
            bad.send(PositionsQuery(T, 2), Forget(3, X))
            answers = await bad.read_all()
            assert isinstance(answers[-1], Goodbye)
            assert answers[-1].problem == "PositionsQuery failed inside the broker: FaultError"
            good.send(publication(1, 5))
            await good.read_until(Receipt)
            assert broker.statistics()["failed_requests"] == 1
            assert broker._pump.node.durable.subscriptions.get(X) is not None
            await good.close()

    with caplog.at_level(logging.ERROR):
        run(main())
    [record] = [each for each in caplog.records if "failed inside" in each.getMessage()]
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], FaultError)


def test_two_subscriptions_with_one_number_in_one_write(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker:
            for _ in range(3):
                bad = await ByHand.connect(broker)
                bad.send(Subscribe(T, 1, 1, name=X), Subscribe(T, 2, 1, name=Y))
                # One is answered at once, the other when its subscription is durable.
                await bad.read_until(Refused, Subscribed)
                bad.send(Forget(3, X))
                await bad.read_until(Done)
                await bad.close()
            good = await ByHand.connect(broker)
            good.send(publication(1, 5))
            await good.read_until(Receipt)
            await good.close()

    run(main())


def test_a_name_that_is_asked_for_twice_and_forgotten_in_one_write(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker:
            bad = await ByHand.connect(broker)
            bad.send(CreateTopic(1, Q))
            await bad.read_until(Done)
            for number in range(10, 60, 10):
                bad.send(
                    Subscribe(Q, number, number, name=X),
                    Subscribe(T, number + 1, number + 1, name=X),
                    Forget(number + 2, X),
                    Acknowledge(0, {}, number + 3, X),
                )
            bad.send(publication(1, 99))
            await bad.read_until(Receipt)
            await bad.close()

    run(main())


LONG = "n" * (1 << 19)
LONGER = "n" * (8 << 20)


@pytest.mark.parametrize(
    "message",
    [
        Forget(1, SubscriptionName(LONG)),
        Subscribe(T, 1, 1, name=SubscriptionName(LONG)),
        ReadRange(T, 1, PubendName(LONG), Span(0, 1)),
    ],
    ids=["forget", "subscribe", "read"],
)
def test_a_very_long_name_ends_its_link_with_a_line(tmp_path: Path, message: Message) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker:
            bad = await ByHand.connect(broker)
            bad.send(message)
            answers = await bad.read_all()
            assert isinstance(answers[-1], Goodbye)
            assert "length <=" in answers[-1].problem
            assert len(answers[-1].problem) < 300

    run(main())


def test_a_request_of_megabytes_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker:
            bad = await ByHand.connect(broker)
            bad.send(Forget(1, SubscriptionName(LONGER)))
            answers = await bad.read_all()
            assert isinstance(answers[-1], Goodbye)
            assert "the limit is 1048576" in answers[-1].problem

    run(main())
