"""The actors of the miniature world: the pubend that has the truth, clients, planted faults."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gapless.core.broker_messages import Knowledge
from gapless.core.events import EventBatch
from gapless.core.ticks import Span
from gapless.durable.catch_up import CatchUp, LostSpan
from gapless.durable.consolidated import SubscriptionBatch
from gapless.durable.filtered_log import NOWHERE, FilteredLog
from tests.durable.stand import PUBEND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.core.identity import SubscriptionName

CREDIT_MAX = 5


@dataclass(frozen=True)
class Planted:
    """Rules that may be broken on purpose."""

    token_ahead: bool = False
    early_report: bool = False
    no_back_pointer: bool = False
    gap_at_once: bool = False
    no_tail: bool = False
    no_refilter: bool = False


class LooseLog(FilteredLog):
    """Forgets where the chain goes on."""

    def _encode(self, tick: int, takers: Sequence[int]) -> bytes:
        self._heads = dict.fromkeys(self._heads, NOWHERE)
        return super()._encode(tick, takers)


class HastyCatchUp(CatchUp):
    """Tells a gap before it knows whether the loss goes on."""

    def _add(self, batch: SubscriptionBatch, pieces: list[SubscriptionBatch | LostSpan]) -> None:
        if self._gap:
            self._add_gap(pieces)
        super()._add(batch, pieces)


class Pubend:
    """The truth: what was published, what is settled, and what is lost."""

    def __init__(self) -> None:
        self.events: dict[int, bytes] = {}
        self.end = 1
        self.delivered = 0
        self.released = 0
        self.lost_below = 0

    def kind(self, tick: int) -> int:
        return int(self.events[tick].split(b":")[0])

    def wanted(self, kinds: set[int], start: int, end: int) -> list[int]:
        return [
            tick for tick in range(start, end) if tick in self.events and self.kind(tick) in kinds
        ]

    def answer(self, span: Span, room: int, *, requested: bool) -> list[Knowledge]:
        answers, start, end = list[Knowledge](), span.start, min(span.end, self.end)
        if start < min(self.lost_below, end):
            lost = Span(start, min(self.lost_below, end))
            answers = [Knowledge(PUBEND, lost, lost_below=self.lost_below, requested=requested)]
            start = lost.end
        if start < end:
            ticks = [tick for tick in range(start, end) if tick in self.events]
            if len(ticks) > room:
                end = ticks[room]
            events = EventBatch.join(self.events[tick] for tick in ticks[:room])
            more = len(ticks) > room
            answers.append(
                Knowledge(
                    PUBEND, Span(start, end), tuple(ticks[:room]), events,
                    requested=requested, more=more,
                )
            )  # fmt: skip
        return answers


@dataclass
class Client:
    """A subscriber with its token; asserts that what it gets is right."""

    name: SubscriptionName
    kinds: set[int]
    pubend: Pubend
    start: int
    position: int
    got: list[int] = field(default_factory=list)
    gaps: list[Span] = field(default_factory=list)
    queue: deque[SubscriptionBatch | LostSpan] = field(default_factory=deque)
    is_connected: bool = False
    life: int = 0
    after_gap: bool = False

    @property
    def credit(self) -> int:
        queued = sum(
            len(piece.ticks) for piece in self.queue if isinstance(piece, SubscriptionBatch)
        )
        return max(CREDIT_MAX - queued, 0)

    def consume(self) -> None:
        piece = self.queue.popleft()
        if isinstance(piece, LostSpan):
            missed = self.pubend.wanted(self.kinds, self.position, piece.span.start)
            assert not missed, f"{self.name} was not given {missed} before {piece}"
            assert piece.span.start >= self.position, f"{self.name} is told {piece} again"
            assert piece.span.end <= self.pubend.lost_below, f"{piece} was not released"
            assert not self.after_gap, f"{self.name} gets {piece} right after another"
            self.gaps.append(piece.span)
            self.after_gap, self.position = True, piece.span.end
            return
        expected = self.pubend.wanted(self.kinds, self.position, piece.through)
        assert piece.ticks == expected, f"{self.name} at {self.position}: {piece}, not {expected}"
        assert piece.events == [self.pubend.events[tick] for tick in piece.ticks]
        self.got += piece.ticks
        self.after_gap = self.after_gap and not piece.ticks
        self.position = piece.through

    def check_complete(self, end: int) -> None:
        assert self.position == end, f"{self.name} stays at {self.position}, not {end}"
        wanted = self.pubend.wanted(self.kinds, self.start, end)
        lost = [tick for tick in wanted if any(tick in gap for gap in self.gaps)]
        assert sorted(self.got + lost) == wanted
