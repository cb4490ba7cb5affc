"""A channel that is kept up: one connection to one of several brokers, made anew when it is lost.

Theory of operation
    A task connects to the first broker that answers, waits until that connection is lost, and
    connects again, after a wait that grows and is partly random. Publishers hear of each new
    connection and send again what has no receipt. Subscriptions hear of each lost one.
    A request waits for a connection, is sent with a number, and gets the reply with that number.
    When every broker refuses the client for good (`RefusedError`), the channel ends: a retry would
    not help.
    Applications can follow this: each change is logged and given to their callback (`report`).

Invariants
    I1  every open request gets its reply, or an error when its connection is lost
    I2  `Consumed` counts each event of a connection once, when all its subscriptions have taken it
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from gapless.client.address import parse_addresses
from gapless.client.channel import ConnectionChange
from gapless.client.connection import OPEN, Connection, Passport
from gapless.client.errors import LinkError, RefusedError
from gapless.client.event_loop import LOOPS, draw, running_loop
from gapless.client.inbox import Inbox
from gapless.client.requests import OtherBrokers
from gapless.core.client_messages import (
    CaughtUp,
    Consumed,
    Deliveries,
    Ended,
    FellBehind,
    Lost,
    Subscribed,
    SubscriptionAltered,
    Unreached,
)
from gapless.core.errors import GaplessError, UsageError
from gapless.core.group_messages import Handed, TakenBack
from gapless.core.messages import Addresses

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.client.channel import ChangeKind
    from gapless.core.identity import BrokerName
    from gapless.core.messages import Message

HELLO_S = 5.0
"""How long a broker may take to say Hello before the client tries the next one."""

RECONNECT_S, RECONNECT_LONGEST_S = 0.05, 2.0
BRISK_S, BRISK_TRIES = 0.4, 30
"""With several addresses another process may be about to take over: the first tries follow each
other this quickly, for about ten seconds."""
ADDRESSES_MAX = 32
"""More addresses of brokers than this a client does not learn."""
CONSUMED_MAX = 1_000
"""Events consumed before the broker is told."""

CONSUMED_S = 0.05
"""While a subscription waits for more, the broker is told within this time: once for all events,
not for each message. The broker lets 10,000 events be unconsumed."""

logger = logging.getLogger("gapless.client")
logger.addHandler(logging.NullHandler())  # silent unless the application sets logging up

LEVELS: dict[ChangeKind, int] = {
    "connected": logging.INFO,
    "lost": logging.WARNING,
    "failed": logging.WARNING,
    "retrying": logging.WARNING,
    "ended": logging.ERROR,
}


class ReconnectingChannel:
    """See the module docstring."""

    def __init__(
        self,
        addresses: str,
        *,
        patience_s: float,
        passport: Passport = OPEN,
        on_change: Callable[[ConnectionChange], None] | None = None,
        other_brokers: OtherBrokers | None = None,
    ) -> None:
        """`other_brokers`: of the channel whose request was redirected to these addresses."""
        self.addresses = parse_addresses(addresses)
        self.passport = passport
        self._on_change = on_change
        self.other_brokers = other_brokers or OtherBrokers(self._open_other)
        self._is_redirect = other_brokers is not None
        self.patience_s = patience_s
        self.address = ""
        self.broker: BrokerName | None = None
        self.admin = ""
        self.session = 0
        self._connection: Connection | None = None
        self._up = asyncio.Event()
        self._problem: GaplessError = LinkError("the client is not open", "Use `(async) with`.")
        self._failures: dict[str, str] = {}  # by address: the reason that was reported last
        self._is_closed = False
        self._supervisor: asyncio.Task[None] | None = None
        self._lost: asyncio.Future[None] | None = None
        self._loop = running_loop()
        self._request = 0
        self._answers: dict[int, Callable[[Message | GaplessError], None]] = {}
        self._listeners: dict[Callable[[], None], None] = {}  # in order
        self.inbox = Inbox(self)
        self._consumed = 0
        self._telling: asyncio.TimerHandle | None = None
        self._twins: set[ReconnectingChannel] = set()

    # --- the connection --------------------------------------------------------------------------

    def open(self) -> None:
        """Begin to connect."""
        if self._supervisor is not None or self._is_closed:
            raise UsageError("a client is entered once", "Connect again.")
        self._problem = LinkError(f"no broker answers at {', '.join(map(str, self.addresses))}")
        self._supervisor = asyncio.create_task(self._keep_up(), name="gapless client")

    async def close(self) -> None:
        self._is_closed = True
        self._problem = LinkError("the client is closed", "Connect again.")
        await asyncio.gather(*(each.close() for each in [*self._twins]))
        if not self._is_redirect:
            await self.other_brokers.close()
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.gather(self._supervisor, return_exceptions=True)
        self.inbox.end()
        self._send_consumed()
        if self._connection is not None:
            self._connection.close()
        if self._lost is not None:
            await self._lost
        self._tell_listeners()

    def open_twin(self) -> ReconnectingChannel:
        """A further channel to the same brokers, with credit of its own; `end_twin` closes it."""
        twin = ReconnectingChannel(
            ",".join(map(str, self.addresses)),
            patience_s=self.patience_s,
            passport=self.passport,
            on_change=self._on_change,
        )
        self._twins.add(twin)
        twin.open()
        return twin

    async def end_twin(self, twin: ReconnectingChannel) -> None:
        self._twins.discard(twin)
        await twin.close()

    def _open_other(self, addresses: str) -> ReconnectingChannel:
        other = ReconnectingChannel(
            addresses,
            patience_s=self.patience_s,
            passport=self.passport,
            on_change=self._on_change,
            other_brokers=self.other_brokers,
        )
        other.open()
        return other

    @property
    def is_up(self) -> bool:
        return self._up.is_set() and not self._is_closed

    @property
    def is_idle(self) -> bool:
        """May it be closed, because nothing waits for it?"""
        return not self._listeners and not self._answers and not len(self.inbox)

    async def _keep_up(self) -> None:
        wait_s, silent, tries = RECONNECT_S, None, 0
        while True:
            refusals, tries = 0, tries + 1
            for address in sorted(self.addresses, key=lambda each: each == silent):
                try:
                    patience_s = min(self.patience_s, HELLO_S)
                    connection = await Connection.open(
                        address, self._receive, self._on_lost, patience_s, self.passport
                    )
                except GaplessError as error:
                    self._problem = error
                    refusals += isinstance(error, RefusedError)
                    self._report_failure(str(address), error.problem)
                    continue
                wait_s, tries, self._connection = RECONNECT_S, 0, connection
                self.admin = connection.admin
                self._on_up(str(address), connection.broker)
                assert self._lost is not None
                await asyncio.shield(self._lost)
                silent = address if connection.is_silent else None  # it comes last
                break
            if refusals == len(self.addresses):
                self._give_up()
                return
            await asyncio.sleep(wait_s * (0.5 + draw(1_000) / 2_000))
            is_brisk = len(self.addresses) > 1 and tries < BRISK_TRIES
            wait_s = min(2 * wait_s, BRISK_S if is_brisk else RECONNECT_LONGEST_S)

    def _give_up(self) -> None:
        """Every broker refuses the client: fail everything that waits, and try no more."""
        self._is_closed = True
        self._up.set()
        self.report("ended", self._problem.problem)
        self.inbox.end(self._problem)
        self._tell_listeners()

    def _on_up(self, address: str, broker: BrokerName | None) -> None:
        self.address = address
        self.broker = broker
        self.session += 1
        self._consumed = 0
        self._failures.clear()
        self._lost = self._loop.create_future()
        self._up.set()
        self.report("connected")
        self._tell_listeners()
        self.inbox.resume()

    def _on_lost(self, error: GaplessError) -> None:
        self._connection = None
        self._up.clear()
        if not self._is_closed:
            self._problem = error
            self.report("lost", error.problem)
        answers, self._answers = self._answers, {}
        for answer in answers.values():
            answer(error)
        self.inbox.interrupt(error)
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(None)

    async def wait_up(self) -> None:
        if self._loop is not asyncio.get_running_loop():
            raise UsageError("the client belongs to another event loop", LOOPS)
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

    def _tell_listeners(self) -> None:
        for changed in [*self._listeners]:
            changed()

    # --- reports to the application --------------------------------------------------------------

    def report(self, kind: ChangeKind, reason: str = "") -> None:
        self._report(ConnectionChange(kind, self.address, self.broker, reason))

    def _report_failure(self, address: str, reason: str) -> None:
        """Once, until the reason changes or a connection was up."""
        if self._failures.get(address) != reason:
            self._failures[address] = reason
            self._report(ConnectionChange("failed", address, None, reason))

    def _report(self, change: ConnectionChange) -> None:
        who = f"{change.broker} at {change.address}" if change.broker else change.address
        ending = f": {change.reason}" if change.reason else ""
        logger.log(LEVELS[change.kind], "%s (%s)%s", change.kind, who, ending)
        if self._on_change is not None:
            try:
                self._on_change(change)
            except Exception:  # an application's mistake must not end its connection
                logger.exception("on_change failed at %r", change)

    # --- messages --------------------------------------------------------------------------------

    def send(self, message: Message) -> None:
        if self._connection is not None:
            self._connection.send(message)

    def request(self, answer: Callable[[Message | GaplessError], None]) -> int:
        self._request += 1
        self._answers[self._request] = answer
        return self._request

    async def ask(self, make: Callable[[int], Message]) -> Message | GaplessError:
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
            case Handed() | TakenBack():
                self.inbox.hand(message)
            case Lost():
                self.inbox.lose(message)
            case CaughtUp() | FellBehind() | Unreached():
                self.inbox.switch(message)
            case Ended():
                self.inbox.ended(message)
            case SubscriptionAltered(request=0):
                self.inbox.alter(message)
            case Addresses(addresses):
                self._learn(",".join(addresses.values()))  # it may come before `_on_up`
            case _ if hasattr(message, "request"):  # all else is of no use to a client, and no harm
                self._answer(message.request, message)

    def _learn(self, addresses: str) -> None:
        """The broker has told where it is found when it is not here any more."""
        with suppress(UsageError):
            told = parse_addresses(addresses)
            every = dict.fromkeys((*self.addresses, *told))
            self.addresses = tuple(every)[:ADDRESSES_MAX]

    def _answer(self, request: int, message: Message) -> None:
        if (answer := self._answers.pop(request, None)) is not None:
            answer(message)

    def consume(self, count: int) -> None:
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
