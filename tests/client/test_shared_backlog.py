"""Those that keep in step share a position, and each leaves with what is its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gapless.client.delivery import Gap
from gapless.client.errors import LinkError, SubscriptionInterruptedError
from gapless.client.joint_reader import together
from gapless.core.client_messages import (
    Acknowledge,
    Ended,
    Lost,
    Subscribed,
)
from gapless.core.events import Event
from gapless.core.identity import PubendName
from gapless.core.ticks import Span
from tests.broker.stage import run
from tests.client.desk import PUBEND, Desk
from tests.client.test_subscription import TOPIC, deliveries

if TYPE_CHECKING:
    from gapless.client.delivery import Delivery
    from gapless.client.joint_reader import JointReader
    from gapless.client.subscription import Subscription


def shown(items: list[Delivery]) -> list[object]:
    return [each.tick if isinstance(each, Event) else each for each in items]


async def in_step(*subscriptions: Subscription) -> JointReader:
    reader = together(subscriptions)
    assert reader._gather() == []
    assert all(each._shared is not None for each in subscriptions)
    return reader


def test_what_is_handed_out_is_finished_when_more_is_asked_for() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.subscription() as first, desk.subscription() as second:
            reader = await in_step(first, second)
            desk.inbox.deliver(deliveries((11, 12), 15, ((1,), (1, 2))))
            pairs = reader._gather()
            assert [(each is second, item.tick) for each, item in pairs] == [  # type: ignore[union-attr]
                (False, 11),
                (False, 12),
                (True, 12),
            ]
            assert (first.token.get("t/0"), first._finished().get("t/0")) == (15, 10)
            desk.inbox.deliver(deliveries((), 18))
            assert first._finished().get("t/0") == 10, "silence follows what is not finished"
            assert desk.consumed == 0
            assert reader._gather() == []
            assert first._finished().get("t/0") == 18
            assert desk.consumed == desk.told == 2

    run(main())


def test_who_leaves_takes_along_what_waits_and_what_is_not_finished() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.subscription() as first, desk.subscription() as second:
            reader = await in_step(first, second)
            desk.inbox.deliver(deliveries((11,), 15, ((1,),)))
            assert len(reader._gather()) == 1
            desk.inbox.deliver(deliveries((16, 17), 18, ((1, 2), (2,))))
            first.leave_shared()
            assert (first.token.get("t/0"), first._finished().get("t/0")) == (15, 10)
            assert [(each is second, item.tick) for each, item in reader._gather()] == [  # type: ignore[union-attr]
                (False, 16),
                (True, 16),
                (True, 17),
            ]
            assert desk.consumed == 1, "one event of three is finished"
            assert reader._gather() == []
            assert desk.consumed == 3
            assert first._shared is not None, "it is in step again"

    run(main())


def test_what_waits_is_neither_taken_nor_acknowledged() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.subscription(name="one", tokens="broker") as first:
            reader = await in_step(first)
            desk.inbox.deliver(deliveries((11,), 15))
            first._acknowledge_finished()
            assert first.token.get("t/0") == 10
            assert len(reader._gather()) == 1
            first._acknowledge_finished()
            assert first.token.get("t/0") == 15
            assert desk.sent == [Acknowledge(1, {"t/0": 10})], "someone may be busy with it"
            assert reader._gather() == []
            first._acknowledge_finished()
            assert desk.sent[1:] == [Acknowledge(1, {"t/0": 15})]
            desk.is_up = False
            await first.close()

    run(main())


def test_events_wait_for_one_that_left_and_did_not_take_them() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.subscription() as first, desk.subscription() as second:
            await in_step(first, second)
            desk.inbox.deliver(deliveries((11,), 15, ((1, 2),)))
            lane = desk.inbox.shared
            assert lane is not None
            first.leave_shared()
            assert len(lane.take()) == 1
            assert lane.take() == []
            assert desk.consumed == 0
            assert shown(first.take_available() or []) == [11]
            assert first.take_available() == []
            assert desk.consumed == 1

    run(main())


def test_events_wait_for_the_slowest_of_those_that_are_read_apart() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.subscription() as first, desk.subscription() as apart:
            reader = await in_step(first)
            desk.inbox.deliver(deliveries((11, 12), 15, ((1, 2), (2,))))
            assert len(reader._gather()) == 1
            assert reader._gather() == []
            assert desk.consumed == 0
            assert len(await apart.take()) == 2
            assert apart.take_available() == []
            assert desk.consumed == 2

    run(main())


@pytest.mark.parametrize("is_finished", [False, True])
def test_a_lane_forgets_the_positions_of_a_connection_that_is_gone(is_finished: bool) -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.subscription(name="one") as first, desk.subscription(name="two") as second:
            reader = await in_step(first, second)
            desk.inbox.deliver(deliveries((50,), 60, ((1,),)))
            assert len(reader._gather()) == 1
            assert not is_finished or reader._gather() == []
            desk.lose(LinkError("gone"))
            desk.come_back()
            desk.inbox.start(Subscribed(0, 1, {"t/0": 60}))
            desk.inbox.start(Subscribed(0, 2, {"t/0": 60}))
            async with desk.subscription(name="three") as third:  # from further back
                assert desk.inbox.shared is not None
                third.join_shared(desk.inbox.shared)
                assert third._shared is not None
                assert third.token.get("t/0") == 10
                assert reader._gather() == []
                assert third.token.get("t/0") == 10

    run(main())


def test_what_came_before_at_another_broker_does_not_come_again() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.subscription(name="one") as first:
            reader = await in_step(first)
            desk.inbox.deliver(deliveries((20,), 30))
            assert len(reader._gather()) == 1
            desk.lose(LinkError("gone"))
            desk.come_back("b2")
            desk.inbox.start(Subscribed(0, 1, {"t/0": 10}))
            assert reader._gather() == []
            assert first._shared is None, "it has received more than it is sent here"
            desk.inbox.deliver(deliveries((20, 35), 40))
            assert shown([item for _, item in reader._gather()]) == [35]
            assert reader._gather() == []
            assert first._shared is not None

    run(main())


def test_in_total_order_the_token_moves_at_all_pubends() -> None:
    async def main() -> None:
        desk = Desk()
        desk.starts = {"t/0": 1024, "t/1": 1024}
        async with desk.subscription(order="total") as subscription:
            reader = await in_step(subscription)
            desk.inbox.deliver(deliveries((2048, 3073), 4096, pubend=None))
            assert [item.pubend for _, item in reader._gather()] == ["t/0", "t/1"]
            assert dict(subscription.token) == {"t/0": 4096, "t/1": 4096}
            subscription.leave_shared()
            assert dict(subscription.token) == {"t/0": 4096, "t/1": 4096}
            assert dict(subscription._finished()) == {"t/0": 1024, "t/1": 1024}

    run(main())


def test_each_pubend_has_its_own_position() -> None:
    async def main() -> None:
        desk = Desk()
        desk.starts = {"t/0": 10, "t/1": 11}
        async with desk.subscription() as subscription:
            reader = await in_step(subscription)
            desk.inbox.deliver(deliveries((20,), 30))
            desk.inbox.deliver(deliveries((21,), 22, pubend=PubendName("t/1")))
            assert shown([item for _, item in reader._gather()]) == [20, 21]
            assert dict(subscription.token) == {"t/0": 30, "t/1": 22}

    run(main())


def test_one_that_hands_out_silences_is_read_beside_the_lane() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.subscription() as first, desk.subscription(silence=True) as listener:
            reader = together([first, listener])
            assert reader._gather() == []
            assert listener._shared is None
            desk.inbox.deliver(deliveries((11,), 15, ((1, 2),)))
            got = reader._gather()
            assert [each is listener for each, _ in got] == [True, True, False]
            assert got[1][1].through == 15  # type: ignore[union-attr]

    run(main())


def test_a_gap_is_told_after_what_came_before_it() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.subscription() as first, desk.subscription() as second:
            reader = await in_step(first, second)
            desk.inbox.deliver(deliveries((11,), 15, ((1, 2),)))
            desk.inbox.lose(Lost((1,), PUBEND, Span(15, 20)))
            got = [item for each, item in reader._gather() + reader._gather() if each is first]
            assert shown(got) == [11, Gap(TOPIC, PUBEND, Span(15, 20))]

    run(main())


def test_an_error_is_raised_after_what_came_and_the_others_go_on() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.subscription() as first, desk.subscription() as second:
            reader = together([first, second])
            batches = reader.batches()
            desk.inbox.deliver(deliveries((11, 12), 15, ((1,), (2,))))
            assert len(await anext(batches)) == 2
            desk.inbox.deliver(deliveries((16, 17), 18, ((1,), (2,))))
            desk.inbox.ended(Ended(1, "too slow"))
            assert len(await anext(batches)) == 2
            with pytest.raises(SubscriptionInterruptedError, match="too slow"):
                await anext(batches)
            desk.inbox.deliver(deliveries((19,), 20, ((2,),)))
            batches = reader.batches()
            assert shown([item for _, item in await anext(batches)]) == [19]
            desk.inbox.ended(Ended(2))
            assert [each async for each in batches] == []

    run(main())


def test_an_error_waits_for_what_was_taken_before_it() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.subscription() as first, desk.subscription() as second:
            reader = await in_step(first, second)
            desk.inbox.deliver(deliveries((11,), 15, ((2,),)))
            second.leave_shared()
            desk.inbox.ended(Ended(1, "too slow"))
            assert shown([item for _, item in reader._gather()]) == [11]
            with pytest.raises(SubscriptionInterruptedError, match="too slow"):
                reader._gather()
            assert reader._gather() == []

    run(main())


def test_a_subscription_can_be_read_alone_after_the_loop_was_left() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.subscription() as first, desk.subscription() as second:
            batches = together([first, second]).batches()
            desk.inbox.deliver(deliveries((11,), 15, ((1, 2),)))
            assert len(await anext(batches)) == 2
            desk.inbox.deliver(deliveries((16,), 17, ((2,),)))
            await batches.aclose()  # type: ignore[attr-defined]
            assert desk.inbox.shared is None
            assert shown(await second.take()) == [16]
            assert first.token.get("t/0") == 12
            again = together([first, second]).batches()
            desk.inbox.deliver(deliveries((18,), 19, ((1,),)))
            assert shown([item for _, item in await anext(again)]) == [18]

    run(main())
