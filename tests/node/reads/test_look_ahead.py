"""Who looks ahead of searches spares them the work, and changes nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gapless.core.client_messages import Publish
from gapless.core.events import EventBatch
from gapless.core.identity import PubendName
from gapless.core.ticks import Span
from gapless.node.config import Config
from gapless.node.reads.look_ahead import Outlook, look
from gapless.node.reads.search import Selection
from gapless.wire.events import decode_attributes, encode_event
from gapless.wire.survey import survey
from tests.node.reads.test_ranges import ONE
from tests.node.reads.test_search import CONFIG, Counting, attributes, find_all
from tests.node.town import ANN, NEWS, Town

if TYPE_CHECKING:
    from gapless.knowledge.pubend import Pubend

NAME = PubendName("news/0")
PART_BYTES = 60_000
LOOKS_MAX = 100


class Scene:
    """A log, searches in it, and who looks ahead of them."""

    def __init__(self, count: int = 0, config: Config = CONFIG) -> None:
        self.town = Town("h", ONE)
        self.town.connect()
        self.count = 0
        self.search = Counting(config, survey)
        self.pubends = dict(self.town.node.durable.streams.pubends)
        self.outlook = Outlook(self.search, self.pubends)
        self.publish(count)

    @property
    def pubend(self) -> Pubend:
        return self.pubends[NAME]

    def publish(self, count: int, body: bytes = b"x" * 20) -> None:
        for low in range(self.count, self.count + count, 500):
            self.town.now += 1_000  # type: ignore[assignment]
            some = range(low, min(low + 500, self.count + count))
            batch = EventBatch.join(encode_event(attributes(i), body) for i in some)
            self.town.receive(ANN, Publish(NEWS, 1, batch))
        self.count += count

    def look(self) -> int:
        """As long as there is something to see; in how many looks."""
        for number in range(LOOKS_MAX):
            part = self.outlook.next_part()
            if part is None:
                return number
            self.outlook.take(part, look(part, survey, decode_attributes, PART_BYTES))
            if self.search.digests is not None:
                self.search.digests.check()
        raise AssertionError("it never ends")


@pytest.mark.parametrize("condition", ["rare = 7", "colour = 'c3' AND rare < 20", "even AND n < 9"])
def test_the_first_search_reads_what_matches_and_little_else(condition: str) -> None:
    scene = Scene(6_000)
    wanted = find_all(Counting(), scene.pubend, Selection(condition))[0]
    assert scene.look() > 2
    assert find_all(scene.search, scene.pubend, Selection(condition))[0] == wanted != []
    assert scene.search.decoded < len(wanted) + 1_000  # and what was too little for a part
    assert scene.look() == 0


def test_what_is_too_little_waits_until_there_is_more() -> None:
    scene = Scene(10)
    assert scene.look() == 1
    assert scene.search.digests is None
    assert scene.outlook.next_part() is None
    scene.publish(3_000)
    assert scene.look() > 1
    assert scene.search.digests is not None


def test_what_searches_know_is_not_looked_at_nor_driven_out() -> None:
    scene = Scene(3_000, Config(range_bytes_max=20_000, range_digest_bytes_max=40_000))
    find_all(scene.search, scene.pubend, Selection("n = 7"))
    digests = scene.search.digests
    assert digests is not None
    before = digests.nbytes
    scene.publish(3_000)
    scene.look()
    assert before <= digests.nbytes <= digests.bytes_max
    scene.search.decoded = 0
    span = Span(0, scene.pubend.store.scan(scene.pubend.stream, 0, 1 << 62)[0][1_000])
    assert find_all(scene.search, scene.pubend, Selection("n = 7"), span)[0] == [7]
    assert scene.search.decoded < 10


def test_what_a_search_has_learned_meanwhile_counts() -> None:
    scene = Scene(2_000)
    part = scene.outlook.next_part()
    assert part is not None
    view = look(part, survey, decode_attributes, PART_BYTES)
    find_all(scene.search, scene.pubend, Selection("colour = 'c3'"))
    digests = scene.search.digests
    assert digests is not None
    before = digests.nbytes
    scene.outlook.take(part, view)
    digests.check()
    assert digests.nbytes == before


def test_a_log_that_is_gone_or_another_of_its_name_has_nothing_of_it() -> None:
    scene, other = Scene(2_000), Scene(2_000)
    part = scene.outlook.next_part()
    assert part is not None
    view = look(part, survey, decode_attributes, PART_BYTES)
    scene.pubends[NAME] = other.pubend
    scene.outlook.take(part, view)
    assert scene.search.digests is None
    again = scene.outlook.next_part()
    assert again is not None
    assert (again.pubend, again.span.start) == (other.pubend, other.pubend.released)
    del scene.pubends[NAME]
    assert scene.outlook.next_part() is None


def test_a_part_that_is_refused_is_passed_over() -> None:
    scene = Scene(3_000)
    for _ in range(LOOKS_MAX):
        if (part := scene.outlook.next_part()) is None:
            break
        scene.outlook.take(part, look(part, lambda *_: None, decode_attributes, PART_BYTES))
    assert scene.outlook.next_part() is None
    assert scene.search.digests is None
    assert len(find_all(scene.search, scene.pubend, Selection("rare = 7"))[0]) == 6


def test_what_was_released_meanwhile_is_neither_kept_nor_looked_at() -> None:
    scene = Scene(3_000)
    part = scene.outlook.next_part()
    assert part is not None
    view = look(part, survey, decode_attributes, PART_BYTES)
    scene.town.wait(5_000_000)  # nobody wants it any more
    assert scene.pubend.released > part.span.start
    scene.outlook.take(part, view)
    assert scene.outlook.next_part() is None
    assert find_all(scene.search, scene.pubend, Selection("rare = 7"))[0] == []
    digests = scene.search.digests
    assert digests is not None
    assert digests.nbytes == 0
