"""Scattered answers: the events at many single ticks in one message.

Theory of operation
    Who catches up asks for single ticks far apart. A message that covers a span speaks of all of
    it, so each such event would be a message of its own. A scattered one says nothing but its
    events: of every other tick, in its span or not, whoever gets it knows what he knew before.
    So it means exactly the same as one message for each of its events (`apart`), and any of those
    may be put together (`gather`). What is silent, final or lost is never said in this way.

Cost: a few steps for each event; a message where there were as many as events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from gapless.core.broker_messages import Knowledge, Purpose
from gapless.core.errors import StorageDamagedError
from gapless.core.events import EventBatch
from gapless.core.ticks import Span
from gapless.knowledge.batch import cut

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gapless.core.identity import PubendName
    from gapless.core.store import Store


def settled(pubend: PubendName, span: Span, purpose: Purpose, released: int = 0) -> Knowledge:
    """The answer that a span is final; or lost, to one who catches up, as is all below `released`
    too."""
    is_final = purpose == Purpose.DELIVERY
    return Knowledge(
        pubend,
        span,
        final_below=span.end if is_final else 0,
        lost_below=0 if is_final else max(span.end, released),
        requested=True,
        purpose=purpose,
    )


def damaged(pubend: PubendName, span: Span, purpose: Purpose) -> Knowledge:
    """The answer that a span cannot be read any more, whoever asks."""
    return Knowledge(
        pubend, span, lost_below=span.end, requested=True, purpose=purpose, damaged=True
    )


def scatter(
    pubend: PubendName,
    ticks: Sequence[int],
    events: Sequence[bytes],
    limits: tuple[int, int],
    digest: int = 0,
) -> list[Knowledge]:
    """These events, for one who catches up, in as few messages as the limits allow."""
    if not ticks:
        return []
    return [
        Knowledge(
            pubend,
            Span(ticks[low], ticks[high - 1] + 1),
            tuple(ticks[low:high]),
            EventBatch.join(events[low:high]),
            requested=True,
            digest=digest,
            purpose=Purpose.CATCH_UP,
            scattered=True,
        )
        for low, high in cut(events, *limits)
    ]


def fetch(
    store: Store, stream: str, ticks: Iterable[int], bytes_max: int = 1 << 62
) -> list[bytes | None]:
    """The events at these ticks of a log, each of them or None; as many as fit, and one more. One
    that is damaged is None: whoever asks for it alone is told."""
    near: Mapping[int, bytes] = {}
    found = list[bytes | None]()
    for tick in ticks:
        if bytes_max < 0:
            break
        if tick not in near:
            try:
                near = store.read_near(stream, tick)
            except StorageDamagedError:
                near = {}
        event = near.get(tick)
        found.append(event)
        bytes_max -= len(event or b"")
    return found


def look_up(
    store: Store,
    stream: str,
    pubend: PubendName,
    spans: Sequence[Span],
    limits: tuple[int, int],
    bytes_max: int = 1 << 62,
) -> tuple[list[Knowledge], list[Span], list[Span]]:
    """The events at single ticks of a log, for one who catches up; the spans that are more, or
    have none; and those single ticks that are beyond `bytes_max`."""
    ticks, events, rest, late = list[int](), list[bytes](), list[Span](), list[Span]()
    single = [each.start for each in spans if len(each) == 1]
    found = fetch(store, stream, single, bytes_max)
    looked = dict(zip(single, found, strict=False))
    for span in spans:
        if len(span) == 1 and span.start not in looked:
            late.append(span)
        elif len(span) == 1 and (event := looked[span.start]) is not None:
            ticks.append(span.start)
            events.append(event)
        else:
            rest.append(span)
    return scatter(pubend, ticks, events, limits), rest, late


def gather(answers: Sequence[Knowledge], limits: tuple[int, int]) -> list[Knowledge]:
    """The same answers to one question, which ascend, with events at single ticks put together."""
    rest, single = list[Knowledge](), list[Knowledge]()
    for each in answers:
        is_single = len(each.ticks) == len(each.span) == 1 and each.purpose == Purpose.CATCH_UP
        (single if is_single else rest).append(each)
    if len(single) < 2:
        return list(answers)
    first = single[0]
    assert all(each.digest == first.digest for each in single), "one question has one answer"
    ticks = [each.ticks[0] for each in single]
    events = [each.events[0] for each in single]
    return scatter(first.pubend, ticks, events, limits, first.digest) + rest


def apart(knowledge: Knowledge) -> list[Knowledge]:
    """The same as messages that each say all of their span."""
    if not knowledge.scattered:
        return [knowledge]
    return [
        replace(
            knowledge,
            span=Span(tick, tick + 1),
            ticks=(tick,),
            events=EventBatch((event,)),
            scattered=False,
        )
        for tick, event in zip(knowledge.ticks, knowledge.events, strict=True)
    ]
