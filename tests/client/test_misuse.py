"""What is used twice, too early, too late, or in another loop is told so; nobody waits for ever."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

import gapless
from gapless.client.event_loop import CHUNK_EVENTS_MAX, LoopThread, chunks
from gapless.core.events import Event
from gapless.core.identity import PubendName
from tests.broker.stage import connected, make_broker, run, wait_until
from tests.children import PATIENCE_S
from tests.test_sync import broker_in_a_thread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from gapless.broker.broker import Broker
    from gapless.client.client import Client


def test_what_is_entered_is_entered_once(tmp_path: Path) -> None:
    """What a publisher, a subscription or a transaction remembers is of its first time."""

    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            made: list[Any] = [
                client.publisher("t", name="feed"),
                client.subscribe("t"),
                client.subscribe("t", name="desk"),
                client.transaction("t", producer="job", id=1),
                client.stage("t", producer="job", id=2),
                gapless.connect(f"gapless://{broker.address}"),
            ]
            for each in made:
                async with each:
                    with pytest.raises(gapless.UsageError, match=r"is entered once"):
                        await each.__aenter__()
                with pytest.raises(gapless.UsageError, match=r"is entered once\. (Make|Connect)"):
                    await each.__aenter__()
            closed = gapless.connect(f"gapless://{broker.address}")
            await closed.close()
            with pytest.raises(gapless.UsageError, match="is entered once"):
                await closed.__aenter__()

    run(main())


def test_a_publisher_that_failed_is_not_begun_again_with_what_it_still_has(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            publisher = client.publisher("t", name="feed")
            await publisher.__aenter__()
            await publisher.send({"i": 0})
            await publisher.__aexit__(KeyError)
            with pytest.raises(gapless.UsageError, match="Make another of the same name"):
                await publisher.__aenter__()
            async with client.publisher("t", name="feed") as again:
                await again.send({"i": 1})

    run(main())


def test_whoever_reads_together_what_has_not_begun_is_told(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            with pytest.raises(gapless.UsageError, match="has not begun"):
                await anext(gapless.together([client.subscribe("t")]).batches())
            with pytest.raises(gapless.UsageError, match="has not begun"):
                await anext(gapless.together([client.subscribe("t")]))

    run(main())


def test_a_client_is_of_the_loop_where_it_was_made(tmp_path: Path) -> None:
    with broker_in_a_thread(tmp_path) as url:
        with asyncio.Runner() as runner:
            client = runner.run(opened(url))
            calls: list[Callable[[], Awaitable[object]]] = [
                lambda: client.publish("t", {}),
                lambda: client.subscribe("t").__aenter__(),
                lambda: client.publisher("t", name="feed").__aenter__(),
                lambda: anext(client.read("t")),
            ]
            for call in calls:
                with pytest.raises(
                    gapless.UsageError, match=r"belongs to another event loop.*gapless\.sync"
                ):
                    in_a_loop_of_its_own(call)
            runner.run(client.publish("t", {}))
            runner.run(client.close())
        with pytest.raises(gapless.UsageError, match=r"no event loop.*gapless\.sync\.connect"):
            gapless.connect(url)


async def opened(url: str) -> Client:
    return await gapless.connect(url).__aenter__()


def in_a_loop_of_its_own(call: Callable[[], Awaitable[object]]) -> None:
    async def main() -> None:
        await call()

    asyncio.run(main())


# --- cancelled at every step ----------------------------------------------------------------------


async def publish(client: Client, number: int) -> None:
    await client.publish("t", {"i": number})


async def send(client: Client, number: int) -> None:
    async with client.publisher("t", name=f"feed-{number}") as publisher:
        await publisher.send_many([({"i": i}, b"") for i in range(5)])


async def subscribe(client: Client, number: int) -> None:
    async with client.subscribe("t") as subscription:
        await client.publish("t", {"i": number})
        await anext(subscription)


async def subscribe_by_name(client: Client, number: int) -> None:
    async with client.subscribe("t", name="desk", start="earliest") as subscription:
        await client.publish("t", {"i": number})
        await anext(subscription)
        await subscription.acknowledge()


async def transact(client: Client, number: int) -> None:
    async with client.transaction("t", producer=f"job-{number}", id=1) as transaction:
        await transaction.send_many([({"i": i}, b"") for i in range(600)])


async def read(client: Client, number: int) -> None:
    async for _ in client.read("t"):
        pass


async def read_together(client: Client, number: int) -> None:
    async with client.subscribe("t") as one, client.subscribe("two") as other:
        await client.publish("t", {"i": number})
        async for _ in gapless.together([one, other]).batches():
            break


@pytest.mark.parametrize(
    "work", [publish, send, subscribe, subscribe_by_name, transact, read, read_together]
)
def test_whatever_is_cancelled_at_whichever_step_leaves_nothing_behind(
    tmp_path: Path, work: Callable[[Client, int], Awaitable[None]]
) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            ends: Counter[bool] = Counter()
            while ends[False] < 3:  # so often it was done before it could be cancelled
                task = asyncio.ensure_future(work(client, ends.total()))
                for _ in range(ends.total()):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                ends[task.cancelled()] += 1
            assert ends[True] > 3
            await wait_until(lambda: not left(broker, client))
            async with client.subscribe("t", "z = 1") as subscription:
                await client.publish("t", {"z": 1})
                found = await anext(subscription)
                assert isinstance(found, Event)

    run(main())


def left(broker: Broker, client: Client) -> list[int]:
    """What is still there, at both ends, that somebody began; none of it is zero."""
    node = broker._pump.node
    counts = [
        len(client.channel._answers),
        len(client.channel.inbox),
        len(client.channel._listeners),
        len(node.durable.requests.pending),
        len(list(node.durable.named.table.sessions())),
        len(node.connections[next(iter(node.connections))].subscriptions),
        node.durable.streams.pubends[PubendName("t/0")].transactions.open_count,
    ]
    return [count for count in counts if count]


# --- without an event loop ------------------------------------------------------------------------


def test_what_is_sent_is_iterated_over_where_it_is_sent_from(tmp_path: Path) -> None:
    threads = set[str]()

    def events(client: gapless.sync.Client) -> Iterator[tuple[dict[str, int], bytes]]:
        for number in range(3):
            threads.add(threading.current_thread().name)
            client.publish("t", {"other": number})  # in the loop it would wait for itself
            yield {"i": number}, b""
        raise KeyError("mine")

    with broker_in_a_thread(tmp_path) as url, gapless.sync.connect(url) as client:
        with client.publisher("t", name="feed") as publisher:
            with pytest.raises(KeyError, match="mine"):
                publisher.send_many(events(client))
            assert publisher.sequence == 3, "all before the error is sent"
        with pytest.raises(KeyError, match="mine"):
            client.publish_many("t", events(client))
        with pytest.raises(KeyError), client.transaction("t", producer="j", id=1) as transaction:
            transaction.send_many(events(client))
    assert threads == {threading.current_thread().name}


def test_chunks_have_everything_in_order_and_are_not_too_long() -> None:
    count = 3 * CHUNK_EVENTS_MAX + 1
    found = list(chunks(range(count)))
    assert [each for some in found for each in some] == list(range(count))
    assert max(map(len, found)) <= CHUNK_EVENTS_MAX
    assert all(found)
    assert list(chunks([])) == []


def test_a_client_without_a_loop_may_be_closed_again_and_what_is_of_it_left(tmp_path: Path) -> None:
    with broker_in_a_thread(tmp_path) as url:
        with gapless.sync.connect(url) as client, client.subscribe("t") as subscription:
            client.close()
            client.close()
            subscription.close()
        for call in (lambda: client.publish("t", {}), lambda: next(iter(subscription))):
            with pytest.raises(gapless.LinkError, match="closed"):
                call()


def test_a_client_without_a_loop_may_be_used_where_one_runs_as_in_a_notebook(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        with broker_in_a_thread(tmp_path) as url, gapless.sync.connect(url) as client:
            client.publish("t", {})

    asyncio.run(main())


def test_many_threads_use_one_client_and_closing_it_wakes_who_waits(tmp_path: Path) -> None:
    failed: list[BaseException] = []
    ended = threading.Event()

    def work(client: gapless.sync.Client, number: int) -> None:
        try:
            with client.publisher("t", name=f"feed-{number}") as publisher:
                for i in range(20):
                    publisher.send({"i": i})
            with client.subscribe("two", f"k = {number}") as subscription:
                client.publish("two", {"k": number})
                next(iter(subscription))
        except BaseException as error:
            failed.append(error)

    def wait(client: gapless.sync.Client) -> None:
        with client.subscribe("two", "k = -1") as subscription, suppress(gapless.LinkError):
            waiting.set()
            assert list(subscription) == []
        ended.set()

    waiting = threading.Event()
    with broker_in_a_thread(tmp_path) as url, gapless.sync.connect(url) as client:
        threads = [threading.Thread(target=work, args=(client, k)) for k in range(6)]
        threads.append(threading.Thread(target=wait, args=(client,)))
        for thread in threads:
            thread.start()
        for thread in threads[:-1]:
            thread.join(PATIENCE_S)
        assert failed == []
        waiting.wait(PATIENCE_S)
        client.close()
        threads[-1].join(PATIENCE_S)
        assert ended.is_set()


def test_work_that_a_loop_was_given_while_it_was_closed_ends() -> None:
    """Else whoever waits for it would wait for ever: nobody runs the loop any more."""
    thread, gate = LoopThread(), threading.Event()
    answers: list[object] = []

    def wait() -> None:
        try:
            thread.run(asyncio.sleep(PATIENCE_S))
        except gapless.LinkError as error:
            answers.append(error)

    thread._loop.call_soon_threadsafe(gate.wait)  # busy, so that what follows has to wait
    waiting = [threading.Thread(target=wait) for _ in range(2)]
    closing = threading.Thread(target=thread.close)
    for each in (*waiting, closing):
        each.start()
    gate.set()
    for each in (*waiting, closing):
        each.join(PATIENCE_S)
    assert len(answers) == 2
    wait()
    assert len(answers) == 3
    assert "closed" in str(answers[-1])


def test_reads_that_are_not_finished_are_let_go_with_or_after_their_client(tmp_path: Path) -> None:
    with broker_in_a_thread(tmp_path) as url:
        with gapless.sync.connect(url) as client:
            with client.subscribe("t", name="holder"):
                pass
            client.publish_many("t", [({"i": i}, b"x" * 1_000) for i in range(5_000)])
            first, second, third = (client.read("t") for _ in range(3))
            for each in (first, second, third):
                assert next(each)
            del each, first
            gc.collect()
        del second
        gc.collect()
        with pytest.raises(gapless.LinkError, match="closed"):
            next(third)
