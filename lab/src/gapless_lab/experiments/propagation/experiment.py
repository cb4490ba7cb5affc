"""The four figures put together: what is played, and everything that was measured.

Invariant: the same seed and size give the same results, processor time apart.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from gapless_lab.experiments.propagation.costs import Costs, measure_costs
from gapless_lab.experiments.propagation.failure import TimeLine, play_failure
from gapless_lab.experiments.propagation.latency import Latency, play_latency
from gapless_lab.experiments.propagation.load import MACHINES, Point, condition, play_load
from gapless_lab.experiments.propagation.setting import SCHEMES
from gapless_lab.experiments.propagation.vectors import VectorCost, play_vectors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gapless_lab.experiments.propagation.setting import Scheme

Job = tuple[str, "Callable[[], None]"]
"""What is played, and the call that plays it and keeps the result."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is played."""

    publisher_counts: tuple[int, ...]
    """The first is the number of subscriptions too: with it, everything is wanted."""
    load_s: float
    hop_counts: tuple[int, ...]
    latency_events_per_s: int
    latency_s: float
    leaf_counts: tuple[int, ...]
    vector_events_per_s: int
    vector_s_max: float
    vector_s_min: float
    """Counted is for 20 s over the number of leaves, within these bounds."""
    repeats: int
    """How often each vector size is played; the least processor time counts."""
    failure_events_per_s: int
    failure_repeats: int
    """Subscriptions of a group to each of its subjects."""


FULL = Size(
    publisher_counts=(2_000, 4_000, 6_000, 8_000, 10_000, 12_000),
    load_s=0.3,
    hop_counts=(1, 4, 7),
    latency_events_per_s=800,
    latency_s=12.0,
    leaf_counts=(2, 7, 20, 60, 200),
    vector_events_per_s=2_000,
    vector_s_max=0.5,
    vector_s_min=0.2,
    repeats=1,
    failure_events_per_s=200,
    failure_repeats=5,
)

QUICK = Size(
    publisher_counts=(200, 600, 1_200),
    load_s=0.3,
    hop_counts=(1, 4, 7),
    latency_events_per_s=160,
    latency_s=10.0,
    leaf_counts=(2, 10, 30),
    vector_events_per_s=2_000,
    vector_s_max=0.2,
    vector_s_min=0.1,
    repeats=1,
    failure_events_per_s=40,
    failure_repeats=5,
)


@dataclass(kw_only=True)
class Results:
    """Everything that was measured."""

    seed: int
    size: Size
    costs: Costs | None = None
    points: dict[tuple[Scheme, int], Point] = field(default_factory=dict)
    """By scheme and number of publishers."""
    latencies: list[Latency] = field(default_factory=list)
    vectors: dict[tuple[Scheme, int], VectorCost] = field(default_factory=dict)
    """By scheme and number of leaves."""
    time_line: TimeLine | None = None

    def factor(self) -> float:
        """How much longer the played nodes took than the cost model says, over all of figure 4."""
        assert self.costs is not None
        took = sum(sum(each.measured_cpu_s.values()) for each in self.points.values())
        model = sum(
            self.costs.cpu_s(tally)
            for each in self.points.values()
            for tally in each.tallies.values()
        )
        return took / model

    def loads(self, scheme: Scheme, machines: Sequence[str]) -> list[float]:
        """By number of publishers: share of a processor by the fitted model."""
        assert self.costs is not None
        factor = self.factor()
        return [
            factor * self.points[scheme, count].utilisation(machines, self.costs)
            for count in self.size.publisher_counts
        ]

    def plain(self) -> dict[str, object]:
        """For JSON. Of the latencies, counts and medians."""
        assert self.costs is not None
        assert self.time_line is not None
        return {
            "seed": self.seed,
            "size": asdict(self.size),
            "costs_us": asdict(self.costs),
            "cost_factor": self.factor(),
            "load": [
                {
                    **asdict(each),
                    "utilisation": {
                        m: self.factor() * each.utilisation((m,), self.costs) for m in MACHINES
                    },
                    "measured": {m: each.measured((m,)) for m in MACHINES},
                }
                for each in self.points.values()
            ],
            "latency": [
                {"hops": each.hops, "digest": each.digest, "starts": len(each.global_start_ms)}
                | {f"{name}_ms": value for name, value in each.medians_ms().items()}
                for each in self.latencies
            ],
            "vectors": [asdict(each) for each in self.vectors.values()],
            "failure": asdict(self.time_line),
        }

    def notes(self) -> list[str]:
        """What is not in the table and must be known to read it."""
        assert self.costs is not None
        constants = ", ".join(f"{name} {us:.2f}" for name, us in asdict(self.costs).items())
        size = self.size
        return [
            f"Cost model of figure 4, in µs, each timed alone: {constants}; all of it times "
            f"{self.factor():.2f}, fitted to the processor time of the played nodes. "
            "Disk and sockets are not in it.",
            f"Figure 4: {size.publisher_counts[0]:,} subscriptions, every publisher at 2 events/s; "
            f"counted while {size.load_s:g} s of it were played, nothing is extrapolated. "
            "Above 1 a broker could not keep up.",
            f"Figures 5 to 7: links of 0.2 to 1.0 ms, disks of 0.2 to 1.2 ms, handling takes no "
            f"time; {size.latency_events_per_s:,}, {size.vector_events_per_s:,} and "
            f"{size.failure_events_per_s:,} events/s (the paper: 3,200, 2,000 and 2,000). "
            "The time of figure 7 runs ten times as fast as the paper's.",
        ]


def jobs(results: Results, clock: Callable[[], float]) -> list[Job]:
    """All there is to play, in order. Each job adds to the results."""
    return [
        ("cost model", lambda: cost_job(results, clock)),
        *(load_job(results, count, clock) for count in results.size.publisher_counts),
        *(latency_job(results, hops) for hops in results.size.hop_counts),
        *(vector_job(results, leaves, clock) for leaves in results.size.leaf_counts),
        ("failure of relays", lambda: failure_job(results)),
    ]


def cost_job(results: Results, clock: Callable[[], float]) -> None:
    subscriptions = results.size.publisher_counts[0]
    results.costs = measure_costs(clock, [condition(number) for number in range(subscriptions)])


def load_job(results: Results, publishers: int, clock: Callable[[], float]) -> Job:
    def keep() -> None:
        for scheme in SCHEMES:  # in turn, so that both meet the same machine
            results.points[scheme, publishers] = play_load(
                scheme,
                publishers,
                subscriptions=results.size.publisher_counts[0],
                seconds=results.size.load_s,
                seed=results.seed,
                clock=clock,
            )

    return f"load of {publishers:,} publishers", keep


def latency_job(results: Results, hops: int) -> Job:
    def keep() -> None:
        size = results.size
        results.latencies.append(
            play_latency(
                hops,
                events_per_s=size.latency_events_per_s,
                seconds=size.latency_s,
                seed=results.seed,
            )
        )

    return f"latency over {hops} hops", keep


def vector_job(results: Results, leaves: int, clock: Callable[[], float]) -> Job:
    def keep() -> None:
        size = results.size
        seconds = min(size.vector_s_max, max(size.vector_s_min, 20 / leaves))
        for _ in range(size.repeats):
            for scheme in SCHEMES:  # in turn, so that both meet the same machine
                cost = play_vectors(
                    scheme,
                    leaves,
                    events_per_s=size.vector_events_per_s,
                    seconds=seconds,
                    seed=results.seed,
                    clock=clock,
                )
                before = results.vectors.setdefault((scheme, leaves), cost)
                before.cpu_us = {
                    role: min(cost.cpu_us[role], took) for role, took in before.cpu_us.items()
                }

    return f"vectors of {leaves}", keep


def failure_job(results: Results) -> None:
    size = results.size
    results.time_line = play_failure(
        events_per_s=size.failure_events_per_s,
        repeats=size.failure_repeats,
        seed=results.seed,
    )
