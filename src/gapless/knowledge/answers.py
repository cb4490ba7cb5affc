"""Answers: what a pubend says of a span that someone asks about, out of its log.

Below what is released everything is final, or lost to those who had not consumed it; above it, what
is not an event in the log is silence. Of what is being released nothing is said: who asks will ask
again. What is damaged on the disk is lost to everyone, also to those who go on delivering. An
answer is bounded; where it ends early it says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.broker_messages import Knowledge, Nack
from gapless.core.events import EventBatch
from gapless.core.ticks import Span
from gapless.knowledge.batch import read
from gapless.knowledge.scattered import settled

if TYPE_CHECKING:
    from gapless.core.store import Store


def answer(
    store: Store, stream: str, kept: tuple[int, int, int], span: Span, nack: Nack, bytes_max: int
) -> list[Knowledge]:
    """What is known of `span`; `kept` is where the log is released, where it is being released, and
    where it is settled."""
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
