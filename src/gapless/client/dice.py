"""Dice: the random numbers of a client.

A loop that plays a simulated world has dice of its own (`draw`), so that the same seed takes the
same course. Elsewhere numbers come from the system: processes that were forked must not draw alike.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def draw(limit: int) -> int:
    """A random number from 0 to below `limit`."""
    loop = asyncio.get_running_loop()
    drawn: Callable[[int], int] = getattr(loop, "draw", secrets.randbelow)
    return drawn(limit)
