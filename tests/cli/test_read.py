"""`gapless read` prints what is in the log, or writes it to a file, and says what is lost."""

from __future__ import annotations

import json
from datetime import timedelta, timezone
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from typer.testing import CliRunner

import gapless
from gapless.cli import app
from gapless.client.columns import attributes_of
from gapless.client.errors import LostError
from gapless.core.errors import UsageError
from tests.test_sync import broker_in_a_thread

if TYPE_CHECKING:
    from pathlib import Path


def test_a_range_is_printed_or_written_to_a_file(tmp_path: Path) -> None:
    target = tmp_path / "out.parquet"
    with broker_in_a_thread(tmp_path / "data") as url:
        with gapless.sync.connect(url) as client:
            with client.subscribe("t", name="holder"):
                pass
            client.publish_many("t", [({"i": i}, b"body") for i in range(4)])
            positions = client.positions("t")
        end = json.dumps({name: high for name, (_, high) in positions.items()})
        read = ["read", "t", "i > 0", "--url", url]
        shown = CliRunner().invoke(app, [*read, "--to", end, "--limit", "2", "--json"])
        assert shown.exit_code == 0, shown.output
        lines = [json.loads(line) for line in shown.stdout.splitlines()]
        assert [line["attributes"]["i"] for line in lines] == [1, 2]
        plain = CliRunner().invoke(app, ["read", "t", "--from", end, "--url", url])
        assert (plain.exit_code, plain.stdout) == (0, "")
        assert "nothing that is kept matches" in plain.stderr
        assert "nothing" not in shown.stderr
        written = CliRunner().invoke(app, [*read, "--parquet", str(target)])
        assert written.exit_code == 0, written.output
        rows = pq.read_table(target).to_pylist()
        assert [attributes_of(row["attributes"])["i"] for row in rows] == [1, 2, 3]
        assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["out.parquet"]
        lost = CliRunner().invoke(app, [*read, "--parquet", str(tmp_path / "none" / "x")])
        assert isinstance(lost.exception, UsageError)


def test_what_is_lost_is_an_error_or_a_note_and_the_rest_is_read(tmp_path: Path) -> None:
    with broker_in_a_thread(tmp_path / "data") as url:
        with gapless.sync.connect(url) as client:
            with client.subscribe("t", name="holder") as holder:
                for _ in range(2):
                    last = client.publish("t", {"i": 1})
                    next(iter(holder))
                holder.acknowledge()
            client.publish("t", {"i": 2})
            while all(low <= last.tick for low, _ in client.positions("t").values()):
                pass
        read = ["read", "t", "--url", url]
        old = ["--from", json.dumps(dict.fromkeys(positions_of(url), 1))]
        failed = CliRunner().invoke(app, [*read, *old])
        assert isinstance(failed.exception, LostError)
        assert "--skip-lost" in failed.exception.remedy
        shown = CliRunner().invoke(app, [*read, *old, "--skip-lost", "--json"])
        assert shown.exit_code == 0, shown.output
        assert [json.loads(line)["attributes"] for line in shown.stdout.splitlines()] == [{"i": 2}]
        assert "was released and is lost" in shown.stderr
        oldest = CliRunner().invoke(app, [*read, "--json"])
        assert (oldest.stdout, oldest.stderr) == (shown.stdout, "")


def test_a_time_begins_with_the_first_event_that_is_kept_since_and_ends_before_the_next(
    tmp_path: Path,
) -> None:
    with broker_in_a_thread(tmp_path / "data") as url:
        with (
            gapless.sync.connect(url) as client,
            client.subscribe("t", name="holder") as holder,
        ):
            client.publish_many("t", [({"i": i}, b"") for i in range(3)])
            found = iter(holder)
            events = [each for each in islice(found, 3) if isinstance(each, gapless.Event)]
        middle = events[1].published
        assert middle is not None

        def numbers(*options: str) -> list[int]:
            read = ["read", "t", "--url", url, "--json", *options]
            shown = CliRunner().invoke(app, read)
            assert shown.exit_code == 0, shown.output
            return [json.loads(line)["attributes"]["i"] for line in shown.stdout.splitlines()]

        assert numbers("--from", middle.isoformat()) == [1, 2]
        assert numbers("--to", middle.isoformat()) == [0]
        later = (middle + timedelta(microseconds=1)).astimezone(timezone(timedelta(hours=9)))
        assert numbers("--from", later.isoformat()) == [2]
        assert numbers("--from", "2001-01-01", "--to", "2101-01-01") == [0, 1, 2]
        slip = CliRunner().invoke(app, ["read", "t", "--url", url, "--from", "noon"])
        assert isinstance(slip.exception, UsageError)
        assert "--from 'noon' is neither a time nor a token" in slip.exception.problem


def positions_of(url: str) -> list[str]:
    with gapless.sync.connect(url) as client:
        return list(client.positions("t"))
