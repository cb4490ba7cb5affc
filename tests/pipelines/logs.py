"""What tests of pipelines wait for at a broker."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.children import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gapless.sync import Client


def wait_for_release(client: Client, topic: str, last: Mapping[str, int]) -> None:
    """Until the log of each pubend has nothing up to its last tick."""
    end_s = time.monotonic() + PATIENCE_S
    while any(client.positions(topic)[pubend][0] <= tick for pubend, tick in last.items()):
        assert time.monotonic() < end_s, "nothing is released"
