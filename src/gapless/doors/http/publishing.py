"""Publishing over HTTP: at once, or under a publisher's name and number, so that a retry is safe.

Theory of operation
    Without a name the events of a request are published all or none, and the answer has a receipt
    for each. If the answer is lost, the caller cannot know, and a retry may publish them again.
    With a name the caller numbers its events 0, 1, 2, …, and says the number of the first event of
    each request. The door has one `Publisher` for each name in use. Events below its next number
    are published already, and are only confirmed; a number beyond it is refused with the number
    that is next. If sending fails, the door drops the publisher; the next request asks the
    broker for the number again. So any request may be repeated, at any broker of the network.

Invariants
    I1  one request at a time uses a publisher
    I2  at most `PUBLISHERS_MAX` publishers are open; beyond it the one that was used longest ago
        and is idle is closed
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, NamedTuple

from gapless.client.errors import RefusedError
from gapless.core.errors import EventError, GaplessError
from gapless.doors.clients import BusyError
from gapless.doors.http.problems import HttpError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.client.publisher import Publisher
    from gapless.doors.clients import DoorClients
    from gapless.doors.http.payloads import Publication

PUBLISHERS_MAX = 1_000
"""Publishers' names in use at a door; where all are busy, a further one is refused."""

IDLE_S = 30.0
"""How long a publisher without requests stays open."""


class NameKey(NamedTuple):
    """Which publisher: names of two callers are two publishers at the door."""

    token: str
    topic: str
    name: str


class NumberedReceipt(NamedTuple):
    """Numbers of events that are on stable storage: from `first` on, all below `next`."""

    publisher: str
    first: int
    next: int
    repeated: int
    """How many of them were published before."""


class NamedPublisher:
    """A publisher that is opened when it is needed, and again after an error."""

    def __init__(self, clients: DoorClients, key: NameKey) -> None:
        self._clients = clients
        self._key = key
        self._lock = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._publisher: Publisher | None = None
        self.users = 0
        self.timer: asyncio.TimerHandle | None = None

    async def position(self) -> int:
        """The number of the next event."""
        async with self._lock:
            return (await self._open()).sequence

    async def send(self, first: int, events: Sequence[Publication]) -> NumberedReceipt:
        """Publish what is not published yet; returns when all is on stable storage."""
        async with self._lock:
            try:
                return await self._send(first, events)
            except RefusedError:  # another publisher has taken the name over: take it back, once
                return await self._send(first, events)

    async def _send(self, first: int, events: Sequence[Publication]) -> NumberedReceipt:
        publisher = await self._open()
        following = publisher.sequence
        if first > following:
            raise HttpError(
                409,
                f"{self._key.name!r:.80} has published {following} events, and {first} is not next",
                f"Send the events from number {following} on.",
                {"Gapless-Next": str(following)},
            )
        try:
            if fresh := events[following - first :]:
                await publisher.send_many(fresh)
            await publisher.flush()
        except EventError as error:
            await publisher.flush()
            problem = f"{error.problem}; the events below number {publisher.sequence} are published"
            raise EventError(problem, error.remedy) from None
        except BaseException:
            await self._drop()
            raise
        repeated = min(following - first, len(events))
        return NumberedReceipt(self._key.name, first, first + len(events), repeated)

    async def _open(self) -> Publisher:
        if self._publisher is None:
            topic, name = self._key.topic, self._key.name
            async with AsyncExitStack() as stack:
                client = await stack.enter_async_context(self._clients.shared(self._key.token))
                publisher = client.publisher(topic, name=name)
                self._publisher = await publisher.__aenter__()
                self._stack = stack.pop_all()
        return self._publisher

    async def _drop(self) -> None:
        publisher, self._publisher = self._publisher, None
        if publisher is not None:  # what has no receipt is the caller's to repeat
            await publisher.__aexit__(GaplessError, None, None)
        await self._stack.aclose()

    async def close(self) -> None:
        async with self._lock:
            await self._drop()


class NamedPublishers:
    """The publishers of one door, by name; the one that was used last stands last."""

    def __init__(self, clients: DoorClients) -> None:
        self._clients = clients
        self._open: dict[NameKey, NamedPublisher] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def position(self, key: NameKey) -> int:
        entry = self._begin(key)
        try:
            return await entry.position()
        finally:
            self._end(key, entry)

    async def send(
        self, key: NameKey, first: int, events: Sequence[Publication]
    ) -> NumberedReceipt:
        entry = self._begin(key)
        try:
            return await entry.send(first, events)
        finally:
            self._end(key, entry)

    def _begin(self, key: NameKey) -> NamedPublisher:
        entry = self._open.pop(key, None)
        if entry is None:
            if len(self._open) >= PUBLISHERS_MAX:
                idle = next((each for each, it in self._open.items() if not it.users), None)
                if idle is None:
                    raise BusyError(f"{PUBLISHERS_MAX} publishers are busy at this door")
                self._drop(idle)
            entry = NamedPublisher(self._clients, key)
        self._open[key] = entry
        entry.users += 1
        if entry.timer is not None:
            entry.timer.cancel()
        return entry

    def _end(self, key: NameKey, entry: NamedPublisher) -> None:
        entry.users -= 1
        if not entry.users:
            entry.timer = asyncio.get_running_loop().call_later(IDLE_S, self._drop, key)

    def _drop(self, key: NameKey) -> None:
        if entry := self._open.pop(key, None):
            if entry.timer is not None:
                entry.timer.cancel()
            closing = asyncio.create_task(entry.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        for key in list(self._open):
            self._drop(key)
        await asyncio.gather(*self._closing, return_exceptions=True)
