"""Figures 7 and 8: the host of all subscribers crashes, recovers, and has all of them catch up.

Theory of operation
    As in the paper: one host of subscribers, which is down for 25 s. When it is back its
    consolidated stream gets what it missed; only when that is done do the subscribers return, all
    at once, each with a stream of its own. The course goes on until all are level again.
    Subscribers are spread over five machines, whose rates are noted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapless_lab.experiments.durable.absences import SUBSCRIBERS, sent_again
from gapless_lab.experiments.durable.clients import Return, Subscriber, close_books, feeds, join
from gapless_lab.experiments.durable.setting import (
    HOST,
    SAMPLES_PER_S,
    Positions,
    Setting,
    ms_of,
    star,
)
from gapless_lab.experiments.durable.steady import EVENTS_PER_S, REST_S, WARM_S
from gapless_lab.experiments.meter import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    Clock = Callable[[], float]

MACHINE_COUNT = 5
LEVEL_MS = 500
"""The consolidated stream has recovered when it is this close to now."""
CATCH_UP_S_MAX = 300


@dataclass(frozen=True, kw_only=True)
class Crash:
    """What was seen. Seconds are the world's."""

    subscribers: int
    begin: int
    """When the course begins, the host crashes, is back, and so on."""
    down_s: float
    up_s: float
    recovered_s: float
    """When the consolidated stream had everything again; the subscribers return then."""
    level_s: float
    """When the last of them was level again."""
    end: int
    returns: list[Return]
    positions: Positions
    machines: list[list[int]]
    """By client machine: deliveries in each second from `begin` on."""
    alone: list[int]
    """In each second: deliveries to all by streams of their own."""
    busy: dict[str, list[float]]
    """By broker: share of each second."""
    missed: int
    """Events published from the crash until all were level."""
    sent_again: int
    """Events that the host of the pubends sent once more, from the crash to the end."""
    wanted: int
    """Deliveries by streams of their own."""
    lost: int
    doubled: int
    model_s: dict[str, float]
    """By broker: processor time by the cost model."""
    measured_s: dict[str, float]
    """What the played nodes took."""

    def mean(self, values: list[float] | list[int], begin_s: float, end_s: float) -> float:
        """Of what is noted for each second, over the whole seconds between, if there are any."""
        first, last = int(begin_s) - self.begin, int(end_s) - self.begin
        some = values[first + 1 : last] or values[first : last + 1]
        return sum(some) / len(some)

    @property
    def deliveries(self) -> list[int]:
        return [sum(counts) for counts in zip(*self.machines, strict=True)]


def play_crash(
    *, subscribers: int, before_s: int, down_s: int, after_s: int, seed: int, clock: Clock
) -> Crash:
    setting = Setting(star(1), seed=seed, clock=clock)
    found = join(setting, [SUBSCRIBERS], subscribers)
    published = feeds(setting, EVENTS_PER_S)
    setting.play(WARM_S)
    positions = Positions()
    setting.observe(SUBSCRIBERS, positions)
    begin = setting.second
    setting.play(before_s)
    again, made = sent_again(setting), sum(len(feed.published) for feed in published)
    process, down_at_s = setting.world.processes[SUBSCRIBERS], setting.instant_s
    process.crash(down_s * SECOND)
    setting.play(down_s)
    up_at_s = setting.instant_s
    recovered_s = setting.play_until(lambda: lag_ms(setting) < LEVEL_MS, CATCH_UP_S_MAX)
    for each in found:
        each.connect()
    level_s = setting.play_until(lambda: all(each.is_level for each in found), CATCH_UP_S_MAX)
    missed = sum(len(feed.published) for feed in published) - made
    setting.play(after_s)
    again = sent_again(setting) - again
    for feed in published:
        feed.stop()
    end = setting.second
    rows = positions.rows[: (end - begin) * SAMPLES_PER_S + 1]
    setting.play(REST_S)
    books = close_books(found, published)
    seconds = range(begin, end)
    return Crash(
        subscribers=subscribers,
        begin=begin,
        down_s=down_at_s,
        up_s=up_at_s,
        recovered_s=recovered_s,
        level_s=level_s,
        end=end,
        returns=[each.returns[-1] for each in found],
        positions=Positions(rows=rows),
        machines=rates(found, seconds),
        alone=[sum(each.alone[second] for each in found) for second in seconds],
        busy={
            str(name): [setting.busy(name, second, second + 1) for second in seconds]
            for name in (HOST, SUBSCRIBERS)
        },
        missed=missed,
        sent_again=again,
        wanted=sum(each.alone.total() for each in found),
        lost=books.lost,
        doubled=books.doubled,
        model_s={str(name): used.total() / SECOND for name, used in setting.busy_us.items()},
        measured_s={str(name): each.cpu_s for name, each in setting.clocked.items()},
    )


def lag_ms(setting: Setting) -> float:
    """How far the consolidated stream of the slowest pubend is behind."""
    streams = setting.nodes[SUBSCRIBERS].durable.named.streams.values()
    now_ms = 1000 * setting.instant_s
    return max(now_ms - ms_of(stream.latest) for stream in streams)


def rates(found: list[Subscriber], seconds: range) -> list[list[int]]:
    machines = [found[place::MACHINE_COUNT] for place in range(MACHINE_COUNT)]
    return [[sum(each.by_second[s] for each in some) for s in seconds] for some in machines]
