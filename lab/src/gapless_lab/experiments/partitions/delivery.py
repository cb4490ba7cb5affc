"""Delivery after failures, with the whole protocol: every broker subscribes to everything.

Theory of operation
    All brokers come up, each subscribes, some crash for good, and when the others have noticed each
    publishes once. What counts is how many of the deliveries between live brokers happen within
    the time that follows, without anybody returning. Live brokers that are cut off from each other
    count as not delivered, as in the paper: its 97 % are of what would be delivered had there been
    no disconnections.
    `repeats` and `tags` are the machine's settings: with `trail` much is held that could go; tags
    count if subscriptions are `is_late`, made after the failures (decision 0017).
    With `subscribers`, so many of the live brokers subscribe, evenly spread over the tree, and what
    counts is what they get: each run costs a fraction, and the share is that of a sample of pairs.

Source: SRDS 2011, sec. IX-B, figure 10. There brokers publish for 120 s; here each publishes once,
since what cannot come at first cannot come later either while nobody returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from gapless.testing.tree.options import MILLISECOND, TreeOptions
from gapless.testing.tree.run import TreeRun
from gapless.tree.settings import TreeSettings
from gapless_lab.experiments.partitions.graph import brokers_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from gapless.core.identity import BrokerName
    from gapless.testing.tree.world import TreeProcess
    from gapless.tree.messages import Edge

SECOND = 1_000 * MILLISECOND


def delivered_share(
    edges: tuple[Edge, ...],
    failed: Collection[BrokerName],
    failures_tolerated: int,
    seed: int,
    *,
    repeats: Literal["source", "trail"] = "source",
    tags: Literal["literal", "scoped"] = "scoped",
    subscribers: int | None = None,
    is_late: bool = False,
) -> float:
    """Which share of the deliveries between live brokers is made while the failed are away?"""
    settings = TreeSettings(failures_tolerated=failures_tolerated, repeats=repeats, tags=tags)
    options = TreeOptions(
        brokers=tuple(brokers_of(edges)), edges=edges, settings=settings, is_checked=False
    )
    run = TreeRun(seed, options)
    run.start()
    run.stage.run(2 * SECOND)
    live = [p for name, p in run.world.processes.items() if name not in failed]
    taking = live if subscribers is None else live[:: max(1, len(live) // subscribers)]
    subscribing = list(run.world.processes.values()) if subscribers is None else taking
    if not is_late:
        _subscribe(run, subscribing)
    for name in failed:
        run.world.processes[name].crash()
    run.stage.run(4 * (failures_tolerated + 1) * SECOND)
    if is_late:
        _subscribe(run, subscribing)
    for process in live:
        process.publish({"k": 1})
        run.stage.run(20 * MILLISECOND)
    run.stage.run(5 * SECOND)
    own = len(taking)  # each gets its own publication, whatever happens
    return (run.ledger.deliveries - own) / (len(taking) * (len(live) - 1))


def _subscribe(run: TreeRun, processes: list[TreeProcess]) -> None:
    for process in processes:
        process.subscribe("")
        run.stage.run(20 * MILLISECOND)
    run.stage.run(2 * SECOND)
