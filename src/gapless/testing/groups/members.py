"""Members of a group as small actors: they join anywhere, handle events one by one, and go.

Theory of operation
    A member connects to a broker, follows redirects to the broker of its group, and joins. It
    handles the oldest event that it has, for a drawn while. Then it finishes the event, and waits
    for the confirmation or not; or it rejects the event with a delay, and gives back what it has of
    the same key. Now and then it crashes (its connection is gone with all that it has), or leaves
    in order and joins again later. All choices come from the world's dice.

Invariants
    I1  only what the newest connection brings is listened to
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapless.core.client_messages import (
    Done,
    Ended,
    Refused,
    Sharing,
    Subscribe,
    Subscribed,
    Unsubscribe,
)
from gapless.core.events import EventBatch
from gapless.core.group_messages import Finish, Handed, Reject, TakenBack
from gapless.core.identity import BrokerName, ClientName, SubscriptionName
from gapless.core.share_key import share_key
from gapless.testing.actors.clients import MILLISECOND
from gapless.wire.events import decode_attributes

if TYPE_CHECKING:
    from collections.abc import Hashable

    from gapless.core.identity import PubendName, TopicName
    from gapless.core.messages import Message
    from gapless.testing.links import Connection
    from gapless.testing.world import World


@dataclass(frozen=True, kw_only=True)
class GroupPlan:
    """One group, and how its members behave; times in microseconds, the rest are probabilities."""

    name: SubscriptionName
    topic: TopicName
    condition: str
    share_by: str
    attempts_max: int
    dead_letters: TopicName | None
    brokers: tuple[BrokerName, ...]
    """Where members connect first."""
    members: int
    handling: int
    """How long a member takes over an event, at most."""
    rejects: float
    """How often an event is rejected."""
    unconfirmed: float
    """How often a member does not ask for a confirmation."""
    crash_after: int
    """About how often a member crashes; 0: never."""
    leave_after: int
    """About how often a member leaves in order; 0: never."""
    broker_crash: float
    """How often the group's broker crashes a little after it has confirmed something."""


class Line:
    """One connection; what it brings is passed on only while it is the newest."""

    def __init__(self, owner: Member) -> None:
        self._owner = owner
        self.connection: Connection | None = None

    def tell(self, message: Message) -> None:
        if self._owner.line is self:
            self._owner.tell(message)

    def cut_off(self) -> None:
        if self._owner.line is self:
            self._owner.cut_off()


class Member:
    """One member. See the module docstring."""

    def __init__(self, world: World, plan: GroupPlan, number: int) -> None:
        self._world = world
        self._plan = plan
        self._name = f"M{number}"
        self._broker = world.dice.choice(plan.brokers)
        self._connections = 0
        self._requests = 0
        self._joining = 0  # the request that waits for its answer
        self._in_hand: dict[tuple[PubendName, int], Hashable] = {}
        self._rejected: dict[tuple[PubendName, int], Hashable] = {}  # not yet taken back
        self._is_busy = False
        self.is_quick = False
        self.line: Line | None = None
        world.after(world.dice.randrange(1, 50 * MILLISECOND), self._connect)
        for after, action in ((plan.crash_after, self._crash), (plan.leave_after, self._leave)):
            if after:
                world.after(1 + world.dice.randrange(2 * after), action)

    # --- connections ------------------------------------------------------------------------------

    def _connect(self) -> None:
        if self.line is not None:
            return
        self._connections += 1
        line = Line(self)
        name = ClientName(f"{self._name}.{self._connections}")
        line.connection = self._world.connect(name, line, self._broker)
        if line.connection is None:
            self._broker = self._world.dice.choice(self._plan.brokers)
            self._world.after(20 * MILLISECOND, self._connect)
            return
        self.line = line
        self._ask()

    def _ask(self) -> None:
        plan = self._plan
        self._requests += 1
        self._joining = self._requests
        self._send(
            Subscribe(
                plan.topic,
                self._requests,
                1,
                plan.condition,
                name=plan.name,
                share=Sharing(plan.share_by, plan.attempts_max, plan.dead_letters),
            )
        )

    def _send(self, message: Message) -> None:
        if self.line is not None and self.line.connection is not None:
            self.line.connection.send(message)

    def hang_up(self) -> None:
        """Lose the connection, and everything in hand with it."""
        if self.line is not None and self.line.connection is not None:
            self._world.reached["a member was killed"] += 1
            self.line.connection.close()
            self.cut_off()

    def cut_off(self) -> None:
        self.line = None
        self._in_hand.clear()
        self._rejected.clear()
        self._is_busy = False
        self._world.after(self._pause(30 * MILLISECOND), self._connect)

    def _pause(self, at_most: int) -> int:
        return 1 if self.is_quick else self._world.dice.randrange(1, at_most)

    def _crash(self) -> None:
        if not self.is_quick:
            self.hang_up()
            self._again(self._plan.crash_after, self._crash)

    def _leave(self) -> None:
        if self.is_quick:
            return
        if self.line is not None and not self._joining:
            self._world.reached["a member left in order"] += 1
            self._send(Unsubscribe(1))
            if self.line.connection is not None:
                line = self.line
                self.line = None  # what it brings now is not listened to
                self._world.after(60 * MILLISECOND, self._close, line)
            self.cut_off()
        self._again(self._plan.leave_after, self._leave)

    def _close(self, line: Line) -> None:
        if line.connection is not None:
            line.connection.close()

    def _again(self, after: int, action: object) -> None:
        self._world.after(1 + self._world.dice.randrange(2 * after), action)  # type: ignore[arg-type]

    # --- what the broker says ---------------------------------------------------------------------

    def tell(self, message: Message) -> None:
        match message:
            case Subscribed():
                self._joining = 0
            case Refused(request=request) if request == self._joining:
                self._refused(message)
            case Ended():
                self._world.after(20 * MILLISECOND, self._ask)
            case Handed():
                self._take(message)
            case Done():
                self._strike()
            case TakenBack(pubend=pubend, ticks=ticks):
                for tick in ticks:
                    self._rejected.pop((pubend, tick), None)
            case _:
                pass

    def _strike(self) -> None:
        """Crash the broker just as it has confirmed something."""
        dice, plan = self._world.dice, self._plan
        if self.is_quick or dice.random() >= plan.broker_crash or self.line is None:
            return
        self._world.reached["a broker crashed after it had confirmed"] += 1
        process, delay = self._world.processes[self._broker], self._world.restart_delay()
        self._world.after(dice.randrange(1, 5 * MILLISECOND), process.crash, delay)

    def _refused(self, message: Refused) -> None:
        if message.elsewhere and self.line is not None and self.line.connection is not None:
            self._world.reached["a member was redirected"] += 1
            self._broker = BrokerName(message.elsewhere[0])
            line, self.line = self.line, None
            self._close(line)
            self._world.after(1, self._connect)
        else:
            line = self.line  # type: ignore[assignment]
            self._world.after(20 * MILLISECOND, lambda: self._ask() if self.line is line else None)

    def _take(self, message: Handed) -> None:
        attributes = decode_attributes(EventBatch(message.events.events))
        for tick, each in zip(message.ticks, attributes, strict=True):
            self._in_hand[message.pubend, tick] = share_key(each, self._plan.share_by)
        for key in self._rejected.values():
            self._give_back(key)
        self._go_on()

    # --- handling ---------------------------------------------------------------------------------

    def _go_on(self) -> None:
        if self._in_hand and not self._is_busy:
            self._is_busy = True
            self._world.after(self._pause(1 + self._plan.handling), self._handled, self.line)

    def _handled(self, line: Line) -> None:
        if line is not self.line or not self._in_hand:
            return
        self._is_busy = False
        dice, plan = self._world.dice, self._plan
        (pubend, tick), key = next(iter(self._in_hand.items()))
        del self._in_hand[pubend, tick]
        request = 0
        if dice.random() >= plan.unconfirmed:
            self._requests += 1
            request = self._requests
        if dice.random() < plan.rejects:
            self._world.reached["a member rejected an event"] += 1
            delay = dice.choice((0, 5, 50)) * MILLISECOND
            self._send(Reject(1, pubend, (tick,), request, delay, "the dice said so"))
            self._rejected[pubend, tick] = key
            self._give_back(key)
        else:
            self._send(Finish(1, pubend, (tick,), request))
        self._go_on()

    def _give_back(self, key: Hashable) -> None:
        """What is in hand of the same key, and was not begun, is given back."""
        if key is None:
            return
        for pubend, tick in [place for place, each in self._in_hand.items() if each == key]:
            del self._in_hand[pubend, tick]
            self._send(Reject(1, pubend, (tick,), counts=False))

    def waiting(self) -> list[str]:
        return [f"{self._name} has not joined"] if self.line is None or self._joining else []
