"""A miniature world: one pubend, one broker that crashes, subscribers that come and go.

Knowledge and nacks get lost and overtake each other; the disk syncs when it likes; the pubend
releases early. Clients check all they get (`Client`). `Planted` breaks one rule on purpose, to see
that they notice. Ticks are small numbers; one step of the world is a millisecond.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from gapless.core.broker_messages import Nack
from gapless.core.identity import Instant, SubscriptionName, TopicName
from gapless.core.ticks import Span
from gapless.core.token import Token
from gapless.durable.catch_up import CatchUp, CatchUpSource, LostSpan, Taker
from gapless.durable.consolidated import Consolidated, RecordsPersisted, SubscriptionBatch
from gapless.durable.subscriptions import Definition, DurableSubscriptions, SubscriptionPersisted
from gapless.knowledge.subend import Subend
from tests.durable.actors import Client, HastyCatchUp, LooseLog, Planted, Pubend
from tests.durable.stand import PUBEND, Disk, limits

if TYPE_CHECKING:
    from gapless.core.broker_messages import Knowledge
    from gapless.core.messages import Message

KINDS = 4
LIMITS = limits(
    catch_up_window=3,
    filtered_read_max=4,
    filtered_walk_max=6,
    filtered_replay_max=7,
    filtered_pending_max=12,
    waiting_events_max=8,
)
STREAM = "stream"
"""Who asks: the consolidated stream, or a client by name."""


class World:
    """The broker, and everything around it; all dice come from the seed."""

    def __init__(self, seed: int, planted: Planted | None = None) -> None:
        self.dice = random.Random(seed)
        self.planted = planted or Planted()
        self.now = Instant(0)
        self.loss = 0.2
        self.retention = self.dice.choice([3, 10, 30, 10_000])
        self.pubend = Pubend()
        self.clients: dict[SubscriptionName, Client] = {}
        self.disk = Disk()
        self.wire: list[tuple[str, int, Nack | Knowledge]] = []
        self.gap_count = self.crash_count = self.catch_up_count = 0
        self.life = self.created = 0
        self.start()
        self.disk.take(self.stream.begin(1, self.now))

    # --- the broker -----------------------------------------------------------------------------

    def start(self) -> None:
        """Begin, or begin again, with what is durable."""
        self.life += 1
        self.stream = Consolidated(PUBEND, self.disk.volume, LIMITS)
        if self.planted.no_back_pointer:
            self.stream.log = LooseLog(PUBEND, self.disk.volume, LIMITS)
        self.subscriptions = DurableSubscriptions(self.disk.volume, LIMITS)
        self.subend = Subend(PUBEND, max(self.stream.latest, 1), LIMITS)
        self.catch_ups: dict[SubscriptionName, CatchUp] = {}
        self.live: dict[SubscriptionName, int] = {}  # those who keep up, and where they joined

    def crash(self) -> None:
        self.crash_count += 1
        self.disk.crash()
        self.wire.clear()
        for client in self.clients.values():
            self.disconnect(client)
        self.start()
        if self.stream.latest == 0:
            self.disk.take(self.stream.begin(1, self.now))

    def create(self) -> None:
        """A new subscriber, from now on or from some earlier point."""
        self.created += 1
        name = SubscriptionName(f"s{self.created}")
        here = self.stream.delivered
        start = self.dice.choice([here, self.dice.randint(1, here)])
        kinds = {kind for kind in range(KINDS) if self.dice.random() < 0.4}
        definition = Definition(name=name, topic=TopicName("news"), condition=str(kinds))
        self.disk.take(
            self.subscriptions.create(definition, Token({PUBEND: start}), {str(PUBEND): here})
        )
        self.clients[name] = Client(name, kinds, self.pubend, start, start)

    def connect(self, client: Client) -> None:
        subscription = self.subscriptions.get(client.name)
        if client.is_connected:
            return
        if subscription is None:  # a crash came before it was durable: the client asks again
            del self.clients[client.name]
            return
        client.is_connected, client.life, client.after_gap = True, client.life + 1, False
        make = HastyCatchUp if self.planted.gap_at_once else CatchUp
        taker = Taker(
            subscription.number,
            subscription.since[PUBEND],
            None
            if self.planted.no_refilter
            else lambda _, events: [
                i for i, each in enumerate(events) if int(each.split(b":")[0]) in client.kinds
            ],
        )
        start = client.position + 3 * self.planted.token_ahead
        source = CatchUpSource(self.stream.log)
        self.catch_ups[client.name] = make(taker, start, source, LIMITS)

    def disconnect(self, client: Client) -> None:
        client.is_connected = False
        client.queue.clear()
        self.catch_ups.pop(client.name, None)
        self.live.pop(client.name, None)

    def take(self) -> None:
        """Deliver what is settled, if there is room to log it."""
        if self.stream.is_full or self.subend.horizon <= self.stream.delivered:
            return
        settled = self.subend.take(self.subend.horizon, self.now)
        takers = [
            [
                each.number
                for each in self.subscriptions.all()
                if self.pubend.kind(tick) in self.clients[each.definition.name].kinds
                and tick >= each.since[PUBEND]
            ]
            for tick in settled.ticks
        ]
        through = self.subend.taken
        for name, joined in self.live.items():
            number = self.subscriptions.get(name)
            assert number is not None
            mine = [
                i for i, some in enumerate(takers)
                if number.number in some and settled.ticks[i] >= joined
            ]  # fmt: skip
            if through > joined:
                ticks, events = [settled.ticks[i] for i in mine], [settled.events[i] for i in mine]
                self.clients[name].queue.append(SubscriptionBatch(ticks, events, through))
        self.disk.take(self.stream.advance(settled, takers, through, self.now))

    def settle(self) -> None:
        """Go on with all catch-ups, and switch over those that are done."""
        for name, catch_up in list(self.catch_ups.items()):
            client, latest = self.clients[name], self.stream.latest
            pieces, nacks = catch_up.advance(latest, client.credit, self.now)
            catch_up.check()
            client.queue += pieces
            self.gap_count += sum(isinstance(piece, LostSpan) for piece in pieces)
            self.catch_up_count += sum(
                len(p.ticks) for p in pieces if isinstance(p, SubscriptionBatch)
            )
            self.ask(name, nacks)
            if catch_up.is_done(latest):
                del self.catch_ups[name]
                tail = self.stream.tail(catch_up.taker, catch_up.position)
                if tail.through > catch_up.position and not self.planted.no_tail:
                    client.queue.append(tail)
                self.live[name] = tail.through

    def ask(self, who: str, nacks: list[Nack]) -> None:
        life = self.life_of(who)
        self.wire += [(who, life, nack) for nack in nacks if self.dice.random() > self.loss]

    def life_of(self, who: str) -> int:
        return self.life if who == STREAM else self.clients[SubscriptionName(who)].life

    def report(self) -> None:
        """Tell the pubend what may be released, and let it."""
        pubend, stream = self.pubend, self.stream
        delivered, released = stream.latest, self.subscriptions.released(PUBEND)
        if self.planted.early_report:
            delivered = stream.delivered
        pubend.delivered = max(pubend.delivered, delivered)
        pubend.released = delivered if released is None else min(delivered, released)
        early = min(pubend.delivered, pubend.end - self.retention)
        pubend.lost_below = max(pubend.lost_below, pubend.released, early)
        self.disk.take(stream.chop(pubend.lost_below))

    # --- everything around it -------------------------------------------------------------------

    def carry(self) -> None:
        """One message arrives, any one."""
        if not self.wire:
            return
        who, life, message = self.wire.pop(self.dice.randrange(len(self.wire)))
        if isinstance(message, Nack):
            for span in message.spans:
                for answer in self.pubend.answer(span, self.dice.randint(1, 4), requested=True):
                    if self.dice.random() > self.loss:
                        self.wire.append((who, life, answer))
        elif who == STREAM:
            self.ask(STREAM, self.subend.receive_knowledge(message, self.now))
        elif SubscriptionName(who) in self.catch_ups and life == self.life_of(who):
            catch_up = self.catch_ups[SubscriptionName(who)]
            self.ask(who, catch_up.receive_knowledge(message, self.now))

    def publish(self) -> None:
        start = self.pubend.end
        for _ in range(self.dice.randint(1, 4)):
            self.pubend.end += self.dice.randint(1, 3)
            kind = self.dice.randrange(KINDS)
            self.pubend.events[self.pubend.end - 1] = b"%d:%d" % (kind, self.pubend.end)
        for each in self.pubend.answer(Span(start, self.pubend.end), 9, requested=False):
            if self.dice.random() > self.loss:
                self.wire.append((STREAM, self.life, each))

    def sync(self) -> None:
        if self.disk.waiting:
            for message in self.disk.sync():
                self.tell(message)

    def tell(self, message: Message) -> None:
        if isinstance(message, RecordsPersisted):
            self.disk.take(self.stream.persisted(message, self.now))
        else:
            assert isinstance(message, SubscriptionPersisted)
            self.disk.take(self.subscriptions.persisted(message, self.now))

    def fire(self) -> None:
        self.disk.take(self.stream.fire(self.now))
        self.disk.take(self.subscriptions.fire(self.now))
        self.ask(STREAM, self.subend.fire(self.now))
        for name, catch_up in self.catch_ups.items():
            self.ask(name, catch_up.fire(self.now))

    def act(self, client: Client) -> None:
        """A client consumes, acknowledges, comes or goes."""
        what = self.dice.random()
        if what < 0.6 and client.queue:
            client.consume()
        elif what < 0.8 and self.subscriptions.get(client.name):
            token = Token({PUBEND: client.position})
            self.disk.take(self.subscriptions.acknowledge(client.name, token, self.now))
        elif what < 0.9:
            self.connect(client)
        elif what < 0.98:
            self.disconnect(client)

    def step(self) -> None:
        self.now = Instant(self.now + self.dice.choice([1_000, 20_000, 200_000]))
        what = self.dice.random()
        if what < 0.12:
            self.publish()
        elif what < 0.4:
            self.carry()
        elif what < 0.55:
            self.sync()
        elif what < 0.6:
            self.report()
        elif what < 0.62 and len(self.clients) < 4 and self.stream.latest:
            self.create()
        elif what < 0.63:
            self.crash()
        elif self.clients:
            self.act(self.dice.choice(list(self.clients.values())))
        self.go_on()

    def go_on(self) -> None:
        self.fire()
        self.take()
        self.settle()
        self.stream.check()
        self.subend.check()
        self.subscriptions.check()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
        self.heal()

    def heal(self) -> None:
        """No more faults: everyone comes back and gets all."""
        self.loss = 0
        for each in self.pubend.answer(
            Span(self.pubend.end - 1, self.pubend.end), 9, requested=True
        ):
            self.wire.append((STREAM, self.life, each))
        for _ in range(1_500):
            self.now = Instant(self.now + 50_000)
            for _ in range(len(self.wire)):
                self.carry()
            self.sync()
            for client in list(self.clients.values()):
                self.connect(client)
                if client.queue:
                    client.consume()
            self.go_on()
            if all(client.position == self.pubend.end for client in self.clients.values()):
                break
        for client in self.clients.values():
            client.check_complete(self.pubend.end)
