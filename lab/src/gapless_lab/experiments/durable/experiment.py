"""The figures on durable subscriptions put together: what is played, and what was measured.

Invariant: the same seed and size give the same results, measured processor time apart.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from gapless_lab.experiments.durable.absences import (
    Absences,
    FanIn,
    play_absences,
    play_fan_in,
)
from gapless_lab.experiments.durable.auto_acknowledge import SYNC_US as TOKEN_SYNC_US
from gapless_lab.experiments.durable.auto_acknowledge import Row, play_auto_acknowledge
from gapless_lab.experiments.durable.crash import Crash, play_crash
from gapless_lab.experiments.durable.logging_cost import Logging, play_logging
from gapless_lab.experiments.durable.processor import REAL, SLOWNESS
from gapless_lab.experiments.durable.setting import RATE_SCALE, SYNC_US, NeverLevelError
from gapless_lab.experiments.durable.steady import (
    ANONYMOUS,
    EVENTS_PER_S,
    LEAVING,
    STAYING,
    Latency,
    Peak,
    play_latency,
    play_peak,
)

if TYPE_CHECKING:
    from collections.abc import Callable

Job = tuple[str, "Callable[[], None]"]
"""What is played, and the call that plays it and keeps the result."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is played."""

    latency_s: float
    host_counts: tuple[int, ...]
    """Of brokers with subscribers; 0 is one broker for everything."""
    per_host: int
    """Subscribers."""
    peak_s: int
    leaving_s: int
    absent_subscribers: int
    absences_s: int
    fan_in: tuple[int, ...]
    crash_subscribers: int
    before_s: int
    down_s: int
    after_s: int
    acknowledgers: tuple[int, ...]
    acknowledge_s: float
    logging_s: int


FULL = Size(
    latency_s=60,
    host_counts=(0, 1, 2, 4),
    per_host=50,
    peak_s=10,
    leaving_s=60,
    absent_subscribers=52,
    absences_s=240,
    fan_in=(4, 16, 48),
    crash_subscribers=10,
    before_s=20,
    down_s=25,
    after_s=20,
    acknowledgers=(1, 5, 25, 100, 200),
    acknowledge_s=1.0,
    logging_s=100,
)

QUICK = Size(
    latency_s=20,
    host_counts=(0, 1, 2),
    per_host=44,
    peak_s=5,
    leaving_s=20,
    absent_subscribers=40,
    absences_s=40,
    fan_in=(4, 16),
    crash_subscribers=10,
    before_s=5,
    down_s=10,
    after_s=10,
    acknowledgers=(1, 25, 100),
    acknowledge_s=0.5,
    logging_s=10,
)


@dataclass(kw_only=True)
class Results:
    """Everything that was measured."""

    seed: int
    size: Size
    latency: Latency | None = None
    peaks: dict[tuple[str, int], Peak] = field(default_factory=dict)
    """By way and number of hosts."""
    absences: Absences | None = None
    fan_in: list[FanIn] = field(default_factory=list)
    crash: Crash | None = None
    rows: list[Row] = field(default_factory=list)
    logging: Logging | None = None
    unended: dict[str, str] = field(default_factory=dict)
    """Runs that did not come to an end, each with what was waited for in vain."""

    def plain(self) -> dict[str, object]:
        """For JSON."""
        return {
            "seed": self.seed,
            "size": asdict(self.size),
            "costs_us": asdict(REAL),
            "unended": self.unended,
            "latency": plain(self.latency),
            "peaks": [
                {**asdict(each), "peak_per_s": each.peak_per_s} for each in self.peaks.values()
            ],
            "absences": plain(self.absences),
            "fan_in": [asdict(each) for each in self.fan_in],
            "crash": plain(self.crash),
            "auto_acknowledge": [asdict(each) for each in self.rows],
            "logging": plain(self.logging),
        }

    def notes(self) -> list[str]:
        """What is not in the table and must be known to read it."""
        rows = "; ".join(
            f"{row.subscribers}: {row.events_per_s:,.0f} and {row.commits_per_s:,.0f} "
            f"({row.events_per_commit:.1f} a commit, processor {row.busy:.0%})"
            for row in self.rows
        )
        return [
            f"Auto-acknowledge, by subscribers, events and commits per second: {rows}.",
            f"A broker has one processor; its costs in µs are {REAL.shown()}. In figures 4 to 8 "
            f"it is {SLOWNESS} times slower, and {EVENTS_PER_S} events/s are published (the paper: "
            f"800), 20 of them for each subscriber; limits that count events are "
            f"{RATE_SCALE} times lower too.",
            f"Links take 0.2 to 1.0 ms, a write {SYNC_US / 1000:g} ms (latency: 44 ms, "
            f"auto-acknowledge: {TOKEN_SYNC_US / 1000:g} ms). Sockets are not played. A peak is "
            "the rate over the busy share of the busiest broker, played near it.",
        ]


def plain(found: Latency | Absences | Crash | Logging | None) -> dict[str, object] | None:
    return None if found is None else asdict(found)


def jobs(results: Results, clock: Callable[[], float]) -> list[Job]:
    """All there is to play, in order. Each job adds to the results; a run without end adds to
    those that did not end."""
    return [(name, partial(play_to_end, results, name, job)) for name, job in parts(results, clock)]


def play_to_end(results: Results, name: str, job: Callable[[], None]) -> None:
    try:
        job()
    except NeverLevelError as error:
        results.unended[name] = str(error)


def parts(results: Results, clock: Callable[[], float]) -> list[Job]:
    size = results.size
    return [
        ("latency", lambda: latency_job(results)),
        *(
            peak_job(results, way, count)
            for way in (STAYING, LEAVING, ANONYMOUS)
            for count in (size.host_counts if way != ANONYMOUS else (1,))
        ),
        ("subscribers away", lambda: absences_job(results)),
        *(fan_in_job(results, count) for count in size.fan_in),
        ("crash of a host", lambda: crash_job(results, clock)),
        *(acknowledge_job(results, count) for count in size.acknowledgers),
        ("logging", lambda: logging_job(results, clock)),
    ]


def latency_job(results: Results) -> None:
    results.latency = play_latency(seconds=results.size.latency_s, seed=results.seed)


def peak_job(results: Results, way: str, host_count: int) -> Job:
    def keep() -> None:
        size = results.size
        results.peaks[way, host_count] = play_peak(
            way,
            host_count,
            per_host=size.per_host,
            seconds=size.leaving_s if way == LEAVING else size.peak_s,
            seed=results.seed,
        )

    return f"{host_count or 'no'} hosts, {way}", keep


def absences_job(results: Results) -> None:
    size = results.size
    results.absences = play_absences(
        subscribers=size.absent_subscribers, seconds=size.absences_s, seed=results.seed
    )


def fan_in_job(results: Results, subscribers: int) -> Job:
    def keep() -> None:
        results.fan_in.append(play_fan_in(subscribers, seed=results.seed))

    return f"return of {subscribers}", keep


def crash_job(results: Results, clock: Callable[[], float]) -> None:
    size = results.size
    results.crash = play_crash(
        subscribers=size.crash_subscribers,
        before_s=size.before_s,
        down_s=size.down_s,
        after_s=size.after_s,
        seed=results.seed,
        clock=clock,
    )


def acknowledge_job(results: Results, subscribers: int) -> Job:
    def keep() -> None:
        results.rows.append(
            play_auto_acknowledge(
                subscribers, seconds=results.size.acknowledge_s, seed=results.seed
            )
        )

    return f"auto-acknowledge of {subscribers}", keep


def logging_job(results: Results, clock: Callable[[], float]) -> None:
    results.logging = play_logging(seconds=results.size.logging_s, seed=results.seed, clock=clock)
