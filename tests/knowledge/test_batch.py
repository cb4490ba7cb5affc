"""A run of events is cut into batches within limits, in order, and none is lost."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gapless.core.broker_messages import Knowledge
from gapless.core.events import EventBatch
from gapless.core.identity import PubendName
from gapless.core.ticks import Span
from gapless.knowledge.batch import cut, retell


@given(st.lists(st.binary(max_size=6)), st.integers(1, 5), st.integers(-3, 12))
def test_batches_are_within_limits_and_cannot_be_fewer(
    events: list[bytes], count_max: int, bytes_max: int
) -> None:
    bounds = cut(events, count_max, bytes_max)
    batches = [events[low:high] for low, high in bounds]
    assert bounds
    assert [event for batch in batches for event in batch] == events
    for batch in batches:
        assert len(batch) <= count_max
        assert sum(map(len, batch)) <= bytes_max or len(batch) == 1 or not events
    for batch, following in pairwise(batches):
        more = [*batch, following[0]]
        assert len(more) > count_max or sum(map(len, more)) > bytes_max


NEWS = Knowledge(PubendName("p"), Span(5, 20), (7, 9), EventBatch((b"a", b"bb")), digest=3)
MANY = (10, 100)


def test_news_that_say_just_what_is_to_be_told_are_passed_on_as_they_are() -> None:
    assert retell(NEWS, NEWS.span, NEWS.ticks, NEWS.events.events, MANY) == [NEWS]
    assert retell(NEWS, NEWS.span, NEWS.ticks, NEWS.events.events, MANY)[0] is NEWS


@pytest.mark.parametrize(
    "news",
    [
        replace(NEWS, final_below=6),
        replace(NEWS, lost_below=6),
        replace(NEWS, more=True),
        replace(NEWS, vector={"b": 1}),
        replace(NEWS, base=2),
    ],
)
def test_of_other_news_only_ticks_events_and_digest_are_passed_on(news: Knowledge) -> None:
    assert retell(news, news.span, news.ticks, news.events.events, MANY) == [NEWS]


def test_news_of_another_span_of_fewer_events_or_too_large_are_put_anew() -> None:
    events = NEWS.events.events
    wider = Span(3, 20)
    assert retell(NEWS, wider, NEWS.ticks, events, MANY) == [replace(NEWS, span=wider)]
    [fewer] = retell(NEWS, NEWS.span, (9,), (b"bb",), MANY)
    assert fewer == replace(NEWS, ticks=(9,), events=EventBatch((b"bb",)))
    for limits in ((1, 100), (10, 2)):
        parts = retell(NEWS, NEWS.span, NEWS.ticks, events, limits)
        assert [part.ticks for part in parts] == [(7,), (9,)]
        assert [part.span for part in parts] == [Span(5, 9), Span(9, 20)]
