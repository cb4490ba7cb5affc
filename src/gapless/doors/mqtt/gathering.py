"""Messages of many sessions, published together.

What sessions with the same rights publish to one gapless topic in one turn of the event loop goes
in one request: many clients that publish a little each cost as little as one that publishes much.
A request is stored whole or not at all, so what is refused is tried again for each session by
itself: nobody is refused for another's message.
"""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from gapless.client.errors import LinkError
from gapless.core.errors import GaplessError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gapless.client.client import Client
    from gapless.client.delivery import Receipt
    from gapless.core.events import Value

EVENTS_MAX = 512
BYTES_MAX = 1 << 20
"""Events and bytes of bodies of a request; one session's messages are not parted."""


class GatheredPart(NamedTuple):
    """The messages of one session, and who waits for their receipts."""

    events: list[tuple[Mapping[str, Value], bytes]]
    receipts: asyncio.Future[list[Receipt]]


class Gathering:
    """See the module docstring."""

    def __init__(self, tasks: set[asyncio.Task[None]]) -> None:
        self._tasks = tasks  # of the door, which ends them
        self._parts: dict[tuple[Client, str], list[GatheredPart]] = {}

    def publish(
        self, client: Client, topic: str, events: list[tuple[Mapping[str, Value], bytes]]
    ) -> asyncio.Future[list[Receipt]]:
        """The receipts of these events; raises as `Client.publish_many` does."""
        loop = asyncio.get_running_loop()
        part = GatheredPart(events, loop.create_future())
        if not self._parts:
            loop.call_soon(self._flush)
        self._parts.setdefault((client, topic), []).append(part)
        return part.receipts

    def _flush(self) -> None:
        gathered, self._parts = self._parts, {}
        for (client, topic), parts in gathered.items():
            batch: list[GatheredPart] = []
            count = size = 0
            for part in parts:
                size += sum(len(body) for _, body in part.events)
                count += len(part.events)
                if batch and (count > EVENTS_MAX or size > BYTES_MAX):
                    self._begin(client, topic, batch)
                    batch, count = [], len(part.events)
                    size = sum(len(body) for _, body in part.events)
                batch.append(part)
            self._begin(client, topic, batch)

    def _begin(self, client: Client, topic: str, parts: list[GatheredPart]) -> None:
        task = asyncio.create_task(_send(client, topic, parts))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _send(client: Client, topic: str, parts: list[GatheredPart]) -> None:
    try:
        events = chain.from_iterable(part.events for part in parts)
        receipts = await client.publish_many(topic, events)
    except GaplessError as error:
        if len(parts) > 1 and not isinstance(error, LinkError):
            for part in parts:
                await _send(client, topic, [part])
            return
        for part in parts:
            if not part.receipts.done():
                part.receipts.set_exception(error)
    except asyncio.CancelledError:
        for part in parts:
            part.receipts.cancel()
        raise
    else:
        at = 0
        for part in parts:
            if not part.receipts.done():
                part.receipts.set_result(receipts[at : at + len(part.events)])
            at += len(part.events)
