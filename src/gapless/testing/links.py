"""Links: what carries messages between brokers, and between a client and its broker, with faults.

Theory of operation
    Between brokers anything may happen to a message: it takes time, is lost, doubled, overtaken,
    cut off one way, or held by a stalled link that later lets go of what it held, or does not. A
    crash loses what was on its way to the crashed broker. Which of it does happen is drawn when
    the message is sent; without faults a link is first in, first out.
    A client's connection delivers everything, in order, until it breaks; then nothing.

Invariants
    I1  nothing arrives at an incarnation of a broker to which it was not sent
    I2  with no faults set, messages on a link arrive in the order in which they were sent
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from gapless.core.identity import BrokerName, ClientName, Instant, PeerName
from gapless.testing.trace import show

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gapless.core.messages import Message
    from gapless.testing.stage import Stage

Pair = tuple[BrokerName, BrokerName]


@dataclass(frozen=True, kw_only=True)
class LinkOptions:
    """How links behave. Chances are per message, times in microseconds."""

    delay_min: int = 200
    delay_spread: int = 800
    """On top of `delay_min`, drawn evenly."""
    loss: float = 0.0
    duplicate: float = 0.0
    overtake: float = 0.0
    overtake_delay: int = 20_000
    """How much later a message comes that others overtake, at most."""


CLEAN = LinkOptions()


@dataclass(slots=True)
class Stall:
    """A link on which nothing moves. What is held comes later, unless it is swallowed."""

    swallows: bool
    held: list[tuple[int, Message]] = field(default_factory=list)


class Listener(Protocol):
    """What a link asks of the broker at its end."""

    @property
    def name(self) -> BrokerName: ...
    @property
    def incarnation(self) -> int: ...
    @property
    def is_up(self) -> bool: ...

    def receive(self, sender: PeerName, message: Message) -> None: ...
    def link_up(self, client: ClientName) -> None: ...
    def link_down(self, client: ClientName) -> None: ...


class Links:
    """All links between brokers."""

    def __init__(
        self, stage: Stage, brokers: Mapping[BrokerName, Listener], options: LinkOptions
    ) -> None:
        self._stage = stage
        self._brokers = brokers
        self.options = options
        self.connections: dict[ClientName, Connection] = {}
        self.cuts: dict[Pair, None] = {}  # an ordered set
        self.stalls: dict[Pair, Stall] = {}
        self._last_arrival: dict[Pair, Instant] = {}
        self._losses_due: dict[Pair, int] = {}

    def send(self, sender: BrokerName, receiver: BrokerName, message: Message) -> None:
        stage, options, pair = self._stage, self.options, (sender, receiver)
        broker = self._brokers[receiver]
        if not broker.is_up or pair in self.cuts or self._is_due(pair):
            self._lose(pair, message)
        elif stall := self.stalls.get(pair):
            stall.held.append((broker.incarnation, message))
        elif options.loss and stage.dice.random() < options.loss:
            self._lose(pair, message)
        else:
            self._launch(pair, broker.incarnation, message)
            if options.duplicate and stage.dice.random() < options.duplicate:
                stage.reached["a message came twice"] += 1
                self._launch(pair, broker.incarnation, message)

    def _launch(self, pair: Pair, incarnation: int, message: Message) -> None:
        stage, options, dice = self._stage, self.options, self._stage.dice
        arrival = Instant(stage.now + options.delay_min + int(dice.random() * options.delay_spread))
        if options.overtake and dice.random() < options.overtake:
            arrival = Instant(arrival + int(dice.random() * options.overtake_delay))
            stage.reached["a message was overtaken"] += 1
        else:
            arrival = max(arrival, self._last_arrival.get(pair, arrival))
            self._last_arrival[pair] = arrival
        stage.at(arrival, self._arrive, pair, incarnation, message)

    def _arrive(self, pair: Pair, incarnation: int, message: Message) -> None:
        sender, receiver = pair
        broker = self._brokers[receiver]
        if broker.incarnation != incarnation or not broker.is_up:
            self._lose(pair, message)
        else:
            broker.receive(sender, message)

    def _lose(self, pair: Pair, message: Message) -> None:
        self._stage.say(f"{pair[0]} -x {pair[1]} {show(message)}")

    # --- faults ----------------------------------------------------------------------------------

    def lose_next(self, sender: BrokerName, receiver: BrokerName, count: int = 1) -> None:
        """The next messages on this link do not arrive."""
        self._losses_due[sender, receiver] = count

    def _is_due(self, pair: Pair) -> bool:
        if not (due := self._losses_due.get(pair, 0)):
            return False
        self._losses_due[pair] = due - 1
        return True

    def cut(self, sender: BrokerName, receiver: BrokerName) -> None:
        """From now on nothing passes in this direction; what is under way still arrives."""
        self.cuts[sender, receiver] = None

    def mend(self, sender: BrokerName, receiver: BrokerName) -> None:
        self.cuts.pop((sender, receiver), None)

    def stall(self, sender: BrokerName, receiver: BrokerName, *, swallows: bool) -> None:
        self.stalls.setdefault((sender, receiver), Stall(swallows))

    def release(self, sender: BrokerName, receiver: BrokerName) -> None:
        """End a stall: all it held arrives now, in order, unless it swallows."""
        stall = self.stalls.pop((sender, receiver), None)
        for incarnation, message in stall.held if stall else ():
            if stall is not None and stall.swallows:
                self._lose((sender, receiver), message)
            else:
                self._launch((sender, receiver), incarnation, message)
        if stall is not None and stall.held:
            how = "swallowed" if stall.swallows else "let go"
            self._stage.reached[f"a stalled link {how} what it held"] += 1

    def break_off_clients(self, broker: BrokerName) -> None:
        """The broker is gone: so are its clients' connections."""
        for connection in [c for c in self.connections.values() if c.broker == broker]:
            connection.break_off()

    def heal(self) -> None:
        self.options = CLEAN
        self.cuts.clear()
        self._losses_due.clear()
        for pair in list(self.stalls):
            self.release(*pair)


class Client(Protocol):
    """What a connection asks of a client."""

    def tell(self, message: Message) -> None: ...

    def cut_off(self) -> None: ...


class Connection:
    """One connection of one client to one incarnation of a broker. See the module docstring."""

    def __init__(
        self, stage: Stage, links: Links, name: ClientName, client: Client, broker: Listener
    ) -> None:
        assert broker.is_up, "nobody listens there"
        self._stage = stage
        self._links = links
        self._client = client
        self._broker = broker
        self._incarnation = broker.incarnation
        self._last_up = self._last_down = stage.now
        self.name = name
        self.is_open = True
        links.connections[name] = self
        broker.link_up(name)

    @property
    def broker(self) -> BrokerName:
        return self._broker.name

    def is_with(self, broker: Listener) -> bool:
        """Is this process at the other end? Several may have one name."""
        return self._broker is broker

    def send(self, message: Message) -> None:
        """Client to broker."""
        message = self._stage.on_the_wire(message)
        self._last_up = max(self._last_up, self._arrival())
        self._stage.at(self._last_up, self._arrive_up, message)

    def deliver(self, message: Message) -> None:
        """Broker to client."""
        self._last_down = max(self._last_down, self._arrival())
        self._stage.at(self._last_down, self._arrive_down, message)

    def _arrival(self) -> Instant:
        options, stage = self._links.options, self._stage
        delay = options.delay_min + int(stage.dice.random() * options.delay_spread)
        return Instant(stage.now + delay)

    def _arrive_up(self, message: Message) -> None:
        if self.is_open and self._broker.incarnation == self._incarnation:
            self._broker.receive(self.name, message)

    def _arrive_down(self, message: Message) -> None:
        if self.is_open:
            self._stage.say(f"{self.name} <- {self.broker} {show(message)}")
            self._stage.watch.told(self.name, message)
            self._client.tell(message)

    def close(self) -> None:
        """The client hangs up; its broker notices at once."""
        if self.is_open:
            self._end()
            if self._broker.incarnation == self._incarnation:
                self._broker.link_down(self.name)

    def break_off(self) -> None:
        """The broker is gone or drops the client; the client notices a little later."""
        if self.is_open:
            self._end()
            self._stage.at(self._arrival(), self._client.cut_off)

    def _end(self) -> None:
        self.is_open = False
        self._stage.say(f"{self.name} off {self.broker}")
        del self._links.connections[self.name]
        self._stage.watch.gone(self.name)
