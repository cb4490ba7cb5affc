"""Forwarding: what a broker does with publications, from a neighbour or a publisher of its own.

Theory of operation
    Publications come and go in runs, and a run is matched, delivered and queued in one go.
    Members of a run that have come before are confirmed, or their sender joins the brokers that
    will be told when they are settled. All others are delivered to the subscribers of this broker
    whose subscriptions match and have no tag that closes the way they came; and they wait in the
    queue for the routes of all others that match.
    A recovery notifier takes the same way and order; at each broker it passes it replaces tags.
    What a step confirms to one neighbour goes as one message for each source. A sender is told how
    many were *taken*, so that it sends the next, when there is a message for it anyway, and at the
    latest when a quarter of its window is due.
    What is not kept any more (`losses`) is told to all before anything else is sent to them; at the
    broker that has lost something its driver is told which numbers.

Invariants
    I1  what subscribers get of one source ascends

Cost: one match and one queue entry a run; a few operations on whole numbers for each route.

Source: SRDS 2011, sec. VI and VIII, figure 8. Deviation: a publication carries its way instead of
tags, and what is safe is decided in one place, the subscriber's broker, whose tags change in order
with the publications. Where the trail tells repeats, the source's own numbers are checked once more
there (docs/protocols/reliable-tree.md, 3.3): a crash may wipe out the one broker that two copies
share.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from gapless.core.effects import Tell
from gapless.core.events import EventBatch
from gapless.core.ticks import TICK_MAX
from gapless.tree.losses import LossTable
from gapless.tree.members import Targets, pick, places
from gapless.tree.messages import (
    Confirmed,
    Credit,
    Held,
    Losses,
    Missed,
    Position,
    PublicationRun,
    RunConfirmed,
    RunHeld,
    SourceEnded,
    TreeDelivery,
)
from gapless.tree.partitions import is_closed
from gapless.tree.publications import cut_runs
from gapless.tree.subscriptions import divide, life_of
from gapless.tree.trail import NearbyNumbers, Sources

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Literal

    from gapless.core.identity import BrokerName, Instant
    from gapless.tree.members import Members
    from gapless.tree.messages import Clearing, Life, Loss
    from gapless.tree.neighbourhood import Neighbourhood
    from gapless.tree.publications import Publications, QueueEntry
    from gapless.tree.recovery import Sessions
    from gapless.tree.settings import TreeSettings
    from gapless.tree.subscriptions import RoutedSubscription, SubscriptionTable


class Forwarding:
    """How publications get around."""

    def __init__(
        self,
        neighbourhood: Neighbourhood,
        sessions: Sessions,
        subscriptions: SubscriptionTable,
        publications: Publications,
        life: Life,
        settings: TreeSettings,
    ) -> None:
        self._neighbourhood = neighbourhood
        self._sessions = sessions
        self._subscriptions = subscriptions
        self._publications = publications
        self._settings = settings
        self._life = life
        self._seen = NearbyNumbers(settings)
        self._sources = Sources(settings)
        self._losses = LossTable(life)
        self._confirmations: dict[BrokerName, dict[Life, list[int]]] = {}  # of this step
        self._taken: dict[BrokerName, tuple[Position, int]] = {}  # without credit, by connection
        self._away: frozenset[BrokerName] = frozenset()
        self._must_look = False  # we may keep for those away what we need not
        self.late_repeats = 0
        """Repeats that only the source's own number told."""

    # --- messages --------------------------------------------------------------------------------

    def publish(self, topic: str, events: EventBatch, *, is_awaited: bool) -> range:
        """Publications of our own begin their way; their numbers."""
        first = self._publications.next_number
        for low, high in cut_runs(events.events, self._settings):
            run = self._own_run(
                range(first + low, first + high),
                topic=topic,
                events=EventBatch(events.events[low:high]),
                is_awaited=is_awaited,
            )
            self._accept(run, None)
        return range(first, first + len(events))

    def _own_run(self, numbers: Iterable[int], **fields: object) -> PublicationRun:
        source, epoch = self._life
        return PublicationRun(source, epoch, tuple(numbers), (), **fields)  # type: ignore[arg-type]

    def announce(self, clearing: Clearing) -> None:
        """A partition is over for a subscription: tell its source, in order with all before."""
        routed = self._subscriptions.get(clearing.subscription)
        if routed is not None and routed.towards is not None:
            number = self._publications.next_number
            notifier = self._own_run((number,), clearings=(clearing,))
            routes = {routed.route: Targets({life_of(routed): 1})}
            self._publications.append(notifier, routes, None)

    def turn(self, life: Literal["begins", "ends"]) -> None:
        """Our life begins, or ends in order: all brokers with subscribers are told, behind all that
        we published before. A broker that hears of another life of ours without a word that the
        former one had ended knows that something of it may be lost."""
        if any(routed.towards is not None for routed in self._subscriptions):
            self._accept(self._own_run((self._publications.next_number,), life=life), None)

    def on_run(self, sender: BrokerName, run: PublicationRun) -> None:
        self._note_taken(sender, len(run.numbers))
        repeats = self._repeats(run)
        if repeats:
            self._answer_again(sender, run, run.numbers[:repeats])
        if repeats < len(run.numbers):
            fresh = run.all >> repeats << repeats
            self._accept(run.part(fresh), sender)

    def _note_taken(self, sender: BrokerName, count: int) -> None:
        connection = self._sessions.connection(sender)
        before, taken = self._taken.get(sender, (None, 0))
        if connection is not None:
            self._taken[sender] = (connection, taken + count if before == connection else count)

    def _answer_again(
        self, sender: BrokerName, run: PublicationRun, numbers: Sequence[int]
    ) -> None:
        """These have come before: the sender is told when they are settled, or at once."""
        life, waiting = (run.source, run.epoch), set[int]()
        for entry, members in self._publications.find(life, numbers):
            members &= entry.pending
            entry.senders[sender] = entry.senders.get(sender, 0) | members
            entry.told.clear()
            waiting.update(pick(entry.run.numbers, members))
        self._confirm(sender, life, [number for number in numbers if number not in waiting])

    def _confirm(self, sender: BrokerName, life: Life, numbers: Iterable[int]) -> None:
        self._confirmations.setdefault(sender, {}).setdefault(life, []).extend(numbers)

    def on_answer(
        self, sender: BrokerName, message: RunConfirmed | RunHeld | Credit | Losses
    ) -> None:
        """What became of publications that a neighbour was sent, or will not be."""
        match message:
            case RunConfirmed(source, epoch, numbers):
                for entry, done in self._publications.settle((source, epoch), numbers, sender):
                    self._finish(entry, done)
            case RunHeld(source, epoch, numbers, away):
                self._publications.hold((source, epoch), numbers, sender, away)
            case Credit():
                self._publications.taken(sender, message.count)
            case Losses():
                self.on_losses(sender, message.losses)

    def on_losses(self, sender: BrokerName | None, losses: Iterable[Loss]) -> None:
        """Pass on what is new, and wait no longer for brokers that have lost it."""
        fresh = self._losses.learn(losses)
        if not fresh:
            return
        for broker in self._sessions.connected:
            if broker != sender:
                self._sessions.send(broker, Losses(fresh))
        self._must_look = self._must_look or any(loss.target is None for loss in fresh)
        if any(loss.target is not None for loss in fresh):
            for entry, done in self._publications.give_up(self._losses):
                self._finish(entry, done)
        for loss in fresh:
            if loss.target == self._life:
                self._miss(loss)

    def introduce(self, begun: Iterable[BrokerName]) -> None:
        """Sessions began: what is lost goes before what follows on it."""
        known = self._losses.all()
        for broker in begun if known else ():
            self._sessions.send(broker, Losses(known))

    def forget_before(self, life: Life) -> None:
        """A broker has begun another life: what it lost before concerns no broker."""
        self._losses.forget_before(life)

    def forget_brokers(self, names: tuple[BrokerName, ...]) -> None:
        """Brokers never return: nothing waits for them."""
        longer = self._subscriptions.lengthen_routes()
        for entry, done in self._publications.forget_targets(names, longer):
            self._finish(entry, done)
        for name in names:
            self._losses.forget_before((name, TICK_MAX))

    def pump(self, now: Instant) -> None:
        """Send what may go on every live session; give up what must not wait any longer."""
        self.on_losses(None, self._publications.waive())
        away = self._sessions.away(now)
        if away != self._away or self._must_look or self._publications.is_held_unknown():
            self._away, self._must_look = away, False
            self.on_losses(None, self._publications.held(away, self._losses))
        self._tell_reached()
        for sender, lives in self._confirmations.items():
            for (source, epoch), numbers in lives.items():
                if numbers:
                    confirmed = RunConfirmed(source, epoch, tuple(sorted(numbers)))
                    self._sessions.send(sender, confirmed)
        self._confirmations.clear()
        for broker in self._sessions.live:
            for run in self._publications.due(broker, self._sessions.active):
                self._sessions.send(broker, run)
        self._grant_credit()

    def _grant_credit(self) -> None:
        for sender, (connection, count) in list(self._taken.items()):
            if self._sessions.connection(sender) != connection:
                del self._taken[sender]  # what was under way on a connection that is lost
            elif 4 * count >= self._settings.window_max or self._sessions.has_mail(sender):
                del self._taken[sender]
                self._sessions.send(sender, Credit(count))

    def _tell_reached(self) -> None:
        for entry, members, away in self._publications.reached(self._sessions.frontier):
            run = entry.run
            for sender in sorted(entry.senders):
                if numbers := pick(run.numbers, members & entry.senders[sender]):
                    self._sessions.send(sender, RunHeld(run.source, run.epoch, numbers, away))
            if not entry.senders:
                self._sessions.effects.append(Tell(Held(pick(run.numbers, members), away)))

    # --- steps -----------------------------------------------------------------------------------

    def _repeats(self, run: PublicationRun) -> int:
        """How many of the first have come before."""
        life = source, epoch = run.source, run.epoch
        if self._settings.repeats == "trail":
            is_queued = self._publications.find(life, run.numbers)
            return 1 if is_queued or self._seen.is_repeat(run.hops) else 0
        former = self._sources.former_life(source, epoch)
        if former is not None:
            self._end_of(source, former)
        before = self._sources.repeats(source, epoch, run.numbers)
        if run.life == "ends":
            self._sources.end(source, epoch)
        # A source may have been forgotten while something of it waits here.
        return max(before, bisect_right(run.numbers, self._publications.newest(life)))

    def _accept(self, run: PublicationRun, sender: BrokerName | None) -> None:
        back = None if sender is None else self._neighbourhood.path(sender)[0]
        if run.clearings:
            ours, routes = divide(dict.fromkeys(self._clear(run), run.all), back)
        elif run.life:
            ours, routes = divide(dict.fromkeys(self._subscriptions, run.all), back)
        else:
            ours, routes = self._subscriptions.takers(run, back)
        if not run.clearings:
            if self._losses.has_losses:
                routes = self._publications.without_lost(run, routes, self._losses)
            self._must_look = self._must_look or bool(self._losses.waived(run))
            if ours and not run.life:
                self._deliver(run, ours, run.all & ~self._losses.lost(run, self._life))
        entry, done = self._publications.append(run, routes, sender)
        if done:
            self._finish(entry, done)

    def _clear(self, notifier: PublicationRun) -> list[RoutedSubscription]:
        found: list[RoutedSubscription] = []
        for clearing in notifier.clearings:
            routed = self._subscriptions.get(clearing.subscription)
            if routed is not None:
                self._subscriptions.clear(routed, clearing)
                found.append(routed)
        return found

    def _deliver(
        self,
        run: PublicationRun,
        ours: Sequence[tuple[RoutedSubscription, Members]],
        allowed: Members,
    ) -> None:
        """To subscriptions of ours what matches and was not told to be lost."""
        if self._settings.repeats == "trail" and self._is_late(run):
            return
        takers = sorted(
            (each.id, members & allowed)
            for each, members in ours
            if members & allowed and self._is_safe(each, run)
        )
        if takers:
            self._sessions.effects.append(Tell(TreeDelivery(run, tuple(takers))))

    def _is_safe(self, routed: RoutedSubscription, run: PublicationRun) -> bool:
        if not routed.is_complete or routed.id in run.not_for:
            return False
        if not routed.tags:
            return True
        if not any(is_closed(tag, run) for tag in routed.tags):
            routed.begun[run.source] = run.epoch
        return routed.begun.get(run.source) == run.epoch  # what has begun goes on

    def _miss(self, loss: Loss) -> None:
        """Something was given up that was for us; all that came before is not lost."""
        source, epoch, topic, through, _ = loss
        last = self._sources.last(source)
        if last >= Position(epoch, through):
            return  # it has come, or it is of a life that is over for us
        takers = tuple(each.id for each in self._begun(source, epoch) if each.topic == topic)
        if takers:
            after = last.number if last.epoch == epoch else 0
            missed = Missed(source, epoch, topic, after, through, takers)
            self._sessions.effects.append(Tell(missed))

    def _end_of(self, source: BrokerName, epoch: int) -> None:
        takers = tuple(each.id for each in self._begun(source, epoch))
        if takers:
            self._sessions.effects.append(Tell(SourceEnded(source, epoch, takers)))

    def _begun(self, source: BrokerName, epoch: int) -> list[RoutedSubscription]:
        """Our subscriptions that are in force for this life of a source."""
        own = [each for each in self._subscriptions.own() if each.is_complete]
        begun = [each for each in own if not each.tags or each.begun.get(source) == epoch]
        return sorted(begun, key=lambda each: each.id)

    def _is_late(self, run: PublicationRun) -> bool:
        """A repeat that the trail has missed."""
        is_late = self._sources.repeats(run.source, run.epoch, run.numbers) > 0
        self.late_repeats += is_late
        return is_late

    def _finish(self, entry: QueueEntry, done: Members) -> None:
        """These members have gone all their ways."""
        run = entry.run
        for sender in sorted(entry.senders):
            numbers = pick(run.numbers, done & entry.senders[sender])
            self._confirm(sender, (run.source, run.epoch), numbers)
        if not entry.senders and not run.clearings and not run.life:
            for lost_to, members in lost_alike(entry, done).items():
                self._sessions.effects.append(Tell(Confirmed(pick(run.numbers, members), lost_to)))


def lost_alike(entry: QueueEntry, done: Members) -> dict[tuple[BrokerName, ...], Members]:
    """The members by the brokers that they were given up for."""
    if not entry.lost_to:
        return {(): done}
    found: dict[tuple[BrokerName, ...], Members] = {}
    for place in places(done):
        lost = {broker for (broker, _), members in entry.lost_to.items() if members >> place & 1}
        names = tuple(sorted(lost))
        found[names] = found.get(names, 0) | 1 << place
    return found
