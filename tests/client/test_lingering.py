"""When what was handed to a named publisher leaves: at once, or gathered with what follows."""

from __future__ import annotations

import asyncio

from gapless.client.publisher import BATCH_EVENTS_MAX
from tests.broker.stage import run, wait_until
from tests.children import PATIENCE_S
from tests.client.desk import Desk, numbers, receipt


def test_events_linger_after_a_batch_until_they_fill_another_or_none_is_on_its_way() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.publisher(window_events_max=1_000, linger_s=PATIENCE_S) as publisher:
            await publisher.send({})
            await asyncio.sleep(0)
            assert numbers(desk.published) == [(0, 1)]  # for none had left just before
            for _ in range(3):
                await publisher.send({})
                await asyncio.sleep(0)
            assert numbers(desk.published) == [(0, 1)]
            await publisher.send_many([({}, b"")] * BATCH_EVENTS_MAX)
            assert numbers(desk.published) == [(0, 1), (1, BATCH_EVENTS_MAX)]
            desk.answer(receipt(desk.published[0]))
            await publisher.send({})
            await asyncio.sleep(0)
            assert len(desk.published) == 2  # for the second is on its way
            desk.answer(receipt(desk.published[1]))
            await asyncio.sleep(0)
            assert numbers(desk.published[2:]) == [(1 + BATCH_EVENTS_MAX, 4)]
            desk.answer(receipt(desk.published[2]))

    run(main())


def test_events_linger_no_longer_than_told() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.publisher(linger_s=0.01) as publisher:
            await publisher.send({})
            await wait_until(lambda: len(desk.published) == 1)
            await publisher.send({})
            await wait_until(lambda: len(desk.published) == 2)
            for publish in desk.published:
                desk.answer(receipt(publish))

    run(main())


def test_events_linger_no_more_once_anyone_waits_for_their_receipt() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.publisher(linger_s=PATIENCE_S) as publisher:
            await publisher.send({})
            await asyncio.sleep(0)
            await publisher.send({})
            waiting = asyncio.create_task(publisher.wait_confirmed(1))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert numbers(desk.published) == [(0, 1), (1, 1)]
            await publisher.send({})
            await asyncio.sleep(0)
            assert len(desk.published) == 2  # nobody waits for that one
            flushing = asyncio.create_task(publisher.flush())
            await asyncio.sleep(0)
            assert numbers(desk.published[2:]) == [(2, 1)]
            for publish in desk.published:
                desk.answer(receipt(publish))
            assert await waiting == 3
            await flushing

    run(main())


def test_who_waits_for_events_on_their_way_hurries_no_others() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.publisher(window_events_max=3, linger_s=PATIENCE_S) as publisher:
            await publisher.send({})
            await asyncio.sleep(0)
            await publisher.send({})
            any_receipt = asyncio.create_task(publisher.wait_confirmed(0))
            await publisher.send({})
            room = asyncio.create_task(publisher.send({}))
            for _ in range(3):
                await asyncio.sleep(0)
            assert numbers(desk.published) == [(0, 1)]
            desk.answer(receipt(desk.published[0]))
            assert await any_receipt == 1
            assert await room == 3
            assert numbers(desk.published[1:]) == [(1, 2)]
            end = asyncio.create_task(publisher.flush())
            await asyncio.sleep(0)
            for publish in desk.published[1:]:
                desk.answer(receipt(publish))
            await end

    run(main())
