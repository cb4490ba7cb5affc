"""Options of a run of the tree: everything that the seed decides before it begins.

Theory of operation
    The tree's shape, δ, how often things are published and subscribed, and which faults come. Each
    kind of fault is on or off by a coin. Half of the runs stay *within* δ: at no time are more than
    δ brokers down or links cut. The others know no bound.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from gapless.core.identity import BrokerName
from gapless.testing.links import CLEAN, LinkOptions
from gapless.tree.settings import TreeSettings

if TYPE_CHECKING:
    import random

    from gapless.tree.messages import Edge

MILLISECOND = 1_000

FAULTS = ("crash", "cut", "one_way_cut", "stall", "loss")

Repeats = Literal["source", "trail"]
Tags = Literal["literal", "scoped"]

MODES: tuple[tuple[Repeats, Tags], ...] = (
    ("source", "scoped"),
    ("source", "scoped"),
    ("source", "literal"),
    ("trail", "literal"),
)

CONDITIONS = ("", "k = 1", "k > 1", "k < 2", "k <> 2", "k IN (0, 3)")


@dataclass(frozen=True, kw_only=True)
class TreeOptions:
    """What is played. Times in microseconds."""

    brokers: tuple[BrokerName, ...]
    edges: tuple[Edge, ...]
    settings: TreeSettings
    links: LinkOptions = CLEAN
    faults: tuple[str, ...] = ()
    faults_at_once_max: int = 0
    fault_every: int = 150 * MILLISECOND
    fault_lasts: int = 400 * MILLISECOND
    publish_every: int = 15 * MILLISECOND
    subscribe_every: int = 120 * MILLISECOND
    subscriptions_at_first: int = 3
    joins: int = 0
    """Brokers that join while it runs."""
    join_every: int = 200 * MILLISECOND
    duration: int = 1_500 * MILLISECOND
    siege: int = 0
    """Publications while as many brokers are out of reach as the tree tolerates, and stay so: the
    others go on as if nothing were the matter."""
    rounds: int = 0
    """Times that other brokers and links fail, as many as the tree tolerates, and those before them
    return: in each round all goes on between the brokers that are up."""
    is_checked: bool = True
    """Invariants after every step, and what is owed: dear where there are hundreds of brokers."""

    @property
    def is_within(self) -> bool:
        """Are there never more failures than the tree tolerates?"""
        is_few = self.faults_at_once_max <= self.settings.failures_tolerated
        return is_few and self.links == CLEAN  # a message overtaken is a session lost

    def lines(self) -> list[str]:
        shape = " ".join(f"{a}-{b}" for a, b in self.edges)
        return [
            f"{len(self.brokers)} brokers: {shape}",
            f"tolerates {self.settings.failures_tolerated} failures; repeats by "
            f"{self.settings.repeats}, tags {self.settings.tags}; "
            f"at most {self.faults_at_once_max} at once of: {', '.join(self.faults) or 'none'}; "
            f"{self.joins} join; {'disorder' if self.links != CLEAN else 'order'} on links",
        ]


def settings_for(
    failures_tolerated: int,
    window_max: int = 100,
    repeats: Repeats = "source",
    tags: Tags = "literal",
) -> TreeSettings:
    """Timers on a small scale, so that a short run sees many of them."""
    return TreeSettings(
        failures_tolerated=failures_tolerated,
        repeats=repeats,
        tags=tags,
        beat_every=35 * MILLISECOND,
        patience=110 * MILLISECOND,
        queue_max=300,
        window_max=window_max,
        batch_max=5,
    )


def draw_options(dice: random.Random) -> TreeOptions:
    """A tree, faults and load."""
    failures = dice.choice((0, 1, 1, 2, 2, 3))
    count = dice.randint(3, 8)
    brokers = tuple(BrokerName(f"b{i}") for i in range(count))
    within = dice.random() < 0.5
    options = TreeOptions(
        brokers=brokers,
        edges=draw_edges(dice, brokers),
        settings=settings_for(failures, dice.choice((2, 10, 100))),
        faults=tuple(fault for fault in FAULTS if dice.random() < 0.5),
        faults_at_once_max=failures if within else dice.randint(1, count),
        fault_every=dice.choice((25, 60, 150)) * MILLISECOND,
        fault_lasts=dice.choice((60, 200, 500)) * MILLISECOND,
        publish_every=dice.choice((5, 15)) * MILLISECOND,
        subscribe_every=dice.choice((15, 60, 400)) * MILLISECOND,
        subscriptions_at_first=dice.randint(1, 5),
    )
    return varied(options, dice)


DISORDER = LinkOptions(duplicate=0.05, overtake=0.02, overtake_delay=5 * MILLISECOND)


def varied(options: TreeOptions, dice: random.Random) -> TreeOptions:
    """What the last draws decide: how it is done, who joins, and whether links keep order.

    The trail is played on links that do: where sessions end all the time and brokers crash, copies
    of a former life come after those of the new one, and count as late (decision 0017).
    """
    options = in_mode(options, *dice.choice(MODES))
    is_disordered = dice.random() < 0.25 and options.settings.repeats == "source"
    links = DISORDER if is_disordered else CLEAN
    return replace(options, joins=dice.choice((0, 0, 1, 3)), links=links)


def in_mode(options: TreeOptions, repeats: Repeats, tags: Tags) -> TreeOptions:
    return replace(options, settings=replace(options.settings, repeats=repeats, tags=tags))


def flapping(failures_tolerated: int, brokers: int = 8, repeats: Repeats = "source") -> TreeOptions:
    """A chain whose links come and go all the time, many at once."""
    names = tuple(BrokerName(f"b{i}") for i in range(brokers))
    return TreeOptions(
        brokers=names,
        edges=tuple(pairwise(names)),
        settings=settings_for(failures_tolerated, repeats=repeats),
        faults=("cut",),
        faults_at_once_max=brokers,
        fault_every=25 * MILLISECOND,
        fault_lasts=150 * MILLISECOND,
        publish_every=5 * MILLISECOND,
        subscribe_every=10_000 * MILLISECOND,
        subscriptions_at_first=5,
    )


def restless(failures_tolerated: int) -> TreeOptions:
    """A small tree where subscriptions come and go while links do."""
    return replace(
        flapping(failures_tolerated, brokers=5),
        settings=settings_for(failures_tolerated, window_max=2),
        faults=("cut", "stall"),
        faults_at_once_max=3,
        fault_every=40 * MILLISECOND,
        fault_lasts=200 * MILLISECOND,
        subscribe_every=15 * MILLISECOND,
    )


def crashing(failures_tolerated: int) -> TreeOptions:
    """Three in a row that crash and lose each other, while subscriptions come and go."""
    return replace(
        flapping(failures_tolerated, brokers=3),
        settings=settings_for(failures_tolerated, window_max=5),
        faults=("crash", "cut"),
        faults_at_once_max=3,
        fault_every=40 * MILLISECOND,
        fault_lasts=200 * MILLISECOND,
        subscribe_every=15 * MILLISECOND,
    )


def dying(failures_tolerated: int) -> TreeOptions:
    """Brokers crash while they publish much, to subscribers who stay."""
    return replace(
        flapping(failures_tolerated, brokers=4),
        faults=("crash", "cut"),
        faults_at_once_max=2,
        publish_every=2 * MILLISECOND,
        fault_every=100 * MILLISECOND,
    )


def draw_restless(dice: random.Random) -> TreeOptions:
    """Much trouble in a short time, in a tree of any shape: it finds most."""
    options = (restless if dice.random() < 0.7 else flapping)(dice.choice((0, 1, 1, 2, 3)))
    brokers = tuple(BrokerName(f"b{i}") for i in range(dice.randint(3, 8)))
    failures = options.settings.failures_tolerated
    options = replace(
        options,
        brokers=brokers,
        edges=draw_edges(dice, brokers),
        faults=tuple(fault for fault in FAULTS if dice.random() < 0.5) or ("cut",),
        faults_at_once_max=dice.randint(1, 4),
        settings=settings_for(failures, dice.choice((2, 5, 100))),
        fault_lasts=dice.choice((60, 200, 500)) * MILLISECOND,
    )
    return varied(options, dice)


def draw_siege(dice: random.Random) -> TreeOptions:
    """A tree of which some are out of reach for long, with queues that are soon full."""
    failures = dice.choice((1, 1, 2, 3))
    brokers = tuple(BrokerName(f"b{i}") for i in range(dice.randint(failures + 2, 8)))
    settings = settings_for(failures, dice.choice((3, 10, 100)))
    options = TreeOptions(
        brokers=brokers,
        edges=draw_edges(dice, brokers),
        settings=replace(settings, queue_max=dice.choice((30, 60))),
        subscriptions_at_first=dice.randint(1, 5),
        duration=100 * MILLISECOND,
        siege=200,
    )
    return in_mode(options, *dice.choice(MODES))


def draw_rounds(dice: random.Random) -> TreeOptions:
    """A tree of which some brokers and links are down at any time, never more than tolerated."""
    failures = dice.choice((1, 1, 2, 3))
    brokers = tuple(BrokerName(f"b{i}") for i in range(dice.randint(failures + 3, 8)))
    options = TreeOptions(
        brokers=brokers,
        edges=draw_edges(dice, brokers),
        settings=settings_for(failures, dice.choice((3, 10, 100)), tags="scoped"),
        subscriptions_at_first=dice.randint(1, 5),
        duration=100 * MILLISECOND,
        rounds=5,
    )
    return replace(options, joins=dice.choice((0, 0, 2)))


def draw_narrow(dice: random.Random) -> TreeOptions:
    """Much trouble, and queues so short that they are always full: what is lost is told."""
    options = draw_restless(dice)
    settings = replace(options.settings, queue_max=dice.choice((6, 10, 20)))
    lasts = dice.choice((200, 500, 1_000)) * MILLISECOND
    return replace(options, settings=settings, fault_lasts=lasts)


def draw_edges(dice: random.Random, brokers: tuple[BrokerName, ...]) -> tuple[Edge, ...]:
    """A chain, a random tree, or something between."""
    width = dice.choice((1, 1, 2, 3, len(brokers)))
    return tuple(
        (brokers[max(0, i - dice.randint(1, width))], brokers[i]) for i in range(1, len(brokers))
    )
