"""One run: a seed becomes options, a world is played through both phases, checkers watch.

Theory of operation
    Safety phase: any faults; the checkers hold all the time. Then everything is healed and the
    liveness phase waits, for a bounded virtual time, until nobody waits for anything: receipts,
    starts, events. Last, the quiet phase: with nothing more to say, logs must become empty, because
    everyone has acknowledged everything. The outcome has the trace's hash, or what was violated.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gapless.core.identity import Instant
from gapless.node.context import EventEncoding
from gapless.node.dispatch import KINDS as SERVICE_KINDS
from gapless.node.node import Node
from gapless.node.parts import Parts
from gapless.testing.actors.clients import Publisher, Subscriber
from gapless.testing.actors.durable_clients import DurableSubscriber
from gapless.testing.actors.founders import Founder
from gapless.testing.actors.jobs import Job
from gapless.testing.actors.operators import Operator
from gapless.testing.checkers.across_sessions import AcrossSessions
from gapless.testing.checkers.alterations import Alterations
from gapless.testing.checkers.bounded_memory import BoundedMemory
from gapless.testing.checkers.bounded_steps import BoundedSteps
from gapless.testing.checkers.catalogues import Catalogues, ToldIsDurable
from gapless.testing.checkers.durable import DurableBeforeAcknowledged
from gapless.testing.checkers.exactly_once import ExactlyOnce
from gapless.testing.checkers.filtered_logs import FilteredLogs
from gapless.testing.checkers.gaps import Gaps
from gapless.testing.checkers.liveness import EverythingArrives
from gapless.testing.checkers.nack_fan_in import NackFanIn
from gapless.testing.checkers.no_gap import NoGap
from gapless.testing.checkers.no_unjust_gap import NoUnjustGap
from gapless.testing.checkers.once_published import OncePublished
from gapless.testing.checkers.only_matching import OnlyMatching
from gapless.testing.checkers.order import InOrder
from gapless.testing.checkers.releases import Releases
from gapless.testing.checkers.routing_tables import RoutingTables
from gapless.testing.checkers.start_points import StartPoints
from gapless.testing.checkers.total_order import TotalOrder
from gapless.testing.checkers.transactions import WholeTransactions
from gapless.testing.clock import START
from gapless.testing.faults import Faults
from gapless.testing.lattice import strict
from gapless.testing.options import LOST_DISK, Options, draw_options, lose_disks
from gapless.testing.record import Record, Violation
from gapless.testing.situations import Situations
from gapless.testing.trace import Trace
from gapless.testing.watch import Watch
from gapless.testing.world import World
from gapless.wire.events import check_events, decode_attributes, extend_event
from gapless.wire.kinds import codec

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.core.identity import BrokerName
    from gapless.core.store import Store
    from gapless.node.network import Network
    from gapless.testing.checkers.checker import Checker
    from gapless.testing.process import Machine, Process

CHECKERS: tuple[type[Checker], ...] = (
    ExactlyOnce,
    InOrder,
    NoGap,
    OnlyMatching,
    DurableBeforeAcknowledged,
    OncePublished,
    TotalOrder,
    BoundedMemory,
    BoundedSteps,
    NackFanIn,
    NoUnjustGap,
    StartPoints,
    AcrossSessions,
    Alterations,
    Gaps,
    Releases,
    ToldIsDurable,
    WholeTransactions,
)
"""All that watch every run; `EverythingArrives` is asked in the liveness phase."""

Actor = Publisher | Subscriber | DurableSubscriber | Founder | Job | Operator

PATIENCE = 12
"""How many of the longest waits of the configuration the liveness phase may take."""


@dataclass(slots=True)
class Outcome:
    """What came of a run."""

    seed: int
    digest: str
    steps: int
    deliveries: int
    virtual_us: int
    options: list[str]
    violation: str = ""
    last_lines: list[str] = field(default_factory=list)
    reached: Counter[str] = field(default_factory=Counter)


def simulate(
    seed: int,
    *,
    out: Callable[[str], object] | None = None,
    network: Network | None = None,
    parts: Parts | None = None,
    fault_rates: dict[str, float] | None = None,
) -> Outcome:
    """Play one seed to its end, or to the first violation; what is given is not drawn."""
    dice = random.Random(seed)
    options = draw_options(seed, dice, network)
    if fault_rates is not None:
        options = replace(options, fault_rates=fault_rates)
        if LOST_DISK in fault_rates:
            options = lose_disks(options, fault_rates)
    for line in options.lines() if out is not None else ():
        out(line)  # type: ignore[misc]  # not None in this loop
    trace = Trace(out)
    world = make_world(options, dice, trace, node_maker(options, parts))
    return outcome(seed, world, options, trace)


def outcome(seed: int, world: World, options: Options, trace: Trace) -> Outcome:
    """Play a world that is made, and say what came of it."""
    violation = ""
    try:
        play(world, options)
    except Violation as found:
        violation = str(found)
    except Exception as error:  # a broken invariant, or a crash of ours: found all the same
        violation = f"{type(error).__name__}: {error} {_where(error)}"
    return Outcome(
        seed=seed,
        digest=trace.digest,
        steps=trace.count,
        deliveries=world.watch.record.deliveries,
        virtual_us=world.now - START,
        options=options.lines() if violation else [],
        violation=violation,
        last_lines=list(trace.last) if violation else [],
        reached=world.reached,
    )


def _where(error: Exception) -> str:
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    if frame is None:
        return ""
    code = frame.tb_frame.f_code
    return f"({code.co_filename.rpartition('gapless/')[2]}:{frame.tb_lineno} in {code.co_name})"


def node_maker(
    options: Options, parts: Parts | None = None, network: Network | None = None
) -> Callable[[BrokerName, Store, Instant], Machine]:
    """Makes the real node of each broker, held to the strict lattice where that applies."""
    network = network or options.network

    def make(name: BrokerName, store: Store, now: Instant) -> Machine:
        return Node(
            name,
            network,
            store,
            now,
            config=options.config,
            encoding=EventEncoding(decode_attributes, check_events, extend=extend_event),
            parts=strict(parts or Parts()),
        )

    return make


def make_world(
    options: Options,
    dice: random.Random,
    trace: Trace,
    make: Callable[[BrokerName, Store, Instant], Machine],
    kind: type[World] = World,
) -> World:
    record = Record(options.network)
    reached: Counter[str] = Counter()
    checkers = [each(record, options.config) for each in CHECKERS]
    checkers.append(Situations(record, options.config, reached))
    world = kind(
        options.network,
        make,
        dice,
        trace,
        Watch(record, checkers),
        links=options.links,
        offsets=options.offsets,
        codec=codec(*SERVICE_KINDS) if options.is_encoded else None,
        check_every=options.check_every,
    )
    world.reached = reached
    return world


def play(world: World, options: Options) -> None:
    """Both phases and the quiet after them; raises `Violation`."""
    world.start()
    durables = [DurableSubscriber(world, plan) for plan in options.durables]
    clients: list[Actor] = [
        *(Publisher(world, plan) for plan in options.publishers),
        *(Subscriber(world, plan) for plan in options.subscribers),
        *durables,
        *(Job(world, plan) for plan in options.jobs),
    ]
    clients += [Founder(world, plan, clients.append) for plan in options.founders]
    clients += [Operator(world, plan, durables) for plan in options.operators]
    end = Instant(world.now + options.duration)
    Faults(world, options, clients, end)
    pause = options.config.heartbeat
    while world.now < end:
        world.run(min(pause, end - world.now))
        _sample(world)
    world.watch.finish()
    world.heal()
    _compare_filtered_logs(world)
    for client in clients:
        client.is_quick = True
    _wait(world, options, clients)
    _settle(world, options)
    _compare_filtered_logs(world)
    for client in durables:
        client.conclude()
    _wait(world, options, clients)
    _settle(world, options)
    world.watch.finish()


def _compare_filtered_logs(world: World) -> None:
    if world.watch.record.lost_disks:
        return  # where there are losses, records say so instead of naming each event
    for name, process in world.processes.items():
        if wrong := FilteredLogs(world.watch.record, name, process.store).wrong():
            raise Violation(FilteredLogs.promise, "; ".join(wrong[:5]))


def _sample(world: World) -> None:
    for process in world.processes.values():
        if process.node is not None:
            world.watch.sample(process)


def _longest_wait(options: Options) -> int:
    config = options.config
    return (
        config.nack_repeat_longest
        + config.ack_expected_longest
        + config.dead_after
        + config.start_repeat
        + config.silence_flush
        + config.change_wait_longest
        + config.lag_repeat
        + (config.transaction_expiry if options.jobs else 0)
        + max(plan.patience for plan in options.publishers)
    )


def _wait(world: World, options: Options, clients: list[Actor]) -> None:
    """Until nobody waits for anything any more, or it has taken too long."""
    arrives = EverythingArrives(world.watch.record, options.config)
    end = world.now + PATIENCE * _longest_wait(options)
    pause = options.config.gap_patience
    while True:
        world.run(pause)
        waiting = [line for client in clients for line in client.waiting()] or arrives.waiting()
        if not waiting:
            return
        if world.now > end:
            raise Violation(arrives.promise, "; ".join(waiting[:5]))
        pause = min(2 * pause, options.config.dead_after)


def _settle(world: World, options: Options) -> None:
    """Until logs keep nothing that all have acknowledged, no question is out any more, and every
    broker's routing tables are right."""
    end = world.now + PATIENCE * (_longest_wait(options) + options.config.release_delay)
    logs = world.watch.record.logs
    while True:
        _sample(world)
        kept = [name for name in logs if world.watch.record.releasable(name)]
        # A total order never rests while clocks differ: who lags is asked, again and again.
        merged = any(each.order == "total" for each in world.watch.record.live())
        asking = [
            name for name, process in world.processes.items() if not merged and _is_asking(process)
        ]
        nodes = [each.node for each in world.processes.values() if isinstance(each.node, Node)]
        unlike = Catalogues(world.watch.record, nodes).wrong()
        wrong = [] if unlike else RoutingTables(world.watch.record, nodes).wrong()
        if world.watch.record.lost_disks:
            # What a broker wanted before lets more pass, and what it had handed over may still be
            # at another broker: that costs traffic and room, and no event.
            wrong, kept = [], []
        if not (kept or asking or wrong or unlike):
            return
        if world.now > end and unlike:
            raise Violation(Catalogues.promise, "; ".join(unlike[:5]))
        if world.now > end and wrong:
            raise Violation(RoutingTables.promise, "; ".join(wrong))
        if world.now > end:
            raise Violation(
                "quiet in the end",
                f"the logs of {', '.join(kept) or 'none'} stay full, "
                f"{', '.join(asking) or 'nobody'} still asks",
            )
        world.run(options.config.ack_delay)


def _is_asking(process: Process) -> bool:
    figures = process.statistics().get("pubends", {})
    assert isinstance(figures, dict)
    return any(each.get("asking", 0) for each in figures.values())
