"""Links leave files for the log, however many or few the system grants."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from gapless.broker.descriptors import KEPT
from gapless.core.client_messages import Receipt, Refused
from gapless.core.messages import Message
from tests.broker.stage import ByHand, make_broker, publication, run
from tests.storage.test_disk_failures import no_descriptor

if TYPE_CHECKING:
    from pathlib import Path

SHOW = """
import resource, sys
from gapless.broker.descriptors import ask_for_more, links_max, open_files_max
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
ask_for_more()
print(open_files_max(), links_max(10_000))
"""


@pytest.mark.parametrize(
    ("soft", "hard", "links"),
    [(500, 1_000, 1_000 - KEPT), (100, 100, 50)],
    ids=["as many as are granted", "half of few"],
)
def test_some_of_all_files_that_may_be_open_are_kept_from_links(
    soft: int, hard: int, links: int
) -> None:
    command = [sys.executable, "-c", SHOW, str(soft), str(hard)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(hard), str(links)]


def test_where_no_file_may_be_opened_clients_are_told_to_try_later_and_the_log_says_what_to_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker:
            peer = await ByHand.connect(broker)

            async def answer() -> Message:
                peer.send(publication(body=b"x" * 1_000_000))
                return (await peer.read_until(Message))[-1]

            with no_descriptor():
                for _ in range(40):  # until a segment is full
                    if isinstance(told := await answer(), Refused):
                        break
            assert isinstance(told, Refused)
            assert told.retry
            assert "it may open no more files" in told.problem
            assert any("ulimit -n" in str(vars(each).get("reason")) for each in caplog.records)
            assert isinstance(await answer(), Receipt)
        await peer.read_all()

    run(main())
