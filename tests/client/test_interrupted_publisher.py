"""A publisher that is cancelled, left, refused or cut off: what it has sent by then is certain."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from gapless.client.errors import LinkError
from gapless.client.publisher import BATCH_EVENTS_MAX, RETRY_S, WINDOW_BYTES_MAX
from gapless.core.client_messages import Publish, Receipt, Refused
from gapless.core.errors import UsageError
from tests.broker.stage import run, wait_until
from tests.client.desk import PUBEND, Desk

if TYPE_CHECKING:
    from gapless.client.publisher import Publisher

LATER = ("the disk is full", "Later.", True)


class Slow(Desk):
    """Its socket takes nothing more for now."""

    def __init__(self) -> None:
        super().__init__()
        self.writable = asyncio.Event()

    async def wait_writable(self) -> None:
        await self.writable.wait()


def receipt(publish: Publish) -> Receipt:
    return Receipt(publish.request, PUBEND, tuple(range(len(publish.events))))


async def left(desk: Desk) -> Publisher:
    """A publisher that was left by an error, with one event on its way."""
    with suppress(ZeroDivisionError):
        async with desk.publisher() as publisher:
            await publisher.send({})
            await asyncio.sleep(0)
            raise ZeroDivisionError
    return publisher


def test_a_send_that_is_cancelled_while_the_socket_takes_no_more_has_sent_nothing() -> None:
    async def main() -> None:
        desk = Slow()
        async with desk.publisher(window_events_max=1_000) as publisher:
            for number in range(BATCH_EVENTS_MAX):
                assert await publisher.send({}) == number  # a full batch has left by then
            for _ in range(2):
                waiting = asyncio.create_task(publisher.send({"i": 1}))
                await asyncio.sleep(0)
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)
                assert waiting.cancelled()
                assert publisher.sequence == BATCH_EVENTS_MAX
            desk.writable.set()
            assert await publisher.send({}) == BATCH_EVENTS_MAX
            await asyncio.sleep(0)
            desk.answer(receipt(desk.published[-1]))

    run(main())


def test_a_flush_ends_though_others_go_on_sending() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.publisher() as publisher:
            await publisher.send({})
            flushing = asyncio.create_task(publisher.flush())
            await asyncio.sleep(0)
            await publisher.send({})
            await asyncio.sleep(0)
            first, second = desk.published
            desk.answer(receipt(first))
            await flushing
            assert publisher.confirmed == 1
            desk.answer(receipt(second))

    run(main())


def test_who_waits_while_all_is_held_back_learns_that_no_broker_answers_any_more() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.publisher() as publisher:
            await publisher.send({})
            flushing = asyncio.create_task(publisher.flush())
            await asyncio.sleep(0)
            desk.answer(Refused(desk.published[0].request, *LATER))
            desk.down, desk.is_up = LinkError("no broker answers"), False
            desk.lose(LinkError("gone"))  # nothing is on its way that could be told so
            with pytest.raises(LinkError, match="no broker answers"):
                await flushing
            desk.down, desk.is_up = None, True
            desk.come_back()
            desk.answer(receipt(desk.published[-1]))

    run(main())


def test_events_sent_without_a_connection_wait_for_it_and_leave_no_request_behind() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.publisher() as publisher:
            desk.is_up = False
            await publisher.send({})
            await asyncio.sleep(0)
            assert desk.sent == []
            desk.is_up = True
            desk.come_back()
            assert [each.request for each in desk.published] == [1]
            desk.answer(receipt(desk.published[0]))

    run(main())


def test_a_refusal_of_what_was_sent_again_since_says_nothing() -> None:
    async def main() -> None:
        desk = Desk()
        desk.patience_s = 0.0  # a second refusal would be the last
        async with desk.publisher() as publisher:
            for _ in range(2):
                await publisher.send({})
                await asyncio.sleep(0)
            first, second = desk.published
            desk.answer(Refused(first.request, *LATER))
            await wait_until(lambda: len(desk.published) == 4)
            desk.answer(Refused(second.request, "event 0 of 'feed' is missing", "", True))
            for publish in desk.published[2:]:
                desk.answer(receipt(publish))
            assert await publisher.send({}) == 2
            await asyncio.sleep(0)
            desk.answer(receipt(desk.published[-1]))

    run(main())


def test_send_waits_while_too_many_bytes_have_no_receipt() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.publisher(window_events_max=1_000) as publisher:
            body = bytes(WINDOW_BYTES_MAX // 40)
            sending = asyncio.create_task(publisher.send_many([({}, body)] * 50))
            await wait_until(lambda: len(desk.published) == 40)
            await asyncio.sleep(0)
            assert (sending.done(), publisher.sequence) == (False, 40)
            answered = 0
            while publisher.confirmed < 50:
                await asyncio.sleep(0)
                for publish in desk.published[answered:]:
                    desk.answer(receipt(publish))
                    answered += 1
            await sending

    run(main())


def test_a_publisher_that_was_left_sends_nothing_again() -> None:
    """Its numbers may be another's by then, whose events would be taken for repeats."""

    async def main() -> None:
        desk = Desk()
        await left(desk)
        (publish,) = desk.published
        desk.answer(Refused(publish.request, *LATER))
        await asyncio.sleep(2 * RETRY_S)
        desk.come_back()
        assert desk.published == [publish]

    run(main())


def test_a_publisher_that_was_left_does_not_go_where_it_is_sent() -> None:
    async def main() -> None:
        desk = Desk()
        await left(desk)
        (publish,) = desk.published
        desk.answer(Refused(publish.request, "not here", "", elsewhere=("there:1",)))
        assert desk.places == {}

    run(main())


def test_a_publisher_that_was_left_takes_no_more_and_lets_nobody_wait() -> None:
    async def main() -> None:
        desk = Desk()
        with suppress(ZeroDivisionError):
            async with desk.publisher() as publisher:
                waiting = asyncio.create_task(publisher.wait_confirmed(0))
                await asyncio.sleep(0)
                raise ZeroDivisionError
        with pytest.raises(UsageError, match="has ended"):
            await waiting
        with pytest.raises(UsageError, match="has ended"):
            await publisher.send({})
        assert (publisher.sequence, desk.published) == (0, [])

    run(main())


def test_what_was_refused_for_good_is_not_sent_again_on_a_new_connection() -> None:
    async def main() -> None:
        desk = Desk()
        with suppress(ZeroDivisionError):
            async with desk.publisher() as publisher:
                await publisher.send({})
                await asyncio.sleep(0)
                (publish,) = desk.published
                desk.answer(Refused(publish.request, "no such topic", "Create it."))
                desk.come_back()
                assert desk.published == [publish]
                raise ZeroDivisionError

    run(main())
