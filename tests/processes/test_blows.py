"""A real network under load is struck, recovers each time, and keeps its promises.

`make soak` does the same for as long as you like.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from gapless.testing.processes.soak import KILLS, Soak, SoakSummary, draw

if TYPE_CHECKING:
    from gapless.client.delivery import Gap

LINK_BLOWS = (
    "cut host:relay-1",
    "stall relay-1:west",
    "half east:relay-2",
    "cut client:host",
    "stall client:east",
    "cut client:west",
    "hang relay-2",
    "hang west",
    "leave 0",
    "kill relay-1 relay-2",
)


def struck(seed: int, blows: list[str]) -> tuple[SoakSummary, list[Gap]]:
    """What it came to, and what the anonymous subscriber was told to have missed."""
    soak = Soak(seed)
    summary = asyncio.run(soak.run(blows, lambda *_: None))
    return summary, soak.witnesses[-1].journal.gaps


@pytest.mark.slow
def test_brokers_of_every_role_are_killed_twenty_times_and_every_promise_is_kept() -> None:
    summary, gaps = struck(1, draw(1, 20, KILLS))
    assert summary.problem == ""
    assert summary.cycles == summary.blows["kill"] == 20
    assert summary.deliveries > 1_000
    assert 0 < len(gaps) <= 4, "only the death of its own broker, east, is a gap"


@pytest.mark.slow
def test_links_are_cut_stalled_and_lost_and_every_promise_is_kept() -> None:
    summary, gaps = struck(2, [*LINK_BLOWS])
    assert gaps == [], "its own link was not cut"
    assert summary.problem == ""
    assert summary.cycles == len(LINK_BLOWS)
    assert summary.deliveries > 1_000
