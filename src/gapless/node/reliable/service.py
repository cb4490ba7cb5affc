"""The reliable service at one broker: its topics on the broker tree, its clients on both ends.

Theory of operation
    One tree carries all reliable topics. Events travel in runs, as their publishers encoded them.
    Clients with the same topic and condition share one subscription of the tree (`groups`).
    Each life of a broker is a source of its own: its name and epoch are the pubend of its events,
    the numbers of its queue are their ticks. So a subscriber sees the ticks of each pubend ascend.
    The machine is made when there is a first topic for it, and only once the epoch is durable.
    A subscription may begin while it has not reached every broker: its members are told which
    (`Unreached`) before they are told that it began, and when it has.
    A receipt says that the event is in this broker's queue, in memory: it reaches everybody who is
    connected unless this broker crashes first.
    One whose publisher asked for that (`confirmed`) comes later: when all brokers within reach that
    have subscribers for the events have them.
    A broker may be out of reach for so long that what waits for it is given up; its clients are
    told (`Lost`) which numbers of which source, once it is back. Where a broker has crashed, those
    who have heard something of that life are told that nothing follows on it: a `Lost` without end.

Invariants: those of the tree and of the groups, and
    I1  what members were last told of brokers that are not reached is so, after each step

Source: `tree.broker`. Decision: docs/decisions/0018.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapless.core.client_messages import (
    Done,
    Ended,
    Lost,
    Publish,
    Receipt,
    Refused,
    RetireBroker,
    Subscribe,
    Subscribed,
    Unreached,
)
from gapless.core.effects import Effect, Persist, Send, Tell
from gapless.core.errors import FilterError, ProtocolError, UsageError, quoted
from gapless.core.identity import PubendName
from gapless.core.portion import WHOLE, Portion
from gapless.core.ticks import TICK_MAX, Span
from gapless.knowledge.subend import Settled
from gapless.node.reliable.broker_tree import KeptTree, broker_tree
from gapless.node.reliable.groups import SharedSubscription, SharedSubscriptions
from gapless.node.reliable.handout import hand_out
from gapless.node.service import Service
from gapless.tree.broker import TreeBroker
from gapless.tree.messages import (
    Accepted,
    Beat,
    Carried,
    Confirmed,
    Held,
    Missed,
    NoRoom,
    PublicationRun,
    SourceEnded,
    SubscriptionId,
    TreeDelivery,
    TreeJoin,
    TreeWelcome,
)
from gapless.tree.settings import TreeSettings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gapless.core.identity import BrokerName, ClientName, Instant
    from gapless.core.messages import Message
    from gapless.node.config import Config
    from gapless.node.context import Context
    from gapless.node.delivery.audience import Key
    from gapless.node.delivery.subscribers import Subscribers
    from gapless.node.network import Topic
    from gapless.tree.members import Members


@dataclass(slots=True)
class Awaited:
    """A publication whose receipt waits until all within reach have it."""

    client: ClientName
    receipt: Receipt
    numbers: set[int]  # of those that are not confirmed yet


class Reliable(Service):
    """See the module docstring; `node.service.Service` says what each method is for."""

    name = "reliable"
    confirms = True
    kinds: tuple[type[Message], ...] = (Beat, Carried, TreeJoin, TreeWelcome)

    def __init__(self, context: Context, subscribers: Subscribers) -> None:
        here, network, config = context.name, context.network, context.config
        self.here = here
        self.network = context.network
        self.tree: TreeBroker | None = None
        self.published = self.lost = 0
        self._config = config
        self._epoch = context.epoch
        self._subscribers = subscribers
        self._attributes_of = context.encoding.attributes_of
        self._check_received = context.encoding.check_received
        self._groups: SharedSubscriptions[SubscriptionId] = SharedSubscriptions()
        self._unreached: dict[SubscriptionId, tuple[BrokerName, ...]] = {}  # as was told, if any
        self._kept_tree = KeptTree(network, context.store)
        self._join_at: BrokerName | None = None
        self._awaited: dict[int, Awaited] = {}  # by the numbers of our own publications

    # --- life ------------------------------------------------------------------------------------

    def start(self, now: Instant) -> list[Effect]:
        has_topics = any(each.service == self.name for each in self.network.topic.values())
        return self._begin(now) if has_topics or self._kept_tree.edges or self._join_at else []

    def _begin(self, now: Instant) -> list[Effect]:
        if self.tree is not None or not self._epoch.is_durable:
            return []
        edges = (*broker_tree(self.network), *self._kept_tree.edges)
        self.tree = TreeBroker(
            self.here,
            self._epoch.number,
            settings_of(self._config),
            edges,
            attributes_of=self._attributes_of,
            retired=self._kept_tree.retired,
        )
        if self._join_at is not None and not edges:
            self.tree.join(self._join_at)
        return self._carry(self.tree.fire(now), now)

    def join(self, at: BrokerName, now: Instant) -> list[Effect]:
        if self._join_at is not None:
            return []
        self._join_at = at
        return self._begin(now)

    @property
    def deadline(self) -> Instant | None:
        return None if self.tree is None else self.tree.deadline

    def fire(self, now: Instant) -> list[Effect]:
        if self.tree is None or now < self.tree.deadline:
            return []
        # Who joined is looked at with each beat: who forgets it in a crash is told again.
        return self._carry(self.tree.fire(now), now) + self._keep_tree()

    def _keep_tree(self, *then: Effect) -> list[Effect]:
        """Write down what is new of the tree, and do this then."""
        assert self.tree is not None
        writes = self._kept_tree.learn(self.tree.edges, self.tree.retired)
        return [Persist(writes, then)] if writes else [*then]

    def leave(self, now: Instant) -> list[Effect]:
        """Nobody shall keep for us what nobody here will get, nor think that we crashed."""
        effects = self._remove(list(self._groups), now)
        return effects + ([] if self.tree is None else self._carry(self.tree.leave(now), now))

    def add(self, topic: Topic, now: Instant) -> list[Effect]:
        assert topic.name in self.network.topic
        return self._begin(now)

    def remove(self, topic: Topic, problem: str, remedy: str, now: Instant) -> list[Effect]:
        effects: list[Effect] = []
        groups = [group for group in self._groups if group.label == topic.label]
        for group in groups:
            effects += dismiss(group, problem, remedy)
        return effects + self._remove(groups, now)

    # --- clients ---------------------------------------------------------------------------------

    def request(self, client: ClientName, message: Message, now: Instant) -> list[Effect]:
        if isinstance(message, Publish):
            return self._publish(client, message, now)
        if isinstance(message, RetireBroker):
            return self._retire(client, message, now)
        assert isinstance(message, Subscribe)
        return self._subscribe(client, message, now)

    def _retire(self, client: ClientName, message: RetireBroker, now: Instant) -> list[Effect]:
        tree, broker, request = self.tree, message.broker, message.request
        if tree is None:
            problem = "this broker has no reliable topic, so that there is no tree"
            return [Send(client, Refused(request, problem, "Create a reliable topic first."))]
        if broker not in self.network.cell_of and all(broker not in edge for edge in tree.edges):
            problem = f"there is no broker {quoted(broker)}"
            remedy = "Check the name; of a broker that joined, ask one that is near it in the tree."
            return [Send(client, Refused(request, problem, remedy))]
        try:
            effects = tree.retire(broker, now)
        except UsageError as error:
            return [Send(client, Refused(request, error.problem, error.remedy))]
        return self._carry(effects, now) + self._keep_tree(Send(client, Done(request)))

    def _publish(self, client: ClientName, message: Publish, now: Instant) -> list[Effect]:
        tree, request, count = self.tree, message.request, len(message.events)
        limit = self._config.tree_queue_max
        if count > limit:
            problem = f"{count} events are more than the {limit} that may wait here"
            return [Send(client, Refused(request, problem, "Publish smaller batches."))]
        if tree is None or self._is_apart:
            return later(client, request, "this broker has just started")
        label = self.network.topic[message.topic].label
        try:
            published, effects = tree.publish(
                label, message.events, now, is_awaited=message.confirmed
            )
        except UsageError as error:
            return later(client, request, error.problem)
        self.published += count
        numbers = tuple(published)
        receipt = Receipt(request, source_of(label, self.here, tree.epoch), numbers)
        if message.confirmed:
            awaited = Awaited(client, receipt, set(numbers))
            self._awaited.update(dict.fromkeys(numbers, awaited))
            return self._carry(effects, now)
        return [*self._carry(effects, now), Send(client, receipt)]

    def _confirm(self, numbers: tuple[int, ...]) -> list[Effect]:
        """All within reach have these publications of ours."""
        effects: list[Effect] = []
        for number in numbers if self._awaited else ():
            awaited = self._awaited.pop(number, None)
            if awaited is not None:
                awaited.numbers.discard(number)
                effects += [] if awaited.numbers else [Send(awaited.client, awaited.receipt)]
        return effects

    def _subscribe(self, client: ClientName, message: Subscribe, now: Instant) -> list[Effect]:
        if self.tree is None or self._is_apart:
            return later(client, message.request, "this broker has just started")
        label = self.network.topic[message.topic].label
        effects: list[Effect] = []
        group = self._groups.find(label, message.condition)
        if group is None:
            try:
                name, effects = self.tree.subscribe(label, message.condition, now)
            except (FilterError, UsageError) as error:  # too long, or too many
                return [Send(client, Refused(message.request, error.problem, error.remedy))]
            group = SharedSubscription(message.topic, label, message.condition, name)
            self._groups.add(group)
        self._groups.enter(group, (client, message.subscription), message.request)
        return (self._let_in(group) if group.is_in_force else []) + self._carry(effects, now)

    def _let_in(self, group: SharedSubscription[SubscriptionId]) -> list[Effect]:
        """Those that wait for it to be in force begin."""
        assert self.tree is not None
        effects: list[Effect] = []
        unreached = self.tree.unreached(group.name)
        if unreached:
            self._unreached[group.name] = unreached
        for (client, number), request in group.let_in().items():
            if unreached:
                effects.append(Send(client, Unreached(number, unreached)))
            effects.append(Send(client, Subscribed(request, number, {})))
        return effects

    def _tell_reach(self) -> list[Effect]:
        """Those that have not reached everybody are told of each change."""
        effects: list[Effect] = []
        for name, before in list(self._unreached.items()):
            assert self.tree is not None
            group, unreached = self._groups.named(name), self.tree.unreached(name)
            if group is not None and unreached != before:
                effects += [Send(key[0], Unreached(key[1], unreached)) for key in group.members]
            if group is None or not unreached:
                del self._unreached[name]
            else:
                self._unreached[name] = unreached
        return effects

    @property
    def _is_apart(self) -> bool:
        """Are we to join a network and no part of it yet?"""
        return self._join_at is not None and self.tree is not None and not self.tree.edges

    def has(self, client: ClientName, number: int) -> bool:
        return (client, number) in self._groups

    @property
    def unmatched_count(self) -> int:
        return self._groups.subscription_count

    def unsubscribe(self, client: ClientName, number: int, now: Instant) -> list[Effect]:
        return [*self._end([(client, number)], now), Send(client, Ended(number))]

    def disconnect(self, client: ClientName, now: Instant) -> list[Effect]:
        if self._awaited:
            waiting = self._awaited.items()
            self._awaited = {n: awaited for n, awaited in waiting if awaited.client != client}
        return self._end(self._groups.of_client(client), now)

    def _end(self, keys: Iterable[Key], now: Instant) -> list[Effect]:
        return self._withdraw(self._groups.leave(keys), now)

    def _remove(
        self, groups: list[SharedSubscription[SubscriptionId]], now: Instant
    ) -> list[Effect]:
        for group in groups:
            self._groups.remove(group)
        return self._withdraw(groups, now)

    def _withdraw(
        self, groups: list[SharedSubscription[SubscriptionId]], now: Instant
    ) -> list[Effect]:
        effects: list[Effect] = []
        for group in groups:
            assert self.tree is not None
            effects += self._carry(self.tree.withdraw(group.name, now), now)
        return effects

    # --- brokers ---------------------------------------------------------------------------------

    def receive(self, sender: BrokerName, message: Message, now: Instant) -> list[Effect]:
        if self.tree is None:
            return []  # we have no topic yet; it beats again
        if not isinstance(message, Beat | Carried | TreeJoin | TreeWelcome):
            raise ProtocolError(f"{type(message).__name__} is not for a tree")
        if isinstance(message, Carried):
            for each in message.messages:
                if isinstance(each, PublicationRun) and each.events:
                    self._check_received(each.events)
        return self._carry(self.tree.receive(sender, message, now), now)

    def link_up(self, broker: BrokerName, now: Instant) -> list[Effect]:
        return [] if self.tree is None else self._carry(self.tree.link_up(broker, now), now)

    def link_down(self, broker: BrokerName, now: Instant) -> list[Effect]:
        return [] if self.tree is None else self._carry(self.tree.link_down(broker, now), now)

    def _carry(self, effects: Iterable[Effect], now: Instant) -> list[Effect]:
        """What the tree tells us becomes messages to clients; all else goes on."""
        done: list[Effect] = []
        delivered: list[TreeDelivery] = []
        for effect in effects:
            if not isinstance(effect, Tell):
                done.append(effect)
            elif isinstance(effect.message, TreeDelivery):
                delivered.append(effect.message)
            elif isinstance(effect.message, Accepted):
                done += self._deliver(delivered, now)
                delivered = []
                group = self._groups.named(effect.message.id)
                done += self._let_in(group) if group is not None else []
            elif isinstance(effect.message, Confirmed | Held):
                done += self._confirm(effect.message.numbers)
            elif isinstance(effect.message, SourceEnded):
                done += self._deliver(delivered, now)
                delivered = []
                done += self._tell_end(effect.message)
            elif isinstance(effect.message, Missed):
                done += self._deliver(delivered, now)
                delivered = []
                done += self._tell_loss(effect.message)
            elif isinstance(effect.message, NoRoom):
                done += self._no_room(effect.message)
        return done + self._deliver(delivered, now) + self._tell_reach()

    def _tell_loss(self, missed: Missed) -> list[Effect]:
        """Those who have begun are told what they will not get."""
        losers: dict[ClientName, list[int]] = {}
        for group in filter(None, map(self._groups.named, missed.subscriptions)):
            for client, number in group.members:
                losers.setdefault(client, []).append(number)
        pubend = source_of(missed.topic, missed.source, missed.epoch)
        span = Span(missed.after + 1, missed.through + 1)
        self.lost += sum(map(len, losers.values()))
        return [Send(to, Lost(tuple(some), pubend, span)) for to, some in losers.items()]

    def _tell_end(self, ended: SourceEnded) -> list[Effect]:
        """Those who have heard something of a source may have lost what followed."""
        effects: list[Effect] = []
        for group in filter(None, map(self._groups.named, ended.subscriptions)):
            epoch, last = group.heard.get(ended.source, (None, 0))
            pubend = source_of(group.label, ended.source, ended.epoch)
            for client, number in group.members if epoch == ended.epoch else ():
                self.lost += 1
                lost = Lost((number,), pubend, Span(last + 1, TICK_MAX))
                effects.append(Send(client, lost))
        return effects

    def _no_room(self, message: NoRoom) -> list[Effect]:
        """The tree has ended a subscription."""
        group = self._groups.named(message.id)
        if group is None:
            return []
        self._groups.remove(group)
        problem = f"broker {message.by!r} has as many subscriptions as it may have"
        remedy = "Use fewer conditions, or raise tree_subscriptions_max at the brokers."
        return dismiss(group, problem, remedy)

    def _deliver(self, delivered: list[TreeDelivery], now: Instant) -> list[Effect]:
        """What came in one step, to clients: all that is of one topic and source at once."""
        flows: dict[tuple[str, BrokerName, int], list[TreeDelivery]] = {}
        for message in delivered:
            run = message.run
            flows.setdefault((run.topic, run.source, run.epoch), []).append(message)
        effects: list[Effect] = []
        for (label, source, epoch), some in flows.items():
            ticks = [number for each in some for number in each.run.numbers]
            events = [event for each in some for event in each.run.events.events]
            wanted = self._wanted(some)  # now: what was handed out before may have ended some
            if not wanted:
                continue
            topic = next(iter(wanted)).topic
            for group, members in wanted.items():
                group.heard[source] = (epoch, ticks[members.bit_length() - 1])
            more, slow = hand_out(
                self._subscribers,
                topic,
                source_of(label, source, epoch),
                Settled(ticks, events, []),
                {tuple(group.members): members for group, members in wanted.items()},
            )
            effects += more + self._end(slow, now)
        return effects

    def _wanted(
        self, some: list[TreeDelivery]
    ) -> dict[SharedSubscription[SubscriptionId], Members]:
        """Which of these publications, one after the other, each group wants."""
        wanted: dict[SharedSubscription[SubscriptionId], Members] = {}
        count = 0
        for message in some:
            for name, members in message.takers:
                group = self._groups.named(name)
                if group is not None:  # else the last of its members has left in this step
                    wanted[group] = wanted.get(group, 0) | members << count
            count += len(message.run.numbers)
        return wanted

    # --- figures ---------------------------------------------------------------------------------

    def statistics(self) -> dict[str, object]:
        if self.tree is None:
            return {}
        return {
            **self.tree.statistics(),
            "published": self.published,
            "told_losses": self.lost,
            "client_subscriptions": self.unmatched_count,
            "is_ready": self.tree.is_ready,
            "neighbourhood": [list(edge) for edge in self.tree.edges],
            "active": list(self.tree.active),
            "unreachable": [list(each.nodes) for each in self.tree.partitions],
            "retired": list(self.tree.retired),
        }

    def check(self, portion: Portion = WHOLE) -> None:
        self._groups.check()
        if self.tree is not None:
            self.tree.check()
            for group in self._groups:
                told = self._unreached.get(group.name, ())
                assert not group.is_in_force or told == self.tree.unreached(group.name), "I1"


def dismiss(group: SharedSubscription[SubscriptionId], problem: str, remedy: str) -> list[Effect]:
    """All that are in it, or wait, are told that it is over."""
    ended = [Send(name, Ended(number, problem, remedy)) for name, number in group.members]
    waiting = group.waiting.items()
    return [*ended, *(Send(name, Refused(n, problem, remedy)) for (name, _), n in waiting)]


def settings_of(config: Config) -> TreeSettings:
    return TreeSettings(
        failures_tolerated=config.failures_tolerated,
        beat_every=config.tree_beat,
        patience=config.tree_patience,
        queue_max=config.tree_queue_max,
        window_max=config.tree_window_max,
        subscriptions_max=config.subscriptions_max,
        remote_subscriptions_max=config.tree_subscriptions_max,
    )


def source_of(label: str, broker: BrokerName, epoch: int) -> PubendName:
    """One life of a broker, as clients see it: with a topic it stands where a pubend does."""
    return PubendName(f"{label}/{broker}/{epoch}")


def later(client: ClientName, request: int, problem: str) -> list[Effect]:
    remedy = "Try again soon; if it lasts, look for brokers that are down or slow: gapless status."
    return [Send(client, Refused(request, problem, remedy, retry=True))]
