"""A broker's clock: the wall clock, in whole microseconds. It may jump; the node copes."""

from __future__ import annotations

import time

from gapless.core.identity import Instant


def read() -> Instant:
    return Instant(time.time_ns() // 1_000)
