"""A named subscription goes on from its token, exactly once, wherever it connects again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from gapless.client.delivery import Gap, Silence
from gapless.client.errors import LinkError, SubscriptionInterruptedError
from gapless.core.client_messages import (
    Acknowledge,
    CaughtUp,
    Deliveries,
    Done,
    Ended,
    FellBehind,
    Lost,
    Refused,
    Subscribe,
    Subscribed,
)
from gapless.core.errors import UsageError
from gapless.core.events import EventBatch
from gapless.core.identity import PubendName
from gapless.core.ticks import Span
from gapless.core.token import Token
from gapless.wire.events import encode_event
from tests.broker.stage import run, wait_until
from tests.client.desk import PUBEND, Desk
from tests.client.test_subscription import TOPIC, take

if TYPE_CHECKING:
    from gapless.client.subscription import Subscription

OTHER = PubendName("t/1")


def deliver(
    desk: Desk, *ticks: int, through: int, only: int | None = None, pubend: PubendName = PUBEND
) -> None:
    events = EventBatch(tuple(encode_event({"tick": tick}) for tick in ticks))
    takers = ((1,),) * len(ticks)
    desk.inbox.deliver(Deliveries(TOPIC, through, pubend, ticks, events, takers, only))


def named(desk: Desk, **options: object) -> Subscription:
    return desk.subscription(name="desk", **options)


def reconnect(desk: Desk, broker: str = "b1") -> Subscribe:
    """Lose the connection and get another; what is asked for on it."""
    desk.lose(LinkError("gone"))
    desk.sent.clear()
    desk.come_back(broker)
    (asked,) = [each for each in desk.sent if isinstance(each, Subscribe)]
    return asked


def resubscribed(
    desk: Desk, asked: Subscribe, moves: int = 0, behind: tuple[str, ...] = ()
) -> None:
    assert asked.token is not None
    start = {pubend: asked.token.get(pubend, 0) for pubend in desk.starts}
    desk.inbox.start(Subscribed(asked.request, asked.subscription, start, behind, moves))


def test_it_goes_on_from_what_has_come_and_nothing_is_handed_out_twice() -> None:
    async def main() -> None:
        desk = Desk()
        async with named(desk) as subscription:
            deliver(desk, 11, 12, 13, through=20)
            assert await take(subscription, 2) == [11, 12]
            asked = reconnect(desk)
            assert (asked.token, asked.previous) == ({"t/0": 20}, None)
            resubscribed(desk, asked, behind=("t/0",))
            assert subscription.token == Token({"t/0": 13})
            deliver(desk, 21, through=22, only=1)
            deliver(desk, 25, through=30, only=1)
            assert await take(subscription, 3) == [13, 21, 25]
            assert desk.consumed == 1, "what came on the old connection is not told to the new"

    run(main())


def test_what_had_come_is_still_handed_out_while_there_is_no_connection() -> None:
    async def main() -> None:
        desk = Desk()
        async with named(desk) as subscription:
            deliver(desk, 11, 12, through=20)
            desk.lose(LinkError("gone"))
            assert await take(subscription, 2) == [11, 12]
            desk.come_back()
            assert subscription.token == Token({"t/0": 13})

    run(main())


def test_positions_told_to_others_do_not_count_before_it_is_attached_again() -> None:
    async def main() -> None:
        desk = Desk()
        async with named(desk) as subscription:
            asked = reconnect(desk)
            deliver(desk, through=50)
            resubscribed(desk, asked)
            deliver(desk, 40, through=60)
            assert await take(subscription, 1) == [40]

    run(main())


def test_it_goes_on_after_the_silence_it_was_told_of() -> None:
    async def main() -> None:
        desk = Desk()
        async with named(desk):
            deliver(desk, through=50)
            asked = reconnect(desk)
            assert asked.token == {"t/0": 50}
            resubscribed(desk, asked)
            deliver(desk, through=20)  # of the new connection, and a repeat
            assert reconnect(desk).token == {"t/0": 50}

    run(main())


def test_silence_told_to_others_before_it_caught_up_does_not_count_for_it() -> None:
    async def main() -> None:
        desk = Desk()
        desk.behind = ("t/0",)
        async with named(desk) as subscription:
            deliver(desk, through=90)
            deliver(desk, through=30, only=1)
            desk.inbox.switch(CaughtUp(1, PUBEND))
            assert reconnect(desk).token == {"t/0": 30}
            assert subscription.lags == set()

    run(main())


def test_while_it_is_behind_only_its_own_deliveries_count() -> None:
    async def main() -> None:
        desk = Desk()
        desk.behind = ("t/0",)
        async with named(desk) as subscription:
            deliver(desk, through=50)
            deliver(desk, 11, through=30, only=1)
            deliver(desk, through=55)
            deliver(desk, 35, through=60, only=1)
            desk.inbox.switch(CaughtUp(1, PUBEND))
            deliver(desk, 65, through=70)
            desk.inbox.switch(FellBehind(1, PUBEND))
            deliver(desk, through=90)
            deliver(desk, 75, through=80, only=1)
            assert await take(subscription, 4) == [11, 35, 65, 75]
            deliver(desk, 81, through=82, only=1)
            assert await take(subscription, 1) == [81]
            assert subscription.token == Token({"t/0": 82})

    run(main())


def test_what_is_said_to_one_that_is_behind_is_nothing_to_another() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.subscription() as anonymous, named(desk):
            desk.inbox.switch(FellBehind(2, PUBEND))
            desk.inbox.deliver(Deliveries(TOPIC, 50, PUBEND, only=2))
            deliver(desk, 20, through=30)
            assert await take(anonymous, 1) == [20]

    run(main())


def test_at_another_broker_it_goes_on_from_what_is_acknowledged_and_repeats_are_dropped() -> None:
    async def main() -> None:
        desk = Desk()
        async with named(desk) as subscription:
            deliver(desk, 11, 12, 13, through=20)
            assert await take(subscription, 2) == [11, 12]
            asked = reconnect(desk, "b2")
            assert (asked.token, asked.previous, asked.moves) == ({"t/0": 10}, "b1", 0)
            resubscribed(desk, asked, moves=1, behind=("t/0",))
            deliver(desk, 11, 12, 13, 21, through=25, only=1)
            assert await take(subscription, 2) == [13, 21]
            asked = reconnect(desk, "b2")
            assert (asked.token, asked.previous) == ({"t/0": 25}, None)
            resubscribed(desk, asked, moves=1)
            asked = reconnect(desk, "b1")
            assert (asked.previous, asked.moves) == ("b2", 1)

    run(main())


def test_a_move_that_was_not_answered_counts_as_made() -> None:
    async def main() -> None:
        desk = Desk()
        async with named(desk):
            assert reconnect(desk, "b2").previous == "b1"
            again = reconnect(desk, "b2")
            assert (again.previous, again.moves) == ("b1", 0), "the same request once more"
            back = reconnect(desk, "b1")
            assert (back.previous, back.moves) == ("b2", 1)

    run(main())


def test_a_refusal_for_now_is_asked_again_and_one_for_good_ends_it() -> None:
    async def main() -> None:
        desk = Desk()
        async with named(desk) as subscription:
            asked = reconnect(desk, "b2")
            desk.sent.clear()
            desk.answer(Refused(asked.request, "full", "Later.", retry=True))
            await wait_until(lambda: bool(desk.sent))
            again = desk.sent[0]
            assert isinstance(again, Subscribe)
            assert (again.previous, again.token) == (asked.previous, asked.token)
            desk.answer(Refused(again.request, "no such topic", "Create it."))
            with pytest.raises(SubscriptionInterruptedError, match="no such topic"):
                await anext(subscription)

    run(main())


def test_a_loss_is_one_gap_in_its_place_however_often_it_is_told() -> None:
    async def main() -> None:
        desk = Desk()
        async with named(desk) as subscription:
            deliver(desk, 11, through=12)
            desk.inbox.lose(Lost((1,), PUBEND, Span(12, 30)))
            desk.inbox.lose(Lost((1,), PUBEND, Span(10, 30)))
            desk.inbox.lose(Lost((1,), PUBEND, Span(20, 35)))
            deliver(desk, 36, through=40)
            assert await take(subscription, 4) == [11, Span(12, 30), Span(30, 35), 36]

    run(main())


def test_from_the_oldest_on_nothing_before_it_is_a_gap() -> None:
    async def main() -> None:
        desk = Desk()
        desk.starts = {"t/0": 0}
        async with named(desk, earliest=True) as subscription:
            assert desk.asked[0].earliest
            asked = reconnect(desk)
            assert (asked.earliest, asked.token) == (False, {})
            resubscribed(desk, asked)
            desk.inbox.lose(Lost((1,), PUBEND, Span(0, 30)))
            deliver(desk, 36, through=40)
            assert await take(subscription, 1) == [36]

    run(main())


def test_silence_is_handed_out_where_it_is_wanted() -> None:
    async def main() -> None:
        desk = Desk()
        async with named(desk, silence=True) as subscription:
            deliver(desk, 11, through=20)
            event, silence = await anext(subscription), await anext(subscription)
            assert not isinstance(event, Gap | Silence)
            assert silence == Silence(TOPIC, PUBEND, 20)  # type: ignore[arg-type]
            assert subscription.token == Token({"t/0": 20})
            deliver(desk, through=30)
            assert await anext(subscription) == Silence(TOPIC, PUBEND, 30)  # type: ignore[arg-type]

    run(main())


def test_silence_of_many_pubends_takes_no_room() -> None:
    async def main() -> None:
        desk = Desk()
        desk.starts = {"t/0": 10, "t/1": 10}
        async with named(desk) as subscription:
            deliver(desk, 11, through=12)
            for through in range(20, 1_000):
                deliver(desk, through=through)
                deliver(desk, through=through, pubend=OTHER)
            assert len(subscription._backlog._parts) <= 2
            assert await take(subscription, 1) == [11]

    run(main())


# --- acknowledging -------------------------------------------------------------------------------


def test_an_acknowledgement_is_the_token_and_returns_when_it_is_durable() -> None:
    async def main() -> None:
        desk = Desk()
        async with named(desk) as subscription:
            deliver(desk, 11, 12, through=20)
            assert await take(subscription, 1) == [11]
            acknowledging = asyncio.create_task(subscription.acknowledge())
            await asyncio.sleep(0)
            (sent,) = desk.sent
            assert isinstance(sent, Acknowledge)
            assert sent.token == {"t/0": 12}
            assert not acknowledging.done()
            desk.answer(Done(sent.request))
            await acknowledging
            asked = reconnect(desk, "b2")
            assert asked.token == {"t/0": 12}, "a move goes on from what is acknowledged"

    run(main())


def test_an_acknowledgement_waits_for_the_next_connection_and_is_said_again() -> None:
    async def main() -> None:
        desk = Desk()
        async with named(desk) as subscription:
            acknowledging = asyncio.create_task(subscription.acknowledge())
            await asyncio.sleep(0)
            asked = reconnect(desk)
            for _ in range(5):
                await asyncio.sleep(0)
            assert not any(isinstance(each, Acknowledge) for each in desk.sent), "not attached yet"
            resubscribed(desk, asked)
            await wait_until(lambda: isinstance(desk.sent[-1], Acknowledge))
            sent = desk.sent[-1]
            assert isinstance(sent, Acknowledge)
            desk.answer(Done(sent.request))
            await acknowledging

    run(main())


def test_an_acknowledgement_of_a_subscription_that_ends_fails() -> None:
    async def main() -> None:
        desk = Desk()
        async with named(desk) as subscription:
            acknowledging = asyncio.create_task(subscription.acknowledge())
            await asyncio.sleep(0)
            desk.inbox.ended(Ended(1, "taken over", "Connect once."))
            with pytest.raises(SubscriptionInterruptedError, match="taken over"):
                await acknowledging

    run(main())


def test_an_anonymous_subscription_has_nothing_to_acknowledge() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.subscription() as subscription:
            with pytest.raises(UsageError, match="anonymous"):
                await subscription.acknowledge()

    run(main())


def acknowledged(desk: Desk) -> list[dict[str, int]]:
    return [each.token for each in desk.sent if isinstance(each, Acknowledge)]


def test_where_the_broker_keeps_the_token_what_is_finished_is_acknowledged_by_itself() -> None:
    """An event is finished when the next is asked for: who fails in between gets it again."""

    async def main() -> None:
        desk = Desk()
        subscription = await named(desk, tokens="broker").__aenter__()
        deliver(desk, 11, 12, 13, through=20)
        assert await take(subscription, 2) == [11, 12]
        await wait_until(lambda: bool(acknowledged(desk)))
        assert acknowledged(desk) == [{"t/0": 12}]
        assert await take(subscription, 1) == [13]
        await subscription.__aexit__(ZeroDivisionError, None, None)
        assert acknowledged(desk) == [{"t/0": 12}, {"t/0": 13}]

    run(main())


def test_a_clean_end_acknowledges_everything_taken() -> None:
    async def main() -> None:
        desk = Desk()
        async with named(desk, tokens="broker") as subscription:
            deliver(desk, 11, 12, through=20)
            assert await take(subscription, 1) == [11]
            ending = asyncio.create_task(subscription.__aexit__(None, None, None))
            await asyncio.sleep(0)
            (sent,) = desk.sent
            assert isinstance(sent, Acknowledge)
            assert sent.token == {"t/0": 12}
            desk.answer(Done(sent.request))
            await ending
            assert acknowledged(desk) == [{"t/0": 12}]

    run(main())


def test_where_the_client_keeps_the_token_nothing_is_acknowledged_unasked() -> None:
    async def main() -> None:
        desk = Desk()
        async with named(desk) as subscription:
            deliver(desk, 11, through=20)
            await take(subscription, 1)
            assert subscription._timer is None
        assert acknowledged(desk) == []

    run(main())
