"""Clients with named subscriptions: they leave, return with a token, acknowledge, forget.

Theory of operation
    A client has one connection and some named subscriptions on it (`Slot`), perhaps an anonymous
    one beside them. What arrives goes into an inbox, from which it consumes in order, at its own
    pace; the token of a subscription moves as its events are consumed, and not as they arrive. So
    a connection that breaks loses what is in the inbox, and the token asks for it again.
    Now and then it hangs up and stays away, lets one subscription go and takes it up again, makes
    a new connection while the old one is still there, or forgets a subscription and makes it anew
    from another start. It returns with its token, or with none where its broker keeps it, or with
    an old one, as if restored from a backup. All choices come from the world's dice.

Invariants
    I1  only what the newest connection brings is listened to
    I2  what a session brought is consumed only while that session is the slot's
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.client_messages import (
    FORMERS_MAX,
    UNKNOWN,
    Acknowledge,
    AlterationNoted,
    Consumed,
    Deliveries,
    Done,
    Ended,
    Forget,
    Former,
    Lost,
    Refused,
    Subscribe,
    Subscribed,
    SubscriptionAltered,
    Unsubscribe,
)
from gapless.core.identity import BrokerName, ClientName
from gapless.testing.actors.clients import MILLISECOND
from gapless.testing.actors.durable_plans import Phase, Slot, draw_birth, returning_token
from gapless.testing.actors.inbox import Inbox
from gapless.testing.named import Conditions, Named
from gapless.testing.record import Subscription

if TYPE_CHECKING:
    from gapless.core.messages import Message
    from gapless.testing.actors.durable_plans import DurablePlan
    from gapless.testing.links import Connection
    from gapless.testing.world import World

REDIRECTS_MAX = 20
"""Redirects in a row after which a client subscribes one by one."""


class Line:
    """One connection; what it brings is passed on only while it is the newest."""

    def __init__(self, owner: DurableSubscriber) -> None:
        self._owner = owner
        self.connection: Connection | None = None

    def tell(self, message: Message) -> None:
        if self._owner.line is self:
            self._owner.tell(message)

    def cut_off(self) -> None:
        if self._owner.line is self:
            self._owner.cut_off()

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()


class DurableSubscriber:
    """Attaches, consumes, acknowledges, leaves, returns. See the module docstring."""

    def __init__(self, world: World, plan: DurablePlan) -> None:
        self._world = world
        self.plan = plan
        self.is_quick = False
        self.slots = [Slot(wish) for wish in plan.wishes]
        self.line: Line | None = None
        self._broker = plan.brokers[0]
        self._sent_to: BrokerName | None = None
        self._redirected: list[Slot] = []  # since all were attached
        self._connections = 0
        self._number = 0
        self._inbox = Inbox(world.watch)
        self._is_taking = False
        self._acknowledging: dict[int, tuple[Named, dict[str, int]]] = {}  # by request
        self._forgetting: dict[int, Slot] = {}
        self.connect()
        world.after(1 + world.dice.randrange(2 * plan.change_after), self._change)
        world.after(1 + world.dice.randrange(2 * plan.acknowledge_after), self._acknowledge_some)

    # --- connections ----------------------------------------------------------------------------

    def connect(self) -> None:
        """A new connection; the one before, if it is still there, is not listened to any more."""
        if self._sent_to is not None:
            self._broker, self._sent_to = self._sent_to, None
        elif not self._open and self._is_settled and len(self.plan.brokers) > 1:
            self._broker = self._world.dice.choice(self.plan.brokers)
        self._connections += 1
        self.line, name = Line(self), ClientName(f"{self.plan.name}.{self._connections}")
        self.line.connection = self._world.connect(name, self.line, self._broker)
        if self.line.connection is None:
            self.line = None
            self._world.after(20 * MILLISECOND, self.connect)
            return
        self._let_go()
        for slot in self.slots:
            if slot.phase is Phase.FORGETTING:
                self.forget(slot)
            elif slot.phase is not Phase.GONE and self._may_come(slot):
                self._world.after(self._while(5 * MILLISECOND), self._subscribe, slot, self.line)
        if self.plan.has_anonymous:
            self._subscribe_anonymously()

    def _may_come(self, slot: Slot) -> bool:
        """Two subscriptions may have to be at two brokers: then one goes ahead."""
        return len(self._redirected) < REDIRECTS_MAX or slot is self._redirected[-1]

    @property
    def _is_settled(self) -> bool:
        """Does every subscription live where we are? A move is completed before the next."""
        return all(
            slot.phase is Phase.GONE
            or (slot.home == self._broker and slot.phase is not Phase.FORGETTING)
            for slot in self.slots
        )

    def _let_go(self) -> None:
        """What the last connection brought is lost, and what was asked for on it is open."""
        self._inbox.clear()
        self._is_taking = False
        self._acknowledging.clear()
        self._forgetting.clear()
        for slot in self.slots:
            slot.session = None
            if slot.phase not in (Phase.FORGETTING, Phase.GONE):
                slot.phase = Phase.AWAY

    def _while(self, at_most: int) -> int:
        return 0 if self.is_quick else self._world.dice.randrange(1, at_most)

    @property
    def _open(self) -> Connection | None:
        connection = self.line.connection if self.line else None
        return connection if connection and connection.is_open else None

    def _send(self, message: Message) -> None:
        if connection := self._open:
            connection.send(message)

    def hang_up(self) -> None:
        if self.line is not None and self._open:
            self.line.close()
            self.cut_off()

    def cut_off(self) -> None:
        if self.line is None or self._open:
            return
        self.line = None
        self._let_go()
        is_long = self._world.dice.random() < 0.5
        away = self.plan.away_max if is_long else 30 * MILLISECOND
        self._world.after(1 + self._while(away), self.connect)

    # --- subscriptions --------------------------------------------------------------------------

    def _subscribe(self, slot: Slot, line: Line | None) -> None:
        if line is not self.line or slot.phase is not Phase.AWAY or not self._open:
            return
        if slot.named is None:
            birth = draw_birth(self._world, slot.wish.topic)
            conditions = Conditions(slot.wish.condition)
            slot.named = Named(
                name=slot.wish.name, birth=birth, keeper=slot.wish.tokens, conditions=conditions
            )
            slot.tokens.clear()
        slot.phase = Phase.ASKED
        self._number += 1
        wish, birth, conditions = slot.wish, slot.named.birth, slot.named.conditions
        is_new = not slot.named.origin
        has_moved = not is_new and slot.home != self._broker and wish.tokens == "client"
        choices = ("all", "all", "token", "nothing")
        knows = self._world.dice.choice(choices) if has_moved else "all"
        if knows == "nothing" and slot.home in self._world.watch.record.lost_disks:
            knows = "token"  # nobody else would know anything of it
        is_told = has_moved and knows == "all"
        self._world.reached["a client came without knowing where it was"] += has_moved > is_told
        token = birth.token if is_new else None
        if not is_new and knows != "nothing":
            token = returning_token(self._world, slot, has_moved=has_moved)
        message = Subscribe(
            wish.topic,
            self._number,
            self._number,
            conditions.current,
            wish.order,
            name=wish.name,
            token=token,
            earliest=is_new and birth.at == "earliest",
            instant=birth.instant if is_new else None,
            tokens=wish.tokens,
            previous=slot.home if is_told else None,
            moves=slot.moves if is_told else 0,
            altered=UNKNOWN if is_new else conditions.altered,
            former=conditions.former[-FORMERS_MAX:],
        )
        slot.session = self._record(message, slot.named)
        self._send(message)

    def _record(self, message: Subscribe, named: Named | None) -> Subscription:
        assert self._open
        session = Subscription(
            client=self._open.name,
            number=message.subscription,
            topic=message.topic,
            condition=message.condition,
            order=message.order,
            broker=self._broker,
            named=named,
            asked=message,
        )
        self._world.watch.record.subscribe(session)
        return session

    def _subscribe_anonymously(self) -> None:
        wish = self.plan.wishes[0]
        self._number += 1
        message = Subscribe(wish.topic, self._number, self._number, wish.condition)
        self._record(message, None)
        self._send(message)

    def _slot_of(self, number: int) -> Slot | None:
        return next((s for s in self.slots if s.session and s.session.number == number), None)

    @property
    def _sessions(self) -> list[Subscription]:
        return [slot.session for slot in self.slots if slot.session and slot.session.live]

    def tell(self, message: Message) -> None:
        match message:
            case Deliveries():
                self._inbox.put(message, self._sessions)
            case Lost(numbers, pubend, span):
                losers = [each for each in self._sessions if each.number in numbers]
                self._inbox.put_loss(losers, pubend, span)
            case Subscribed(_, number):
                if slot := self._slot_of(number):
                    assert slot.named
                    if slot.home not in (None, self._broker):
                        move = self._world.now, slot.named.conditions.altered
                        slot.named.moves.append(move)
                    slot.phase, slot.home, slot.has_gone = Phase.ATTACHED, self._broker, False
                    slot.moves = message.moves
                    self._note(slot)
                    for other in self.slots if len(self._redirected) >= REDIRECTS_MAX else ():
                        self._subscribe(other, self.line)
                    if all(each.phase in (Phase.ATTACHED, Phase.GONE) for each in self.slots):
                        self._redirected.clear()
            case SubscriptionAltered(request=0, subscription=number):
                if slot := self._slot_of(number):
                    self._note(slot)
                    self._send(AlterationNoted(number, message.altered))
            case Ended(number):
                self._ended(number, has_gone=message.elsewhere)
            case Refused():
                self._refused(message)
            case Done(request):
                self._done(request)
            case _:
                return
        self._take_later()

    def _note(self, slot: Slot) -> None:
        """Take over what this connection has told of the condition."""
        assert slot.session
        assert slot.named
        before, after = slot.named.conditions, slot.session.conditions
        if after.altered > before.altered:
            self._world.reached["a client was told of another condition"] += 1
            for each in after.former[len(after.before(after.former)) :]:
                ends = each.until.items()
                consumed = slot.named.token
                if each not in before.former and any(t < consumed.get(p, 0) for p, t in ends):
                    self._world.reached["a change came late"] += 1
                    slot.named.is_late = True
        fresh = [each for each in after.former if each not in before.former]
        dropped_count = max(after.altered - before.altered, 0) - len(fresh)
        if dropped_count > 0:
            # The broker has dropped what decided on all that the client has acknowledged. If there
            # were several, nobody can tell any more which decided where.
            slot.named.is_late |= dropped_count > 1
            former = Former(before.current, slot.named.token)
            after.former = (*before.former, former, *fresh)
        slot.named.conditions = after.copy()

    def _ended(self, number: int, *, has_gone: bool) -> None:
        slot = self._slot_of(number)
        if slot is not None and slot.phase in (Phase.LEAVING, Phase.ATTACHED):
            slot.phase, slot.session, slot.has_gone = Phase.AWAY, None, has_gone
            away = 1 + self._while(self.plan.away_max)
            self._world.after(away, self._subscribe, slot, self.line)

    def _refused(self, message: Refused) -> None:
        request = message.request
        if self._acknowledging.pop(request, None):
            return
        if slot := self._forgetting.get(request):
            self._forget_refused(slot, request, message)
            return
        assert self._open
        self._world.watch.record.drop(self._open.name, request)
        if (slot := self._slot_of(request)) and message.elsewhere:
            self._redirected.append(slot)
            self._follow(message)
        elif slot:
            self._world.reached["a named subscription was refused for a while"] += 1
            slot.phase, slot.session = Phase.AWAY, None
            self._world.after(10 * MILLISECOND, self._subscribe, slot, self.line)

    def _follow(self, message: Refused) -> None:
        """Go to where a subscription is, with all of them."""
        self._world.reached["a client was sent to its subscription"] += 1
        self._sent_to = BrokerName(message.elsewhere[0])
        self.hang_up()

    def _forget_refused(self, slot: Slot, request: int, message: Refused) -> None:
        if message.elsewhere:
            self._follow(message)
        elif message.retry:
            del self._forgetting[request]
            self._world.after(10 * MILLISECOND, self.forget, slot)
        else:  # it was there no more: the answer to an earlier request got lost
            self._done(request)

    def _done(self, request: int) -> None:
        if acknowledged := self._acknowledging.pop(request, None):
            acknowledged[0].assure(acknowledged[1])
            return
        slot = self._forgetting.pop(request)
        assert slot.named
        slot.named.is_over = True
        for session in self._world.watch.record.sessions(slot.named):
            if self._open and session.client == self._open.name:
                session.over = True  # an older connection may still bring what was on its way
        slot.named = slot.session = slot.home = None
        if slot.phase is Phase.FORGETTING:
            slot.phase = Phase.GONE if self.is_quick else Phase.AWAY
            self._world.after(self._while(self.plan.away_max), self._subscribe, slot, self.line)

    # --- consuming ------------------------------------------------------------------------------

    def _take_later(self) -> None:
        if self._inbox and not self._is_taking:
            self._is_taking = True
            pause = 0 if self.is_quick else int(self._world.dice.random() * 2 * self.plan.pause)
            self._world.after(pause, self._take, self.line)

    def _take(self, line: Line | None) -> None:
        if line is not self.line:
            return
        self._is_taking = False
        limit = len(self._inbox) if self.is_quick else self._world.dice.randint(1, 5)
        attached = [slot.session for slot in self.slots if slot.phase is Phase.ATTACHED]
        if count := self._inbox.take(limit, [each for each in attached if each]):
            self._send(Consumed(count))
        self._take_later()

    # --- habits ---------------------------------------------------------------------------------

    def _acknowledge_some(self) -> None:
        if self.is_quick:
            return
        dice = self._world.dice
        for slot in self.slots:
            if slot.phase is Phase.ATTACHED and dice.random() < 0.7:
                self._acknowledge(slot, wait=dice.random() < 0.5)
        self._world.after(
            1 + dice.randrange(2 * self.plan.acknowledge_after), self._acknowledge_some
        )

    def _acknowledge(self, slot: Slot, *, wait: bool) -> None:
        assert slot.named
        assert slot.session
        token = slot.named.token
        slot.tokens.append(token)
        slot.named.acknowledge(token)
        request = 0
        if wait:
            self._number = request = self._number + 1
            self._acknowledging[request] = promise = slot.named, token
            self._world.watch.record.promised[slot.session.client, request] = promise
        self._send(Acknowledge(slot.session.number, token, request))

    def _change(self) -> None:
        """Now and then: leave, with or without a word, or come twice, or begin anew."""
        if self.is_quick:
            return
        dice = self._world.dice
        slot, choice = dice.choice(self.slots), dice.random()
        if self._open is None or choice < 0.3:
            pass
        elif choice < 0.5:
            self.hang_up()
        elif choice < 0.7 and slot.phase is Phase.ATTACHED and slot.session:
            slot.phase = Phase.LEAVING
            self._send(Unsubscribe(slot.session.number))
        elif choice < 0.85 and self.line:
            self._world.reached["a client came twice"] += 1
            self._world.after(dice.randrange(60 * MILLISECOND), self.line.close)
            self.connect()
        elif slot.phase in (Phase.ATTACHED, Phase.AWAY) and slot.home:
            self.forget(slot)
        self._world.after(1 + dice.randrange(2 * self.plan.change_after), self._change)

    def forget(self, slot: Slot) -> None:
        if slot.named is None or self._open is None or slot in self._forgetting.values():
            return  # a new connection will do it, or it is under way
        self._number += 1
        slot.named.ends.append((self._open.name, self._number))
        if len(slot.named.ends) > 1:  # either may come too late
            self._world.watch.record.repeats.update(slot.named.ends)
        slot.phase = Phase.FORGETTING
        self._world.reached["a named subscription was forgotten"] += 1
        self._forgetting[self._number] = slot
        self._send(Forget(self._number, slot.wish.name))

    # --- the end --------------------------------------------------------------------------------

    def waiting(self) -> list[str]:
        """What it still waits for, once everybody hurries."""
        if self._open is None:
            return [f"{self.plan.name} waits for a connection"]
        found = [f"{self.plan.name} has {len(self._inbox)} to consume"] * bool(self._inbox)
        for slot in self.slots:
            if slot.phase not in (Phase.ATTACHED, Phase.GONE):
                found.append(f"{slot.wish.name} is still {slot.phase.value}")
            elif slot.session and slot.session.behind and slot.wish.order == "publisher":
                found.append(f"{slot.wish.name} is behind at {sorted(slot.session.behind)}")
        asked = (*self._acknowledging, *self._forgetting)
        found += [f"{self.plan.name} waits for the answer to {each}" for each in asked]
        return found

    def conclude(self) -> None:
        """Acknowledge everything; now and then forget the subscription instead."""
        for slot in self.slots:
            if slot.phase is Phase.ATTACHED:
                if self._world.dice.random() < 0.3:
                    self.forget(slot)
                else:
                    self._acknowledge(slot, wait=True)
