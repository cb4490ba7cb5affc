"""Delivery after failures, with the whole protocol: every broker subscribes to everything.

Theory of operation
    All brokers come up, each subscribes, some crash for good, and when the others have noticed each
    publishes once. What counts is how many of the deliveries between live brokers happen within
    the time that follows, without anybody returning.

Source: SRDS 2011, sec. IX-B, figure 10.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.sim.experiments.partitions_graph import brokers_of
from gapless.sim.tree.options import MILLISECOND, TreeOptions
from gapless.sim.tree.run import TreeRun
from gapless.tree.settings import TreeSettings

if TYPE_CHECKING:
    from collections.abc import Collection

    from gapless.core.identity import BrokerName
    from gapless.tree.messages import Edge

SECOND = 1_000 * MILLISECOND


def delivered_share(
    edges: tuple[Edge, ...], failed: Collection[BrokerName], failures_tolerated: int, seed: int
) -> float:
    """Which share of the deliveries between live brokers is made while the failed are away?"""
    settings = TreeSettings(failures_tolerated=failures_tolerated)
    options = TreeOptions(
        brokers=tuple(brokers_of(edges)), edges=edges, settings=settings, is_checked=False
    )
    run = TreeRun(seed, options)
    run.start()
    run.stage.run(2 * SECOND)
    live = [p for name, p in run.world.processes.items() if name not in failed]
    for process in run.world.processes.values():
        process.subscribe("")
        run.stage.run(20 * MILLISECOND)
    run.stage.run(2 * SECOND)
    for name in failed:
        run.world.processes[name].crash()
    run.stage.run(4 * (failures_tolerated + 1) * SECOND)
    for process in live:
        process.publish({"k": 1})
        run.stage.run(20 * MILLISECOND)
    run.stage.run(5 * SECOND)
    own = len(live)  # each gets its own publication, whatever happens
    return (run.ledger.deliveries - own) / (len(live) * (len(live) - 1))
