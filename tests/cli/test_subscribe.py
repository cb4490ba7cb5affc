"""`gapless subscribe` with a name: killed and run again, it has each event once."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from datetime import UTC, datetime
from subprocess import DEVNULL
from typing import TYPE_CHECKING

import pytest

import gapless
from gapless.cli.subscribe import where_from
from tests.children import PATIENCE_S, PROGRAM, child, warned
from tests.cli.test_serve import gapless as command
from tests.cli.test_serve import serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gapless.sync import Publisher

KILLS = 3


def test_a_start_is_a_word_a_token_or_a_time() -> None:
    assert where_from("latest", None, None) == "latest"
    assert where_from('{"t/0":5}', None, None) == '{"t/0":5}'
    assert where_from("1970-01-01T00:00:01Z", None, None) == datetime(1970, 1, 1, 0, 0, 1, 0, UTC)
    local = where_from("2026-01-31", None, None)
    assert isinstance(local, datetime)
    assert local.tzinfo is not None, "a time without a zone is a local one"
    with pytest.raises(gapless.UsageError, match="'soon' is no place to start"):
        where_from("soon", None, None)


@contextmanager
def subscribing(*arguments: str) -> Iterator[None]:
    """A `gapless subscribe` that is attached; killed at the end."""
    with child([*PROGRAM, "subscribe", *arguments], stdout=DEVNULL) as process:
        assert "subscribed to" in warned(process)
        yield


def wait_until(condition: Callable[[], bool]) -> None:
    """Poll; whoever waits too long has failed."""
    tick, deadline = threading.Event(), threading.Event()
    timer = threading.Timer(PATIENCE_S, deadline.set)
    timer.start()
    try:
        while not condition():
            assert not deadline.is_set(), "it did not come about"
            tick.wait(0.005)
    finally:
        timer.cancel()


def feed(publisher: Publisher, stop: threading.Event) -> None:
    while not stop.wait(0.005):
        publisher.send_many([({"i": publisher.sequence}, b"")])
    publisher.flush()


@pytest.mark.slow
def test_a_journal_with_a_token_file_has_each_event_once_however_often_it_is_killed(
    tmp_path: Path,
) -> None:
    journal, stop = tmp_path / "journal", threading.Event()
    journal.touch()
    files = ("--token-file", str(tmp_path / "token"), "--journal", str(journal))

    def size() -> int:
        return journal.read_bytes().count(b"\n")

    with (
        serving(tmp_path / "data", "--topic", "t") as (url, _),
        gapless.sync.connect(url) as client,
        client.publisher("t", name="feed") as publisher,
    ):
        arguments = ("t", "i >= 0", "--name", "desk", *files, "--url", url)
        with subscribing(*arguments):  # it exists, and its token is kept
            wait_until((tmp_path / "token").exists)
        load = threading.Thread(target=feed, args=(publisher, stop))
        load.start()
        try:
            for _ in range(KILLS):
                with subscribing(*arguments):
                    before = size()
                    wait_until(lambda before=before: size() > before + 50)  # type: ignore[misc]
        finally:
            stop.set()
            load.join()
        with subscribing(*arguments):
            wait_until(lambda: size() >= publisher.sequence)
        seen = [json.loads(line)["attributes"]["i"] for line in journal.read_text().splitlines()]
        assert seen == list(range(publisher.sequence))


def test_a_name_lets_the_broker_keep_the_token_and_is_listed_until_it_is_ended(
    tmp_path: Path,
) -> None:
    with serving(tmp_path, "--topic", "t") as (url, _), gapless.sync.connect(url) as client:
        with subscribing("t", "i > 0", "--name", "desk", "--url", url):
            (found,) = json.loads(listed(tmp_path, "--json"))["serve"]
            assert (found["name"], found["topic"], found["condition"]) == ("desk", "t", "i > 0")
            assert (found["attached"], found["tokens"]) == (True, "broker")
        client.publish_many("t", [({"i": i}, b"") for i in range(4)])
        command_line = ("subscribe", "t", "i > 0", "--name", "desk", "--json", "--url", url)
        for count, expected in (("1", [1]), ("2", [2, 3])):
            result = command(*command_line, "--count", count)
            lines = map(json.loads, result.stdout.splitlines())
            assert [line["attributes"]["i"] for line in lines] == expected, result.stderr
        wait_until(lambda: "state=away" in listed(tmp_path))
        assert listed(tmp_path).startswith("name=desk  broker=serve  topic=t  condition=i > 0")
        altered = command("subscription", "alter", "desk", "i > 1", "--json", "--url", url)
        assert json.loads(altered.stdout)["condition"] == "i > 1", altered.stderr
        again = command("subscription", "alter", "desk", "i > 1", "--url", url)
        tick = json.loads(altered.stdout)["from"]["t/0"]
        assert again.stdout == f"desk is altered from these ticks on:\n  t/0: {tick}\n"
        assert "condition=i > 1" in listed(tmp_path)
        assert command("unsubscribe", "desk", "--url", url).stdout == "desk is unsubscribed\n"
        assert listed(tmp_path) == ""
        again = command("unsubscribe", "desk", "--url", url)
        assert (again.returncode, "no subscription 'desk'" in again.stderr) == (1, True)


def test_one_name_for_two_topics_on_the_command_line_and_without_a_loop(tmp_path: Path) -> None:
    with (
        serving(tmp_path, "--topic", "orders", "--topic", "trades") as (url, _),
        gapless.sync.connect(url) as client,
    ):
        with client.subscribe(["trades", "orders"], "i > 0", name="desk", order="total") as desk:
            assert desk.topics == ("orders", "trades")
            receipts = [
                client.publish(topic, {"i": i})
                for i, topic in enumerate(("trades", "orders", "trades", "orders"))
            ]
            taken = [item for item in desk.take(PATIENCE_S) if isinstance(item, gapless.Event)]
            while len(taken) < 3:
                taken += [each for each in desk.take(PATIENCE_S) if isinstance(each, gapless.Event)]
            assert [(each.topic, each.attributes["i"]) for each in taken] == [
                ("orders", 1), ("trades", 2), ("orders", 3),
            ]  # fmt: skip
            token = desk.token.to_json()
        listing = listed(tmp_path).splitlines()
        assert [line.split("  ")[0] for line in listing] == ["name=desk", "name=desk/trades"]
        where = ("--data", str(tmp_path), "--json")
        for number, topic, verdict in ((0, "trades", "filtered"), (2, "trades", "sent")):
            event = f"{receipts[number].pubend}:{receipts[number].tick}"
            told = json.loads(command("why", topic, event, "desk", *where).stdout)
            assert told["verdict"] == verdict, told
        client.publish("trades", {"i": 4})
        arguments = ("subscribe", "trades,orders", "i > 0", "--name", "desk", "--total", "--json")
        kept = tmp_path / "token"
        kept.write_text(token, encoding="utf-8")
        got = command(*arguments, "--token-file", str(kept), "--count", "1", "--url", url)
        assert [json.loads(line)["attributes"]["i"] for line in got.stdout.splitlines()] == [4]
        refused = command("subscribe", "trades,orders", "--name", "g", "--share-by", "i")
        assert "a group is on one topic" in refused.stderr
        altered = command("subscription", "alter", "desk", "i > 5", "--json", "--url", url)
        assert set(json.loads(altered.stdout)["from"]) == {"orders/0", "trades/0"}
        assert command("unsubscribe", "desk", "--url", url).stdout == "desk is unsubscribed\n"
        assert listed(tmp_path) == ""


def test_a_token_file_of_another_topic_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    token, journal = tmp_path / "token", tmp_path / "journal"
    topics = ("--topic", "t", "--topic", "other")
    with serving(tmp_path / "data", *topics) as (url, _):
        for file, text in ((token, '{"other/0":5}'), (journal, '{"pubend":"other/0","tick":4}')):
            token.write_text('{"t/0":5}')
            journal.write_text("")
            file.write_text(f"{text}\n")
            before = token.read_text()
            files = ("--token-file", str(token), "--journal", str(journal))
            result = command("subscribe", "t", "--name", "desk", *files, "--url", url)
            assert result.returncode == 1
            assert "names 'other/0', which topic 't' does not have: it has t/0" in result.stderr
            assert token.read_text() == before
        assert listed(tmp_path / "data") == ""


def listed(data: Path, *options: str) -> str:
    return command("subscriptions", "--data", str(data), *options).stdout


def test_whoever_cannot_keep_the_token_ends_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "token.new").mkdir()  # where the next token is written before it counts
    with serving(tmp_path / "data", "--topic", "trades") as (url, _):
        ended = command(
            *("subscribe", "trades", "--name", "desk", "--url", url),
            *("--token-file", str(tmp_path / "token")),
        )
    assert ended.returncode == 1
    assert "cannot write" in ended.stderr
    assert "Traceback" not in ended.stderr
