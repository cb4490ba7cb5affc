"""Delivery after failures, with the whole protocol: every broker subscribes to everything.

Theory of operation
    All brokers come up and all subscribe, also those that will fail. Then some crash for good, and
    from that moment on the live brokers publish for 120 s, in turn and evenly spread. What counts
    is how many of the deliveries between live brokers are made while the failed ones stay away.
    Live brokers that are cut off from each other count as not delivered, as in the paper: its 97 %
    are of what would be delivered had there been no disconnections.
    `repeats` and `tags` are the machine's settings: with `trail` much is held that could go; tags
    count if subscriptions are `is_late`, made after the failures (decision 0017).

Invariants
    I1  a draw of failed brokers does not see what another draw has done: each is played in a child
        process, a copy of the network in which all have subscribed

Cost: for 500 brokers the subscriptions take a minute, once for each δ in each worker; a draw takes
about as long for each publication of every broker.

Source: SRDS 2011, sec. IX-B, figure 10. The paper does not state how often its brokers publish.
"""

from __future__ import annotations

import json
import os
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from gapless.testing.tree.options import MILLISECOND, TreeOptions
from gapless.testing.tree.run import TreeRun
from gapless.tree.settings import TreeSettings
from gapless_lab.experiments.partitions.graph import brokers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from gapless.core.identity import BrokerName
    from gapless.tree.messages import Edge

SECOND = 1_000 * MILLISECOND
MEASURED_S = 120
"""The paper's interval."""


def delivered_share(
    edges: tuple[Edge, ...],
    failed: Collection[BrokerName],
    failures_tolerated: int,
    seed: int,
    *,
    repeats: Literal["source", "trail"] = "source",
    tags: Literal["literal", "scoped"] = "scoped",
    publications: int = 1,
    is_late: bool = False,
) -> float:
    """Which share of the deliveries between live brokers is made while the failed are away?"""
    settings = TreeSettings(failures_tolerated=failures_tolerated, repeats=repeats, tags=tags)
    run = start_network(edges, settings, seed, not is_late)
    return in_child(lambda: _publish_all(run, failed, publications, is_late=is_late))


@lru_cache(maxsize=4)
def start_network(
    edges: tuple[Edge, ...], settings: TreeSettings, seed: int, is_subscribed: bool
) -> TreeRun:
    """A network that is up. It is shared by all draws: change it in a child process only (I1)."""
    options = TreeOptions(
        brokers=tuple(brokers_of(edges)), edges=edges, settings=settings, is_checked=False
    )
    run = TreeRun(seed, options)
    run.start()
    run.stage.run(2 * SECOND)
    if is_subscribed:
        _subscribe(run)
    return run


def _publish_all(
    run: TreeRun, failed: Collection[BrokerName], publications: int, *, is_late: bool
) -> float:
    for name in failed:
        run.world.processes[name].crash()
    live = run.world.up()
    if is_late:
        run.stage.run(4 * run.options.settings.reach * SECOND)
        _subscribe(run)
    pause = MEASURED_S * SECOND // (publications * len(live))
    for _ in range(publications):
        for process in live:
            process.publish({"k": 1})
            run.stage.run(pause)
    run.stage.run(5 * SECOND)
    own = publications * len(live)  # each gets its own publication, whatever happens
    return (run.ledger.deliveries - own) / (own * (len(live) - 1))


def _subscribe(run: TreeRun) -> None:
    for process in run.world.up():
        process.subscribe("")
        run.stage.run(20 * MILLISECOND)
    run.stage.run(2 * SECOND)


def in_child(call: Callable[[], float]) -> float:
    """What the call returns, played in a copy of this process (I1)."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writer, json.dumps(call()).encode())
        finally:
            os._exit(0)  # without the parent's exit handlers and buffers
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        said = answer.read()
    os.waitpid(child, 0)
    assert said, "the child process that played a draw has failed; its error is above"
    return float(json.loads(said))
