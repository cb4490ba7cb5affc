"""A filtered log may be lost with its broker's disk: who holds a token loses nothing by that.

The match pipeline finds what the filtered log had; the decision on lost filtered logs says why it
is not written back into a volume.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

import gapless
from gapless.core.identity import PubendName
from gapless.durable.filtered_log import FilteredLog
from gapless.durable.subscriptions import DurableSubscriptions
from gapless.node.config import Config
from gapless.pipelines.archive import archive, hold_log
from gapless.pipelines.lake import Lake
from gapless.pipelines.match import match_replay
from gapless.pipelines.replay import Replay, plan
from gapless.pipelines.subscription_table import write_subscriptions
from gapless.pipelines.topic_log import TopicLog
from gapless.storage.disk import DiskVolume
from gapless.testing.processes.brokers import cell, topic
from tests.spark.conftest import brokers

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from gapless.core.token import Token

NETWORK = (
    cell("host", ["host"]),
    cell("west", ["west"], "host", subscribers=True),
    cell("east", ["east"], "host", subscribers=True),
    topic("t", "host"),
)
CONDITIONS = {"threes": "kind = 0", "large": "i >= 150"}
COUNT = 300


def wanted(name: str) -> list[int]:
    return [i for i in range(COUNT) if (i % 3 == 0 if name == "threes" else i >= 150)]


def publish(url: str, first: int, end: int) -> None:
    events = [({"i": i, "kind": i % 3}, b"") for i in range(first, end)]
    with gapless.sync.connect(url) as client:
        client.publish_many("t", events)


def take(url: str, name: str, start: Token | str, count: int) -> tuple[list[int], Token]:
    """So many deliveries, without a gap among them, and the token after them."""
    found: list[int] = []
    with (
        gapless.sync.connect(url) as client,
        client.subscribe("t", CONDITIONS[name], name=name, start=start) as subscription,
    ):
        items = iter(subscription)
        while len(found) < count:
            item = next(items)
            assert isinstance(item, gapless.Event), item
            found.append(int(item.attributes["i"]))
        return found, subscription.token


def filtered_ticks(folder: Path) -> set[tuple[str, str, int]]:
    """All that the disk of a stopped broker has in filtered logs."""
    volume, config = DiskVolume(folder), Config()
    try:
        found = set()
        for each in DurableSubscriptions(volume, config).all():
            for pubend in each.since:
                log = FilteredLog(PubendName(pubend), volume, config)
                ticks = log.read(each.number, 0, log.end).wanted
                found |= {(str(each.definition.name), str(pubend), tick) for tick in ticks}
        return found
    finally:
        volume.close()


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_match_finds_what_the_filtered_log_has_and_without_it_nobody_misses_anything(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    with brokers(*NETWORK, start=("host", "west", "east")) as desk:
        host, west, east = (desk.processes.url(name) for name in ("host", "west", "east"))
        source = TopicLog(west, "t")
        hold_log(source, lake)
        with gapless.sync.connect(west) as client, client.subscribe("t", name="keeper"):
            pass  # acknowledges nothing: the log stays
        tokens = {name: take(east, name, "latest", 0)[1] for name in CONDITIONS}
        publish(host, 0, 200)
        got = {}
        for name in CONDITIONS:
            got[name], tokens[name] = take(east, name, tokens[name], 20)
        publish(host, 200, 250)
        assert archive(source, lake) == 250
        for name in CONDITIONS:  # east has settled all of it
            owed = len([i for i in wanted(name) if i < 250]) - 20
            assert take(east, name, tokens[name], owed)[0][-1] == wanted(name)[owed + 19]
        desk.run(desk.processes.stop("east"))

        # The pipeline finds what the filtered log has.
        volume = desk.processes.folder / "east" / "volume"
        table = str(tmp_path / "table")
        write_subscriptions(CONDITIONS.items(), table)
        job = Replay(Lake(lake, "t"), None, "", "raise")
        rows = match_replay(spark, job, plan(job), table).collect()
        assert {tuple(row) for row in rows} == filtered_ticks(volume)
        assert len(rows) == sum(i < 250 for name in CONDITIONS for i in wanted(name))

        # And the broker does without it: what the tokens say is not consumed is filtered anew.
        shutil.rmtree(volume)
        desk.start("east")
        publish(host, 250, COUNT)
        for name in CONDITIONS:
            rest = len(wanted(name)) - 20
            got[name] += take(desk.processes.url("east"), name, tokens[name], rest)[0]
            assert got[name] == wanted(name)
