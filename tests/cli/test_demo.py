"""`gapless demo` with real processes: its account is honest, and nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from rich.console import Console
from typer.testing import CliRunner

from gapless.cli import app
from gapless.cli.demo_view import LiveView, brokers_table, desks_table, result_table, verdict
from gapless.cli.real.market import Account, Desk, Feed
from gapless.cli.real.story import ROLES, Story
from gapless.client.delivery import Gap
from gapless.core.events import Event
from gapless.core.identity import PubendName, PublisherName, TopicName
from gapless.core.ticks import Span, Tick
from gapless.sim.journals import Session

if TYPE_CHECKING:
    from pathlib import Path

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
        return [feed._trade() for _ in range(50)]

    assert trades(1) == trades(1) != trades(2)


@pytest.mark.slow
def test_nobody_misses_anything_though_two_brokers_are_killed(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    arguments = ["demo", "--seconds", "6", "--json", "--keep-data", str(folder)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert said["right"] is True
    assert said["killed"] == ["relay-1", "west"]
    assert len(said["subscribers"]) == 4
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


def test_all_tables_fit_80_columns_without_folding() -> None:
    story, console = Story(1, 10), Console(width=200, record=True)
    console.print(brokers_table(story), desks_table(story), result_table(story))
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
def test_ctrl_c_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    # A shell that runs us in the background has us ignore it; on a terminal it counts.
    heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    demo = subprocess.Popen(
        [sys.executable, "-c", f"{heed}; from gapless.cli import main; main()", "demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert demo.stdout is not None
    assert any("brokers are ready" in line for line in demo.stdout)
    (folder,) = tmp_path.glob("gapless-*")
    told = [json.loads((folder / name / "address.json").read_text()) for name in ROLES]
    demo.send_signal(signal.SIGINT)
    assert demo.wait() == 130
    demo.stdout.close()
    assert not folder.exists()
    for each in told:
        with pytest.raises(ProcessLookupError):
            os.kill(each["process"], 0)
