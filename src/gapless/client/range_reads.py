"""Range reads: the log from one token to another, as batches of events or of columns.

Theory of operation
    A read goes through the pubends one after the other, each from its start to its end, in steps
    that the broker bounds. Without an end it reads up to what is settled when it begins, so every
    read ends. The same two tokens always give the same events, as long as these are retained. What
    was released is a `Gap`: it raises, or is handed out in its place. The client asks for nothing
    ahead, so an application may stop at any batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from gapless.client import arguments
from gapless.client.delivery import Gap
from gapless.client.errors import LostError
from gapless.client.requests import ask_for
from gapless.core.errors import UsageError
from gapless.core.events import EventRun
from gapless.core.identity import PubendName, TopicName
from gapless.core.range_messages import Positions, PositionsQuery, RangeRead, ReadRange
from gapless.core.ticks import AHEAD_MAX, TICK_MAX, Span, Tick
from gapless.wire.events import decode_event

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from gapless.client.channel import Channel
    from gapless.core.events import Event
    from gapless.core.token import Token

Gaps = Literal["raise", "yield"]


@dataclass(frozen=True)
class RangeBatch:
    """The matching events of a span of one pubend, still encoded; possibly none."""

    topic: TopicName
    pubend: PubendName
    span: Span
    run: EventRun

    def __len__(self) -> int:
        return len(self.run)

    @cached_property
    def ticks(self) -> tuple[int, ...]:
        return self.run.tick_numbers()

    @cached_property
    def encoded(self) -> tuple[bytes, ...]:
        return self.run.cut()

    def events(self) -> list[Event]:
        return [
            decode_event(event, self.topic, self.pubend, Tick(tick))
            for tick, event in zip(self.ticks, self.encoded, strict=True)
        ]

    def to_arrow(self) -> Any:
        """A `pyarrow.RecordBatch`; `gapless.client.columns` has the schema."""
        from gapless.client.columns import to_arrow

        return to_arrow(self.topic, self.pubend, self.run)


@dataclass(frozen=True)
class RangeCount:
    """How many events match in a span of one pubend, and the tick of each `stride`-th match."""

    topic: TopicName
    pubend: PubendName
    span: Span
    count: int
    ticks: tuple[int, ...]


class RangeReads:
    """The requests for ranges of the log that a client has."""

    channel: Channel

    async def positions(
        self, topic: str, *, pubends: Sequence[str] | None = None
    ) -> dict[str, tuple[int, int]]:
        """By pubend, all or these: from which tick on it can be read, and up to which tick it is
        settled."""
        return await find_positions(self.channel, arguments.topic(topic), pubends)

    async def count(
        self,
        topic: str,
        condition: str = "",
        *,
        start: Token | None = None,
        end: Token | None = None,
        pubends: Sequence[str] | None = None,
        limit: int | None = None,
        stride: int = 1_000_000,
    ) -> AsyncIterator[RangeCount | Gap]:
        """How many events match between two tokens, span by span of each pubend, without reading
        them: only the tick of each `stride`-th match comes over the network.

        `limit`: the most events to count. Released events are a `Gap` among the counts.
        """
        stride = arguments.count("stride", stride, 1)
        limit = None if limit is None else arguments.count("limit", limit)
        name = arguments.topic(topic)
        arguments.condition(condition)
        spans = await find_spans(self.channel, name, start, end, pubends)
        for pubend, span in spans:
            wanted = CountRequest(name, pubend, condition, stride)
            async for item in count_span(self.channel, wanted, span, limit):
                if isinstance(item, RangeCount) and limit is not None:
                    limit -= item.count
                yield item
            if limit == 0:
                return

    async def read(
        self,
        topic: str,
        condition: str = "",
        *,
        start: Token | None = None,
        end: Token | None = None,
        pubends: Sequence[str] | None = None,
        limit: int | None = None,
        gaps: Gaps = "raise",
    ) -> AsyncIterator[RangeBatch | Gap]:
        """Everything that matches between two tokens, pubend by pubend, in order, once.

        `start` of None: from the oldest event that is kept. `end` of None: up to what is settled
        now. `limit`: the most events to read. Released events are a `LostError`, or with
        `gaps="yield"` a `Gap` among the batches.
        """
        arguments.choice("gaps", gaps, get_args(Gaps))
        limit = None if limit is None else arguments.count("limit", limit)
        arguments.condition(condition)
        for what, given in {"start": start, "end": end}.items():
            if given is not None:
                arguments.token(what, given)
        if pubends is not None:
            pubends = [arguments.text("pubends", each) for each in pubends]
        name = arguments.topic(topic)
        spans = await find_spans(self.channel, name, start, end, pubends)
        for pubend, span in spans:
            async for item in read_span(self.channel, name, pubend, span, condition, limit):
                if isinstance(item, Gap):
                    if start is None and item.span.start == span.start:
                        continue  # the oldest event was released after the read began
                    if gaps == "raise":
                        raise LostError(f"{item.pubend} [{item.span.start}, {item.span.end})")
                elif limit is not None:
                    limit -= len(item)
                yield item
            if limit == 0:
                return

    async def read_arrow(
        self,
        topic: str,
        condition: str = "",
        *,
        start: Token | None = None,
        end: Token | None = None,
        pubends: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> Any:
        """Everything that `read` gives, as one `pyarrow.Table`."""
        from gapless.client.columns import to_table

        batches = self.read(topic, condition, start=start, end=end, pubends=pubends, limit=limit)
        return to_table([each.to_arrow() async for each in batches if isinstance(each, RangeBatch)])


async def find_positions(
    channel: Channel, topic: TopicName, pubends: Sequence[str] | None = None
) -> dict[str, tuple[int, int]]:
    """The positions of all pubends, or of these, at whichever broker they are."""
    positions: dict[str, tuple[int, int]] = {}
    rest = set[str](pubends or ())
    if pubends is None:
        found = await ask_for(channel, lambda request: PositionsQuery(topic, request), Positions)
        positions, rest = dict(found.here), set(found.elsewhere)
    for name in rest:
        pubend = PubendName(name)
        found = await ask_for(
            channel,
            lambda request, pubend=pubend: PositionsQuery(topic, request, pubend),  # type: ignore[misc]
            Positions,
            about(pubend),
        )
        positions.update(found.here)
    return dict(sorted(positions.items()))


async def find_spans(
    channel: Channel,
    topic: TopicName,
    start: Token | None,
    end: Token | None,
    pubends: Sequence[str] | None,
) -> list[tuple[PubendName, Span]]:
    """The span to read of each pubend, sorted by name."""
    spans: list[tuple[PubendName, Span]] = []
    positions = await find_positions(channel, topic, pubends)
    named = {name for token in (start, end) if token is not None for name, _ in token}
    if not named <= positions.keys():
        await _check_names(channel, topic, named)
    for name, (released, settled) in positions.items():
        low = released if start is None else start.get(name)
        high = settled if end is None else end.get(name)
        if high > settled or low > settled + AHEAD_MAX:
            problem = f"{name!r} is settled up to {settled}, and not up to {max(low, high)}"
            raise UsageError(problem, "Give a token that a subscription or `positions` has given.")
        if low < high:
            spans.append((PubendName(name), Span(low, min(high, TICK_MAX))))
    return spans


async def _check_names(channel: Channel, topic: TopicName, named: set[str]) -> None:
    """`UsageError` if the topic lacks one of these pubends."""
    found = await ask_for(channel, lambda request: PositionsQuery(topic, request), Positions)
    known = sorted({**found.here, **found.elsewhere})
    if unknown := sorted(named.difference(known)):
        raise UsageError(
            f"the token names {unknown[0]!r}, which topic {topic!r} does not have: it has "
            f"{', '.join(known)}",
            "Give a token of this topic, as it is now.",
        )


def about(pubend: PubendName) -> str:
    """The key under which the client remembers the broker of a pubend."""
    return f"read {pubend}"


class CountRequest(NamedTuple):
    """What is counted."""

    topic: TopicName
    pubend: PubendName
    condition: str
    stride: int


async def count_span(
    channel: Channel, wanted: CountRequest, span: Span, limit: int | None
) -> AsyncIterator[RangeCount | Gap]:
    """The matches of one pubend's span, step by step."""
    topic, pubend, condition, stride = wanted
    at, phase = span.start, 0
    while at < span.end and limit != 0:
        asked = (topic, pubend, Span(at, span.end), condition, limit or 0)
        found = await ask_for(
            channel,
            lambda request, asked=asked, phase=phase: ReadRange(  # type: ignore[misc]
                asked[0], request, *asked[1:], stride=stride, phase=phase
            ),
            RangeRead,
            about(pubend),
        )
        if found.span is None:
            return
        if found.lost_below > at:
            yield Gap(topic, pubend, Span(at, found.lost_below))
            at = found.lost_below
        count, ticks = found.count, found.ticks
        if count is None:  # a broker of an earlier version has read the events
            count, ticks = len(ticks), ticks[stride - phase - 1 :: stride]
        if at < found.span.end:
            yield RangeCount(topic, pubend, Span(at, found.span.end), count, ticks)
        phase = (phase + count) % stride
        if limit is not None:
            limit -= count
        at = found.span.end


async def read_span(
    channel: Channel,
    topic: TopicName,
    pubend: PubendName,
    span: Span,
    condition: str,
    limit: int | None,
) -> AsyncIterator[RangeBatch | Gap]:
    """One pubend's span, step by step."""
    at = span.start
    while at < span.end and limit != 0:
        rest, events_max = Span(at, span.end), limit or 0
        found = await ask_for(
            channel,
            lambda request, rest=rest, events_max=events_max: ReadRange(  # type: ignore[misc]
                topic, request, pubend, rest, condition, events_max, whole=True
            ),
            RangeRead,
            about(pubend),
        )
        if found.span is None:
            return
        if found.lost_below > at:
            yield Gap(topic, pubend, Span(at, found.lost_below))
            at = found.lost_below
        if at < found.span.end:
            covered = Span(at, found.span.end)
            run = found.run or EventRun.of(found.ticks, found.events.events)
            yield RangeBatch(topic, pubend, covered, run)
            if limit is not None:
                limit -= len(run)
        at = found.span.end
