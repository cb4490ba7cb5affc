"""Node: one broker as one pure machine. The same object runs in the broker and the simulator.

Theory of operation
    The node is the hinge of its services (`service`, `dispatch`). It gives each message to the one
    part that it is for: a request of a client to a service or to `topics`, a message of a broker to
    the service whose kind it is or to routing and the catalogue, the end of a write to its writer.
    It merges all deadlines into one. It knows no service's inside.
    Time: the clock that a driver passes in may jump. The node runs on a time of its own that never
    goes back: where the driver's clock does, the node's time goes on from where it was.
    A message that contradicts what is known raises `ProtocolError`, and nothing has changed.
    A handler of a client's message may fail. Then everything that the client has here is dropped,
    as if its link had ended. If the failed handler had made no effect, and every invariant still
    holds, the failure ends there (`RequestError`). Otherwise it ends the node: a lost effect could
    be a gap that nobody is told of. So does a failure while others are served (`settle`, messages
    between brokers, ends of writes).

What a driver must do: carry out effects in order; hand a `Tell` back with `receive`; on a
`Persist`, make the writes durable and then carry out `then`; call `fire` at `deadline`; drop the
link of a peer whose message raised. It supplies what depends on the encoding of events: how to
read the attributes of a batch, and how to check a batch that a client wants to publish.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.broker_messages import Sideways
from gapless.core.client_messages import Consumed
from gapless.core.effects import Send
from gapless.core.errors import ProtocolError, RequestError
from gapless.core.identity import BrokerName, ClientName, Instant
from gapless.core.messages import Made, Ping, Pong
from gapless.core.portion import WHOLE, Portion
from gapless.core.topic_messages import (
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    TopicNews,
    TopicQuestion,
    TopicsQuery,
)
from gapless.node.config import Config
from gapless.node.context import Context
from gapless.node.deadlines import earliest
from gapless.node.delivery.connections import ClientConnections, nowhere
from gapless.node.directory.catalogue import EntryPersisted
from gapless.node.dispatch import Services
from gapless.node.durable.service import PUBEND_KINDS, DurableService
from gapless.node.epoch import EpochPersisted
from gapless.node.parts import Parts
from gapless.node.subscriptions.drain import is_mover
from gapless.node.subscriptions.named_groups import is_feed, keep_inside
from gapless.node.topics import Topics

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.core.effects import Effect
    from gapless.core.identity import PeerName, PubendName
    from gapless.core.messages import Message
    from gapless.core.store import Store
    from gapless.node.context import EventEncoding
    from gapless.node.network import Network


class Node:
    """One broker. See the module docstring for what its driver must do."""

    def __init__(
        self,
        name: BrokerName,
        network: Network,
        store: Store,
        now: Instant,
        *,
        encoding: EventEncoding,
        config: Config | None = None,
        parts: Parts | None = None,
    ) -> None:
        self.context = context = Context(
            name, network.own(), store, now, encoding, config or Config(), parts or Parts()
        )
        self.name, self.network, self.config = name, context.network, context.config
        self.routing, self.epoch, self.catalogue = context.routing, context.epoch, context.catalogue
        self._last = now  # the driver's clock, last time
        self._ahead = 0  # how far our time is ahead of it: the sum of its jumps back
        self._due: Instant | None = None  # the earliest deadline of all, on our time
        self.is_deadline_known = False  # is it what it was when it was last asked for?
        self._others_due: Instant | None = None  # of all that `PUBEND_KINDS` do not move
        self._are_others_known = False
        self._owed: list[Effect] = []  # of clients that were dropped: `link_down` follows
        self.connections = ClientConnections()
        self.subscribers = context.parts.subscribers(
            self.config, encoding.attributes_of, self.connections
        )
        self.durable = DurableService(context, self.subscribers)
        self.services = Services(self.durable, context, self.subscribers)
        self.topics = Topics(self.catalogue, self.connections, self.services.by_name)

    # --- what the driver calls ------------------------------------------------------------------

    def start(self, now: Instant) -> list[Effect]:
        """Call once, first."""
        return self.services.restore(self._time(now)) + self.fire(now)

    @property
    def deadline(self) -> Instant | None:
        """When to call `fire`, on the driver's clock."""
        if not self.is_deadline_known:
            if not self._are_others_known:
                due = [each.deadline for each in self.services.storeless]
                self._others_due = earliest([self.routing.deadline, self.epoch.deadline, *due])
                self._are_others_known = True
            self._due = earliest([self._others_due, self.durable.deadline])
            self.is_deadline_known = True
        return None if self._due is None else Instant(self._due - self._ahead)

    def fire(self, now: Instant) -> list[Effect]:
        instant = self._time(now)
        effects = self.routing.fire(instant) + self.epoch.fire(instant)
        effects += self.services.fire(instant)
        return self._feed_groups(effects + self.services.settle(instant), instant)

    def link_up(
        self,
        peer: PeerName,
        now: Instant,
        owner: str = "",
        administers: Callable[[str], bool] = nowhere,
        who: str = "",
    ) -> list[Effect]:
        """A client has connected, or there is a link to a broker, which counts when it answers.

        Of a client: `owner` is the principal that it has proved to be, where that is asked for;
        `administers` says on which topics it may end subscriptions of others; `who` is the account
        that pays for it if it has proved nothing."""
        instant = self._time(now)
        if peer not in self.network.cell_of:
            self.connections.connect(ClientName(peer), owner, administers, who)
            return []
        return self.routing.greet(peer) + self.services.link_up(BrokerName(peer), instant)

    def link_down(self, peer: PeerName, now: Instant) -> list[Effect]:
        """A client is gone, with its subscriptions; or a link to a broker broke."""
        instant = self._time(now)
        owed, self._owed = self._owed, []
        if peer not in self.connections:
            self.catalogue.farewell(BrokerName(peer))
            self.routing.lose(peer, instant)
            effects = self.services.link_down(BrokerName(peer), instant)
            effects = owed + effects + (self.services.settle(instant) if owed else [])
        else:
            effects = owed + self._drop(ClientName(peer), instant) + self.services.settle(instant)
        return self._feed_groups(effects, instant)

    def welcome(self, newcomer: BrokerName, now: Instant) -> list[Effect]:
        """A broker that is in no network file has a link to us: tell it of all topics that it can
        serve, now and when there are others."""
        self._time(now)
        return self.catalogue.welcome(newcomer)

    def wait_to_join(self) -> None:
        """We are such a broker: begin nothing alone. Call it before `start`."""
        self.services.wait_to_join()

    def join(self, at: BrokerName, now: Instant) -> list[Effect]:
        """We are such a broker, and have a link to this broker of the network."""
        self.topics.join(at)
        return self.services.join(at, self._time(now))

    def drain(self, now: Instant) -> list[Effect]:
        """Give all named subscriptions to other brokers, from now on."""
        self.durable.drain.begin(self._time(now))
        return self.fire(now)

    def leave(self, now: Instant) -> list[Effect]:
        """The driver is about to stop us: tell other brokers what they need not keep for us."""
        return self.services.leave(self._time(now))

    def receive(self, sender: PeerName, message: Message, now: Instant) -> list[Effect]:
        """Take a message in. `ProtocolError`: drop the sender's link; nothing has changed."""
        if (
            isinstance(message, Consumed)
            and sender in self.connections
            and not self.subscribers.consumed(ClientName(sender), message.count)
        ):
            return []  # the most frequent message moves no stream, so that no deadline changes
        are_others_known = self._are_others_known and type(message) in PUBEND_KINDS
        instant = self._time(now)
        self._are_others_known = are_others_known
        service = self.services.of_kind.get(type(message))
        if sender == self.name:
            effects = self._persisted(message, instant)
        elif service is not None and sender not in self.connections:
            effects = service.receive(BrokerName(sender), message, instant)
            return self._feed_groups(effects + service.settle(instant), instant)
        elif sender in self.network.cell_of:
            effects = self._from_broker(BrokerName(sender), message, instant)
        elif isinstance(message, TopicNews) and self.network.joins:
            effects = self.topics.receive_news(BrokerName(sender), message, instant)
        else:
            effects = self._guarded(ClientName(sender), message, instant)
        return self._feed_groups(effects + self.services.settle(instant), instant)

    def _feed_groups(self, effects: list[Effect], now: Instant) -> list[Effect]:
        """Hand groups what was sent to their feeds: they are clients inside of this broker. So are
        those that take subscriptions over."""
        groups, drain = self.durable.groups, self.durable.drain
        while (groups.is_used or drain.is_used) and any(
            isinstance(each, Send) and (is_feed(each.to) or is_mover(each.to)) for each in effects
        ):
            rest: list[Effect] = []
            for each in effects:
                if isinstance(each, Send) and is_feed(each.to):
                    rest += groups.receive(each.to, each.message, now)
                elif isinstance(each, Send) and is_mover(each.to):
                    if drain.is_over(each.message) and each.to in self.connections:
                        rest += self.durable.unsubscribe(ClientName(each.to), 0, now)[:-1]
                        rest += self._drop(ClientName(each.to), now)
                else:
                    rest.append(each)
            effects = rest + self.services.settle(now)
        return [keep_inside(each) for each in effects] if groups.is_used else effects

    # --- each message has one place -------------------------------------------------------------

    def _persisted(self, message: Message, now: Instant) -> list[Effect]:
        """A write of ours has ended."""
        service = self.services.of_write.get(type(message))
        if service is not None:
            return service.persisted(message, now)
        match message:
            case EpochPersisted():
                self.epoch.persisted(message, now)
                return self.services.start(now) if message.ok else []
            case EntryPersisted():
                return self.topics.persisted(message, now)
            case _:
                raise AssertionError(f"{message} is nothing that we told ourselves")

    def _from_broker(self, sender: BrokerName, message: Message, now: Instant) -> list[Effect]:
        if sender not in self.routing.peers:
            raise ProtocolError(f"{sender!r} is no neighbour of {self.name!r}")
        match message:
            case Ping():
                compared = self.catalogue.compare(sender, message.catalogue, now)
                return self.routing.answer(sender, message) + compared
            case Pong():
                is_new = self.routing.receive_pong(sender, now)
                return self.services.ask_again(sender, now) if is_new else []
            case Sideways(cell=cell, message=inner):
                return self.routing.pass_on(sender, cell, inner, now)
            case TopicNews():
                return self.topics.receive_news(sender, message, now)
            case TopicQuestion():
                return self.topics.receive_question(message, now)
            case _:
                raise ProtocolError(f"{type(message).__name__} is not for brokers")

    def _guarded(self, sender: ClientName, message: Message, now: Instant) -> list[Effect]:
        """Carry out a client's message, so that its failure is nobody else's."""
        effects_before = Made.count
        try:
            return self._from_client(sender, message, now)
        except ProtocolError:
            raise
        except Exception as error:
            if Made.count != effects_before:
                raise
            self._owed += self._drop(sender, now)
            self.check()
            what = f"{type(message).__name__} failed inside the broker: {type(error).__name__}"
            raise RequestError(what) from error

    def _from_client(self, sender: ClientName, message: Message, now: Instant) -> list[Effect]:
        if sender not in self.connections:
            raise ProtocolError(f"{sender!r} is not connected")
        if isinstance(message, CreateTopic | AlterTopic | DeleteTopic | TopicsQuery):
            return self.topics.request(sender, message, now)
        service = self.services.service_of(sender, message)
        if service is not self.durable:
            self._are_others_known = False
        return self.services.request(service, sender, message, now)

    def _drop(self, client: ClientName, now: Instant) -> list[Effect]:
        """A client is gone, with its subscriptions."""
        self._are_others_known = False
        effects = self.services.disconnect(client, now)
        self.subscribers.disconnect(client)
        return effects

    # --- time, invariants, figures --------------------------------------------------------------

    def _time(self, now: Instant) -> Instant:
        """Our own time, which never goes back, for the driver's clock, which may."""
        self._ahead += max(0, self._last - now)
        self._last = now
        self.touch()
        return Instant(now + self._ahead)

    def touch(self) -> None:
        """Forget the deadlines that are known; call it after driving a part directly."""
        self.is_deadline_known = self._are_others_known = False

    def check(self, portion: Portion = WHOLE) -> None:
        self.subscribers.check(portion)
        self.catalogue.check(portion)
        self.services.check(portion)

    @property
    def size(self) -> int:
        """About how many items there are to check."""
        return self.subscribers.subscription_count + self.durable.size

    def statistics(self) -> dict[str, object]:
        """Plain figures by name, for status pages, metrics and checkers."""
        storeless, subscribers, routing = self.services.storeless, self.subscribers, self.routing
        unmatched = sum(each.unmatched_count for each in storeless)
        return {
            "broker": self.name,
            "cell": routing.cell,
            "clients": len(self.connections) - self.durable.groups.feed_count,
            "subscriptions": subscribers.subscription_count + unmatched,
            "delivered": self.connections.delivered,
            "batch_sizes": list(subscribers.batch_sizes),
            "ended_slow": subscribers.ended_slow,
            "failovers": routing.failovers,
            "sideways": routing.sideways,
            "neighbour_changes": routing.changes,
            **self.durable.statistics(),
            "services": {each.name: each.statistics() for each in storeless},
        }

    def horizon(self, pubend: PubendName) -> int | None:
        """Up to where everything of the pubend is settled here, if subscribers are hosted."""
        return self.durable.horizon(pubend)
