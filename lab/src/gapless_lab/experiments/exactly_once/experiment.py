"""The paper's experiments on exactly-once delivery, put together.

Four faults are played (a stalled link at the edge, one between cells, a relay that crashes, the
host of the pubends that crashes). Two questions need more than one run: how recovery depends on
the moment of the crash, for brokers do not notice a death together, and how nacks depend on the
number of subscriber hosts. Last, the load is compared with best effort.

Invariant: the same seed and size give the same results, processor time apart.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from gapless_lab.experiments.exactly_once.fault_run import Course, Plan, play
from gapless_lab.experiments.exactly_once.faults import (
    crash_host,
    crash_relay,
    stall_between_cells,
    stall_to_host,
)
from gapless_lab.experiments.exactly_once.overhead import PROTOCOLS, Load, measure

if TYPE_CHECKING:
    from collections.abc import Callable

Job = tuple[str, "Callable[[], None]"]
"""What is played, and the call that plays it and keeps the result."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is played."""

    events_per_s: int
    before_s: float
    stall_s: float
    relay_down_s: float
    host_down_s: float
    after_s: float
    sweep_count: int
    """Crashes of a relay, each with heartbeats that beat at other moments."""
    host_counts: tuple[int, ...]
    subscription_counts: tuple[int, ...]
    load_s: float
    repeats: int
    """How often each load is played; the least processor time counts."""


FULL = Size(
    events_per_s=50,
    before_s=10.0,
    stall_s=20.0,
    relay_down_s=30.0,
    host_down_s=20.0,
    after_s=15.0,
    sweep_count=16,
    host_counts=(1, 5, 20),
    subscription_counts=(10, 30, 100, 300, 1_000),
    load_s=5.0,
    repeats=3,
)

QUICK = Size(
    events_per_s=5,
    before_s=4.0,
    stall_s=6.0,
    relay_down_s=6.0,
    host_down_s=6.0,
    after_s=4.0,
    sweep_count=1,
    host_counts=(1, 3),
    subscription_counts=(10, 40),
    load_s=1.0,
    repeats=1,
)


@dataclass(kw_only=True)
class FanIn:
    """Nacks after a link between the cells has stalled, with so many hosts below it."""

    host_count: int
    from_hosts: int
    from_lower: int
    to_pubend_host: int


@dataclass(kw_only=True)
class Results:
    """Everything that was measured."""

    seed: int
    size: Size
    courses: dict[str, Course] = field(default_factory=dict)
    """The four faults, by name."""
    recoveries_s: list[float] = field(default_factory=list)
    """For each crash of the sweep: the longest latency."""
    fan_in: list[FanIn] = field(default_factory=list)
    loads: dict[tuple[str, int], Load] = field(default_factory=dict)
    """By protocol and number of subscriptions."""

    def plain(self) -> dict[str, object]:
        """For JSON. Of the deliveries, the worst latency in each quarter of a second."""
        return {
            "seed": self.seed,
            "size": asdict(self.size),
            "faults": {name: course.plain() for name, course in self.courses.items()},
            "relay_crash_recoveries_s": self.recoveries_s,
            "nack_fan_in": [asdict(each) for each in self.fan_in],
            "overhead": [asdict(load) for load in self.loads.values()],
        }


def jobs(results: Results, clock: Callable[[], float]) -> list[Job]:
    """All there is to play, in order. Each job adds to the results."""
    return [
        *fault_jobs(results),
        *sweep_jobs(results),
        *fan_in_jobs(results),
        *load_jobs(results, clock),
    ]


def plan(results: Results, fault_s: float, host_count: int = 5) -> Plan:
    size = results.size
    return Plan(
        seed=results.seed,
        host_count=host_count,
        events_per_s=size.events_per_s,
        before_s=size.before_s,
        fault_s=fault_s,
        after_s=size.after_s,
    )


def fault_jobs(results: Results) -> list[Job]:
    size = results.size
    faults = {
        "stall to a host": (stall_to_host, size.stall_s),
        "stall between cells": (stall_between_cells, size.stall_s),
        "relay crash": (crash_relay, size.relay_down_s),
        "pubend host crash": (crash_host, size.host_down_s),
    }

    def job(name: str) -> Job:
        fault, fault_s = faults[name]

        def keep() -> None:
            results.courses[name] = play(plan(results, fault_s), fault)

        return name, keep

    return [job(name) for name in faults]


def sweep_jobs(results: Results) -> list[Job]:
    def job(number: int) -> Job:
        def keep() -> None:
            short = Plan(
                seed=results.seed + number,
                host_count=1,
                events_per_s=results.size.events_per_s,
                before_s=4.0,
                fault_s=6.0,
                after_s=3.0,
            )
            worst = play(short, crash_relay).worst()
            results.recoveries_s.append(max(worst.values()))

        return f"relay crash {number + 1} of {results.size.sweep_count}", keep

    return [job(number) for number in range(results.size.sweep_count)]


def fan_in_jobs(results: Results) -> list[Job]:
    def job(host_count: int) -> Job:
        def keep() -> None:
            course = play(plan(results, results.size.stall_s, host_count), stall_between_cells)
            results.fan_in.append(
                FanIn(
                    host_count=host_count,
                    from_hosts=course.nacks("hosts → lower"),
                    from_lower=course.nacks("lower → upper"),
                    to_pubend_host=course.nacks("upper → p"),
                )
            )

        return f"nacks with {host_count} hosts", keep

    return [job(count) for count in results.size.host_counts]


def load_jobs(results: Results, clock: Callable[[], float]) -> list[Job]:
    def job(count: int) -> Job:
        def keep() -> None:
            for _ in range(results.size.repeats):
                for protocol in PROTOCOLS:  # in turn, so that both meet the same machine
                    load = measure(
                        protocol, count, seed=results.seed, seconds=results.size.load_s, clock=clock
                    )
                    before = results.loads.setdefault((protocol, count), load)
                    before.cpu_s = {
                        role: min(load.cpu_s[role], took) for role, took in before.cpu_s.items()
                    }

        return f"load of {count} subscriptions", keep

    return [job(count) for count in results.size.subscription_counts]
