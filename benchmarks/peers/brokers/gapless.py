"""gapless: `gapless serve` as a process, through the public client.

Conditions are evaluated by the broker. Named publishers, named subscriptions where they are
durable (the broker keeps the token). There is one client, the one that people use.
"best effort" is the same broker process around the node of `gapless_lab.best_effort`:
no log, no receipts, no silence; what a broker costs beyond that is the price of exactly once.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, cast

import gapless
from benchmarks.peers.adapter import HOST, Broker, Client, Peer
from gapless.broker.event_reader import DECODED_MAX
from gapless.client.publisher import BATCH_EVENTS_MAX, LINGER_S
from gapless.core.client_messages import Publish
from gapless.core.events import EventBatch
from gapless.core.identity import TopicName
from gapless.wire.events import encode_events

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.peers.adapter import Setting
    from benchmarks.peers.model import Event, Interest
    from gapless.client.publisher import Publisher
    from gapless.client.subscription import Subscription

BEST_EFFORT = "best effort"
TOPIC = "events"


class Serve(Broker):
    """`gapless serve`, or its best-effort twin."""

    def command(self) -> list[str]:
        listen, data = f"{HOST}:{self.setting.port}", str(self.folder / "data")
        if self.setting.client == BEST_EFFORT:
            return [sys.executable, "-m", "benchmarks.peers.best_effort", listen, data]
        run = "from gapless.cli import main; main()"
        options = ["--topic", TOPIC, "--listen", listen, "--admin", "none", "--data", data]
        return [sys.executable, "-c", run, "serve", *options]

    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}


class Library(Client):
    """`gapless.connect`."""

    async def open(self) -> None:
        self._stack = AsyncExitStack()
        url = f"gapless://{HOST}:{self.setting.port}"
        self._client = await self._stack.enter_async_context(gapless.connect(url))
        self._tasks: list[asyncio.Task[None]] = []
        self._fresh: list[tuple[dict[str, Any], bytes]] = []
        self._tags: deque[int] = deque()

    async def close(self) -> None:
        await self._stack.aclose()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- publishing ------------------------------------------------------------------------------

    async def start_publisher(self, *, confirmed: bool) -> None:
        publisher = self._client.publisher(TOPIC, name=self.name)
        self._publisher: Publisher = await self._stack.enter_async_context(publisher)
        if confirmed:
            self._tasks.append(asyncio.create_task(self._confirm()))

    async def _confirm(self) -> None:
        told = self._publisher.confirmed
        while True:
            confirmed = await self._publisher.wait_confirmed(told)
            self.on_confirm([self._tags.popleft() for _ in range(confirmed - told)])
            told = confirmed

    def publish(self, event: Event, payload: bytes, tag: int | None) -> None:
        self._fresh.append((event.cache or _attributes(event), payload))
        if tag is not None:
            self._tags.append(tag)

    async def flush(self) -> None:
        fresh, self._fresh = self._fresh, []
        await self._publisher.send_many(fresh)

    # --- subscribing -----------------------------------------------------------------------------

    async def subscribe(self, interests: list[Interest]) -> None:
        sinks: dict[Subscription, Callable[[bytes], None]] = {}
        for interest in interests:
            condition = interest.condition()
            if interest.durable:
                wanted = self._client.subscribe(
                    TOPIC, condition, name=interest.name, tokens="broker"
                )
            else:
                wanted = self._client.subscribe(TOPIC, condition)
            subscription = await self._stack.enter_async_context(wanted)
            sinks[subscription] = interest.sink
        self._tasks.append(asyncio.create_task(_read(sinks)))


async def _read(sinks: dict[Subscription, Callable[[bytes], None]]) -> None:
    async for batch in gapless.together(sinks).batches():
        # There are no gaps and no silences: they are not asked for.
        for subscription, event in cast("list[tuple[Subscription, gapless.Event]]", batch):
            sinks[subscription](event.body)


def _attributes(event: Event) -> dict[str, Any]:
    """Made once for each event that is published again and again."""
    attributes = {
        "symbol": event.symbol,
        "price": event.price,
        "volume": event.volume,
        "exchange": event.exchange,
    }
    event.cache = attributes
    return attributes


class BestEffort(Library):
    """The same client, publishing without names, numbers and receipts. Batches fill and linger as a
    named publisher's do, or else a part of the difference would be that of batches."""

    async def start_publisher(self, *, confirmed: bool) -> None:
        assert not confirmed
        self._sent_s = 0.0
        self._sending: asyncio.Handle | None = None

    async def flush(self) -> None:
        loop = asyncio.get_running_loop()
        due_s = self._sent_s + LINGER_S
        if len(self._fresh) >= BATCH_EVENTS_MAX:
            self._send()
            await self._client.channel.wait_writable()
        elif self._sending is None and due_s <= loop.time():
            self._sending = loop.call_soon(self._send)
        elif self._sending is None:
            self._sending = loop.call_at(due_s, self._send)

    def _send(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None
        self._sent_s = asyncio.get_running_loop().time()
        fresh, self._fresh = self._fresh, []
        self._client.channel.send(
            Publish(TopicName(TOPIC), 0, EventBatch(tuple(encode_events(fresh))))
        )


class Gapless(Peer):
    """This project."""

    name, port = "gapless", 17117
    clients = ("lib",)
    fsyncs = True
    filters = "SQL condition, in the broker"
    warm_events = DECODED_MAX + 1_000
    warm_s = 4.0  # compiled code is loaded then

    def is_installed(self) -> bool:
        return True

    def broker(self, setting: Setting) -> Broker:
        return Serve(setting)

    def client(self, setting: Setting, name: str) -> Client:
        return (BestEffort if setting.client == BEST_EFFORT else Library)(setting, name)


PEER = Gapless()
