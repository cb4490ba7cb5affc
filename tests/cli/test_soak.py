"""`gapless soak`: which blows fall, and what is said at the end."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

import gapless
from gapless.cli import app
from gapless.cli.soak import show
from gapless.core.errors import UsageError
from gapless.core.events import Event
from gapless.core.identity import PubendName, TopicName
from gapless.core.ticks import Span, Tick
from gapless.node.config import Config
from gapless.testing.processes.service_soak import NETWORKS, Feed, Reader
from gapless.testing.processes.soak import BLOWS, BROKERS, KILLS, LINKS, SoakSummary, draw

if TYPE_CHECKING:
    from pathlib import Path


def test_the_seed_gives_the_blows_and_each_falls_before_any_falls_again() -> None:
    drawn = draw(1, 2 * len(BLOWS))
    assert drawn == draw(1, 2 * len(BLOWS)) != draw(2, 2 * len(BLOWS))
    assert sorted(drawn[: len(BLOWS)]) == sorted(BLOWS)
    assert set(Counter(drawn).values()) == {2}
    assert set(draw(1, 5, KILLS)) == {f"kill {name}" for name in BROKERS}


def test_every_link_of_the_network_may_be_struck_and_the_first_name_dials() -> None:
    assert len(LINKS) == len(set(LINKS)) == 7
    assert all(dialler < dialled for dialler, dialled in LINKS)
    assert {f"cut {dialler}:{dialled}" for dialler, dialled in LINKS} <= set(BLOWS)


@pytest.mark.slow
def test_a_short_soak_keeps_its_data_and_says_how_it_went(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    options = ["--cycles", "2", "--only", "leave", "--json", "--keep-data", str(folder)]
    result = CliRunner().invoke(app, ["soak", *options])
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert (said["cycles"], said["blows"], said["problem"]) == (2, {"leave": 2}, "")
    assert said["deliveries"] > 0
    assert "2 of 2" in result.stderr
    for name in BROKERS:
        assert "broker stopped" in (folder / name / "log").read_text(encoding="utf-8")


def test_a_blow_that_there_is_not_is_refused() -> None:
    result = CliRunner().invoke(app, ["soak", "--only", "tickle"])
    assert isinstance(result.exception, UsageError)
    assert "no blow begins with 'tickle'" in str(result.exception)


def test_a_broken_promise_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    show(SoakSummary(7, problem="no gap: desk never got 5"))
    output = " ".join(capsys.readouterr().out.split())
    assert "seed 7" in output
    assert "broken: no gap: desk never got 5" in output


def test_a_service_is_named_and_brokers_are_counted_where_it_has_some() -> None:
    result = CliRunner().invoke(app, ["soak", "--service", "carrier pigeon"])
    assert result.exit_code == 2
    assert "is none of durable, reliable, multicast, all" in " ".join(result.output.split())
    result = CliRunner().invoke(app, ["soak", "--brokers", "6"])
    assert result.exit_code == 2


@pytest.mark.parametrize("service", NETWORKS)
def test_no_blow_of_a_service_falls_on_a_broker_whose_clients_are_judged(service: str) -> None:
    network = NETWORKS[service]()
    struck = {name for blow in network.blows for name in blow.split()[1:]}
    assert struck == {*network.struck}
    assert struck.isdisjoint((*network.feeds, *network.readers))
    assert {*network.brokers} >= struck | {*network.feeds, *network.readers}


def test_a_ring_of_a_soak_is_larger_than_a_leaf_set() -> None:
    assert len(NETWORKS["multicast"]().brokers) > Config().multicast_leaf_set_size + 1


def reader(*, is_whole: bool = True) -> Reader:
    feed = Feed("f", "t")
    feed.uncertain = {4}
    return Reader("r", "t", {"f": feed}, is_whole=is_whole)


def event(number: int) -> Event:
    attributes = {"feed": "f", "i": number}
    return Event(attributes, b"", TopicName("t"), PubendName("t/0"), Tick(number))


GAP = gapless.Gap(TopicName("t"), PubendName("t/0"), Span(1, 2))


@pytest.mark.parametrize(
    ("items", "problem"),
    [
        ([event(1), event(2), event(3)], ""),
        ([event(3), event(5)], ""),  # 4 was not answered
        ([event(1), GAP, event(3)], ""),
        ([event(1), event(3)], "never got f 2"),
        ([event(1), GAP, event(2), event(6)], "never got f 3"),
        ([event(2), event(1)], "got f 1 after 2"),
        ([event(1), event(1)], "got f 1 after 1"),
    ],
)
def test_what_a_reader_gets_is_judged(items: list[Event | gapless.Gap], problem: str) -> None:
    judged = reader()
    for item in items:
        judged.take(item)
    assert problem in judged.problem
    assert bool(problem) == bool(judged.problem)


def test_without_order_something_may_lack_and_nothing_comes_twice() -> None:
    judged = reader(is_whole=False)
    for item in (event(1), event(3)):
        judged.take(item)
    assert not judged.problem
    judged.take(event(3))
    assert judged.problem


@pytest.mark.slow
def test_a_short_soak_of_a_reliable_tree_keeps_its_promises() -> None:
    options = ["--service", "reliable", "--brokers", "6", "--cycles", "1", "--only", "kill"]
    result = CliRunner().invoke(app, ["soak", *options, "--json"])
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert (said["cycles"], said["problem"]) == (1, "")
    assert said["deliveries"] > 0
