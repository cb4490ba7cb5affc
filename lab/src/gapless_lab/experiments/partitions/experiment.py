"""The paper's evaluation of the tree, played again: figures 9 to 12.

Theory of operation
    Figures 9, 11 and 12 are about graphs; figure 10 is played with the whole protocol. Every point
    is a mean over runs, each with its own failed brokers, the same ones for every number of
    failures tolerated.

Invariant: the same seed and size give the same results, wherever and in which order runs are
played.

Cost: with the full size nearly all is figure 10: a run with 500 brokers takes a minute or two, and
there are 120. The other figures take a few minutes of one core.

Source: SRDS 2011, sec. IX. The shape of the paper's trees is not stated: figures 9, 11 and 12 name
the fanout; for figure 10 some shapes are compared.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import asdict, dataclass, field
from functools import partial
from statistics import mean
from typing import TYPE_CHECKING, Any

from gapless_lab.experiments.partitions.delivery import MEASURED_S, delivered_share
from gapless_lab.experiments.partitions.graph import (
    Graph,
    active_counts,
    draw_failed,
    random_tree,
    tree,
)
from gapless_lab.experiments.runs import Outcomes, Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gapless.tree.messages import Edge

TOLERATED = (0, 1, 2, 3)
FANOUTS = (3, 7)
ACTIVE_FAILED = (16, 60)
GRAPHS_A_RUN = 10
"""Draws of figure 9 and of the shapes for each run: the paper has 100."""

SHAPES: dict[str, Callable[[int, random.Random], tuple[Edge, ...]]] = {
    "filled, 3 neighbours": lambda count, _dice: tree(count, 3),
    "filled, 4 neighbours": lambda count, _dice: tree(count, 4),
    "filled, 7 neighbours": lambda count, _dice: tree(count, 7),
    "random, at most 3": lambda count, dice: random_tree(count, 3, dice),
    "random, at most 7": lambda count, dice: random_tree(count, 7, dice),
    "random, no bound": lambda count, dice: random_tree(count, count, dice),
}
"""Which tree may the paper have had? Each with what makes it."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is played."""

    brokers: int
    """Of the graphs."""
    failed_counts: tuple[int, ...]
    deliveries: tuple[tuple[int, tuple[int, ...]], ...]
    """Networks of figure 10: brokers, and how many of them fail."""
    publications: int
    """Of each live broker, in the 120 s that are measured."""
    runs: int
    """Of each point."""


FULL = Size(
    brokers=1_000,
    failed_counts=(20, 60, 100, 140, 170),
    deliveries=((120, (4, 12, 20)), (500, (17, 51, 85))),
    publications=1,
    runs=10,
)
QUICK = Size(
    brokers=200,
    failed_counts=(10, 34),
    deliveries=((60, (3, 10)),),
    publications=2,
    runs=2,
)


@dataclass(slots=True)
class Results:
    """All that was measured."""

    seed: int
    size: Size
    outcomes: Outcomes = field(default_factory=Outcomes)

    def disconnected(self, fanout: int, tolerated: int, failed_count: int) -> float:
        """Figure 9: the share of pairs of live brokers that cannot reach each other."""
        rows: list[list[float]] = self.outcomes.of(self._graph(fanout, failed_count))
        return mean(row[tolerated] for row in rows)

    def delivered(self, brokers: int, tolerated: int, failed_count: int) -> list[float]:
        """Figure 10: the share of deliveries between live brokers that were made, by run."""
        point = self._delivery(brokers, tolerated, failed_count)
        return [made for made, _ in self.outcomes.of(point)]

    def reachable(self, brokers: int, tolerated: int, failed_count: int) -> list[float]:
        """What the graphs of the same runs would allow."""
        point = self._delivery(brokers, tolerated, failed_count)
        return [allowed for _, allowed in self.outcomes.of(point)]

    @property
    def networks(self) -> list[tuple[int, tuple[int, ...]]]:
        """The networks of figure 10 of which every point was played once at least."""
        return [
            (brokers, failed)
            for brokers, failed in self.size.deliveries
            if all(self.delivered(brokers, t, count) for t in TOLERATED for count in failed)
        ]

    def known(self, fanout: int, tolerated: int) -> list[int]:
        """Figure 11: how many others each broker knows, ascending. Chance has no say."""
        return sorted(Graph(tree(self.size.brokers, fanout)).known_counts(tolerated + 1))

    def shape(self, shape: str) -> list[float]:
        """Means over the draws: pairs connected by δ, then the largest neighbourhood."""
        rows: list[list[float]] = self.outcomes.of(self._shape(shape))
        return [mean(values) for values in zip(*rows, strict=True)]

    def active(self, fanout: int, failed_count: int) -> list[float]:
        """Figure 12: by number of active sessions, the share of brokers that have so many."""
        total: Counter[int] = Counter()
        for brokers_by_count in self.outcomes.of(self._sessions(fanout, failed_count)):
            total.update(dict(enumerate(brokers_by_count)))
        return [total[count] / total.total() for count in range(max(total) + 1)]

    def runs(self) -> list[Run]:
        """All there is to play: what takes little first, then first runs of all points."""
        numbers = range(self.size.runs)
        return [
            *(run for number in numbers for run in self._graphs(number)),
            *(
                run
                for brokers, failed in self.size.deliveries
                for number in numbers
                for run in self._deliveries(brokers, failed, number)
            ),
        ]

    def _graphs(self, number: int) -> Iterator[Run]:
        seed, size = self.seed, self.size
        play: Callable[[], Any]
        graphs = range(number * GRAPHS_A_RUN, (number + 1) * GRAPHS_A_RUN)
        for fanout in FANOUTS:
            for failed in size.failed_counts:
                for each in graphs:
                    play = partial(play_graph, seed, size.brokers, fanout, failed, each)
                    yield Run(self._graph(fanout, failed), each, size.brokers / 70_000, play)
            for failed in ACTIVE_FAILED:
                play = partial(play_sessions, seed, size.brokers, fanout, failed, number)
                weight = fanout * (size.brokers / 1_500) ** 2
                yield Run(self._sessions(fanout, failed), number, weight, play)
        brokers, most = self._largest
        for shape in SHAPES:
            for each in graphs:
                play = partial(play_shape, seed, brokers, shape, most, each)
                yield Run(self._shape(shape), each, brokers / 20_000, play)

    def _deliveries(
        self, brokers: int, failed_counts: tuple[int, ...], number: int
    ) -> Iterator[Run]:
        size = self.size
        for failed in failed_counts:
            for tolerated in TOLERATED:
                play = partial(
                    play_delivery, self.seed, brokers, size.publications, tolerated, failed, number
                )
                weight = size.publications * (brokers / 60) ** 2.5
                yield Run(self._delivery(brokers, tolerated, failed), number, weight, play)

    @property
    def _largest(self) -> tuple[int, int]:
        """The brokers of the largest network of figure 10, and the most that fail."""
        brokers, failed = self.size.deliveries[-1]
        return brokers, failed[-1]

    def _graph(self, fanout: int, failed_count: int) -> str:
        return f"connectivity: {self._tree(fanout)}, {failed_count} failed"

    def _sessions(self, fanout: int, failed_count: int) -> str:
        return f"sessions: {self._tree(fanout)}, {failed_count} failed"

    def _shape(self, shape: str) -> str:
        brokers, failed = self._largest
        return f"shape: {shape}, seed {self.seed}, {brokers} brokers, {failed} failed"

    def _delivery(self, brokers: int, tolerated: int, failed_count: int) -> str:
        of = f"seed {self.seed}, {brokers} brokers, all subscribe"
        each = f"each publishes {self.size.publications} times in {MEASURED_S} s"
        return f"delivery: {of}, {each}, {failed_count} failed, δ {tolerated}"

    def _tree(self, fanout: int) -> str:
        return f"seed {self.seed}, {self.size.brokers} brokers, fanout {fanout}"

    def notes(self) -> list[str]:
        """Figure 10 in numbers, with their spread; and the shapes of trees."""
        brokers, failed = self._largest
        return [
            *(self._points(*network) for network in self.size.deliveries),
            *(
                f"{shape}: of {brokers} brokers {failed} failed, connected with δ = 0 to 3: "
                f"{', '.join(f'{share:.1%}' for share in self.shape(shape)[:-1])}; the largest "
                f"neighbourhood with δ = 3 has {self.shape(shape)[-1]:.0f} brokers"
                for shape in SHAPES
            ),
        ]

    def _points(self, brokers: int, failed_counts: tuple[int, ...]) -> str:
        lines = []
        for failed in failed_counts:
            shown = []
            for tolerated in TOLERATED:
                made = self.delivered(brokers, tolerated, failed)
                shown.append(f"δ = {tolerated}: {spread(made)}")
            lines.append(
                f"{failed} failed, {len(made)} of {self.size.runs} draws: {'; '.join(shown)}"
            )
        return f"{brokers} brokers, delivered on average, worst to best: {' | '.join(lines)}"

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {"seed": self.seed, "size": asdict(self.size), "runs": self.outcomes.plain()}


def spread(shares: list[float]) -> str:
    """Mean, worst and best."""
    if not shares:
        return "not played"
    return f"{mean(shares):.1%} ({min(shares):.1%} to {max(shares):.1%})"


def play_graph(seed: int, brokers: int, fanout: int, failed_count: int, run: int) -> list[float]:
    """Figure 9: by failures tolerated, the share of pairs cut off."""
    graph = Graph(tree(brokers, fanout))
    dice = random.Random(f"{seed} {fanout} {failed_count} {run}")
    failed = draw_failed(dice, graph, failed_count)
    return [graph.disconnected_share(failed, tolerated) for tolerated in TOLERATED]


def play_shape(seed: int, brokers: int, shape: str, failed_count: int, run: int) -> list[float]:
    """By failures tolerated the share of pairs connected; last, the largest neighbourhood."""
    dice = random.Random(f"{seed} {shape} {failed_count} {run}")
    graph = Graph(SHAPES[shape](brokers, dice))
    failed = draw_failed(dice, graph, failed_count)
    connected = [1 - graph.disconnected_share(failed, tolerated) for tolerated in TOLERATED]
    return [*connected, max(graph.known_counts(TOLERATED[-1] + 1))]


def play_delivery(
    seed: int, brokers: int, publications: int, tolerated: int, failed_count: int, run: int
) -> list[float]:
    """Figure 10: the share that is delivered, and the share that is connected."""
    edges = tree(brokers, FANOUTS[0])
    graph = Graph(edges)
    dice = random.Random(f"{seed} delivery {failed_count} {run}")
    failed = draw_failed(dice, graph, failed_count)
    delivered = delivered_share(edges, sorted(failed), tolerated, seed, publications=publications)
    return [delivered, 1 - graph.disconnected_share(failed, tolerated)]


def play_sessions(seed: int, brokers: int, fanout: int, failed_count: int, run: int) -> list[int]:
    """Figure 12: by number of active sessions, how many brokers have so many."""
    edges = tree(brokers, fanout)
    dice = random.Random(f"{seed} sessions {fanout} {failed_count} {run}")
    failed = draw_failed(dice, Graph(edges), failed_count)
    found = Counter(active_counts(edges, failed, TOLERATED[-1]))
    return [found[count] for count in range(max(found) + 1)]
