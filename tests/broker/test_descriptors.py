"""Links leave files for the log, however many or few the system grants."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gapless.broker.descriptors import KEPT

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
