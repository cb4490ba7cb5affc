"""Losses: what is not kept any more for brokers that are out of reach.

Theory of operation
    A publication waits in queues until all its subscribers' brokers have it, and one that is out of
    reach may never return. So what waits is bounded for each topic (`settings`), and at the bound
    the older part of it is given up, for those out of reach alone. A *waiver* comes from the source
    that has too much waiting: no broker need keep what it published up to a number for brokers out
    of reach. A broker beside those makes it a *loss* of each broker, by name: what that one lacks
    up to the number it will not get. So does a broker that has too much waiting for them itself.
    Both only grow, and a broker that learns of one passes it on at once; a session begins with all
    of them. So on any session a loss goes before whatever follows on what was lost, and the broker
    that lost something knows it before it delivers the next: it has lost what is between the last
    number it has seen of that source and the loss. If that is nothing, it has lost nothing.

Invariants
    I1  a number that is known never falls

Cost: one number for each life of a source, topic and life of a broker that something was given up
for. They go when that broker has begun another life, which says so when it is offered subscriptions
of the former one.

Source: none; the paper's queues have no end. Decision 0026.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from gapless.tree.members import whole
from gapless.tree.messages import Loss, Position
from gapless.tree.trail import NOTHING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gapless.core.identity import BrokerName
    from gapless.tree.members import Members
    from gapless.tree.messages import Life, PublicationRun

Flow = tuple["Life", "BrokerName", int, str]
"""The broker that lost it, the life of the source that published it, and the topic."""


class LossTable:
    """All losses that one broker knows of."""

    def __init__(self, here: Life) -> None:
        self._lives = dict([here])  # of each broker no life before this one lasts
        self._lost: dict[Flow, int] = {}
        self._waived: dict[tuple[BrokerName, str], Position] = {}

    def learn(self, losses: Iterable[Loss]) -> tuple[Loss, ...]:
        """Those that are new."""
        return tuple(loss for loss in losses if self._is_new(loss))

    def _is_new(self, loss: Loss) -> bool:
        if loss.target is None:
            place, through = (loss.source, loss.topic), Position(loss.epoch, loss.through)
            is_new = through > self._waived.get(place, NOTHING)
            if is_new:
                self._waived[place] = through  # whatever former lives of the source left is older
            return is_new
        broker, epoch = loss.target
        flow = (loss.target, loss.source, loss.epoch, loss.topic)
        is_new = loss.through > self._lost.get(flow, 0) and epoch >= self._lives.get(broker, 0)
        if is_new:
            self._lost[flow] = loss.through
        return is_new

    @property
    def has_losses(self) -> bool:
        return bool(self._lost)

    def lost(self, run: PublicationRun, target: Life) -> Members:
        """The members that `target` gets no more."""
        if not self._lost:
            return 0
        through = self._lost.get((target, run.source, run.epoch, run.topic), 0)
        return whole(bisect_right(run.numbers, through))

    def waived(self, run: PublicationRun) -> Members:
        """The members that no broker need keep for brokers out of reach."""
        if not self._waived:
            return 0
        waived = self._waived.get((run.source, run.topic), NOTHING)
        if waived.epoch != run.epoch:
            return run.all if run.epoch < waived.epoch else 0
        return whole(bisect_right(run.numbers, waived.number))

    def all(self) -> tuple[Loss, ...]:
        lost = [
            Loss(source, epoch, topic, through, target)
            for (target, source, epoch, topic), through in self._lost.items()
        ]
        waived = [
            Loss(source, through.epoch, topic, through.number)
            for (source, topic), through in self._waived.items()
        ]
        return (*lost, *waived)

    def forget_before(self, life: Life) -> None:
        """A broker has begun this life: what it lost in an earlier one concerns no broker."""
        broker, epoch = life
        if epoch > self._lives.get(broker, 0):
            self._lives[broker] = epoch
            over = [flow for flow in self._lost if flow[0][0] == broker and flow[0][1] < epoch]
            for flow in over:
                del self._lost[flow]
