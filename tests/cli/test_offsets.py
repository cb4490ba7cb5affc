"""`gapless spark offsets` says where a query stands, and what it would lose."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import gapless
from gapless.spark.checkpoint import batch_end, last_commit
from tests.cli.test_pipeline import command, ok, publish
from tests.pipelines.logs import wait_for_release
from tests.test_sync import broker_in_a_thread

if TYPE_CHECKING:
    from pathlib import Path


def commit(checkpoint: Path, number: int, token: dict[str, int | str]) -> None:
    """As Spark writes it: an offset before the batch, a commit after it."""
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True, exist_ok=True)
    lines = ["v1", '{"batchWatermarkMs":0}', json.dumps(token)]
    (checkpoint / "offsets" / str(number)).write_text("\n".join(lines), encoding="utf-8")
    (checkpoint / "commits" / str(number)).write_text("v1\n{}", encoding="utf-8")


def test_a_query_is_behind_by_what_it_has_not_read_and_a_loss_is_an_exit_code(
    tmp_path: Path,
) -> None:
    checkpoint = tmp_path / "checkpoint"
    with broker_in_a_thread(tmp_path / "data") as url, gapless.sync.connect(url) as client:
        with client.subscribe("t", name="keeper", start="earliest"):
            pass
        ticks = publish(url, 0, 10)
        commit(checkpoint, 0, {"t/0": ticks[0]})
        commit(checkpoint, 1, {"t/0": ticks[4]})
        (checkpoint / "offsets" / "2").write_text("v1\n{}\n{}", encoding="utf-8")  # not committed
        assert f"tick={ticks[4]}" in ok("spark", "offsets", checkpoint, "--offline")
        compared = ("spark", "offsets", checkpoint, "--url", url, "--json")
        found = json.loads(ok(*compared))
        assert found["batch"] == 1
        assert found["pubends"][0]["behind_s"] >= (ticks[-1] - ticks[4] >> 10) / 1e6
        assert found["pubends"][0]["lost_s"] == 0
        assert found["pubends"][0]["behind_events"] == 6
        client.unsubscribe("keeper")
        wait_for_release(client, "t", {"t/0": ticks[-1]})
        result = command(*compared)
        assert result.exit_code == 1
        assert json.loads(result.stdout)["pubends"][0]["lost_s"] > 0


def test_a_query_is_moved_by_one_more_commit_and_what_it_skips_is_said_first(
    tmp_path: Path,
) -> None:
    checkpoint = tmp_path / "checkpoint"
    with broker_in_a_thread(tmp_path / "data") as url, gapless.sync.connect(url) as client:
        with client.subscribe("t", name="keeper", start="earliest"):
            pass
        ticks = publish(url, 0, 10)
        commit(checkpoint, 3, {"t/0": ticks[4], "query": "q"})
        moving = ("spark", "offsets", checkpoint, "--url", url, "--to")
        told = ok(*moving, "latest")
        assert "skips 6 events" in told
        assert "add --yes" in told
        assert batch_end(checkpoint, last_commit(checkpoint)) == gapless.Token({"t/0": ticks[4]})
        wanted = json.dumps({"t/0": ticks[1]})
        told = ok(*moving, wanted, "--yes")
        assert "skips 0 events, reads 3 events again" in told
        assert last_commit(checkpoint) == 4
        assert batch_end(checkpoint, 4) == gapless.Token({"t/0": ticks[1]})
        assert '"query": "q"' in (checkpoint / "offsets" / "4").read_text(encoding="utf-8")
        assert "no place" in str(command(*moving, "yesterday").exception)
        (checkpoint / "state" / "0").mkdir(parents=True)
        assert "keeps state" in str(command(*moving, wanted, "--yes").exception)


def test_a_folder_that_is_no_checkpoint_of_ours_is_refused(tmp_path: Path) -> None:
    assert "no committed batch" in str(command("spark", "offsets", tmp_path).exception)
    commit(tmp_path, 0, {"t/0": 7})
    (tmp_path / "offsets" / "0").write_text('v1\n{}\n{"logOffset":"x"}', encoding="utf-8")
    assert "cannot be read" in str(command("spark", "offsets", tmp_path).exception)
