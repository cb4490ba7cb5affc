"""A holder and its standby as real processes, with a real PostgreSQL, under load."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import TYPE_CHECKING

import pytest

from gapless.testing.processes.postgres import MISSING, REMEDY, PostgresServer, find_programs
from gapless.testing.processes.standby import BLOWS, Pair, soak

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("postgres"),
    pytest.mark.skipif(find_programs() is None, reason=f"{MISSING}. {REMEDY}"),
]


def test_whatever_strikes_the_holder_or_the_store_every_event_comes_once(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    from gapless.storage.replica.postgres import init

    with PostgresServer() as server:
        init(server.url)
        with Pair(server.url, tmp_path) as pair:
            load = asyncio.run(soak(BLOWS, pair, server))
            state = pair.state()
    assert load.verdict() == ""
    assert load.sent > 0
    assert state is not None
    assert state.term >= 1 + len(BLOWS) - 1, "each blow but perhaps that at the store"


def test_a_standby_that_is_told_to_read_its_files_anew_goes_on_standing_by(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    from gapless.storage.replica.postgres import init

    with PostgresServer() as server:
        init(server.url)
        with Pair(server.url, tmp_path) as pair:
            pair.start(0)
            wait_for("is ready", pair, 0)
            pair.start(1)
            wait_for("stands by", pair, 1)
            pair.signal(1, signal.SIGHUP)
            pair.signal(0, signal.SIGTERM)
            wait_for("is ready", pair, 1)


def wait_for(text: str, pair: Pair, side: int) -> None:
    end_s = time.monotonic() + 60
    while text not in pair.log(side):
        assert time.monotonic() < end_s, pair.log(side)
        time.sleep(0.05)
