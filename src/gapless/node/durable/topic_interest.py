"""TopicInterest: what subscribers want of one topic, as this broker knows it and passes it on.

Theory of operation
    Towards each neighbouring cell behind which a pubend of the topic lives, there is a branch: the
    subscriptions behind all other neighbours, and this broker's own. At a pubend's host there is
    one more, of all neighbours, and a stamp that puts its vector on the messages of the host's
    pubends. Where only this broker's own subscribers stand below, their leaf speaks for itself.
    An event passes to a cell if something there matches; or if the branch does not know all that
    the event's message must be matched against.
    A broker's own subscribers see everything that reaches it, so that a subscription to a pubend
    hosted here starts at once. Elsewhere it starts as `DeliveryStart` says.
    Requests are gathered: a first one goes at once, and those that follow it within
    `change_gather` go together, as one step of the leaf's clock.

Invariants (checked by `check`): those of the machines, and
    I1  the leaf knows exactly the subscriptions that were asked for and not taken back

Source: Middleware 2004; docs/protocols/subscription-propagation.md, 12.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gapless.core.broker_messages import (
    SubscriptionChange,
    SubscriptionNack,
    SubscriptionState,
)
from gapless.core.effects import Effect, Persist, Send
from gapless.core.errors import ProtocolError
from gapless.core.identity import Instant
from gapless.core.outgoing import ToBroker, ToCell, ToSiblings
from gapless.node.durable.vectors import Vectors
from gapless.propagation.leaf import ClockPersisted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gapless.core.broker_messages import Knowledge, Propagated, Vector
    from gapless.core.identity import BrokerName, CellName, PubendName, TopicName
    from gapless.filters.filter import Filter
    from gapless.node.context import Context
    from gapless.node.network import Topic
    from gapless.propagation.actions import Action, Outgoing
    from gapless.propagation.branch import Branch
    from gapless.propagation.leaf import Leaf
    from gapless.propagation.stamp import Stamp, StampPersisted

Key = tuple[str, int]
"""A subscription: its client, and the number that the client gave it."""

NOTHING: Mapping[Key, Filter] = MappingProxyType({})

FIRST_PER_MICROSECOND = 1_000
"""Clock and digests of a broker that lost its disk begin at its time in milliseconds: beyond all
that it used before, as long as it made fewer than a thousand steps a second."""

AHEAD_MAX = 60_000
"""How many milliseconds ahead of ours a clock may be that we are asked to catch up with."""


class TopicInterest:
    """One topic at one broker: its branches, its leaf, its stamp. See the module docstring."""

    def __init__(
        self, topic: Topic, context: Context, now: Instant, moved: dict[TopicName, None]
    ) -> None:
        """`moved`: the names of all interests whose deadlines may have changed."""
        self.topic = topic.name
        self.label = topic.label  # in messages and on disk
        self._moved = moved
        name, network = context.name, context.network
        store = context.seal.current(context.store)  # times of a copy may have been used
        config, parts = context.config, context.parts
        self.name = name
        self.config = config
        self.routing = context.routing
        self.cell = cell = network.cell_of[name].name
        self.upstream = {each.name: network.upstream(each, cell) for each in topic.pubends}
        first = now // FIRST_PER_MICROSECOND
        leaves = {
            other: network.leaves_beyond[cell, other]
            for other in network.neighbours(cell)
            if network.leaves_beyond[cell, other]
        }
        above = tuple(sorted({each for each in self.upstream.values() if each is not None}))
        self.leaf: Leaf | None = None
        if network.cell[cell].subscribers and above:
            self.leaf = parts.leaf(
                name, cell, above, store, config, key=topic.label, first=max(1, first)
            )
        self.branches: dict[CellName | None, Branch] = {}
        self.vectors = Vectors(topic, name, self.upstream, leaves, config, parts)
        for direction in dict.fromkeys(self.upstream.values()):
            below = {other: some for other, some in leaves.items() if other != direction}
            if below:
                if self.leaf is not None and direction is not None:
                    below[cell] = (name,)
                self.branches[direction] = parts.branch(cell, direction, below, config)
        self.stamp: Stamp | None = None
        if None in self.upstream.values():
            self.stamp = parts.stamp(f"{topic.label}@{name}", store, first=max(1, first))
            self.vectors.learn_own(self.stamp)
        self.has_news = False  # something may start that could not before
        self.flooded = 0  # events that passed though nothing was known to match
        self.filtered = 0  # events that did not pass
        self.started_ahead = 0  # subscriptions whose start lay ahead of what was settled
        self._handles: dict[Key, str] = {}
        self._handle_count = 0
        self._additions: dict[str, Filter] = {}
        self._removals: list[str] = []
        self._update_due: Instant | None = None
        self._updated_at = Instant(now - config.change_gather)
        self._branch_vectors: dict[CellName | None, Vector] = {}  # as last passed on
        self._stamp_due: Instant | None = None  # when to put what we know on messages
        self._stamped_at = self._updated_at

    # --- this broker's own subscriptions ----------------------------------------------------------

    def begin(self, now: Instant, survivors: Mapping[Key, Filter] = NOTHING) -> list[Effect]:
        """Call once, first, with the subscriptions that were here before."""
        self._moved[self.topic] = None
        effects: list[Effect] = []
        if self.stamp is not None:
            below = self.branches.get(None)
            effects += self.stamp.begin(below.leaves if below else ())
            if below:
                below.notice(self.stamp.coming, now)
        if self.leaf is not None:
            self._handle_count = len(survivors)
            self._handles = {key: str(number) for number, key in enumerate(survivors, start=1)}
            named = {self._handles[key]: condition for key, condition in survivors.items()}
            effects += self._from_leaf(self.leaf.begin(named, now), now)
        return effects

    def rename(self, key: Key, other: Key) -> None:
        """Keep a subscription under another key."""
        if key in self._handles:
            self._handles[other] = self._handles.pop(key)

    def subscribe(self, key: Key, condition: Filter, now: Instant) -> None:
        if self.leaf is not None:
            self._handle_count += 1
            handle = self._handles[key] = str(self._handle_count)
            self._additions[handle] = condition
            self._gather(now)

    def unsubscribe(self, key: Key, now: Instant) -> None:
        handle = self._handles.pop(key, None)
        if handle is None or self._additions.pop(handle, None) is not None:
            return
        self._removals.append(handle)
        self._gather(now)

    def _gather(self, now: Instant) -> None:
        self._moved[self.topic] = None
        if self._update_due is None:
            self._update_due = max(now, Instant(self._updated_at + self.config.change_gather))

    def update(self, now: Instant) -> list[Effect]:
        """Tell what has been asked for, if it is time."""
        if self._update_due is None or now < self._update_due:
            return []
        assert self.leaf is not None
        self._moved[self.topic] = None
        additions, removals = self._additions, self._removals
        self._additions, self._removals, self._update_due, self._updated_at = {}, [], None, now
        self.has_news = True
        return self._from_leaf(self.leaf.update(additions, removals, now), now)

    def start_of(self, key: Key) -> dict[PubendName, int] | None:
        """For each pubend the first tick that may count for a subscription; None if not known yet
        for all. For pubends hosted here it is 0."""
        start = dict.fromkeys(self.upstream, 0)
        if self.leaf is None:
            return start
        time = self.leaf.starts.get(self._handles[key])
        if time is None:
            return None
        for pubend, direction in self.upstream.items():
            if direction is not None:
                tick = self.vectors.starts.start_of(pubend, time)
                if tick is None:
                    return None
                start[pubend] = tick
        return start

    # --- messages of propagation ------------------------------------------------------------------

    def receive(self, sender: BrokerName, message: Propagated, now: Instant) -> list[Effect]:
        """From a neighbour: changes and states from below or a sibling, questions from above."""
        self._moved[self.topic] = None
        cell = self.routing.network.cell_of[sender].name
        is_sibling = cell == self.cell
        if isinstance(message, SubscriptionNack):
            return self._receive_nack(sender, cell, message, now)
        concerned = [each for each in self.branches.items() if message.cell in each[1].children]
        if not concerned or not (is_sibling or message.cell == cell):
            raise ProtocolError(f"{sender!r} of {cell!r} speaks for {message.cell!r}")
        effects: list[Effect] = []
        passed = False
        for direction, branch in concerned:
            if isinstance(message, SubscriptionChange):
                out = branch.receive_change(message, now, from_sibling=is_sibling)
            else:
                out = branch.receive_state(message, now, from_sibling=is_sibling)
            if passed:  # what goes to the siblings goes once, for all directions
                out = [each for each in out if not isinstance(each, ToSiblings)]
            passed = passed or any(isinstance(each, ToSiblings) for each in out)
            effects += self._carry(direction, out, now)
        return effects

    def _receive_nack(
        self, sender: BrokerName, cell: CellName, nack: SubscriptionNack, now: Instant
    ) -> list[Effect]:
        if cell in self.branches:
            out = self.branches[cell].receive_nack(sender, nack, now)
            return self._carry(cell, out, now)
        if self.leaf is not None and cell in self.leaf.upstream:
            return self._ask_leaf(sender, nack, now)
        raise ProtocolError(f"{sender!r} of {cell!r} asks for subscriptions that it does not need")

    def _carry(
        self, direction: CellName | None, out: Iterable[Outgoing], now: Instant
    ) -> list[Effect]:
        """Send what a branch wants sent; its vector may have grown."""
        effects = self._advance(direction, now)
        for each in out:
            match each:
                case ToCell(cell, SubscriptionNack() as nack) if cell == self.cell:
                    effects += self._ask_leaf(self.name, nack, now)
                case ToCell(cell, message):
                    effects += self.routing.send_first(cell, self._addressed(message), now)
                case ToBroker(broker, message):
                    effects.append(Send(broker, self._addressed(message)))
                case ToSiblings(message):
                    effects += self.routing.share(self._addressed(message))
        return effects

    def _advance(self, direction: CellName | None, now: Instant) -> list[Effect]:
        vector = self.branches[direction].vector
        if self._branch_vectors.get(direction) is vector:
            return []
        self._branch_vectors[direction] = vector
        self.vectors.sufficiency[direction].advance(vector)
        if direction is None and self.stamp is not None and self._stamp_due is None:
            self._stamp_due = max(now, Instant(self._stamped_at + self.config.change_gather))
        return self._advance_stamp(now)

    def _advance_stamp(self, now: Instant) -> list[Effect]:
        """Put a new vector on messages, which costs one to everybody, not more often than changes
        are told."""
        if self._stamp_due is None or now < self._stamp_due:
            return []
        assert self.stamp is not None
        self._stamp_due, self._stamped_at = None, now
        vector = self.branches[None].vector if None in self.branches else {}
        return [*(self.stamp.advance(vector) or self.stamp.begin())]

    def _ask_leaf(self, asker: BrokerName, nack: SubscriptionNack, now: Instant) -> list[Effect]:
        """A host that is far ahead lets everything pass to us until its time has come: with its
        wrong clock in our leaf we would go back in time if our disk is lost."""
        assert self.leaf is not None
        wanted = nack.wanted.get(self.name, 0)
        is_far = wanted > now // FIRST_PER_MICROSECOND + AHEAD_MAX
        return self._from_leaf(self.leaf.receive_nack(asker, now, 0 if is_far else wanted), now)

    def _from_leaf(self, actions: Iterable[Action], now: Instant) -> list[Effect]:
        """What the leaf says goes to its branches here, or straight up where there is none."""
        effects: list[Effect] = []
        for each in actions:
            match each:
                case Persist():
                    effects.append(each)
                case ToCell(cell, message) if cell in self.branches:
                    effects += self._to_branch(cell, message, now)
                case ToCell(cell, message):
                    effects += self.routing.send_first(cell, self._addressed(message), now)
                case ToBroker(broker, message) if broker == self.name:
                    for direction in self.branches:
                        if direction is not None:
                            effects += self._to_branch(direction, message, now)
                case ToBroker(broker, message):
                    effects.append(Send(broker, self._addressed(message)))
                case ToSiblings():
                    raise AssertionError("a leaf is alone in its cell")
        return effects

    def _to_branch(self, direction: CellName, message: Propagated, now: Instant) -> list[Effect]:
        branch = self.branches[direction]
        if isinstance(message, SubscriptionChange):
            out = branch.receive_change(message, now, from_sibling=False)
        else:
            assert isinstance(message, SubscriptionState)
            out = branch.receive_state(message, now, from_sibling=False)
        return self._carry(direction, [e for e in out if not isinstance(e, ToSiblings)], now)

    def _addressed(self, message: Propagated) -> Propagated:
        return replace(message, topic=self.label)

    # --- vectors of messages ----------------------------------------------------------------------

    def learn(self, sender: BrokerName, knowledge: Knowledge, now: Instant) -> list[Effect]:
        """Take in the vector of a message from above; at a leaf, something may start with it."""
        self._moved[self.topic] = None
        learnt = self.vectors.learn(sender, knowledge, now)
        effects: list[Effect] = [*learnt.question]
        direction = self.upstream[knowledge.pubend]
        if learnt.is_news and learnt.vector is not None and direction in self.branches:
            self.branches[direction].notice(learnt.vector, now)
        if self.leaf is None or knowledge.requested or learnt.vector is None:
            return effects
        if self.vectors.see(knowledge):
            self.has_news = True
        time = self.vectors.time_of(knowledge)
        if time is not None:
            source = self.vectors.source[knowledge.pubend]
            effects += self._from_leaf(self.leaf.see(source, time, now), now)
        return effects

    def stamped(self, knowledge: Knowledge) -> Knowledge:
        """What a pubend hosted here says, with the digest of what it must be matched against."""
        digest = self.digest
        return knowledge if knowledge.digest == digest else replace(knowledge, digest=digest)

    @property
    def is_unwanted(self) -> bool:
        """At a host: is it known that no neighbour wants anything?"""
        if self.stamp is None or not self.stamp.is_in_use:
            return False
        below = self.branches.get(None)
        if below is None:
            return True
        if any(child.conditions for child in below.children.values()):
            return False
        # What a cell has not told us yet may be a subscription: one that has begun, even.
        pubend = next(name for name, direction in self.upstream.items() if direction is None)
        return all(self.vectors.test(pubend, self.digest, cell) for cell in below.children)

    @property
    def digest(self) -> int:
        """Of the vector in use here, where the topic has a pubend; 0: there is none."""
        assert self.stamp is not None
        return self.stamp.digest if self.stamp.is_in_use else 0

    def persisted(self, message: StampPersisted | ClockPersisted, now: Instant) -> list[Effect]:
        """The stamp or the leaf's clock is durable, or had no room."""
        self._moved[self.topic] = None
        if (self.leaf if isinstance(message, ClockPersisted) else self.stamp) is None:
            return []  # of a topic that was called the same: its owner has lost its disk since
        if isinstance(message, ClockPersisted):
            assert self.leaf is not None
            return self._from_leaf(self.leaf.persisted(message, now), now)
        assert self.stamp is not None
        effects: list[Effect] = [*self.stamp.persisted(message)]
        if message.ok:
            self.vectors.learn_own(self.stamp)
        else:
            self._stamp_due = Instant(now + self.config.lag_repeat)
        return effects

    # --- time, invariants -----------------------------------------------------------------------

    @property
    def deadline(self) -> Instant | None:
        due = [branch.deadline for branch in self.branches.values()]
        due += [self._update_due, self._stamp_due]
        if self.leaf is not None:
            due.append(self.leaf.deadline)
        return min((each for each in due if each is not None), default=None)

    def fire(self, now: Instant) -> list[Effect]:
        self._moved[self.topic] = None
        effects = self._advance_stamp(now)
        for direction, branch in self.branches.items():
            effects += self._carry(direction, branch.fire(now), now)
        if self.leaf is not None:
            effects += self._from_leaf(self.leaf.fire(now), now)
        return effects + self.update(now)

    def check(self) -> None:
        for branch in self.branches.values():
            branch.check()
        self.vectors.check()
        if self.stamp is not None:
            self.stamp.check()
        if self.leaf is not None:
            self.leaf.check()
            handles = {*self._handles.values()} - {*self._additions} | {*self._removals}
            assert handles == set(self.leaf.starts), "I1"

    def statistics(self) -> dict[str, object]:
        return {
            "filtered": self.filtered,
            "flooded": self.flooded,
            "started_ahead": self.started_ahead,
            "conditions": {
                f"{direction or 'here'}<{cell}": len(child.conditions)
                for direction, branch in self.branches.items()
                for cell, child in branch.children.items()
            },
            "vector": self.stamp.vector if self.stamp else {},
        }
