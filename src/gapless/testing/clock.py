"""A broker's own clock: off from the world's by some offset, which may jump either way.

Theory of operation
    The world has one clock. A broker reads its own, `world + offset`. A jump changes the offset,
    so that a broker may see time stand still, run back or leap; drift is many small jumps.
"""

from __future__ import annotations

from dataclasses import dataclass

from gapless.core.identity import Instant

START = Instant(1_000_000_000_000)
"""Where the world's clock begins: far enough from 0 for any offset."""


@dataclass(slots=True)
class Clock:
    """How one broker's time relates to the world's."""

    offset: int = 0

    def read(self, world_now: Instant) -> Instant:
        return Instant(world_now + self.offset)

    def world_instant(self, local: Instant) -> Instant:
        """When the world's clock will show what is `local` here, if nothing jumps until then."""
        return Instant(local - self.offset)

    def jump(self, by: int) -> None:
        self.offset += by
