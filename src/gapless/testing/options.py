"""Swarm options: everything about a run that the seed decides before it begins, and how to show it.

Theory of operation
    Each kind of fault is on or off by a coin, then has its own rate: runs with every fault at once
    find less than runs with a few. Timers are the defaults on a smaller scale, so that a run of a
    few virtual seconds sees many of them expire; limits are sometimes tiny, so that they are met.
    Most runs propagate subscriptions; in the others brokers let everything pass, which the strict
    lattice can then be held against.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from gapless.node.config import Config
from gapless.testing.actors.clients import MILLISECOND, PublisherPlan, SubscriberPlan
from gapless.testing.actors.durable_plans import DurablePlan, draw_durables
from gapless.testing.actors.founders import FounderPlan, draw_founders
from gapless.testing.actors.job_plans import JobPlan, draw_jobs
from gapless.testing.actors.operators import OperatorPlan, draw_operators
from gapless.testing.links import LinkOptions
from gapless.testing.shapes import draw_keeps, draw_network, draw_retention, show_network
from gapless.testing.workload import draw_condition

if TYPE_CHECKING:
    from gapless.core.client_messages import Order
    from gapless.core.identity import BrokerName
    from gapless.node.network import Network

FAULTS = (
    "cut",
    "stall",
    "crash",
    "full_disk",
    "failed_sync",
    "clock_jump",
    "hang_up",
)
"""Faults that come at some instant; what happens to single messages is in `LinkOptions`."""

LOST_STAMP = "lost_stamp"
"""One more, drawn from dice of its own. Who has lost its disk relies on its clock, so that clocks
are as good as those of real brokers where it strikes."""

LOST_DISK = "lost_disk"
"""The same, for a whole disk. Clients of such runs keep their tokens and open their names, as the
shipped client does; no transactions and no topics made at run time."""

GOOD_CLOCK = 5 * MILLISECOND
"""How far, at most, such a clock is from the world's."""

LONGEST = ("nack_repeat_longest", "ack_expected_longest", "change_wait_longest")
COUNTS = ("catch_up_window",)
"""Neither times nor called `_max`."""

TINY_LIMITS: dict[str, int] = {
    "cache_events_max": 5,
    "waiting_events_max": 5,
    "batch_events_max": 2,
    "nack_spans_max": 2,
    "changes_pending_max": 2,
    "virtual_time_step": 3,
    "receipts_max": 2,
    "publish_pending_max": 6,
    "client_queue_max": 8,
    "cache_bytes_max": 200,
    "waiting_bytes_max": 200,
    "batch_bytes_max": 100,
    "answer_bytes_max": 100,
    "publish_pending_bytes_max": 300,
    "catch_up_window": 2,
    "catch_up_total_max": 3,
    "filtered_read_max": 2,
    "filtered_walk_max": 3,
    "filtered_replay_max": 3,
    "filtered_pending_max": 3,
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """All that is drawn before a run."""

    seed: int
    network: Network
    config: Config
    links: LinkOptions
    offsets: dict[BrokerName, int]
    fault_rates: dict[str, float]
    """By kind: how many a virtual second."""
    duration: int
    """Microseconds of the safety phase."""
    is_encoded: bool
    """Whether every message is encoded and decoded on its way."""
    conditions: dict[BrokerName, tuple[str, ...]]
    publishers: tuple[PublisherPlan, ...]
    subscribers: tuple[SubscriberPlan, ...]
    durables: tuple[DurablePlan, ...]
    jobs: tuple[JobPlan, ...] = ()
    clock_jump_max: int
    check_every: int
    """After how many steps a broker checks its invariants; half of a run's time if after each."""
    founders: tuple[FounderPlan, ...] = ()
    operators: tuple[OperatorPlan, ...] = ()

    def lines(self) -> list[str]:
        """Every option, one a line."""
        shown = [f"seed {self.seed}", f"network {show_network(self.network)}"]
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name in ("seed", "network"):
                continue
            if each.name == "config":
                changed = [
                    f"{f.name}={getattr(value, f.name)}"
                    for f in fields(value)
                    if getattr(value, f.name) != f.default
                ]
                shown.append(f"config {' '.join(changed)}")
            elif isinstance(value, tuple):
                shown.extend(f"{each.name} {entry}" for entry in value)
            else:
                shown.append(f"{each.name} {value}")
        return shown


def draw_options(seed: int, dice: random.Random, network: Network | None = None) -> Options:
    """Everything a run of this seed needs; the dice go on from there."""
    drawn = draw_network(dice)
    network = network or draw_keeps(seed, draw_retention(dice, drawn))
    jobs, config = draw_jobs(seed, network, draw_config(dice))
    config = draw_work(seed, config)
    brokers = [broker.name for cell in network.cells for broker in cell.brokers]
    skew = dice.choice((0, 0, 5, 200, 3_000)) * MILLISECOND
    leaves = [cell.brokers[0].name for cell in network.cells if cell.subscribers]
    pool = [draw_condition(dice) for _ in range(dice.choice((3, 6, 12)))]  # shared, so that they
    conditions = {  # cover each other
        leaf: tuple(dice.choice(pool) for _ in range(dice.randint(1, 4))) for leaf in leaves
    }
    is_faulty = dice.random() < 0.9
    duration = config.nack_repeat * dice.randint(6, 15)
    options = Options(
        seed=seed,
        network=network,
        config=config,
        links=draw_links(dice) if is_faulty else LinkOptions(),
        offsets={name: dice.randint(-skew, skew) for name in brokers},
        fault_rates={
            kind: dice.choice((0.5, 2.0, 6.0))
            for kind in FAULTS
            if is_faulty and dice.random() < 0.35
        },
        duration=duration,
        is_encoded=dice.random() < 0.25,
        conditions=conditions,
        publishers=draw_publishers(dice, network, duration),
        subscribers=draw_subscribers(dice, network, conditions),
        durables=draw_durables(dice, network, conditions),
        jobs=jobs,
        clock_jump_max=dice.choice((10, 300, 2_000)) * MILLISECOND,
        check_every=dice.choice((1, 20, 20, 20)),
    )
    own = random.Random(f"founders of {seed}")
    founders = draw_founders(own, network, options.publishers, options.subscribers)
    own = random.Random(f"successors of {seed}")
    publishers = draw_successors(own, network, options.publishers, duration)
    rates = {**options.fault_rates, **draw_lost_stamp(seed, options)}
    config = draw_slices(seed, options.config)
    options = replace(
        options,
        founders=founders,
        publishers=publishers,
        fault_rates=rates,
        config=config,
        operators=draw_operators(seed, conditions) if options.durables else (),
    )
    return draw_lost_disks(seed, options)


def draw_lost_disks(seed: int, options: Options) -> Options:
    """The same; or in some runs, where clocks are good, brokers lose their disks."""
    own = random.Random(f"lost disks of {seed}")
    is_good = all(abs(offset) <= GOOD_CLOCK for offset in options.offsets.values())
    if own.random() >= 0.15 or "clock_jump" in options.fault_rates or not is_good:
        return options
    rates = {**options.fault_rates, LOST_DISK: own.choice((1.0, 3.0))}
    rates.pop(LOST_STAMP, None)
    return lose_disks(options, rates)


def lose_disks(options: Options, rates: dict[str, float]) -> Options:
    """A run with these faults, in which clients and clocks are such that brokers may lose their
    disks."""
    publishers = tuple(
        replace(each, opens=each.opens or each.name, insists=True) if each.is_named else each
        for each in options.publishers
    )
    return replace(
        options,
        fault_rates=rates,
        offsets={
            name: max(-GOOD_CLOCK, min(offset, GOOD_CLOCK))
            for name, offset in options.offsets.items()
        },
        publishers=publishers,
        jobs=(),
        founders=(),
        operators=(),
    )


def draw_slices(seed: int, config: Config) -> Config:
    """The same; or in some runs, one where a step matches only a few events of a batch."""
    own = random.Random(f"slices of {seed}")
    few = own.choice((150, 300, 1_000))  # an event costs 100 units and more
    return replace(config, turn_cost_max=few) if own.random() < 0.15 else config


def draw_lost_stamp(seed: int, options: Options) -> dict[str, float]:
    """Its rate, in a third of those runs where clocks are good, if anything goes wrong at all."""
    own = random.Random(f"lost stamps of {seed}")
    is_good = all(abs(offset) <= GOOD_CLOCK for offset in options.offsets.values())
    faults = options.fault_rates
    if not (options.config.propagates and faults and is_good) or "clock_jump" in faults:
        return {}
    return {LOST_STAMP: own.choice((0.5, 2.0, 6.0))} if own.random() < 0.33 else {}


def draw_config(dice: random.Random) -> Config:
    divisor = dice.choice((5, 10, 20))
    usual = Config()
    timers = {
        each.name: max(1, getattr(usual, each.name) // divisor)
        for each in fields(usual)
        if not each.name.endswith("_max") and each.name != "propagates"
    }
    slower = dice.choice((1, 2, 3))  # pings are a third of all steps otherwise
    for name in ("heartbeat", "dead_after"):
        timers[name] *= slower
    for name in LONGEST:
        timers[name] = timers[name.removesuffix("_longest")] * dice.choice((1, 2, 8))
    for name in COUNTS:
        timers[name] = getattr(usual, name)
    limits = {name: limit for name, limit in TINY_LIMITS.items() if dice.random() < 0.15}
    return replace(usual, **{**timers, **limits}, propagates=dice.random() < 0.75)


def draw_work(seed: int, config: Config) -> Config:
    """Now and then those that catch up may do very little in one step. The dice are its own."""
    own = random.Random(f"work of {seed}")
    return replace(config, catch_up_work_max=own.choice((1, 4))) if own.random() < 0.15 else config


def draw_links(dice: random.Random) -> LinkOptions:
    def rate(*choices: float) -> float:
        return dice.choice((0.0, 0.0, *choices))

    return LinkOptions(
        delay_min=dice.choice((50, 500, 3_000)),
        delay_spread=dice.choice((100, 1_000, 10_000)),
        loss=rate(0.01, 0.05, 0.2),
        duplicate=rate(0.02, 0.2),
        overtake=rate(0.05, 0.3),
        overtake_delay=dice.choice((5_000, 60_000)),
    )


def draw_publishers(
    dice: random.Random, network: Network, duration: int
) -> tuple[PublisherPlan, ...]:
    plans: list[PublisherPlan] = []
    for topic in network.topics:
        hosts = sorted(set(topic.hosts))
        for _ in range(dice.randint(1, 3)):
            plans.append(
                PublisherPlan(
                    name=f"P{len(plans) + 1}",
                    broker=dice.choice(hosts),
                    topic=topic.name,
                    is_named=dice.random() < 0.7,
                    event_count=dice.randint(1, 30),
                    batch_max=dice.choice((1, 3, 8)),
                    window=dice.choice((1, 2, 5)),
                    pause=dice.choice((2, 20, 60)) * MILLISECOND,
                    patience=dice.choice((15, 100)) * MILLISECOND,
                    start_after=dice.randrange(duration // 2),
                )
            )
    return tuple(plans)


def draw_successors(
    dice: random.Random, network: Network, publishers: tuple[PublisherPlan, ...], duration: int
) -> tuple[PublisherPlan, ...]:
    """These, and who takes over the names of some. The dice are their own, so that the other runs
    stay as they were."""
    if dice.random() < 0.65:
        return publishers
    plans: list[PublisherPlan] = []
    for plan in publishers:
        chain, start = [plan], plan.start_after
        hosts = sorted(set(network.topic[plan.topic].hosts))
        if plan.is_named and dice.random() < 0.8:
            for letter in "ab"[: dice.choice((1, 1, 2))]:
                start += dice.randrange(1, duration // 3)
                away = dice.choice((5, 50, 300)) * MILLISECOND
                chain[-1] = replace(chain[-1], leave_after=dice.choice((0, start)), away=away)
                successor = replace(plan, name=f"{plan.name}{letter}", opens=plan.name)
                start += dice.randrange(away)
                chain.append(replace(successor, broker=dice.choice(hosts), start_after=start))
            chain[0] = replace(chain[0], opens=dice.choice(("", plan.name)))
            chain[-1] = replace(chain[-1], insists=True)
        plans += chain
    return tuple(plans)


def draw_subscribers(
    dice: random.Random, network: Network, conditions: dict[BrokerName, tuple[str, ...]]
) -> tuple[SubscriberPlan, ...]:
    plans: list[SubscriberPlan] = []
    total_share = dice.choice((0.0, 0.3, 1.0))
    for broker, texts in conditions.items():
        for _ in range(dice.choices((1, 2, 3), (6, 3, 1))[0]):
            orders: list[Order] = [
                "total" if dice.random() < total_share else "publisher" for _ in texts
            ]
            plans.append(
                SubscriberPlan(
                    name=f"C{len(plans) + 1}",
                    broker=broker,
                    wishes=tuple(
                        (dice.choice(network.topics).name, text, order)
                        for text, order in zip(texts, orders, strict=True)
                    ),
                    pause=dice.choices((0, 1, 40), (4, 4, 1))[0] * MILLISECOND,
                    change_after=dice.choice((10, 100, 500, 5_000)) * MILLISECOND,
                )
            )
    return tuple(plans)
