"""Transactions through real sockets: whole or not at all, over new connections, by many."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest

import gapless
from gapless.client.errors import LinkError, RefusedError
from gapless.client.transaction import (
    STAGE_BYTES_MAX,
    STAGE_EVENTS_MAX,
    STAGES_MAX,
    Stager,
    Transaction,
)
from gapless.core.client_messages import Done, Refused
from gapless.core.errors import UsageError
from gapless.core.events import Event
from gapless.core.identity import ProducerName, TopicName
from gapless.core.transaction_messages import Abort, Stage
from gapless.wire.events import encode_event
from tests.broker.stage import connected, make_broker, run
from tests.client.desk import Desk
from tests.test_sync import broker_in_a_thread

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.client.subscription import Subscription


async def numbers(subscription: Subscription, count: int) -> list[object]:
    found = [await anext(subscription) for _ in range(count)]
    return [each.attributes["i"] for each in found if isinstance(each, Event)]


def test_a_clean_end_commits_and_an_exception_aborts(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            make_broker(tmp_path) as broker,
            connected(broker) as client,
            client.subscribe("t") as subscription,
        ):
            with suppress(ZeroDivisionError):
                async with client.transaction("t", producer="job", id=1) as lost:
                    await lost.send({"i": -1})
                    await lost.flush()
                    raise ZeroDivisionError
            assert await client.last_committed("t", producer="job") is None
            async with client.transaction("t", producer="job", id=1) as transaction:
                for i in range(600):
                    await transaction.send({"i": i}, b"x")
                await transaction.flush()
                await client.publish("t", {"i": 1_000})
            assert transaction.receipt is not None
            assert transaction.receipt.count == 600
            assert await numbers(subscription, 601) == [1_000, *range(600)]
            assert await client.last_committed("t", producer="job") == 1

    run(main())


def test_many_connections_stage_and_one_commits_what_it_names(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            make_broker(tmp_path) as broker,
            connected(broker) as client,
            connected(broker) as other,
            client.subscribe("t") as subscription,
        ):
            async with (
                client.stage("t", producer="job", id=7) as one,
                other.stage("t", producer="job", id=7, part="two") as two,
                other.stage("t", producer="job", id=7) as loser,
            ):
                await one.send_many([({"i": i}, b"") for i in range(3)])
                await two.send_many([({"i": i}, b"") for i in range(10, 12)])
                await loser.send({"i": -1})
            with pytest.raises(RefusedError, match="has 2 events, not 3"):
                await client.commit(
                    "t", producer="job", id=7, parts={one.part: one.count, "two": 3}
                )
            parts = {"two": two.count, one.part: one.count}
            receipt = await client.commit("t", producer="job", id=7, parts=parts)
            again = await other.commit("t", producer="job", id=7, parts=["anything"])
            assert (receipt.count, receipt.repeated, again.repeated) == (5, False, True)
            assert again.first_tick == receipt.first_tick
            await client.abort("t", producer="job", id=7)
            assert await numbers(subscription, 5) == [10, 11, 0, 1, 2]
            with pytest.raises(RefusedError, match="is not staged"):
                await client.commit("t", producer="job", id=8, parts=["gone"])

    run(main())


def test_lengths_of_parts_are_checked_whatever_mapping_has_them(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            async with client.stage("t", producer="job", id=1, part="p") as stager:
                await stager.send({"i": 0})
            parts = MappingProxyType({"p": 2})
            with pytest.raises(RefusedError, match="has 1 events, not 2"):
                await client.commit("t", producer="job", id=1, parts=parts)

    run(main())


def test_a_transaction_survives_lost_connections_and_a_restarted_broker(tmp_path: Path) -> None:
    async def main() -> None:
        broker = make_broker(tmp_path)
        await broker.start()
        async with gapless.connect(f"gapless://{broker.address}") as client:
            async with client.transaction("t", producer="job", id=1) as transaction:
                for i in range(2_000):
                    await transaction.send({"i": i}, b"x" * 100)
                    if i % 700 == 600:
                        await client.channel.wait_up()
                        assert client.channel._connection is not None
                        client.channel._connection.abort()
            assert transaction.receipt is not None
            assert transaction.receipt.count == 2_000
        await broker.drain()
        async with make_broker(tmp_path) as again, connected(again) as client:
            assert await client.last_committed("t", producer="job") == 1
            async with client.transaction("t", producer="job", id=1) as repeat:
                await repeat.send({"i": -1})
            assert repeat.receipt is not None
            assert repeat.receipt.repeated
            async with client.subscribe("t", name="all", start="earliest") as subscription:
                assert await numbers(subscription, 2_000) == list(range(2_000))

    run(main())


def test_the_same_without_an_event_loop(tmp_path: Path) -> None:
    with broker_in_a_thread(tmp_path) as url, gapless.sync.connect(url) as client:
        with client.transaction("t", producer="job", id=1) as transaction:
            assert transaction.send({"i": 1}) == 0
            transaction.send_many([({"i": 2}, b"")])
        assert transaction.receipt is not None
        assert transaction.receipt.count == 2
        with client.stage("t", producer="job", id=2) as stager:
            stager.send({"i": 3})
            stager.send_encoded([encode_event({"i": 4})])
        done = client.commit("t", producer="job", id=2, parts={stager.part: stager.count})
        assert (done.count, done.repeated) == (2, False)
        client.abort("t", producer="job", id=3)
        assert client.last_committed("t", producer="job") == 2


def test_a_call_that_cannot_be_is_refused_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            with pytest.raises(UsageError):
                client.transaction("t", producer="", id=1)
            with pytest.raises(UsageError):
                client.stage("t", producer="job", id=-1)

    run(main())


# --- a stager by hand -----------------------------------------------------------------------------


def positions(desk: Desk) -> list[int]:
    return [each.position for each in desk.sent if isinstance(each, Stage)]


def test_the_rest_of_a_part_follows_when_its_first_batch_is_durable() -> None:
    async def main() -> None:
        desk = Desk()
        stager = Stager(desk, TopicName("t"), ProducerName("job"), 1, "p")
        stager.linger_s = 0
        await stager.__aenter__()
        for i in range(3):
            await stager.send({"i": i})
            await asyncio.sleep(0)
        assert positions(desk) == [0]
        (first,) = [each for each in desk.sent if isinstance(each, Stage)]
        desk.answer(Done(first.request))
        assert positions(desk) == [0, 1, 2]
        desk.sent.clear()
        for changed in list(desk.listeners):
            changed()  # a new connection
        assert positions(desk) == [1, 2]
        for stage in [each for each in desk.sent if isinstance(each, Stage)]:
            desk.answer(Done(stage.request))
        await stager.__aexit__(None)

    run(main())


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        ([10] * (2 * STAGE_EVENTS_MAX + 1), [0, 1, 1 + STAGE_EVENTS_MAX, 1 + 2 * STAGE_EVENTS_MAX]),
        ([STAGE_BYTES_MAX + 1, STAGE_BYTES_MAX, 1, STAGE_BYTES_MAX - 1], [0, 1, 2, 3]),
        ([], [0]),
    ],
)
def test_encoded_events_go_in_messages_within_limits_behind_what_was_sent(
    sizes: list[int], wanted: list[int]
) -> None:
    async def main() -> None:
        desk = Desk()
        stager = Stager(desk, TopicName("t"), ProducerName("job"), 1, "p")
        await stager.__aenter__()
        await stager.send({"i": 0})
        events = [bytes(size) for size in sizes]
        await stager.send_encoded(events)
        await asyncio.sleep(0)
        (first,) = [each for each in desk.sent if isinstance(each, Stage)]
        desk.answer(Done(first.request))
        staged = [each for each in desk.sent if isinstance(each, Stage)]
        assert [each.position for each in staged] == wanted
        assert [event for each in staged for event in each.events] == [*first.events, *events]
        assert stager.count == 1 + len(sizes)

    run(main())


def test_encoded_events_wait_while_enough_messages_have_no_answer() -> None:
    async def main() -> None:
        desk = Desk()
        stager = Stager(desk, TopicName("t"), ProducerName("job"), 1, "p")
        await stager.__aenter__()
        task = asyncio.ensure_future(stager.send_encoded([bytes(STAGE_BYTES_MAX)] * 12))
        answered = 0
        while not task.done():
            for _ in range(100):
                await asyncio.sleep(0)
            assert stager.count - answered <= STAGES_MAX
            stages = [each for each in desk.sent if isinstance(each, Stage)]
            desk.answer(Done(stages[answered].request))
            answered += 1
        assert (stager.count, answered) == (12, 12 - STAGES_MAX + 1)

    run(main())


def test_a_part_that_is_gone_ends_the_stager() -> None:
    async def main() -> None:
        desk = Desk()
        stager = Stager(desk, TopicName("t"), ProducerName("job"), 1, "p")
        await stager.__aenter__()
        await stager.send({})
        await asyncio.sleep(0)
        (first,) = [each for each in desk.sent if isinstance(each, Stage)]
        desk.answer(Refused(first.request, "it is gone", "Begin again."))
        with pytest.raises(RefusedError, match="it is gone"):
            await stager.flush()

    run(main())


def test_without_a_broker_a_commit_fails_when_patience_ends(tmp_path: Path) -> None:
    async def main() -> None:
        broker = make_broker(tmp_path)
        await broker.start()
        async with gapless.connect(f"gapless://{broker.address}") as client:
            await broker.drain()
            client.channel.patience_s = 0.2
            with pytest.raises(LinkError):
                await client.commit("t", producer="job", id=1, parts=[])

    run(main())


def test_what_was_not_sent_of_an_aborted_transaction_stays_unsent() -> None:
    """Else it would be staged again behind the abort, and take up space until it expires."""

    async def main() -> None:
        desk = Desk()
        stager = Stager(desk, TopicName("t"), ProducerName("job"), 1, "p")
        stager.linger_s = 0
        with suppress(ZeroDivisionError):
            async with Transaction(desk, stager) as transaction:
                for i in range(3):
                    await transaction.send({"i": i})
                    await asyncio.sleep(0)
                raise ZeroDivisionError
        first, abort = desk.sent
        assert isinstance(first, Stage)
        assert isinstance(abort, Abort)
        desk.answer(Done(first.request))
        assert desk.sent == [first, abort]

    run(main())
