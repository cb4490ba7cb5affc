"""`gapless demo` with real processes: its account is honest, and nothing is left behind."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest
from rich.console import Console
from typer.testing import CliRunner

from gapless.cli import app
from gapless.cli.audit import read_subscriptions, verdict_table
from gapless.client.delivery import Gap
from gapless.core.events import Event
from gapless.core.identity import PubendName, PublisherName, TopicName
from gapless.core.ticks import Span, Tick
from gapless.core.token import Token
from gapless.pipelines.verdict import Verdict
from gapless.testing.journals import Session
from gapless_lab.demo.lake import LakeQuery, why_no_spark
from gapless_lab.demo.market import Account, Desk, Feed
from gapless_lab.demo.story import ROLES, Story, write_journals
from gapless_lab.demo.view import LiveView, brokers_table, desks_table, result_table, verdict
from tests.children import child

if TYPE_CHECKING:
    from gapless.core.events import Attributes

TRADES: list[Attributes] = [{"price": price} for price in (10, 30, 20, 40)]


def event(number: int, price: int | None = None) -> Event:
    attributes = TRADES[number] if price is None else {"price": price}
    place = TopicName("trades"), PubendName("trades/0"), Tick(number)
    return Event(attributes, b"", *place, PublisherName("feed"), number)


def account(*got: Event, gaps: int = 0) -> Account:
    desk = Desk("d", "price > 15", "west")
    gap = Gap(TopicName("trades"), PubendName("trades/0"), Span(0, 1))
    desk.journal.sessions.append(Session({}, None, [*got, *[gap] * gaps]))
    return desk.account(TRADES)


def test_an_account_names_every_kind_of_wrong() -> None:
    assert account(event(1), event(2), event(3)) == Account(3, 3, 0, 0, 0, 0, 0)
    assert account(event(1), event(3)) == Account(3, 2, 1, 0, 0, 0, 0)
    assert account(event(1), event(1), event(2), event(3)) == Account(3, 4, 0, 1, 0, 0, 0)
    assert account(event(2), event(1), event(3)) == Account(3, 3, 0, 0, 1, 0, 0)
    assert account(event(0), event(1), event(2), event(3)) == Account(3, 4, 0, 0, 0, 1, 0)
    assert account(event(1, price=31), event(2), event(3)) == Account(3, 3, 1, 0, 0, 1, 0)
    assert account(event(1), event(2), event(3), gaps=1).is_right is False
    assert account(event(1), event(2), event(3)).is_right
    assert not Account(0, 0, 0, 0, 0, 0, 0).is_right, "nothing owed proves nothing"


def test_the_same_seed_gives_the_same_trades() -> None:
    def trades(seed: int) -> list[Attributes]:
        feed = Feed(seed, 100)
        return [feed.trade() for _ in range(50)]

    assert trades(1) == trades(1) != trades(2)


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_nobody_misses_anything_though_two_brokers_and_a_spark_driver_are_killed(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "kept"
    arguments = ["demo", "--seconds", "6", "--json", "--keep-data", str(folder)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert said["right"] is True
    assert sorted(said["killed"]) == ["relay-1", "the Spark driver", "west"]
    assert len(said["subscribers"]) == 5
    assert said["subscribers"]["lake"]["delivered"] == said["published"]
    assert [each["ok"] for each in said["audit"]] == [True] * 4
    for each in said["audit"]:
        assert each["expected"] == said["subscribers"][each["subscription"]]["matched"]
    for each in said["subscribers"].values():
        assert each["matched"] == each["delivered"] > 0
    for name in ROLES:
        assert "broker ready" in (folder / name / "log").read_text(encoding="utf-8")
    again = CliRunner().invoke(app, arguments)
    assert again.exit_code == 1, "what is there would be counted again"


def test_what_is_missing_is_shown_and_fails() -> None:
    story = Story(7, 10)
    trade: Attributes = {"symbol": "IBM", "price": 10, "volume": 950, "side": "sell"}
    story.feed.journal.sent.append((trade, b""))
    console = Console(width=80, record=True)
    console.print(result_table(story), verdict(story))
    shown = console.export_text()
    assert not story.is_right
    assert "A promise is broken: please report this, with --seed 7." in shown
    assert "tech" in shown


def test_a_violation_that_the_audit_finds_fails_and_so_does_an_audit_that_never_was(
    tmp_path: Path,
) -> None:
    story = Story(7, 10)
    trade: Attributes = {"symbol": "IBM", "price": 10, "volume": 950, "side": "sell"}
    story.feed.journal.sent.append((trade, b""))
    place = TopicName("trades"), PubendName("trades/0"), Tick(1)
    for desk in story.desks:
        got = Event(trade, b"", *place, PublisherName("feed"), 0)
        desk.journal.sessions.append(Session({"trades/0": 1}, None, [got]))
    found = [story.is_right]
    story.lake = LakeQuery("trades", tmp_path)
    found.append(story.is_right)
    story.verdicts = [Verdict(subscription=desk.name, expected=1) for desk in story.desks]
    found.append(story.is_right)
    story.verdicts[0] = Verdict(subscription="tech", expected=1, lost=1)
    assert [*found, story.is_right] == [True, False, True, False]
    read = read_subscriptions(write_journals(tmp_path, story.desks))
    assert [(each.name, each.condition, each.start) for each in read] == [
        (desk.name, desk.condition, Token({"trades/0": 1})) for desk in story.desks
    ]
    assert json.loads((tmp_path / "tech.jsonl").read_text(encoding="utf-8"))["tick"] == 1


def test_without_java_the_spark_part_is_left_out_and_the_demo_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert asyncio.run(why_no_spark()) == "no Java"
    java = tmp_path / "java"
    for version, lacks in (("1.8.0_402", "no Java 17 or newer"), ("21.0.8", "")):
        java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n", encoding="utf-8")
        java.chmod(0o755)
        assert asyncio.run(why_no_spark()) == lacks
    java.unlink()
    story, told = Story(1, 10), list[str]()
    story._tell = told.append
    asyncio.run(story._wake_spark())
    assert (story.lake, told) == (None, ["no Java: the Spark part is left out"])


def test_all_tables_fit_80_columns_without_folding(tmp_path: Path) -> None:
    story, console = Story(1, 10), Console(width=200, record=True)
    story.lake = LakeQuery("trades", tmp_path)
    verdicts = [Verdict(subscription="traveller", expected=123_456, delivered=123_456, lost=1)]
    console.print(brokers_table(story), desks_table(story), result_table(story))
    console.print(verdict_table(verdicts))
    assert max(map(len, console.export_text().splitlines())) <= 80


def test_the_live_view_shows_what_happened_and_who_is_there() -> None:
    console = Console(width=80, height=50, record=True, force_terminal=True)
    view = LiveView(Story(1, 10), console)
    with view.shown():
        view.tell("west is back, with its disk")
    shown = console.export_text()
    assert "west is back, with its disk" in shown
    assert "volume >= 900" in shown


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_ctrl_c_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    # A shell that runs us in the background has us ignore it; on a terminal it counts.
    heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    command = [sys.executable, "-c", f"{heed}; from gapless.cli import main; main()", "demo"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with child(command, stderr=subprocess.STDOUT, env=environment) as demo:
        assert demo.stdout is not None
        assert any("brokers are ready" in line for line in demo.stdout)
        (folder,) = tmp_path.glob("gapless-*")
        told = [json.loads((folder / name / "address.json").read_text()) for name in ROLES]
        demo.send_signal(signal.SIGINT)
        assert demo.wait() == 130
    assert not folder.exists()
    for each in told:
        with pytest.raises(ProcessLookupError):
            os.kill(each["process"], 0)
    assert not processes_of(folder), "nor the driver"


@pytest.mark.slow
def test_the_network_stays_until_ctrl_c_and_a_killed_broker_comes_back(tmp_path: Path) -> None:
    heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = [sys.executable, "-c", f"{heed}; from gapless.cli import main; main()"]
    command = [*program, "demo", "--stay", "--no-spark", "--seconds", "5"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with child(command, stderr=subprocess.STDOUT, env=environment) as demo:
        assert demo.stdout is not None
        lines = iter(demo.stdout)

        def said(pattern: str) -> str:
            """What stands in the brackets of the first line that has this."""
            return next(found[1] for line in lines if (found := re.search(pattern, line)))

        console = said(r"the console of all brokers, for a browser: (http://\S+)")
        assert said(r"(Every subscriber got every matching trade)"), "before the network stays"
        assert said(r"The network stays, .* (http://\S+)") == console
        assert sorted(brokers_at(console)) == sorted(ROLES)
        os.kill(int(said(r"kill -9 (\d+)   \(relay-1")), signal.SIGKILL)
        while brokers_at(console)["relay-1"]["figures"] is not None:
            pass  # the console has not noticed yet
        assert said(r"relay-1 ended with code (-9)")
        assert said(r"(relay-1) is back, with its disk")
        os.kill(int(said(r"to kill it again: kill -9 (\d+)")), 0)
        (folder,) = tmp_path.glob("gapless-*")
        demo.send_signal(signal.SIGINT)
        assert said(r"(all brokers have stopped)")
        assert demo.wait() == 0
    assert not folder.exists()
    assert not processes_of(folder)


def brokers_at(console: str) -> dict[str, Any]:
    """What the console of a network shows of each broker."""
    with urlopen(f"{console}console/figures") as answer:
        brokers: dict[str, Any] = json.loads(answer.readline().removeprefix(b"data: "))["brokers"]
        return brokers


def processes_of(folder: Path) -> list[str]:
    """Those with this folder among their arguments."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it is gone
            found += [text for text in [file.read_text(errors="replace")] if str(folder) in text]
    return found
