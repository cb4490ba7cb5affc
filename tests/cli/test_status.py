"""What brokers say of themselves fits a screen, and who is no broker is no surprise."""

from __future__ import annotations

import io
import socket
import threading
from typing import Any

from rich.console import Console
from typer.testing import CliRunner

from gapless.cli import app
from gapless.cli.status import RING_COLUMNS, ask, brokers_table, rows, whole_table
from gapless.cli.watch import Watch

FIGURES: dict[str, Any] = {
    "ready": True,
    "address": "127.0.0.1:7117",
    "subscriptions": 3,
    "delivered": 12_345,
    "links": {"clients": 2, "brokers_up": [], "brokers_down": []},
    "disk": {"sync_us": 4_000, "syncs": 1, "bytes_on_disk": 67_108_864},
}


def test_a_port_that_does_not_speak_http_is_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"\x00\x00\x00\x01 a frame")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        assert ask(f"127.0.0.1:{server.getsockname()[1]}") is None
        thread.join()


def test_the_table_fits_80_columns_with_nothing_cut_off() -> None:
    console = Console(width=80, file=io.StringIO())
    console.print(brokers_table({"serve": FIGURES, "other": None}))
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "\u2026" not in shown
    assert all(word in shown for word in ("127.0.0.1:7117", "delivered", "12,345", "no answer"))


def test_where_there_are_reliable_topics_the_table_shows_whom_a_broker_sends_to_and_misses() -> (
    None
):
    tree = {"neighbours": 4, "active": ["m", "n"], "unreachable": [["k"], ["k", "j"]]}
    [row, other] = rows({"b": {**FIGURES, "services": {"reliable": tree}}, "c": FIGURES})
    assert {row["near"], row["sessions"], row["unreachable"]} == {"4", "m,n", "j,k"}
    assert "near" not in other
    console = Console(width=120, file=io.StringIO())
    console.print(brokers_table({"b": {**FIGURES, "services": {"reliable": tree}}, "c": FIGURES}))
    assert isinstance(console.file, io.StringIO)
    assert "j,k" in console.file.getvalue()
    narrow = Console(width=80, file=io.StringIO())
    slow = {
        **FIGURES,
        "disk": {**FIGURES["disk"], "sync_us": 16_430},
        "services": {"reliable": tree},
    }
    narrow.print(brokers_table({"b": slow}))
    assert isinstance(narrow.file, io.StringIO)
    assert "16.43ms" in narrow.file.getvalue(), "figures are not broken over lines"


def test_where_there_are_multicast_topics_the_table_shows_the_ring_and_the_trees() -> None:
    ring = {
        "phase": "active",
        "leaf_set": ["c", "d"],
        "routing_table": 7,
        "trees": 9,
        "root_of": 2,
        "forwarding": 3,
    }
    found: dict[str, dict[str, Any] | None] = {
        "b": {**FIGURES, "services": {"multicast": ring}},
        "c": FIGURES,
    }
    [row, other] = rows(found)
    assert [row[each] for each in RING_COLUMNS] == ["active", "2", "7", "2/3/4"]
    assert "ring" not in other
    table = brokers_table(found)
    assert [str(column.header) for column in table.columns][-4:] == list(RING_COLUMNS)


def test_a_broker_that_does_not_show_its_figures_is_not_taken_for_dead() -> None:
    shown = rows({"gone": None, "secret": "not shown"})
    assert [each["state"] for each in shown] == ["no answer", "not shown"]
    assert brokers_table({"secret": "not shown"}).row_count == 1


def test_a_watch_has_rates_topics_and_what_lags() -> None:
    count = iter((100, 300))
    pubends = {"t/0": {"published": 7}, "t/1": {"published": 5}, "far/0": {}}
    lag = {"pending": 3, "pending_is": "at most", "pending_bytes": 2_500, "rate": None,
           "pending_bytes_is": "about", "oldest_pending_s": 300.0, "state": "away",
           "last_contact_s": 8_000.0}  # fmt: skip

    def answer(what: str) -> dict[str, Any]:
        if what == "subscriptions":
            return {"b": [{"name": "desk", "topic": "t", **lag}], "c": None}
        return {"b": {**FIGURES, "pubends": pubends, "published": next(count)}, "c": None}

    watch = Watch(answer)
    assert watch.look()["b"]["rates"] == {"in": None, "out": None}
    found = watch.look()
    assert found["b"]["rates"]["in"] > 0
    assert found["b"]["by_topic"]["t"] == {
        "pubends": 2, "published": 12, "named": 1, "pending": 3, "rate": 0.0,
    }  # fmt: skip
    console = Console(width=90, file=io.StringIO())
    console.print(whole_table(found))
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert all(word in shown for word in ("67.1 MB", "≤ 3", "≈ 2.5 kB", "5.0 min", "no answer"))


def test_a_broker_that_was_started_again_has_no_negative_rate() -> None:
    count = iter((300, 100))
    watch = Watch(
        lambda what: (
            {"b": {**FIGURES, "pubends": {}, "published": next(count)}}
            if what == "statistics"
            else {"b": None}
        )
    )
    watch.look()
    assert watch.look()["b"]["rates"]["in"] is None


def test_whoever_asks_a_broker_that_is_not_there_is_told_at_once_that_it_waits() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"gapless://127.0.0.1:{taken.getsockname()[1]}"
    done = CliRunner().invoke(app, ["status", "--url", url])
    assert done.exit_code != 0
    assert f"waiting for a broker at {url.removeprefix('gapless://')}" in done.stderr
