"""A named publisher keeps what has no receipt and sends it again, in order, under its numbers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gapless.client.errors import LinkError, RefusedError
from gapless.client.publisher import BATCH_EVENTS_MAX, BATCHES_EARLY_MAX
from gapless.core.client_messages import Refused
from gapless.core.errors import EventError
from gapless.wire.events import check_events
from tests.broker.stage import run, wait_until
from tests.client.desk import Desk, numbers, receipt

LATER = ("the disk is full", "Later.", True)


def test_events_of_one_turn_go_in_one_batch_with_their_name_and_numbers() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.publisher() as publisher:
            assert [await publisher.send({"i": i}, b"x") for i in range(3)] == [0, 1, 2]
            await asyncio.sleep(0)
            (publish,) = desk.published
            contents = check_events(publish.events)
            assert [(c.publisher, c.sequence) for c in contents] == [("feed", i) for i in range(3)]
            desk.answer(receipt(publish))

    run(main())


def test_while_many_batches_are_on_their_way_events_wait_for_a_receipt() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.publisher() as publisher:
            for _ in range(BATCHES_EARLY_MAX + 5):
                await publisher.send({})
                await asyncio.sleep(0)
            assert numbers(desk.published) == [(each, 1) for each in range(BATCHES_EARLY_MAX)]
            for publish in desk.published[:2]:
                desk.answer(receipt(publish))
            await asyncio.sleep(0)
            assert numbers(desk.published[BATCHES_EARLY_MAX:]) == [(BATCHES_EARLY_MAX, 5)]
            for publish in desk.published[2:]:
                desk.answer(receipt(publish))

    run(main())


def test_events_that_wait_for_a_receipt_leave_when_they_fill_a_batch_or_are_flushed() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.publisher(window_events_max=1_000) as publisher:
            for _ in range(BATCHES_EARLY_MAX):
                await publisher.send({})
                await asyncio.sleep(0)
            await publisher.send_many([({}, b"")] * (BATCH_EVENTS_MAX + 7))
            await asyncio.sleep(0)
            full = (BATCHES_EARLY_MAX, BATCH_EVENTS_MAX)
            assert numbers(desk.published[BATCHES_EARLY_MAX:]) == [full]
            flushing = asyncio.create_task(publisher.flush())
            await asyncio.sleep(0)
            assert numbers(desk.published[-1:]) == [(sum(full), 7)]
            desk.answer(receipt(desk.published[-1]))
            await flushing

    run(main())


def test_events_that_wait_for_a_receipt_outlast_the_connection() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.publisher() as publisher:
            for _ in range(BATCHES_EARLY_MAX + 3):
                await publisher.send({})
                await asyncio.sleep(0)
            desk.lose(LinkError("gone"))
            desk.sent.clear()
            desk.come_back()
            assert numbers(desk.published) == [(each, 1) for each in range(BATCHES_EARLY_MAX)]
            desk.answer(receipt(desk.published[0]))
            await asyncio.sleep(0)
            assert numbers(desk.published[-1:]) == [(BATCHES_EARLY_MAX, 3)]
            desk.answer(receipt(desk.published[-1]))

    run(main())


def test_what_stands_before_an_event_that_cannot_be_encoded_is_published() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.publisher() as publisher:
            events: Any = iter([({"i": 0}, b""), ({"i": 1}, b""), ({"i": None}, b""), ({}, b"z")])
            with pytest.raises(EventError, match="'i' is of type NoneType"):
                await publisher.send_many(events)
            assert (publisher.sequence, list(events)) == (2, [({}, b"z")])
            await asyncio.sleep(0)
            assert numbers(desk.published) == [(0, 2)]
            desk.answer(receipt(desk.published[0]))

    run(main())


def test_a_name_that_was_used_goes_on_with_its_next_number() -> None:
    async def main() -> None:
        desk = Desk()
        desk.next_number = 17
        async with desk.publisher() as publisher:
            assert await publisher.send({}) == 17
            await asyncio.sleep(0)
            desk.answer(receipt(desk.published[0]))

    run(main())


def test_after_a_new_connection_all_without_receipt_is_sent_again_in_order() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.publisher() as publisher:
            for _ in range(3):
                await publisher.send({})
                await asyncio.sleep(0)
            desk.answer(receipt(desk.published[0]))
            desk.lose(LinkError("gone"))
            desk.sent.clear()
            desk.come_back()
            assert numbers(desk.published) == [(1, 1), (2, 1)]
            for publish in desk.published:
                desk.answer(receipt(publish))

    run(main())


def test_after_a_refusal_for_now_all_is_held_back_and_sent_again_in_order() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.publisher() as publisher:
            for _ in range(2):
                await publisher.send({})
                await asyncio.sleep(0)
            first, second = desk.published
            desk.sent.clear()
            desk.answer(Refused(first.request, *LATER))
            desk.answer(Refused(second.request, "event 0 of 'feed' is missing", "", True))
            await publisher.send({})
            await asyncio.sleep(0)
            assert desk.published == [], "what comes later must not overtake"
            await wait_until(lambda: len(desk.published) == 3)
            assert numbers(desk.published) == [(0, 1), (1, 1), (2, 1)]
            for publish in desk.published:
                desk.answer(receipt(publish))

    run(main())


def test_a_refusal_for_good_fails_every_later_call() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.publisher() as publisher:
            await publisher.send({})
            await asyncio.sleep(0)
            desk.answer(Refused(desk.published[0].request, "no such topic", "Create it."))
            with pytest.raises(RefusedError, match="no such topic"):
                await publisher.flush()
            with pytest.raises(RefusedError, match="no such topic"):
                await publisher.send({})
            raise asyncio.CancelledError  # leaving by an error does not flush

    with pytest.raises(asyncio.CancelledError):
        run(main())


def test_patience_with_refusals_for_now_has_an_end() -> None:
    async def main() -> None:
        desk = Desk()
        desk.patience_s = 0.0
        async with desk.publisher() as publisher:
            await publisher.send({})
            flushing = asyncio.create_task(publisher.flush())
            while not flushing.done():
                await asyncio.sleep(0)
                for publish in desk.published:
                    desk.answer(Refused(publish.request, *LATER))
                desk.sent.clear()
            with pytest.raises(RefusedError, match="full"):
                await flushing
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run(main())


def test_send_waits_while_too_many_have_no_receipt() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.publisher(window_events_max=4) as publisher:
            sending = asyncio.create_task(publisher.send_many([({}, b"")] * 6))
            await wait_until(lambda: bool(desk.published))
            await asyncio.sleep(0)
            assert not sending.done()
            assert sum(len(each.events) for each in desk.published) == 4
            desk.answer(receipt(desk.published[0]))
            await sending
            await asyncio.sleep(0)
            desk.answer(receipt(desk.published[1]))

    run(main())


def test_an_event_that_cannot_be_encoded_uses_up_no_number() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.publisher() as publisher:
            with pytest.raises(EventError):
                await publisher.send({"a": None})  # type: ignore[dict-item]
            assert publisher.sequence == 0
            await publisher.flush()
            assert desk.published == []

    run(main())


def test_a_cancelled_send_publishes_all_or_nothing_of_its_event() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.publisher(window_events_max=1) as publisher:
            await publisher.send({})
            waiting = asyncio.create_task(publisher.send({"second": True}))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            assert publisher.sequence == 1
            desk.answer(receipt(desk.published[0]))
            assert await publisher.send({}) == 1
            await asyncio.sleep(0)
            desk.answer(receipt(desk.published[1]))

    run(main())


def test_a_closed_client_fails_what_waits() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.publisher() as publisher:
            await publisher.send({})
            flushing = asyncio.create_task(publisher.flush())
            await asyncio.sleep(0)
            desk.problem = LinkError("closed")
            desk.come_back()
            with pytest.raises(LinkError, match="closed"):
                await flushing
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run(main())


def test_without_a_connection_for_too_long_flush_fails_and_may_be_tried_again() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.publisher() as publisher:
            await publisher.send({})
            flushing = asyncio.create_task(publisher.flush())
            await asyncio.sleep(0)
            desk.down = LinkError("no broker answers")
            desk.lose(LinkError("gone"))
            with pytest.raises(LinkError, match="no broker answers"):
                await flushing
            desk.down = None
            desk.come_back()
            desk.answer(receipt(desk.published[-1]))
            await publisher.flush()

    run(main())


def test_who_waits_for_receipts_learns_up_to_which_number_all_is_durable() -> None:
    async def main() -> None:
        desk = Desk()
        desk.next_number = 5
        async with desk.publisher() as publisher:
            for _ in range(3):
                await publisher.send({})
                await asyncio.sleep(0)
            assert publisher.confirmed == 5
            waiting = asyncio.create_task(publisher.wait_confirmed(5))
            await asyncio.sleep(0)
            desk.answer(receipt(desk.published[1]))  # of the second batch: so the first is too
            assert await waiting == publisher.confirmed == 7
            assert await publisher.wait_confirmed(6) == 7
            desk.answer(receipt(desk.published[2]))

    run(main())


def test_who_waits_for_receipts_learns_why_there_will_be_none() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.publisher() as publisher:
            await publisher.send({})
            await asyncio.sleep(0)
            waiting = asyncio.create_task(publisher.wait_confirmed(0))
            await asyncio.sleep(0)
            desk.answer(Refused(desk.published[0].request, "no such topic", "Make it."))
            with pytest.raises(RefusedError, match="no such topic"):
                await waiting
            with pytest.raises(RefusedError):
                await publisher.flush()
            raise asyncio.CancelledError  # leave without a flush

    with pytest.raises(asyncio.CancelledError):
        run(main())
