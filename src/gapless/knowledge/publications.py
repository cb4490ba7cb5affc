"""Publications on their way to a pubend's log, gathered into one write.

Theory of operation
    A publication that comes while a write is under way waits. The next write takes all publications
    that wait, as far as they fit a batch. A batch is put together once, when it is written, and
    kept until the disk has answered: ticks as a range, and sizes as they were summed on the way in.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from gapless.core.client_messages import Publish, PublisherQuery
from gapless.core.identity import ClientName, PublisherName
from gapless.knowledge.receipts import NEW, STEP, PublisherRecord

if TYPE_CHECKING:
    from collections import deque


class PublicationRequest(msgspec.Struct):
    """A publication that waits for the disk; `events` are those not published before. Or a
    take-over of a publisher's name, which waits for earlier publications and for the new term."""

    client: ClientName
    message: Publish | PublisherQuery
    events: tuple[bytes, ...]
    size: int  # of `events`, in bytes
    first_tick: int = 0  # of `events`; 0 until they have ticks
    term: int = 0  # the new term of a take-over
    first_number: int = 0  # where a new name begins


class WriteBatch(msgspec.Struct, frozen=True):
    """One write: the events of all its publications, one after the other."""

    requests: list[PublicationRequest] = msgspec.field(default_factory=list)
    ticks: range = range(0)
    events: tuple[bytes, ...] = ()
    size: int = 0
    publishers: dict[PublisherName, PublisherRecord] = msgspec.field(default_factory=dict)
    """The new records of named publishers; they count once the write is durable."""


def gather(
    waiting: deque[PublicationRequest],
    first_tick: int,
    limits: tuple[int, int],
    known: dict[PublisherName, PublisherRecord],
    runs_max: int,
) -> WriteBatch:
    """Take the first waiting publication, and as many more as fit `limits`, events and bytes."""
    requests, touched = list[PublicationRequest](), dict[PublisherName, PublisherRecord]()
    count = size = 0
    count_max, size_max = limits
    while waiting:
        request = waiting[0]
        more = len(request.events)
        if count and (count + more > count_max or size + request.size > size_max):
            break
        requests.append(waiting.popleft())
        request.first_tick = first_tick + count * STEP
        count += more
        size += request.size
        name = request.message.publisher
        if name is not None and (more or request.term):
            memory = touched.get(name)
            if memory is None:
                memory = touched[name] = known.get(name, NEW).copy()
                memory.next = max(memory.next, request.first_number)
            if isinstance(request.message, PublisherQuery):
                memory.term, memory.opening = request.term, request.message.opening
            else:
                memory.publish(memory.next, more, request.first_tick, runs_max)
    events = requests[0].events
    if len(requests) > 1:
        events = tuple(chain.from_iterable([request.events for request in requests]))
    ticks = range(first_tick, first_tick + count * STEP, STEP)
    return WriteBatch(requests, ticks, events, size, touched)
