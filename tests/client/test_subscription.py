"""A subscription hands out what came, once and in order, and tells what is missing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from gapless.client.delivery import Gap, Silence
from gapless.client.errors import LinkError, SubscriptionInterruptedError
from gapless.core.client_messages import (
    Deliveries,
    Ended,
    Lost,
    Subscribe,
    Subscribed,
    Unreached,
    Unsubscribe,
)
from gapless.core.errors import UsageError
from gapless.core.events import Event, EventBatch
from gapless.core.identity import BrokerName, PubendName, TopicName
from gapless.core.ticks import Span, Tick
from gapless.core.token import Token
from gapless.wire.events import encode_event
from tests.broker.stage import run
from tests.client.desk import PUBEND, Desk

if TYPE_CHECKING:
    from gapless.client.subscription import Subscription

TOPIC = TopicName("t")


def deliveries(
    ticks: tuple[int, ...],
    through: int,
    takers: tuple[tuple[int, ...], ...] | None = None,
    pubend: PubendName | None = PUBEND,
) -> Deliveries:
    events = EventBatch(tuple(encode_event({"tick": tick}) for tick in ticks))
    return Deliveries(TOPIC, through, pubend, ticks, events, takers or ((1,),) * len(ticks))


async def take(subscription: Subscription, count: int) -> list[int | Span]:
    found: list[int | Span] = []
    for _ in range(count):
        item = await anext(subscription)
        assert not isinstance(item, Silence)
        found.append(item.span if isinstance(item, Gap) else item.tick)
    return found


def test_events_come_in_order_and_the_token_follows_what_was_taken() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.subscription() as subscription:
            assert subscription.token == Token({"t/0": 10})
            desk.inbox.deliver(deliveries((11, 12), 15))
            desk.inbox.deliver(deliveries((), 20))
            assert await take(subscription, 1) == [11]
            assert subscription.token == Token({"t/0": 12})
            assert await take(subscription, 1) == [12]
            assert subscription.token == Token({"t/0": 13})
            waiting = asyncio.create_task(take(subscription, 1))
            await asyncio.sleep(0)
            assert subscription.token == Token({"t/0": 20}), "silence counts once it is reached"
            desk.inbox.deliver(deliveries((30,), 31))
            assert await waiting == [30]

    run(main())


def test_in_total_order_a_tick_holds_for_all_pubends() -> None:
    async def main() -> None:
        desk = Desk()
        desk.starts = {"t/0": 1024, "t/1": 1024}
        async with desk.subscription(order="total") as subscription:
            desk.inbox.deliver(deliveries((2048, 3073), 4096, pubend=None))
            event = await anext(subscription)
            assert isinstance(event, Event)
            assert event.pubend == "t/0"
            assert subscription.token == Token({"t/0": 2049, "t/1": 2049})
            event = await anext(subscription)
            assert isinstance(event, Event)
            assert event.pubend == "t/1"

    run(main())


def test_credit_is_given_once_all_who_wanted_an_event_have_taken_it() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.subscription() as first, desk.subscription() as second:
            desk.inbox.deliver(deliveries((11, 12, 13), 15, ((1, 2), (2,), (1,))))
            assert await take(first, 2) == [11, 13]
            waiting = asyncio.create_task(take(first, 1))
            await asyncio.sleep(0)
            assert desk.consumed == 0
            assert await take(second, 2) == [11, 12]
            desk.inbox.deliver(deliveries((16,), 17, ((1, 2),)))
            assert await take(second, 1) == [16]
            assert desk.consumed == 3
            await waiting

    run(main())


def test_nobody_waits_for_a_subscription_that_was_not_entered() -> None:
    async def main() -> None:
        with pytest.raises(UsageError, match="has not begun"):
            await take(Desk().subscription(), 1)

    run(main())


def test_a_subscription_that_waits_first_tells_what_it_has_consumed() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.subscription() as subscription:
            desk.inbox.deliver(deliveries((11, 12), 15))
            assert await take(subscription, 2) == [11, 12]
            waiting = asyncio.create_task(take(subscription, 1))
            await asyncio.sleep(0)
            assert desk.told == 2
            with pytest.raises(UsageError, match="another task waits"):
                await take(subscription, 1)
            waiting.cancel()

    run(main())


def test_what_a_closed_subscription_did_not_take_counts_as_consumed() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.subscription() as subscription:
            desk.inbox.deliver(deliveries((11, 12), 15))
            desk.inbox.deliver(deliveries((16,), 17))
            assert await take(subscription, 1) == [11]
        assert desk.consumed == desk.told == 3
        assert desk.sent == [Unsubscribe(1)]
        desk.inbox.deliver(deliveries((20,), 21))
        assert desk.consumed == 4, "what still comes for it is nobody's"
        with pytest.raises(StopAsyncIteration):
            await anext(subscription)

    run(main())


def test_credit_for_an_old_connection_is_not_given_to_the_next() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.subscription(resumes=True) as subscription:
            desk.inbox.deliver(deliveries((11,), 12))
            desk.lose(LinkError("gone"))
            desk.come_back()
            desk.inbox.start(Subscribed(1, 1, {"t/0": 12}))
            desk.inbox.deliver(deliveries((13,), 14))
            assert await take(subscription, 2) == [11, 13]
        assert desk.consumed == 1

    run(main())


def test_a_lost_connection_is_told_after_all_that_had_come() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.subscription() as subscription:
            desk.inbox.deliver(deliveries((11, 12), 15))
            desk.lose(LinkError("gone"))
            desk.come_back()
            assert desk.sent == []
            assert await take(subscription, 2) == [11, 12]
            with pytest.raises(SubscriptionInterruptedError, match="gone"):
                await anext(subscription)

    run(main())


def test_a_subscription_that_goes_on_tells_exactly_what_it_missed() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.subscription(resumes=True) as subscription:
            desk.inbox.deliver(deliveries((11, 12), 15))
            desk.lose(LinkError("gone"))
            desk.come_back()
            assert isinstance(desk.sent[-1], Subscribe)
            desk.inbox.start(Subscribed(1, 1, {"t/0": 40}))
            desk.inbox.deliver(deliveries((41,), 42))
            assert await take(subscription, 4) == [11, 12, Span(15, 40), 41]

    run(main())


def test_what_another_broker_delivers_again_is_dropped() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.subscription(resumes=True) as subscription:
            desk.inbox.deliver(deliveries((11, 20), 21))
            desk.lose(LinkError("gone"))
            desk.come_back()
            desk.inbox.start(Subscribed(1, 1, {"t/0": 15}))
            desk.inbox.deliver(deliveries((20, 25), 26))
            assert await take(subscription, 3) == [11, 20, 25]

    run(main())


def test_a_lost_span_is_a_gap_in_its_place() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.subscription() as subscription:
            desk.inbox.deliver(deliveries((11,), 12))
            desk.inbox.lose(Lost((1,), PUBEND, Span(12, 30)))
            desk.inbox.deliver(deliveries((31,), 32))
            assert await take(subscription, 3) == [11, Span(12, 30), 31]
            assert subscription.token == Token({"t/0": 32})

    run(main())


def test_a_subscription_that_the_broker_ended_says_why_after_all_that_had_come() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.subscription() as subscription:
            desk.inbox.deliver(deliveries((11,), 12))
            desk.inbox.ended(Ended(1, "too slow", "Consume faster."))
            assert await take(subscription, 1) == [11]
            with pytest.raises(SubscriptionInterruptedError, match=r"too slow\. Consume faster\."):
                await anext(subscription)

    run(main())


def test_who_waits_until_all_brokers_are_reached_waits_for_the_last_or_the_end() -> None:
    async def main() -> None:
        desk, some = Desk(), (BrokerName("a"), BrokerName("b"))
        async with desk.subscription() as subscription:
            await subscription.reached()  # there is nothing to wait for
            desk.inbox.switch(Unreached(1, some))
            waiting = asyncio.create_task(subscription.reached())
            desk.inbox.switch(Unreached(1, some[:1]))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert (subscription.unreached, waiting.done()) == (some[:1], False)
            desk.inbox.switch(Unreached(1))
            await waiting
            desk.inbox.switch(Unreached(1, some))
            waiting = asyncio.create_task(subscription.reached())
            desk.inbox.ended(Ended(1, "deleted"))
            await waiting
        desk.inbox.switch(Unreached(1, some))  # nobody is there any more

    run(main())


def test_a_cancelled_wait_loses_nothing() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.subscription() as subscription:
            waiting = asyncio.create_task(take(subscription, 1))
            await asyncio.sleep(0)
            desk.inbox.deliver(deliveries((11,), 12))
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            assert await take(subscription, 1) == [11]

    run(main())


def test_silence_takes_no_room() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.subscription() as subscription, desk.subscription(silence=True) as told:
            for through in range(20, 1_000):
                desk.inbox.deliver(deliveries((), through))
            assert len(subscription._backlog._parts) == 0
            assert len(told._backlog._parts) == 1
            assert await anext(told) == Silence(TOPIC, PUBEND, Tick(999))

    run(main())


def test_silence_counts_for_those_who_got_no_event_when_they_ask_for_more() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.subscription() as one, desk.subscription():
            desk.inbox.deliver(deliveries((11,), 15))
            desk.inbox.deliver(deliveries((20,), 30, ((2,),)))
            assert await take(one, 1) == [11]
            assert one.token == Token({"t/0": 12})
            desk.inbox.deliver(deliveries((41,), 42))
            assert await take(one, 1) == [41]
            desk.inbox.deliver(deliveries((50,), 60, ((2,),)))
            waiting = asyncio.create_task(take(one, 1))
            await asyncio.sleep(0)
            assert one.token == Token({"t/0": 60})
            desk.inbox.ended(Ended(1))
            with pytest.raises(StopAsyncIteration):
                await anext(one)
            waiting.cancel()

    run(main())


def test_what_was_silent_before_it_started_is_nothing_to_a_new_one() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.subscription():
            desk.inbox.deliver(deliveries((11,), 50))
            async with desk.subscription() as late:  # it starts at tick 10
                waiting = asyncio.create_task(take(late, 1))
                await asyncio.sleep(0)
                desk.inbox.deliver(deliveries((20,), 51, ((2,),)))
                assert await waiting == [20]

    run(main())


def test_positions_of_one_connection_mean_nothing_on_the_next() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.subscription():
            desk.inbox.deliver(deliveries((), 50))
            desk.lose(LinkError("gone"))
            desk.come_back("b2")  # which is not as far
            async with desk.subscription() as later:
                desk.inbox.deliver(deliveries((), 40))
                waiting = asyncio.create_task(take(later, 1))
                await asyncio.sleep(0)
                assert later.token == Token({"t/0": 40})
                waiting.cancel()

    run(main())


def test_what_is_known_to_be_silent_is_not_told_as_lost() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.subscription() as subscription:
            desk.inbox.deliver(deliveries((), 30))
            desk.inbox.lose(Lost((1,), PUBEND, Span(20, 40)))
            assert await take(subscription, 1) == [Span(30, 40)]

    run(main())


def test_batches_hand_out_all_that_came_together() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.subscription() as subscription:
            desk.inbox.deliver(deliveries((11, 12), 15))
            desk.inbox.ended(Ended(1))
            found = [len(batch) async for batch in subscription.batches()]
            assert found == [2]
            assert subscription.token == Token({"t/0": 15})

    run(main())
