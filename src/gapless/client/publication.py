"""One publication without a name: put to whichever broker takes it, and again where it is refused
for the moment. If the connection is lost before the receipt comes, it is in doubt and says so."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gapless.client.delivery import Receipt as EventReceipt
from gapless.client.elsewhere import ask_anywhere
from gapless.client.errors import LinkError, RefusedError
from gapless.core.client_messages import Publish, Receipt, Refused
from gapless.core.errors import GaplessError, UsageError, WireError
from gapless.core.events import EventBatch
from gapless.core.ticks import Tick
from gapless.wire.events import encode_event

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gapless.client.carrier import Carrier
    from gapless.core.events import Value
    from gapless.core.identity import TopicName
    from gapless.wire.framing import Bytes

RETRY_S, RETRY_LONGEST_S = 0.01, 0.5
PUBLISH_EVENTS_MAX = 10_000
"""Events in one publication: what a broker takes."""

PUBLISH_BYTES_MAX = 8 << 20


async def publish_once(
    client: Carrier, topic: TopicName, events: Iterable[tuple[Mapping[str, Value], Bytes]]
) -> list[EventReceipt]:
    """All of these events or none, next to each other; a receipt for each."""
    batch = EventBatch(tuple(encode_event(attributes, body) for attributes, body in events))
    size = sum(map(len, batch))
    if not 0 < len(batch) <= PUBLISH_EVENTS_MAX or size > PUBLISH_BYTES_MAX:
        raise UsageError(
            f"{len(batch)} events of {size} bytes cannot be published at once",
            f"Give 1 to {PUBLISH_EVENTS_MAX} of at most {PUBLISH_BYTES_MAX} bytes together.",
        )
    loop = asyncio.get_running_loop()
    deadline_s, retry_s = loop.time() + client.patience_s, RETRY_S
    while True:
        answer = await ask_anywhere(
            client, lambda request: Publish(topic, request, batch), f"publish {topic}"
        )
        match answer.message:
            case Receipt(pubend=pubend, ticks=ticks):
                return [EventReceipt(pubend, Tick(tick)) for tick in ticks]
            case Refused(retry=True) if loop.time() < deadline_s:
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, RETRY_LONGEST_S)
            case Refused(problem=problem, remedy=remedy):
                raise RefusedError(problem, remedy)
            case GaplessError() as error:
                raise LinkError(f"{error.problem}, and what was sent may be published or not")
            case other:
                raise WireError(f"the broker answered {type(other).__name__} to a Publish")
