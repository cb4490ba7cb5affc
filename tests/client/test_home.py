"""A subscription goes to the broker that has it, lives there, and comes back when that is lost."""

from __future__ import annotations

import asyncio

import pytest

from gapless.client.errors import LinkError, RefusedError, SubscriptionInterruptedError
from gapless.client.requests import HOPS_MAX
from gapless.core.client_messages import (
    Acknowledge,
    Deliveries,
    Ended,
    Refused,
    Subscribe,
    Unsubscribe,
)
from gapless.core.events import EventBatch
from gapless.core.identity import BrokerName
from gapless.core.token import Token
from gapless.wire.events import encode_event
from tests.broker.stage import run, wait_until
from tests.client.desk import PUBEND, Desk
from tests.client.test_named import deliver, named, reconnect, resubscribed
from tests.client.test_redirects import away
from tests.client.test_subscription import TOPIC, take


def asked(desk: Desk) -> Subscribe:
    return [each for each in desk.sent if isinstance(each, Subscribe)][-1]


def sent_away(desk: Desk, place: str) -> Desk:
    """A desk at `place`, of another broker, which the first is sent to."""
    desk.other_brokers.at((place,))
    there = desk.places[place]
    there.broker = BrokerName(place)
    there.address = place
    return there


def bring(desk: Desk, message: Subscribe, *ticks: int, through: int) -> None:
    """Events for the one that asked with this message, which is behind."""
    events = EventBatch(tuple(encode_event({"tick": tick}) for tick in ticks))
    number = message.subscription
    takers = ((number,),) * len(ticks)
    desk.inbox.deliver(Deliveries(TOPIC, through, PUBEND, ticks, events, takers, number))


def test_it_lives_where_it_was_sent_and_is_ended_there() -> None:
    async def main() -> None:
        desk = Desk()
        there = sent_away(desk, "b:1")
        desk.refusals = [away()]
        async with named(desk, tokens="broker") as subscription:
            assert (len(desk.inbox), len(there.inbox)) == (0, 1)
            assert subscription.address == "b:1"
            deliver(there, 11, 12, through=20)
            assert await take(subscription, 2) == [11, 12]
            await wait_until(lambda: any(isinstance(m, Acknowledge) for m in there.sent))
            there.patience_s = 0.0  # nobody answers the last one
        assert (len(desk.inbox), len(there.inbox)) == (0, 0)
        assert any(isinstance(each, Unsubscribe) for each in there.sent)
        assert not any(isinstance(each, Unsubscribe) for each in desk.sent)

    run(main())


def test_when_that_connection_is_lost_it_asks_at_its_own_and_says_where_it_was() -> None:
    async def main() -> None:
        desk = Desk()
        there = sent_away(desk, "b:1")
        desk.refusals = [away()]
        async with named(desk) as subscription:
            deliver(there, 11, through=20)
            there.lose(LinkError("gone"))
            message = asked(desk)
            assert (message.previous, message.token) == ("b:1", {"t/0": 10})
            resubscribed(desk, message, moves=1, behind=("t/0",))
            bring(desk, message, 11, 21, through=30)
            assert await take(subscription, 2) == [11, 21], "what had come is not doubled"

    run(main())


def test_a_restart_that_is_sent_elsewhere_goes_on_there_when_that_is_up() -> None:
    async def main() -> None:
        desk = Desk()
        there = sent_away(desk, "b:1")
        async with named(desk) as subscription:
            message = reconnect(desk)
            there.is_up = False
            desk.answer(away(message.request))
            await asyncio.sleep(0)
            assert not there.sent, "its connection is still to come"
            there.come_back("b:1")
            assert asked(there).token == {"t/0": 10}
            resubscribed(there, asked(there))
            deliver(there, 15, through=16)
            assert await take(subscription, 1) == [15]

    run(main())


def test_it_asks_once_on_a_connection_however_often_it_is_told_to() -> None:
    async def main() -> None:
        desk = Desk()
        async with named(desk):
            message = reconnect(desk)
            desk.inbox.resume()
            assert sum(isinstance(each, Subscribe) for each in desk.sent) == 1
            desk.answer(Refused(message.request, "full", "Later.", retry=True))
            await wait_until(lambda: asked(desk) is not message)
            desk.inbox.resume()
            assert sum(isinstance(each, Subscribe) for each in desk.sent) == 2

    run(main())


def test_one_that_is_sent_about_comes_home_and_gives_up_in_the_end() -> None:
    async def main() -> None:
        desk = Desk()
        desk.patience_s = 0.0
        there = sent_away(desk, "b:1")
        desk.refusals = [away()]
        there.refusals = [away(place=("b:1",))] * HOPS_MAX
        with pytest.raises(RefusedError, match="not here"):
            async with named(desk):
                pass
        assert len(there.refusals) == HOPS_MAX, "its time was over at the first"
        desk.patience_s, desk.refusals = 30.0, [away()]
        async with named(desk):
            assert there.refusals == [], "sent on from there, and back"
            assert len(desk.inbox) == 1

    run(main())


def test_one_that_cannot_go_where_it_is_sent_ends_with_the_reason() -> None:
    async def main() -> None:
        desk = Desk()
        async with named(desk) as subscription:
            message = reconnect(desk)
            desk.answer(Refused(message.request, "not yours", "Use another name."))
            with pytest.raises(SubscriptionInterruptedError, match="not yours"):
                await anext(subscription)

    run(main())


def test_credit_goes_to_the_connection_that_events_came_on() -> None:
    async def main() -> None:
        desk = Desk()
        there = sent_away(desk, "b:1")
        async with named(desk) as subscription:
            deliver(desk, 11, through=20)
            message = reconnect(desk)
            desk.answer(away(message.request))
            await wait_until(lambda: bool(there.sent))
            resubscribed(there, asked(there))
            there.session = desk.session - 1  # as it was when the first came
            bring(there, asked(there), 21, through=30)
            assert await take(subscription, 2) == [11, 21]
            await wait_until(lambda: subscription.token == Token({"t/0": 22}))
        assert (desk.consumed, there.consumed) == (0, 1)

    run(main())


def test_one_that_was_left_behind_follows_with_what_it_has_acknowledged() -> None:
    async def main() -> None:
        desk = Desk()
        async with named(desk) as subscription:
            deliver(desk, 11, 12, through=20)
            assert await take(subscription, 1) == [11]
            desk.inbox.ended(Ended(1, "it goes on at another broker", elsewhere=True))
            await wait_until(lambda: bool(desk.sent))
            message = asked(desk)
            assert (message.token, message.previous) == ({"t/0": 10}, None)
            resubscribed(desk, message, moves=3, behind=("t/0",))
            bring(desk, message, 11, 12, 21, through=30)
            assert await take(subscription, 2) == [12, 21]

    run(main())


def test_where_the_broker_keeps_the_token_it_stays_there() -> None:
    async def main() -> None:
        desk = Desk()
        async with named(desk, tokens="broker"):
            message = reconnect(desk, "b2")
            assert (message.previous, message.token) == (None, {"t/0": 10})

    run(main())


def test_silence_is_acknowledged_for_one_that_waits() -> None:
    async def main() -> None:
        desk = Desk()
        async with named(desk, tokens="broker") as subscription:
            deliver(desk, 11, through=12)
            assert await take(subscription, 1) == [11]
            waiting = asyncio.ensure_future(anext(subscription))
            await asyncio.sleep(0)
            desk.inbox.deliver(Deliveries(TOPIC, 500, PUBEND))
            await wait_until(lambda: acknowledged(desk) == {"t/0": 500})
            assert subscription.token == Token({"t/0": 500})
            waiting.cancel()
            desk.patience_s = 0.0  # nobody answers the last one

    run(main())


def acknowledged(desk: Desk) -> dict[str, int]:
    told = [each.token for each in desk.sent if isinstance(each, Acknowledge)]
    return told[-1] if told else {}
