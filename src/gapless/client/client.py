"""The client: keeps a connection to one of several brokers up, and shares it among its users.

Theory of operation
    A task connects to the first broker that answers, waits until that connection is lost, and
    connects again, after a wait that grows and is partly random. Publishers are told each time a
    connection is up, and send again what has no receipt; subscriptions are told when one is lost.
    A request waits for a connection, is sent with a number, and gets the answer with that number.
    When every broker refuses us for who we are, or we them, the client ends: trying on would not
    help.

Invariants
    I1  every open request is answered, or fails when its connection is lost
    I2  `Consumed` counts each event of a connection once, when all who wanted it have taken it
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from gapless.client import arguments
from gapless.client.acknowledgement import Acknowledging
from gapless.client.address import is_tls, parse_addresses
from gapless.client.connection import OPEN, Connection, Pass
from gapless.client.credentials import find_credentials
from gapless.client.dice import draw
from gapless.client.elsewhere import Others
from gapless.client.errors import LinkError, RefusedError
from gapless.client.inbox import Inbox
from gapless.client.insistence import insist, obtain
from gapless.client.publication import publish_once
from gapless.client.publisher import LINGER_S, Publisher
from gapless.client.range import Reading
from gapless.client.subscription import Subscription
from gapless.client.topics import TopicRequests
from gapless.client.transaction import Transacting
from gapless.client.wish import make_wish
from gapless.core.client_messages import (
    CaughtUp,
    Consumed,
    Deliveries,
    Done,
    Ended,
    FellBehind,
    Forget,
    Lost,
    Refused,
    RetireBroker,
    Subscribed,
    Unreached,
)
from gapless.core.errors import GaplessError, UsageError
from gapless.core.identity import BrokerName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Unpack

    from gapless.client.credentials import Options
    from gapless.client.delivery import Receipt
    from gapless.client.wish import Interruption, Start
    from gapless.core.client_messages import Order, TokenKeeper
    from gapless.core.events import Value
    from gapless.core.messages import Message
    from gapless.wire.framing import Bytes

HELLO_S = 5.0
"""How long a broker may take to say Hello before the next one is tried."""

RECONNECT_S, RECONNECT_LONGEST_S = 0.05, 2.0
CONSUMED_MAX = 1_000
"""Events consumed before the broker is told so."""

CONSUMED_S = 0.05
"""When a subscription has to wait, the broker is told within this time: once for all of them, not
for each message that came. It lets 10,000 events wait before it minds."""


class Client(TopicRequests, Transacting, Reading, Acknowledging):
    """A connection to a network of brokers; make it with `connect`."""

    def __init__(
        self,
        addresses: str,
        *,
        patience_s: float = 30.0,
        shown: Pass = OPEN,
        others: Others | None = None,
    ) -> None:
        """`others`: of the client that was sent to these addresses."""
        self._addresses = parse_addresses(addresses)
        self._shown = shown
        self.others = others or Others(self._open_other)
        self._is_other = others is not None
        self.patience_s = arguments.seconds("patience_s", patience_s, may_be_endless=True)
        self.address = ""
        self.broker: BrokerName | None = None
        self.session = 0  # counts connections
        self._connection: Connection | None = None
        self._up = asyncio.Event()
        self._problem: GaplessError = LinkError("the client is not open", "Use `(async) with`.")
        self._is_closed = False
        self._supervisor: asyncio.Task[None] | None = None
        self._lost: asyncio.Future[None] | None = None
        self._loop = arguments.running_loop()
        self._request = 0
        self._answers: dict[int, Callable[[Message | GaplessError], None]] = {}
        self._listeners: dict[Callable[[], None], None] = {}  # in order
        self.inbox = Inbox(self)
        self._consumed = 0
        self._telling: asyncio.TimerHandle | None = None

    # --- for applications ------------------------------------------------------------------------

    async def publish(
        self,
        topic: str,
        attributes: Mapping[str, Value],
        body: Bytes = b"",
        *,
        confirmed: bool = False,
    ) -> Receipt:
        """Publish one event; returns when it is on stable storage.

        A reliable topic has none: it returns when its broker has the event in memory, and with
        `confirmed` when every broker within reach that has subscribers for it does.
        `LinkError`: the connection broke, and the event may be published or not; a named
        `publisher` has no such doubt. `RefusedError`: it is not published.
        """
        return (await self.publish_many(topic, [(attributes, body)], confirmed=confirmed))[0]

    async def publish_many(
        self,
        topic: str,
        events: Iterable[tuple[Mapping[str, Value], Bytes]],
        *,
        confirmed: bool = False,
    ) -> list[Receipt]:
        """Publish these events, all or none, next to each other; a receipt for each.

        They go in one message, so a few hundred is a good number, and thousands are too many.
        """
        return await publish_once(self, topic, events, confirmed=confirmed)

    def publisher(self, topic: str, *, name: str, linger_s: float = LINGER_S) -> Publisher:
        """A pipelined publisher whose events are published once, whatever breaks meanwhile.

        The name is remembered for good, with its next number. Whoever enters it last has it: what
        others send is refused. Events sent soon after others gather for `linger_s`.
        """
        known = arguments.publisher(name)
        return Publisher(self, arguments.topic(topic), known, linger_s=linger_s)

    def subscribe(
        self,
        topic: str,
        condition: str = "",
        *,
        name: str | None = None,
        order: Order = "publisher",
        start: Start = "latest",
        tokens: TokenKeeper = "client",
        interruption: Interruption = "raise",
        silence: bool = False,
    ) -> Subscription:
        """Every event that matches, once and in order: `async with`, `async for`.

        With a `name` it is durable: it counts while nobody is connected, until `unsubscribe`. A
        first time it starts at `start`; later it goes on from there if that is a token, and else
        from what is acknowledged. `tokens="broker"`: what you have finished is acknowledged by
        itself. Without a name it starts now and ends with its connection; `interruption` says what
        then happens: "raise" a `SubscriptionInterruptedError`, or go on after a `Gap`.
        """
        wish = make_wish(
            topic,
            condition,
            name=name,
            order=order,
            start=start,
            tokens=tokens,
            interruption=interruption,
            silence=silence,
        )
        return Subscription(self, wish)

    async def unsubscribe(self, name: str) -> None:
        """End a named subscription for good, whoever is connected to it."""
        known = arguments.subscription(name)
        forgotten = await insist(self, lambda request: Forget(request, known))
        refused = forgotten.message
        if isinstance(refused, Refused) and not forgotten.was_asked:
            raise RefusedError(refused.problem, refused.remedy)  # else the answer was lost

    async def retire(self, broker: str) -> None:
        """Tell the network that a broker never returns: its subscriptions to reliable topics end
        everywhere, and its neighbours take its place. Needs the right to administer everything."""
        name = BrokerName(arguments.text("broker", broker))
        await obtain(self, lambda request: RetireBroker(request, name), Done)

    async def close(self) -> None:
        """Close the connection. What was not flushed is lost; subscriptions end."""
        self._is_closed = True
        self._problem = LinkError("the client is closed", "Connect again.")
        if not self._is_other:
            await self.others.close()
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.gather(self._supervisor, return_exceptions=True)
        self.inbox.end()
        self._send_consumed()
        if self._connection is not None:
            self._connection.close()
        if self._lost is not None:
            await self._lost
        for changed in [*self._listeners]:
            changed()

    async def __aenter__(self) -> Self:
        self._begin()
        try:
            await self.wait_up()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- the connection --------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._supervisor is not None or self._is_closed:
            raise UsageError("a client is entered once", "Connect again.")
        self._problem = LinkError(f"no broker answers at {', '.join(map(str, self._addresses))}")
        self._supervisor = asyncio.create_task(self._keep_up(), name="gapless client")

    def _open_other(self, addresses: str) -> Client:
        patience_s, shown = self.patience_s, self._shown
        other = Client(addresses, patience_s=patience_s, shown=shown, others=self.others)
        other._begin()
        return other

    @property
    def carrier(self) -> Client:
        return self

    @property
    def is_up(self) -> bool:
        return self._up.is_set() and not self._is_closed

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits for anything here."""
        return not self._listeners and not self._answers and not len(self.inbox)

    async def _keep_up(self) -> None:
        wait_s = RECONNECT_S
        while True:
            refusals = 0
            for address in self._addresses:
                try:
                    patience_s = min(self.patience_s, HELLO_S)
                    self._connection = await Connection.open(
                        address, self._receive, self._on_lost, patience_s, self._shown
                    )
                except GaplessError as error:
                    self._problem = error
                    refusals += isinstance(error, RefusedError)
                    continue
                wait_s = RECONNECT_S
                self._on_up(str(address), self._connection.broker)
                assert self._lost is not None
                await asyncio.shield(self._lost)
                break
            if refusals == len(self._addresses):
                self._give_up()
                return
            await asyncio.sleep(wait_s * (0.5 + draw(1_000) / 2_000))
            wait_s = min(2 * wait_s, RECONNECT_LONGEST_S)

    def _give_up(self) -> None:
        """No broker will have us: whoever waits learns why, and nothing more is tried."""
        self._is_closed = True
        self._up.set()
        self.inbox.end(self._problem)
        for changed in [*self._listeners]:
            changed()

    def _on_up(self, address: str, broker: BrokerName | None) -> None:
        self.address = address
        self.broker = broker
        self.session += 1
        self._consumed = 0
        self._lost = self._loop.create_future()
        self._up.set()
        for changed in [*self._listeners]:
            changed()
        self.inbox.resume()

    def _on_lost(self, error: GaplessError) -> None:
        self._connection = None
        self._up.clear()
        if not self._is_closed:
            self._problem = error
        answers, self._answers = self._answers, {}
        for answer in answers.values():
            answer(error)
        self.inbox.interrupt(error)
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(None)

    async def wait_up(self) -> None:
        """Until there is a connection; `LinkError` when there is none for too long."""
        if self._loop is not asyncio.get_running_loop():
            raise UsageError("the client is of another event loop", arguments.LOOPS)
        if self.problem is not None:
            raise self.problem
        try:
            async with asyncio.timeout(self.patience_s):
                await self._up.wait()
        except TimeoutError:
            raise self._problem from None
        if self.problem is not None:
            raise self.problem

    async def wait_writable(self) -> None:
        if self._connection is not None:
            await self._connection.wait_writable()

    @property
    def problem(self) -> GaplessError | None:
        return self._problem if self._is_closed or self._supervisor is None else None

    def listen(self, changed: Callable[[], None]) -> None:
        self._listeners[changed] = None

    def unlisten(self, changed: Callable[[], None]) -> None:
        self._listeners.pop(changed, None)

    # --- messages --------------------------------------------------------------------------------

    def send(self, message: Message) -> None:
        if self._connection is not None:
            self._connection.send(message)

    def request(self, answer: Callable[[Message | GaplessError], None]) -> int:
        """A number for a request; `answer` gets what comes back with it, or why nothing will."""
        self._request += 1
        self._answers[self._request] = answer
        return self._request

    async def ask(self, make: Callable[[int], Message]) -> Message | GaplessError:
        """Send a request once there is a connection; its answer, or why there will be none."""
        await self.wait_up()
        future: asyncio.Future[Message | GaplessError] = self._loop.create_future()

        def answer(got: Message | GaplessError) -> None:
            if not future.done():
                future.set_result(got)

        request = self.request(answer)
        self.send(make(request))
        try:
            return await future
        finally:
            self._answers.pop(request, None)

    def _receive(self, message: Message) -> None:
        match message:
            case Deliveries():
                self.inbox.deliver(message)
            case Subscribed(request=request):
                self.inbox.start(message)  # now: its first events may be right behind
                self._answer(request, message)
            case Lost():
                self.inbox.lose(message)
            case CaughtUp() | FellBehind() | Unreached():
                self.inbox.switch(message)
            case Ended():
                self.inbox.ended(message)
            case _ if hasattr(message, "request"):  # all else is of no use to a client, and no harm
                self._answer(message.request, message)

    def _answer(self, request: int, message: Message) -> None:
        if (answer := self._answers.pop(request, None)) is not None:
            answer(message)

    def consume(self, count: int) -> None:
        """Events of the present connection are consumed."""
        self._consumed += count
        if self._consumed >= CONSUMED_MAX:
            self._send_consumed()

    def tell_consumed(self) -> None:
        if self._consumed and self._telling is None:
            self._telling = self._loop.call_later(CONSUMED_S, self._send_consumed)

    def _send_consumed(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
        if self._consumed:
            self.send(Consumed(self._consumed))
            self._consumed = 0


def connect(addresses: str, *, patience_s: float = 30.0, **options: Unpack[Options]) -> Client:
    """A client of the brokers at `gapless://host:port[,host:port…]`, for `async with`.

    The first that answers is used; when its connection is lost, the next. `patience_s`: how long
    to wait for a broker, or for one that refuses for the moment, before an error is raised.
    With `gapless+tls://`: `ca` is the file of the authority to believe (else the system's), and a
    `token`, or the files of a `certificate` and its `key`, prove who you are; what is not given
    is taken from GAPLESS_CA, GAPLESS_TOKEN, GAPLESS_CERTIFICATE and GAPLESS_KEY.
    """
    credentials = find_credentials(is_tls=is_tls(addresses), **options)
    shown = Pass.of(credentials) if credentials is not None else OPEN
    return Client(addresses, patience_s=patience_s, shown=shown)
