"""Lake and log read as one: no gap and no overlap at the seam, also while the archive goes on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import pytest

import gapless
from gapless.client.errors import LostError
from gapless.client.range_reads import RangeBatch
from gapless.core.errors import UsageError
from gapless.core.token import Token
from gapless.pipelines.archive import ArchiveLimits, archive
from gapless.pipelines.lake import Lake
from gapless.pipelines.manifest import Coverage, LakeFile
from gapless.pipelines.replay import (
    Replay,
    ReplayPlan,
    ReplayRange,
    add_ranges,
    plan,
    replay_events,
    replay_rows,
)
from gapless.pipelines.topic_log import TopicLog
from tests.pipelines.logs import wait_for_release
from tests.test_sync import broker_in_a_thread

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from gapless.sync import Client

PUBENDS = ("two/0", "two/1")


class Stage(NamedTuple):
    """By number of the event where it is. `archive` moves what is new to the lake."""

    client: Client
    replay: Replay
    places: dict[int, tuple[str, int]]
    root: Path

    def fill(self, first: int, count: int) -> None:
        for i in range(first, first + count, 10):
            with self.client.publisher("two", name=f"p{i}") as publisher:
                events = [({"i": n, "even": n % 2 == 0}, b"") for n in range(i, i + 10)]
                publisher.send_many(events)
        for batch in self.client.read("two", f"i >= {first}"):
            assert isinstance(batch, RangeBatch)
            for event in batch.events():
                self.places[int(event.attributes["i"])] = (event.pubend, event.tick)

    def archive(self, limits: ArchiveLimits | None = None) -> None:
        assert self.replay.log is not None
        archive(self.replay.log, self.root, limits=limits or ArchiveLimits())

    def wait_for_release(self) -> None:
        """Until the log has nothing below what was archived first."""
        wait_for_release(self.client, "two", dict(self.places.values()))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """100 events in the lake alone, 100 in both, 100 in the log alone."""
    with broker_in_a_thread(tmp_path / "data") as url, gapless.sync.connect(url) as client:
        root = tmp_path / "lake"
        made = Stage(client, Replay(Lake(root, "two"), TopicLog(url, "two")), {}, root)
        made.archive()
        made.fill(0, 100)
        made.archive(ArchiveLimits(slice_us=1_000))
        made.wait_for_release()
        with client.subscribe("two", name="holder"):
            pass
        made.fill(100, 100)
        made.archive()
        made.fill(200, 100)
        yield made


def numbers(replay: Replay, start: Token | None = None, end: Token | None = None) -> list[object]:
    return [event.attributes["i"] for event in replay_events(replay, plan(replay, start, end))]


def test_every_interval_is_whole_and_in_order_wherever_the_seam_is(stage: Stage) -> None:
    planned = plan(stage.replay)
    assert {bool(part.path) for part in planned.ranges} == {True, False}
    assert not planned.lost
    assert {pubend for pubend, _ in stage.places.values()} == set(PUBENDS)
    found = numbers(stage.replay)
    assert sorted(found, key=str) == sorted(range(300), key=str)
    for pubend in PUBENDS:
        mine = [n for n, (where, _) in stage.places.items() if where == pubend]
        assert [n for n in found if n in mine] == mine
        for low, high in ((0, 3), (1, -1), (len(mine) // 3, len(mine) // 2), (-5, -1)):
            start, end = Token({pubend: stage.places[mine[low]][1]}), stage.places[mine[high]][1]
            wanted = mine[low:high]
            assert numbers(stage.replay, start, Token({pubend: end})) == wanted
            even = replace(stage.replay, condition="even")
            assert numbers(even, start, Token({pubend: end})) == [n for n in wanted if n % 2 == 0]


def test_what_was_archived_and_released_after_the_plan_comes_from_the_lake(stage: Stage) -> None:
    planned = plan(stage.replay)
    stage.client.unsubscribe("holder")
    stage.archive()
    stage.wait_for_release()
    found = sorted(int(e.attributes["i"]) for e in replay_events(stage.replay, planned))
    assert found == list(range(300))
    without = replace(stage.replay, lake=None)
    with pytest.raises(LostError, match="two/"):
        list(
            replay_events(
                without, replace(planned, ranges=[p for p in planned.ranges if not p.path])
            )
        )


def test_what_neither_has_is_an_error_or_left_out(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    with broker_in_a_thread(tmp_path / "data") as url, gapless.sync.connect(url) as client:
        source = TopicLog(url, "t")
        first, second = client.publish_many("t", [({"i": i}, b"") for i in range(2)])
        wait_for_release(client, "t", {"t/0": second.tick})  # nobody wants them
        archive(source, root)
        client.publish("t", {"i": 2})
        archive(source, root)
        early = Token({"t/0": first.tick})
        for replay in (Replay(Lake(root, "t"), source), Replay(Lake(root, "t"), None)):
            assert numbers(replay) == [2]
            with pytest.raises(LostError, match=rf"t/0 \[{first.tick}, "):
                numbers(replay, early)
            assert numbers(replace(replay, lost="skip"), early) == [2]
            with pytest.raises(UsageError, match="settled up to"):
                plan(replay, end=Token({"t/0": 1 << 62}))


def test_ranges_follow_each_other_around_what_the_lake_has_and_has_lost() -> None:
    files = (LakeFile("a", 20, 30, 1, 1), LakeFile("b", 40, 50, 1, 1))
    covered = Coverage(10, 60, ((30, 35), (55, 58)), files)
    found = ReplayPlan([], [])
    add_ranges(found, "p", (5, 70), covered, has_log=True)
    assert found.ranges == [
        ReplayRange("p", 5, 10),
        ReplayRange("p", 20, 30, "a"),
        ReplayRange("p", 40, 50, "b"),
        ReplayRange("p", 60, 70),
    ]
    assert found.lost == [ReplayRange("p", 30, 35), ReplayRange("p", 55, 58)]
    found = ReplayPlan([], [])
    add_ranges(found, "p", (32, 45), covered, has_log=True)
    assert (found.ranges, found.lost) == (
        [ReplayRange("p", 40, 45, "b")],
        [ReplayRange("p", 32, 35)],
    )
    found = ReplayPlan([], [])
    add_ranges(found, "p", (60, 70), covered, has_log=False)
    assert (found.ranges, found.lost) == ([], [ReplayRange("p", 60, 70)])


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_workers_read_the_same_rows(spark: SparkSession, stage: Stage) -> None:
    even = replace(stage.replay, condition="even")
    rows = replay_rows(spark, even, plan(even))
    places = {n: place for n, place in stage.places.items() if n % 2 == 0}
    found = {row["i"]: (row["pubend"], row["tick"]) for row in rows.collect()}
    assert found == places
    assert rows.count() == len(places)
