"""Figures 5 and 6, and what returns ask of the pubends: subscribers that are away for 5 s.

Theory of operation
    One host of subscribers below the host of the pubends, near the limit of its processor. Each
    subscriber is away for 5 s, once in 300 s. It is noted how long each takes to be level with
    all others again, and second by second how far the consolidated stream and release come.
    In a second play, ever more subscribers are away together and return together: how often does
    the host of the pubends send an event again?
"""

from __future__ import annotations

from dataclasses import dataclass

from gapless.core.identity import BrokerName
from gapless_lab.experiments.durable.clients import Return, close_books, feeds, join
from gapless_lab.experiments.durable.processor import SLOW, Costs
from gapless_lab.experiments.durable.setting import HOST, SAMPLES_PER_S, Positions, Setting, star
from gapless_lab.experiments.durable.steady import (
    AWAY_S,
    EVENTS_PER_S,
    REST_S,
    WARM_S,
    schedule,
)

SUBSCRIBERS = BrokerName("s1")
CATCH_UP_S_MAX = 120


@dataclass(frozen=True, kw_only=True)
class Absences:
    """Figures 5 and 6."""

    subscribers: int
    begin: int
    """The second at which everything is in full swing, and so on."""
    end: int
    returns: list[Return]
    positions: Positions
    busy: float
    """Share of the processor of the subscribers' host."""
    lost: int
    doubled: int
    digest: str


@dataclass(frozen=True, kw_only=True)
class FanIn:
    """So many subscribers have missed the same seconds and return together."""

    subscribers: int
    missed: int
    """Events that were published until all were level again."""
    wanted: int
    """Deliveries that were made of them, to each by a stream of its own."""
    level_after_s: float
    """When the last of them was level."""
    nacks: int
    sent_again: int
    """Events that the host of the pubends sent once more."""


def play_absences(*, subscribers: int, seconds: int, seed: int) -> Absences:
    setting = Setting(star(1), seed=seed)
    found = join(setting, [SUBSCRIBERS], subscribers)
    published = feeds(setting, EVENTS_PER_S)
    setting.play(WARM_S)
    positions = Positions()
    setting.observe(SUBSCRIBERS, positions)
    schedule(setting, found)
    begin = setting.second
    setting.play(seconds)
    end = setting.second
    returns = sorted((r for each in found for r in each.returns), key=lambda r: r.returned)
    for feed in published:
        feed.stop()
    rows = positions.rows[: (end - begin) * SAMPLES_PER_S + 1]
    setting.play(AWAY_S + REST_S)
    books = close_books(found, published)
    return Absences(
        subscribers=subscribers,
        begin=begin,
        end=end,
        returns=returns,
        positions=Positions(rows=rows),
        busy=setting.busy(SUBSCRIBERS, begin, end),
        lost=books.lost,
        doubled=books.doubled,
        digest=setting.trace.digest,
    )


def play_fan_in(
    subscribers: int, *, seed: int, away_s: float = AWAY_S, costs: Costs = SLOW
) -> FanIn:
    setting = Setting(star(1), seed=seed, costs=costs)
    found = join(setting, [SUBSCRIBERS], subscribers)
    published = feeds(setting, EVENTS_PER_S)
    setting.play(WARM_S)
    for each in found:
        each.leave(away_s)
    before = sum(len(feed.published) for feed in published)
    nacks, answered = setting.watch.nacks.total(), sent_again(setting)
    setting.play(away_s + REST_S / 10)
    began_s = setting.instant_s
    level_s = setting.play_until(lambda: all(each.is_level for each in found), CATCH_UP_S_MAX)
    missed = sum(len(feed.published) for feed in published) - before
    setting.play(2 * REST_S)  # what is late because of them is asked for too
    return FanIn(
        subscribers=subscribers,
        missed=missed,
        wanted=sum(each.alone.total() for each in found),
        level_after_s=level_s - began_s,
        nacks=setting.watch.nacks.total() - nacks,
        sent_again=sent_again(setting) - answered,
    )


def sent_again(setting: Setting) -> int:
    answered = setting.watch.answered
    return sum(count for (name, _), count in answered.items() if name == HOST)
