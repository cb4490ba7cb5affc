"""One run of brokers with a store: a seed becomes options, and everything may happen to machines.

The clients, the checkers and the phases are those of `run`: a take-over is a restart elsewhere,
and what holds for restarts holds for it. `FAULTS` are protocols that are broken on purpose; each
must be found."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from gapless.broker.networks import single_network
from gapless.core.identity import Instant
from gapless.testing.options import draw_options
from gapless.testing.replica import ReplicatedWorld
from gapless.testing.run import make_world, node_maker, outcome
from gapless.testing.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.testing.run import Outcome

KINDS = ("cut", "stall", "crash", "clock_jump", "full_disk")
"""Of the other faults: those that do not damage one disk in a way that a copy does not know."""

RATE = 2.0
FAULTS = ("no fence", "own clock", "volatile promise", "missed commit", "kept commit")


def simulate_with_store(
    seed: int, *, out: Callable[[str], object] | None = None, fault: str = ""
) -> Outcome:
    """Play one seed to its end, or to the first violation; `fault`: one of `FAULTS`."""
    dice = random.Random(seed)
    alone = single_network(("t1", "t2")) if seed % 2 else None
    options = draw_options(seed, dice, alone)
    rates = {kind: rate for kind, rate in options.fault_rates.items() if kind in KINDS}
    # A broker that forgets a topic which it had just heard of begins its virtual time anew, and is
    # not asked for it: longer outages show that more often, and a checker minds (`RoutingTables`).
    founders = options.founders if alone else ()
    options = replace(options, fault_rates=rates, founders=founders)
    trace = Trace(out)
    world = make_world(options, dice, trace, node_maker(options), ReplicatedWorld)
    assert isinstance(world, ReplicatedWorld)
    world.store.checks_term = fault != "no fence"
    world.judges_by_own_clock = fault == "own clock"
    world.misses_commits = fault == "missed commit"
    world.forgets_promises = fault == "volatile promise"
    world.keeps_what_never_came = fault == "kept commit"
    world.strike(RATE, Instant(world.now + options.duration))
    return outcome(seed, world, options, trace)
