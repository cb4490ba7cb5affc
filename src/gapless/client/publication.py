"""One publication without a publisher's name: events that go in one message, all or none.

A repeat would not be recognised: if the connection is lost before the receipt comes it fails with
`LinkError`, and the events may be published or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.client import arguments
from gapless.client.delivery import Receipt as EventReceipt
from gapless.client.elsewhere import ask_patiently
from gapless.client.errors import LinkError, RefusedError
from gapless.core.client_messages import Publish, Receipt, Refused
from gapless.core.errors import GaplessError, UsageError, WireError
from gapless.core.events import EventBatch
from gapless.core.ticks import Tick
from gapless.wire.events import encode_events

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gapless.client.carrier import Carrier
    from gapless.core.events import Value
    from gapless.wire.framing import Bytes

PUBLISH_EVENTS_MAX = 10_000
"""Events in one publication: what a broker takes."""

PUBLISH_BYTES_MAX = 8 << 20


async def publish_once(
    client: Carrier,
    topic: str,
    events: Iterable[tuple[Mapping[str, Value], Bytes]],
    *,
    confirmed: bool = False,
) -> list[EventReceipt]:
    """Publish these events next to each other; a receipt for each."""
    name = arguments.topic(topic)
    batch = EventBatch(tuple(encode_events(events)))
    size = sum(map(len, batch))
    if not 0 < len(batch) <= PUBLISH_EVENTS_MAX or size > PUBLISH_BYTES_MAX:
        raise UsageError(
            f"{len(batch)} events of {size} bytes cannot be published at once",
            f"Give 1 to {PUBLISH_EVENTS_MAX} of at most {PUBLISH_BYTES_MAX} bytes together.",
        )
    answer = await ask_patiently(
        client,
        lambda request: Publish(name, request, batch, confirmed=confirmed),
        f"publish {topic}",
    )
    match answer.message:
        case Receipt(pubend=pubend, ticks=ticks):
            return [EventReceipt(pubend, Tick(tick)) for tick in ticks]
        case Refused(problem=problem, remedy=remedy):
            raise RefusedError(problem, remedy)
        case GaplessError() as error:
            raise LinkError(f"{error.problem}, and what was sent may be published or not")
        case other:
            raise WireError(f"the broker answered {type(other).__name__} to a Publish")
