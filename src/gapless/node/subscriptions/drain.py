"""Drain: a broker gives all its named subscriptions to other brokers, so that it can be removed.

Theory of operation
    The broker that is drained asks another one to take a subscription over (`TakeOver`), with all
    that a client would say that came with its token. The other broker does what it would do for
    such a client, and for a while is that client itself: under a name of its own it subscribes, and
    leaves when it is told that the subscription is there. The rest is a move like any other
    (`moves`): the new broker makes the pubends hold what is needed, and tells the old one to forget
    its copy. The request is repeated until the subscription is gone, to another broker each time.
    Groups first finish what their members have: nothing more is handed to them, and a group leaves
    when nothing is finished above its low-water marks. A broker that is drained sends new
    subscribers elsewhere. It forgets that it is drained when it is restarted.

Source: docs/protocols/durable-subscriptions.md, 3.6.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from gapless.core.broker_messages import TakeOver
from gapless.core.client_messages import Ended, Refused, Sharing, Subscribe, Subscribed
from gapless.core.effects import Persist, Put
from gapless.core.errors import ProtocolError, quoted
from gapless.core.identity import ClientName, Instant
from gapless.node.directory.registry import FLOORS
from gapless.node.routing import score
from gapless.node.subscriptions.recall import HEARD
from gapless.node.subscriptions.record import Phase

if TYPE_CHECKING:
    from gapless.core.effects import Effect
    from gapless.core.identity import BrokerName, PeerName, SubscriptionName
    from gapless.core.messages import Message
    from gapless.durable.subscriptions import DurableSubscription
    from gapless.node.context import Context
    from gapless.node.subscriptions.attachments import Attachments
    from gapless.node.subscriptions.named_groups import NamedGroups

AT_ONCE = 64
"""Subscriptions that are asked for in one step."""

QUIET = 4
"""Repeats of a question that must not have come before a broker is called drained."""

MOVER = "mover of "
"""How the names of clients begin that take subscriptions over. No driver gives such a name."""


class SubscriptionIntake(Protocol):
    """What takes the subscriptions of clients in; see `node.durable.subscription_requests`."""

    def subscribe(self, client: ClientName, message: Subscribe, now: Instant) -> list[Effect]: ...
    def turn_away(self) -> None: ...


def is_mover(peer: PeerName) -> bool:
    return peer.startswith(MOVER)


class Drain:
    """What one broker gives away, and takes over. See the module docstring."""

    def __init__(
        self,
        context: Context,
        attachments: Attachments,
        groups: NamedGroups,
        requests: SubscriptionIntake,
    ) -> None:
        self.name = context.name
        self.network = context.network
        self.config = context.config
        self.routing = context.routing
        self._store = context.store
        self.attachments = attachments
        self.groups = groups
        self.requests = requests
        self.is_on = False
        self.deadline: Instant | None = None
        self.is_used = False  # has this broker taken a subscription over in this life?
        self._tries: dict[SubscriptionName, int] = {}
        self._heard_at = context.started  # when a move was last spoken of

    # --- at the broker that is drained ------------------------------------------------------------

    @property
    def takers(self) -> list[BrokerName]:
        """The other brokers that host subscribers."""
        cells = [each for each in self.network.cells if each.subscribers]
        return [each.brokers[0].name for each in cells if each.brokers[0].name != self.name]

    def begin(self, now: Instant) -> None:
        """Give all away, from now on; fine to repeat."""
        self.is_on = True
        self._heard_at = now
        self.requests.turn_away()
        self.groups.pause()
        self.deadline = now

    def remaining(self) -> dict[str, str]:
        """The named subscriptions that are still here, each with what it waits for."""
        waits: dict[str, str] = {}
        for each in self.attachments.named.subscriptions.all():
            problem = self._obstacle(each)
            waits[each.definition.name] = problem or "another broker takes it over"
        return waits

    def hear(self, now: Instant) -> None:
        """Another broker speaks of a subscription that has moved."""
        self._heard_at = now

    def is_finished(self, now: Instant) -> bool:
        """Is nothing left here, and has nobody asked about a move for a while? A client may have
        moved its subscription at the same time: only we can tell the two new brokers of each
        other."""
        is_empty = next(iter(self.attachments.named.subscriptions.all()), None) is None
        return (
            is_empty and self._is_marked and now >= self._heard_at + QUIET * self.config.name_repeat
        )

    @property
    def _is_marked(self) -> bool:
        """Is it durable that we ask again? If this broker is removed, and comes back later, names
        may have changed meanwhile of which it is the registrar."""
        return self._store.get(FLOORS, HEARD) == b""

    def _obstacle(self, subscription: DurableSubscription) -> str:
        """Why a subscription cannot leave yet; empty if it can."""
        definition = subscription.definition
        record = self.attachments.table.get(definition.name)
        if record is None or record.phase is not Phase.LIVE:
            return "it is still arriving here"
        if definition.name in self.attachments.named.changing:
            return "its condition is being changed"
        if definition.share_by:
            return self.groups.obstacle(subscription)
        return ""

    def fire(self, now: Instant) -> list[Effect]:
        if self.deadline is None or now < self.deadline:
            return []
        self.deadline = Instant(now + self.config.name_repeat)
        effects: list[Effect] = []
        if not self._is_marked:
            effects.append(Persist((Put(FLOORS, HEARD, b""),)))
        able = (
            each for each in self.attachments.named.subscriptions.all() if not self._obstacle(each)
        )
        for each in list(islice(able, AT_ONCE)) if self.takers else ():
            effects += self._offer(each, now)
        return effects

    def _offer(self, subscription: DurableSubscription, now: Instant) -> list[Effect]:
        definition = subscription.definition
        name = definition.name
        share = None
        if definition.share_by:
            share = Sharing(definition.share_by, definition.attempts_max, definition.dead_letters)
        asked = Subscribe(
            definition.topic,
            0,
            0,
            definition.condition,
            definition.order,
            name,
            dict(subscription.acknowledged),
            tokens=definition.tokens,
            previous=self.name,
            moves=definition.moves,
            altered=definition.altered,
            former=definition.former,
            share=share,
            topics=definition.topics,
        )
        takers = sorted(self.takers, key=lambda each: score(name, each))
        tries = self._tries.get(name, 0)
        self._tries[name] = tries + 1
        message = TakeOver(self.name, takers[tries % len(takers)], asked, definition.owner)
        return self.routing.send_on(message, now)

    # --- at the broker that takes a subscription over ---------------------------------------------

    def receive(self, message: TakeOver, now: Instant) -> list[Effect]:
        """Take a subscription over, as if its client had come."""
        for broker in (message.sender, message.receiver):
            if broker not in self.network.cell_of:
                raise ProtocolError(f"no broker is called {quoted(broker)}")
        if message.receiver != self.name:
            return self.routing.send_on(message, now)
        asked, clients = message.subscribe, self.attachments.subscribers.clients
        is_strange = asked.previous != message.sender or message.sender == self.name
        if asked.name is None or asked.token is None or is_strange:
            raise ProtocolError("a subscription is given away without a name, or by a stranger")
        client = ClientName(f"{MOVER}{asked.name}")
        is_here = self.attachments.named.subscriptions.get(asked.name) is not None
        if self.is_on or is_here or client in clients:
            return []
        self.is_used = True
        clients.connect(client, message.owner)
        return self.requests.subscribe(client, replace(asked, request=0, subscription=0), now)

    def is_over(self, message: Message) -> bool:
        """Is the task of a client that takes a subscription over at its end?"""
        return isinstance(message, Subscribed | Refused | Ended)
