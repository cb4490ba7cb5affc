"""One connection of a client to a broker: bytes to messages and back, Hello first.

Theory of operation
    `wire.link` is the machine of Hello, keep-alive and Goodbye; this is its driver over asyncio.
    Messages to send are gathered until the end of the loop's turn and leave with one write.
    A broker that hangs, or whose machine is gone, is like a broker that closed the connection.
    A broker that does not accept the client, or whose certificate the client does not trust, is a
    `RefusedError`: a retry would not help. A request that cannot be encoded is refused without
    being sent, and all others go on.

Invariants
    I1  `lost` is called exactly once after `opened` was resolved, and nothing is received after it
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from math import inf
from socket import gaierror
from typing import TYPE_CHECKING, cast

from msgspec.structs import replace

from gapless.client.errors import LinkError, RefusedError
from gapless.core.client_messages import Refused
from gapless.core.errors import GaplessError, WireError
from gapless.core.messages import Hello, Message
from gapless.version import __version__
from gapless.wire.codec import Unknown
from gapless.wire.kinds import codec
from gapless.wire.link import (
    DropLink,
    EndLink,
    KeepAlive,
    LinkMachine,
    PeerLeft,
    PeerOpened,
    SendOnLink,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from gapless.client.address import Address
    from gapless.client.credentials import Credentials
    from gapless.core.identity import BrokerName

HELLO = Hello(software=f"gapless {__version__}")
LOOK_EVERY_S = 2.0
SILENT_LOOKS_MAX = 3
"""How often the client looks whether anything has come. It pings after a look that found nothing,
and gives the connection up after this many of them in a row."""

SEND_BYTES_HIGH = 4 << 20
"""Bytes queued for sending; beyond it `wait_writable` waits."""


@dataclass(frozen=True)
class Passport:
    """What a client shows when it connects: the context of TLS, if any, and its Hello."""

    context: ssl.SSLContext | None = None
    hello: Hello = HELLO

    @classmethod
    def of(cls, credentials: Credentials) -> Passport:
        return cls(credentials.context(), replace(HELLO, token=credentials.token))


OPEN = Passport()

UNFIT = (WireError, ValueError, TypeError, OverflowError)
"""Errors of a message that cannot be sent: too large, no UTF-8, a wrong type or number."""


class Connection(asyncio.Protocol):
    """A link to one broker. It calls `lost` with the reason when it has ended."""

    def __init__(
        self,
        receive: Callable[[Message], None],
        lost: Callable[[GaplessError], None],
        hello: Hello = HELLO,
    ) -> None:
        self.broker: BrokerName | None = None  # as it says in its Hello
        self.admin = ""  # where its admin port is, as it says there
        self._receive = receive
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[None] = self._loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._codec = codec()
        self._machine = LinkMachine(hello, self._loop.time())
        self._outbox: list[Message] = []
        self._problem: GaplessError | None = None
        self.is_silent = False
        """Was it given up because nothing came any more?"""
        self._timer: asyncio.TimerHandle | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    @classmethod
    async def open(
        cls,
        address: Address,
        receive: Callable[[Message], None],
        lost: Callable[[GaplessError], None],
        patience_s: float,
        passport: Passport = OPEN,
    ) -> Connection:
        """Connect and exchange Hellos; `LinkError` or `RefusedError` if that fails."""
        loop, connection = asyncio.get_running_loop(), cls(receive, lost, passport.hello)
        try:
            async with asyncio.timeout(patience_s):
                await loop.create_connection(
                    lambda: connection, address.host, address.port, ssl=passport.context
                )
                await connection.opened
        except OSError as error:  # TimeoutError is one
            connection.abort()
            if isinstance(error, LinkError):
                raise
            if passport.context is not None and (refused := tls_refusal(address, error)):
                raise refused from None
            reason = reason_of(error)
            raise LinkError(f"no broker answers at {address} ({reason})") from None
        except BaseException:
            connection.abort()
            raise
        return connection

    # --- the transport's side --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=SEND_BYTES_HIGH)
        self._transport.write(bytes(self._codec.frames([self._machine.greet()])))
        self._machine.keep_alive(KeepAlive(LOOK_EVERY_S, SILENT_LOOKS_MAX), self._loop.time())
        self._set_timer()

    def data_received(self, data: bytes) -> None:
        machine = self._machine
        try:
            for payload in machine.feed(data, self._loop.time()):
                if machine.is_over:
                    return
                message = self._codec.decode(payload)
                if not isinstance(message, Unknown):
                    self._take(message)
            if machine.unframer.error is not None:
                raise machine.unframer.error
        except GaplessError as error:
            self._problem = error
            self.abort()

    def _take(self, message: Message) -> None:
        match self._machine.receive(message):
            case Message() as taken:
                self._receive(taken)
            case SendOnLink(reply):
                self.send(reply)
            case PeerOpened(hello):
                self.broker, self.admin = hello.sender, hello.admin
                if not self.opened.done():
                    self.opened.set_result(None)
            case PeerLeft(said):
                kind = RefusedError if said.final else LinkError
                self._problem = kind(said.problem or "the broker said goodbye", said.remedy)
                self.close()
            case None:
                pass

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, error: Exception | None) -> None:
        self._machine.close(self._loop.time())
        self._writable.set()
        if self._timer is not None:
            self._timer.cancel()
        problem = self._problem or LinkError(f"the connection broke ({error or 'closed'})")
        if not self.opened.done():
            if self._problem is None:
                problem = LinkError(
                    f"the broker ended the connection before its Hello ({error or 'closed'})",
                    "If its port expects TLS, use gapless+tls://; over TLS, check that it believes "
                    "your certificate.",
                )
            self.opened.set_exception(problem)
            self.opened.exception()  # asyncio need not warn if no task waits for it any more
        else:
            self._lost(problem)

    # --- sending ---------------------------------------------------------------------------------

    def send(self, message: Message) -> None:
        """Queue a message; it leaves at the end of the loop's turn."""
        if not self._outbox:
            self._loop.call_soon(self.flush)
        self._outbox.append(message)

    def flush(self) -> None:
        messages, self._outbox = self._outbox, []
        if not messages or self._machine.is_over or self._transport is None:
            return
        try:
            frames = self._codec.frames(messages)
        except UNFIT:
            frames = self._codec.frames([each for each in messages if self._is_fit(each)])
        self._transport.write(frames)

    def _is_fit(self, message: Message) -> bool:
        """Whether a message can be sent. A request that cannot be encoded, or is too large for a
        frame, is refused here, for no broker would ever answer it."""
        try:
            self._codec.frames([message])
        except UNFIT as error:
            problem, remedy = f"the request cannot be sent: {error}", "Correct what you gave."
            if isinstance(error, GaplessError):
                problem, remedy = error.problem, error.remedy
            self._receive(Refused(getattr(message, "request", 0), problem, remedy))
            return False
        return True

    async def wait_writable(self) -> None:
        """Wait until the socket takes more: the back-pressure of TCP."""
        await self._writable.wait()

    # --- time, and the end -----------------------------------------------------------------------

    def _set_timer(self) -> None:
        if (due_s := self._machine.deadline) < inf:
            self._timer = self._loop.call_at(due_s, self._fire)

    def _fire(self) -> None:
        match self._machine.fire(self._loop.time()):
            case SendOnLink(ping):
                self.send(ping)
            case DropLink(problem):
                self.is_silent = True
                self._problem = LinkError(f"the broker does not answer any more ({problem})")
                self.abort()
            case EndLink() | None:
                pass  # no deadline is set that would end it so
        self._set_timer()

    def close(self) -> None:
        if not self._machine.is_over and self._transport is not None:
            self.flush()
            self._machine.close(self._loop.time())
            self._transport.close()

    def abort(self) -> None:
        self._machine.close(self._loop.time())
        if self._transport is not None:
            self._transport.abort()


def reason_of(error: OSError) -> str:
    """Why there is no connection. Errors of name servers have numbers of their own."""
    if error.errno and not isinstance(error, gaierror):
        return os.strerror(error.errno)
    return error.strerror or str(error) or "it takes too long"


def tls_refusal(address: Address, error: OSError) -> RefusedError | None:
    """The refusal that an error of TLS means; None for other errors, and for passing ones."""
    import ssl

    if isinstance(error, ssl.SSLCertVerificationError):
        return RefusedError(
            f"the certificate of the broker at {address} is not good: {error.verify_message}",
            "Give the brokers' authority (ca=…, --ca, GAPLESS_CA), and a host that the certificate "
            "names.",
        )
    if isinstance(error, ssl.SSLError) and error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST"):
        return RefusedError(
            f"the broker at {address} does not speak TLS",
            "Use gapless:// if you trust the network.",
        )
    return None
