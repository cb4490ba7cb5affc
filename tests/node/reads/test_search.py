"""What is found in a log does not depend on what was found before; only how quickly."""

from __future__ import annotations

from copy import copy
from random import Random
from typing import TYPE_CHECKING

import pytest

from gapless.core.client_messages import Publish
from gapless.core.events import EventBatch
from gapless.core.identity import PubendName
from gapless.core.store import RUN_BYTES, RecordRun
from gapless.core.ticks import Span
from gapless.filters.filter import Filter
from gapless.node.config import Config
from gapless.node.context import EventEncoding
from gapless.node.reads.search import DIGESTED_MIN, SURVEYED, LogSearch, Selection
from gapless.wire.events import decode_attributes, encode_event
from gapless.wire.survey import survey
from tests.node.reads.test_ranges import ONE
from tests.node.town import ANN, NEWS, Town

if TYPE_CHECKING:
    from gapless.core.events import Attributes
    from gapless.knowledge.pubend import Pubend
    from gapless.node.context import Survey

COUNT = 4_000
CONFIG = Config(range_bytes_max=20_000)


def attributes(number: int) -> Attributes:
    return {"n": number, "rare": number % 500, "colour": f"c{number % 7}", "even": number % 2 == 0}


@pytest.fixture(scope="module")
def pubend() -> Pubend:
    town = Town("h", ONE)
    town.connect()
    for low in range(0, COUNT, 500):
        town.now += 1_000  # type: ignore[assignment]
        batch = EventBatch.join(
            encode_event(attributes(number), b"x" * 20) for number in range(low, low + 500)
        )
        town.receive(ANN, Publish(NEWS, 1, batch))
    return town.node.durable.streams.pubends[PubendName("news/0")]


class Counting(LogSearch):
    """Knows how many events were decoded."""

    def __init__(self, config: Config = CONFIG, survey: Survey | None = None) -> None:
        super().__init__(config, EventEncoding(self.decode, survey=survey))
        self.decoded = 0

    def decode(self, batch: EventBatch) -> list[Attributes]:
        self.decoded += len(batch)
        return decode_attributes(batch)


def numbers(events: list[bytes]) -> list[object]:
    return [row["n"] for row in decode_attributes(EventBatch.join(events))]


def find_all(
    search: LogSearch, pubend: Pubend, wanted: Selection, span: Span | None = None, limit: int = 0
) -> tuple[list[object], int]:
    """The numbers of what matches, and in how many steps."""
    span = span or Span(0, pubend.end)
    found, steps, at = list[object](), 0, int(span.start)
    while at < span.end:
        ticks, events, through, _ = search.find(pubend, Span(at, span.end), wanted, limit)
        assert through > at
        assert ticks == sorted(set(ticks))
        assert all(at <= tick < through for tick in ticks)
        assert not limit or len(ticks) <= limit
        found, steps, at = found + numbers(events), steps + 1, through
        if search.digests is not None:
            search.digests.check()
        assert steps < COUNT
    return found, steps


CONDITIONS = (
    "",
    "rare = 7",
    "rare = 7 AND colour = 'c1'",
    "rare < 3 OR n BETWEEN 1000 AND 1010",
    "even",
    "colour LIKE 'c1%'",
    "n + rare = 14",
    "rare = 7 AND n + 0 > 2000",
    "missing IS NOT NULL",
    "FALSE",
)


def refuse(*_: object) -> None:
    """A survey that knows nothing."""


@pytest.mark.parametrize("survey", [None, survey, refuse])
@pytest.mark.parametrize("text", CONDITIONS)
def test_the_second_time_the_same_is_found(
    pubend: Pubend, text: str, survey: Survey | None
) -> None:
    search, wanted = Counting(survey=survey), Selection(text)
    expected = [i for i in range(COUNT) if Filter.parse(text).matches(attributes(i))]
    for _ in range(3):
        assert find_all(search, pubend, wanted)[0] == expected
        assert find_all(search, pubend, wanted, limit=3)[0] == expected


def test_the_second_time_only_candidates_are_read_and_the_steps_are_longer(pubend: Pubend) -> None:
    search = Counting()
    _, first = find_all(search, pubend, Selection("rare = 7"))
    assert search.decoded == COUNT
    search.decoded = 0
    found, steps = find_all(search, pubend, Selection("rare = 8"))
    assert len(found) == COUNT // 500
    assert search.decoded < DIGESTED_MIN + len(found)  # the last few were not worth keeping
    assert steps < first / 2


def test_a_condition_on_other_attributes_reads_the_log_once_more_and_both_are_known(
    pubend: Pubend,
) -> None:
    search = Counting()
    for text in ("rare = 7", "n = 7"):
        find_all(search, pubend, Selection(text))
    assert search.decoded == 2 * COUNT
    search.decoded = 0
    for text in ("rare = 8", "n = 8", "rare = 9 AND n < 100"):
        find_all(search, pubend, Selection(text))
    assert search.decoded < 3 * DIGESTED_MIN + 20


def test_a_survey_lets_only_candidates_be_decoded_the_first_time_and_steps_are_longer(
    pubend: Pubend,
) -> None:
    search, decoding = Counting(survey=survey), Counting()
    found, steps = find_all(search, pubend, Selection("rare = 7"))
    assert search.decoded < DIGESTED_MIN + len(found)
    expected, more_steps = find_all(decoding, pubend, Selection("rare = 7"))
    assert found == expected
    assert steps < more_steps / 2
    assert search.digests is not None
    assert decoding.digests is not None
    assert search.digests.nbytes >= decoding.digests.nbytes


def test_of_many_candidates_of_a_survey_no_more_are_decoded_in_one_step_than_without(
    pubend: Pubend,
) -> None:
    search = Counting(survey=survey)
    at, wanted = 0, Selection("n >= 0")
    while at < pubend.end:
        search.decoded = 0
        before = at
        _, events, at, _ = search.find(pubend, Span(at, pubend.end), wanted)
        assert at > before
        assert 0 < sum(map(len, events)) <= CONFIG.range_bytes_max + 100
        assert search.decoded == len(events)


def test_of_many_candidates_only_they_are_decoded(pubend: Pubend) -> None:
    search = Counting()
    find_all(search, pubend, Selection("even"))
    search.decoded = 0
    assert len(find_all(search, pubend, Selection("even"))[0]) == COUNT // 2
    assert search.decoded < COUNT // 2 + DIGESTED_MIN


@pytest.mark.parametrize("by", [None, survey])
def test_reads_of_any_parts_in_any_order_agree_with_a_plain_look(
    pubend: Pubend, by: Survey | None
) -> None:
    dice = Random(7)
    ticks = pubend.store.scan(pubend.stream, 0, pubend.end, bytes_max=1 << 30)[0]
    config = Config(range_bytes_max=20_000, range_digest_bytes_max=40_000)
    search = Counting(config, by)
    for _ in range(60):
        text = dice.choice(CONDITIONS)
        low, high = sorted(dice.choices(range(COUNT), k=2))
        if low == high:
            continue
        span = Span(ticks[low] - dice.randrange(2), ticks[high] + dice.randrange(2))
        inside = [i for i, tick in enumerate(ticks) if span.start <= tick < span.end]
        expected = [i for i in inside if Filter.parse(text).matches(attributes(i))]
        assert find_all(search, pubend, Selection(text), span)[0] == expected, (text, span)


def test_a_step_looks_at_few_candidates_and_few_digests(pubend: Pubend) -> None:
    search = LogSearch(
        Config(range_bytes_max=20_000, range_events_max=1_000), EventEncoding(decode_attributes)
    )
    wanted = Selection("rare IN (5, 95, 195, 305, 405)")
    expected = find_all(search, pubend, wanted)[0]
    found, steps = find_all(search, pubend, wanted)
    assert found == expected
    assert steps >= len(found) // 6
    assert find_all(search, pubend, Selection("rare > 500"))[1] >= COUNT // 1_500


def test_few_events_leave_nothing_behind(pubend: Pubend) -> None:
    search = LogSearch(Config(range_bytes_max=500), EventEncoding(decode_attributes))
    find_all(search, pubend, Selection("rare = 7"))
    assert search.digests is None


def test_the_dearer_a_condition_the_fewer_events_are_asked_in_one_step(pubend: Pubend) -> None:
    """Or a thousand patterns would be held against all events of a megabyte."""
    many = " OR ".join(f"colour LIKE '%{n}_%'" for n in range(500))
    dear, plain = Selection(f"({many}) AND n + 1 > 0"), Selection("n + 1 > 0")
    for wanted, most in ((dear, 10), (plain, COUNT)):
        search = Counting()
        _, _, through, _ = search.find(pubend, Span(0, pubend.end), wanted)
        assert 0 < search.decoded <= most
        assert through > 0
    assert dear.cost > 500 * plain.cost
    some = " OR ".join(f"colour LIKE '%{n}'" for n in (3, *range(10, 40)))
    assert find_all(Counting(), pubend, Selection(some))[0] == [
        n for n in range(COUNT) if n % 7 == 3
    ]


class TinyCommits:
    """A log in which each event is a run of its own, as tiny commits leave it."""

    def __init__(self, pubend: Pubend) -> None:
        self._store = pubend.store
        self.runs = 0

    def scan_runs(self, stream: str, start: int, end: int, *, bytes_max: int) -> list[RecordRun]:
        found = self._store.scan(stream, start, end, bytes_max=bytes_max)
        runs = [RecordRun([tick], [len(e)], 0, e) for tick, e in zip(*found, strict=True)]
        runs = runs[: bytes_max // RUN_BYTES]
        self.runs += len(runs)
        return runs

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


def test_a_step_looks_at_a_bounded_number_of_tiny_commits(pubend: Pubend) -> None:
    other, tiny = copy(pubend), TinyCommits(pubend)
    other.store = tiny  # type: ignore[assignment]
    config = Config(range_bytes_max=DIGESTED_MIN * RUN_BYTES)
    search, wanted = Counting(config, survey), Selection("rare = 7")
    found = search.find(other, Span(0, pubend.end), wanted)
    assert 0 < tiny.runs <= SURVEYED * DIGESTED_MIN
    assert found[2] < pubend.end
    assert find_all(search, other, wanted)[0] == [*range(7, COUNT, 500)]
