"""Answers: what a pubend's log or a relay's cache says about the ticks that a neighbour asks for.

Theory of operation
    Below what is released every tick is final, or lost to a catch-up that had not consumed it.
    Above it, a tick without an event in the log is silent. Of a part that is being released nothing
    is said: the questioner will ask again. What is damaged on the disk is lost to everyone, also to
    subscribers that keep up. An answer is bounded, and says so where it ends early.
    A catch-up asks for single ticks far apart. A message that covers a span speaks of all of it, so
    each such event would need a message of its own. A *scattered* message says nothing but its
    events: it leaves every other tick, in its span or not, as it was. So it means exactly the same
    as one message for each of its events, and such messages may be put together (`gather`).
    Silence, finality and loss are never said in this way.

Cost: a few steps for each event; one message instead of one for each event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.broker_messages import Knowledge, Nack, Purpose
from gapless.core.errors import StorageDamagedError
from gapless.core.events import EventBatch
from gapless.core.ticks import Span
from gapless.knowledge.batch import cut, read

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gapless.core.identity import PubendName
    from gapless.core.store import Store


def answer(
    store: Store, stream: str, kept: tuple[int, int, int], span: Span, nack: Nack, bytes_max: int
) -> list[Knowledge]:
    """What the log says of `span`; `kept` are the ends of its released, its being released and its
    settled part."""
    released, releasing, known = kept
    pubend, purpose = nack.pubend, nack.purpose
    end = min(span.end, known)
    if span.start >= end:
        return []
    start = max(span.start, releasing)
    answers = []
    if span.start < released:
        answers = [settled(pubend, Span(span.start, min(released, end)), purpose)]
    if start < end:
        found = read(store, stream, Span(start, end), bytes_max, nack.events_max)
        answers.append(
            Knowledge(
                pubend,
                Span(start, found.through),
                tuple(found.ticks),
                EventBatch.join(found.events),
                lost_below=found.lost_below,
                damaged=bool(found.lost_below),
                requested=True,
                more=found.through < end,
                purpose=purpose,
            )
        )
    return answers


def settled(pubend: PubendName, span: Span, purpose: Purpose, released: int = 0) -> Knowledge:
    """The answer that a span is final; or, to a catch-up, that it and all below `released` is
    lost."""
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
    """The answer that a span is damaged on the disk, for any questioner."""
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
    """These events for a catch-up, in as few messages as the limits allow."""
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
    """The events at these ticks of a log, each or None; as many as fit, and one more. A damaged
    event is None: a question for it alone gets the answer that it is lost."""
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
    """The events at single ticks of a log, for a catch-up; the spans that are longer, or have no
    event; and the single ticks that are beyond `bytes_max`."""
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
    """These answers to one question, in ascending order, with events at single ticks put
    together."""
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
