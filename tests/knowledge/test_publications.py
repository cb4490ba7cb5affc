"""Publications are gathered in order, as far as they fit, and none is looked at twice."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from gapless.core.client_messages import Publish
from gapless.core.events import EventBatch
from gapless.core.identity import ClientName, PublisherName, TopicName
from gapless.knowledge.publications import PublicationRequest, gather
from gapless.knowledge.receipts import STEP, PublisherRecord

FIRST = 7 * STEP + 1


def request(name: str | None, sizes: list[int]) -> PublicationRequest:
    events = tuple(bytes(size) for size in sizes)
    publisher = None if name is None else PublisherName(name)
    message = Publish(TopicName("t"), 1, EventBatch(events or (b"",)), publisher)
    return PublicationRequest(ClientName("c"), message, events, sum(sizes))


requests = st.lists(
    st.builds(request, st.sampled_from([None, "a", "b"]), st.lists(st.integers(0, 9), max_size=4)),
    min_size=1,
    max_size=8,
)


@given(requests, st.integers(1, 6), st.integers(1, 20))
def test_a_batch_is_the_longest_beginning_that_fits(
    waiting: list[PublicationRequest], count_max: int, size_max: int
) -> None:
    rest = deque(waiting)
    batch = gather(rest, FIRST, (count_max, size_max), {}, 4)
    assert [*batch.requests, *rest] == waiting
    assert batch.events == tuple(event for each in batch.requests for event in each.events)
    assert batch.size == sum(map(len, batch.events))
    assert batch.ticks == range(FIRST, FIRST + len(batch.events) * STEP, STEP)
    for each, first in zip(batch.requests, range(len(batch.requests)), strict=True):
        before = sum(len(other.events) for other in batch.requests[:first])
        assert each.first_tick == FIRST + before * STEP
    holders = [each for each in batch.requests if each.events]
    if len(holders) > 1:
        assert len(batch.events) <= count_max
        assert batch.size <= size_max
    if rest:  # the next one would have been too much
        assert holders
        more = len(batch.events) + len(rest[0].events), batch.size + rest[0].size
        assert more[0] > count_max or more[1] > size_max


def test_what_is_remembered_of_a_publisher_is_not_changed_before_it_is_durable() -> None:
    name = PublisherName("a")
    known = {name: PublisherRecord()}
    known[name].publish(0, 2, FIRST - 9 * STEP, 4)
    waiting = deque([request("a", [1]), request("b", [1]), request("a", [1, 1])])
    batch = gather(waiting, FIRST, (10, 100), known, 4)
    assert known[name].next == 2
    assert batch.publishers[name].next == 5
    assert batch.publishers[name].ticks(2, 1) == (FIRST,)
    assert batch.publishers[name].ticks(3, 2) == (FIRST + 2 * STEP, FIRST + 3 * STEP)
    assert batch.publishers[PublisherName("b")].ticks(0, 1) == (FIRST + STEP,)
