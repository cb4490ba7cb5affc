"""KnowledgeStream against the dumb second implementation: a dict from tick to belief."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.errors import ProtocolError
from gapless.core.ticks import Span
from gapless.knowledge.stream import KnowledgeStream
from gapless.testing.lattice import StrictStream
from tests.knowledge.notation import event, ticks_of

LIMIT = 30
pieces = st.tuples(st.integers(0, LIMIT - 1), st.integers(1, LIMIT)).map(
    lambda pair: Span(min(pair[0], pair[1] - 1), max(pair[0] + 1, pair[1]))
)
ends = ["forget_below", "take_below", "keep_newest", "keep_oldest"]
verbs = st.sampled_from(["learn", "learn", "learn", *ends])
scripts = st.lists(st.tuples(verbs, pieces, st.integers(1, 4)), max_size=25)


@dataclass
class Dumb:
    """Of each tick: absent (unknown), None (silence) or the event."""

    base: int = 0
    known: dict[int, bytes | None] = field(default_factory=dict)

    def learn(self, span: Span, data: set[int]) -> set[int]:
        """Join; the ticks that changed."""
        changed = set()
        for tick in range(max(span.start, self.base), span.end):
            new = event(tick) if tick in data else None
            if tick not in self.known or (self.known[tick] is None and new is not None):
                self.known[tick] = new
                changed.add(tick)
        return changed

    def events(self) -> list[int]:
        return sorted(tick for tick, each in self.known.items() if each is not None)

    def forget_below(self, tick: int) -> None:
        self.base = max(self.base, tick)
        self.known = {t: each for t, each in self.known.items() if t >= self.base}

    def keep_newest(self, count: int, size: int) -> None:
        kept = within(self.events()[::-1], count, size)
        if gone := self.events()[: len(self.events()) - len(kept)]:
            self.forget_below(gone[-1] + 1)

    def keep_oldest(self, count: int, size: int) -> None:
        if gone := self.events()[len(within(self.events(), count, size)) :]:
            self.known = {t: each for t, each in self.known.items() if t < gone[0]}


def within(ticks: list[int], count: int, size: int) -> list[int]:
    """As many of these events as fit; the first always does."""
    while len(ticks) > 1 and (len(ticks) > count or sum(len(event(t)) for t in ticks) > size):
        ticks = ticks[:-1]
    return ticks


def learn(stream: KnowledgeStream, span: Span, data: set[int]) -> list[Span]:
    ticks = sorted(tick for tick in data if tick in span)
    return stream.learn(span, ticks, [event(tick) for tick in ticks])


def compare(stream: KnowledgeStream, dumb: Dumb) -> None:
    stream.check()
    assert stream.base == dumb.base
    assert ticks_of(stream.known) == set(dumb.known)
    assert stream.events_in(Span(0, LIMIT)) == (
        dumb.events(),
        [event(tick) for tick in dumb.events()],
    )
    assert stream.event_count == len(dumb.events())
    assert stream.size == sum(len(event(tick)) for tick in dumb.events())
    assert stream.end == max(dumb.known, default=dumb.base - 1) + 1


@given(st.sets(st.integers(0, LIMIT - 1)), scripts)
def test_any_operations_leave_what_a_dict_of_ticks_holds(
    data: set[int], script: list[tuple[str, Span, int]]
) -> None:
    """One truth, told late, twice, split and shuffled, with forgetting in between."""
    stream, dumb = StrictStream(), Dumb()
    for verb, span, count in script:
        match verb:
            case "learn":
                fresh = learn(stream, span, data)
                said = {tick for each in fresh for tick in range(each.start, each.end)}
                assert said == dumb.learn(span, data)
            case "forget_below":
                stream.forget_below(span.start)
                dumb.forget_below(span.start)
            case "take_below":
                taken = [tick for tick in dumb.events() if tick < span.start]
                assert stream.take_below(span.start) == (taken, [event(tick) for tick in taken])
                dumb.forget_below(span.start)
            case "keep_newest":
                before = len(dumb.events())
                dumb.keep_newest(count, span.end)
                assert stream.keep_newest(count, span.end) == (len(dumb.events()) < before)
            case _:
                before = len(dumb.events())
                dumb.keep_oldest(count, span.end)
                assert stream.keep_oldest(count, span.end) == (len(dumb.events()) < before)
        compare(stream, dumb)


def test_what_is_taken_ends_before_the_tick_and_stays_gone() -> None:
    stream = KnowledgeStream()
    learn(stream, Span(0, 10), {3, 7})
    assert stream.take_below(7) == ([3], [event(3)])
    assert stream.take_below(7) == ([], [])
    assert stream.take_below(8) == ([7], [event(7)])
    assert learn(stream, Span(0, 10), {3, 7}) == []
    stream.check()


@given(st.lists(st.tuples(pieces, st.sets(st.integers(0, LIMIT - 1))), max_size=12))
def test_an_event_learnt_where_silence_was_stays_and_is_news(
    told: list[tuple[Span, set[int]]],
) -> None:
    """Without the shadow, a tick may be filtered at one time and sent at another."""
    stream, dumb = KnowledgeStream(), Dumb()
    for span, data in told:
        fresh = learn(stream, span, data)
        said = {tick for each in fresh for tick in range(each.start, each.end)}
        assert said == dumb.learn(span, data)
        compare(stream, dumb)


@given(st.sets(st.integers(0, LIMIT - 1), min_size=1), st.data())
def test_a_contradiction_is_refused_and_changes_nothing(
    data: set[int], draw: st.DataObject
) -> None:
    stream = KnowledgeStream()
    learn(stream, Span(0, LIMIT // 2), {tick for tick in data if tick < LIMIT // 2})
    known, before = stream.known.copy(), stream.events_in(Span(0, LIMIT))
    if not before[0]:
        return
    wrong = draw.draw(st.sampled_from(before[0]))
    ticks = sorted(data)
    events = [b"other" if tick == wrong else event(tick) for tick in ticks]
    with pytest.raises(ProtocolError, match=f"two different events at tick {wrong}"):
        stream.learn(Span(0, LIMIT), ticks, events)
    assert stream.known == known
    assert stream.events_in(Span(0, LIMIT)) == before
    stream.check()


def test_what_lies_below_the_base_is_not_learnt_again() -> None:
    stream = KnowledgeStream(10)
    assert stream.learn(Span(0, 10), [3], [b"x"]) == []
    assert stream.learn(Span(5, 12), [6, 11], [b"x", b"y"]) == [Span(10, 12)]
    assert stream.events_in(Span(0, 20)) == ([11], [b"y"])
    assert KnowledgeStream(7).end == 7


def test_what_is_settled_is_known_and_an_event_already_there_stays() -> None:
    stream = KnowledgeStream(2)
    stream.learn(Span(3, 5), [4], [b"x"])
    stream.settle(Span(0, 8))
    stream.settle(Span(0, 1))
    stream.check()
    assert list(stream.known) == [Span(2, 8)]
    assert stream.events_in(Span(0, 9)) == ([4], [b"x"])
