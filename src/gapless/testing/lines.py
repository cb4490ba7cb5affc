"""Lines: the connections of shipped clients to simulated brokers, byte by byte.

Theory of operation
    A client's `Connection` writes the bytes that it would write to a socket. The line decodes them,
    answers Hello and Ping as a broker process does, and hands all other messages to the simulated
    connection (`links`), which delays them and breaks off when the broker crashes. What
    the broker sends is encoded, and reaches the client as bytes.
    A frozen line carries nothing in either direction and breaks nothing: the client finds out by
    itself, or is thawed.

Invariants
    I1  a client gets nothing after `connection_lost`, and that exactly once
    I2  what is sent on a line arrives in order, or not at all
"""

from __future__ import annotations

import asyncio
from socket import EAI_NONAME, gaierror
from typing import TYPE_CHECKING, Any

from gapless.core.identity import BrokerName, ClientName
from gapless.core.messages import Hello, Ping, Pong
from gapless.version import __version__
from gapless.wire.codec import Unknown
from gapless.wire.framing import Unframer
from gapless.wire.kinds import codec

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.core.messages import Message
    from gapless.testing.links import Connection
    from gapless.testing.world import World


class Line(asyncio.Transport):
    """One client's transport, and its end of a simulated connection."""

    def __init__(
        self, world: World, lines: Lines, broker: BrokerName, protocol: asyncio.Protocol
    ) -> None:
        super().__init__()
        self._world = world
        self._lines = lines
        self.broker = broker
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._codec = codec()
        self._unframer = Unframer()
        self._connection: Connection | None = None
        self._is_closing = False
        self._is_lost = False
        self.is_frozen = False
        self._held: list[Message] = []  # what came while it was frozen
        self._unsent = bytearray()  # what the client wrote meanwhile

    def open(self) -> bool:
        """Begin; False while the broker is down."""
        name = self._lines.next_name()
        self._connection = self._world.connect(name, self, self.broker)
        if self._connection is None:
            return False
        self._lines.open[self] = None
        self._protocol.connection_made(self)
        return True

    # --- what the client's protocol calls --------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing:
            return
        if self.is_frozen:
            self._unsent += data
            return
        for payload in self._unframer.feed(bytes(data)):
            self._pass_on(self._codec.decode(payload))

    def _pass_on(self, message: Message | Unknown) -> None:
        assert self._connection is not None
        match message:
            case Unknown():
                pass
            case Hello():
                self._answer(Hello(sender=self.broker, software=f"gapless {__version__}"))
            case Ping(number):
                self._answer(Pong(number))
            case _:
                self._connection.send(message)

    def _answer(self, message: Message) -> None:
        """As a broker process answers by itself: the node sees nothing of it."""
        if self._connection is not None:
            self._connection.deliver(message)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """A line takes everything at once."""

    def is_closing(self) -> bool:
        return self._is_closing

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.broker if name == "peername" else default

    def close(self) -> None:
        """The client hangs up. The broker of a frozen line learns of it when that is thawed."""
        if not self._is_closing:
            self._is_closing = True
            if not self.is_frozen:
                self._hang_up()
            self._loop.call_soon(self._lose, None)

    def _hang_up(self) -> None:
        self._lines.open.pop(self, None)
        if self._connection is not None:
            self._connection.close()

    def abort(self) -> None:
        self.close()

    # --- what the simulated connection calls -----------------------------------------------------

    def tell(self, message: Message) -> None:
        if self.is_frozen:
            self._held.append(message)
        elif not self._is_closing:
            data = bytes(self._codec.frames([message]))
            self._loop.call_soon(self._receive, data)

    def _receive(self, data: bytes) -> None:
        if not self._is_closing:
            self._protocol.data_received(data)

    def cut_off(self) -> None:
        """The broker is gone."""
        self._is_closing = True
        self._lines.open.pop(self, None)
        self._loop.call_soon(self._lose, ConnectionResetError("the broker is gone"))

    def _lose(self, error: Exception | None) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._protocol.connection_lost(error)

    # --- faults ----------------------------------------------------------------------------------

    def break_off(self) -> None:
        """Both ends learn that the connection is gone."""
        if self._connection is not None and self._connection.is_open:
            self._connection.close()
            self.cut_off()

    def thaw(self) -> None:
        """Everything that waited goes on, in both directions."""
        self.is_frozen = False
        held, self._held = self._held, []
        unsent, self._unsent = self._unsent, bytearray()
        if self._is_closing:
            self._hang_up()
            return
        for message in held:
            self.tell(message)
        self.write(unsent)


class Lines:
    """All lines of a network."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.open: dict[Line, None] = {}  # in the order in which they were opened
        self._number = 0

    def next_name(self) -> ClientName:
        self._number += 1
        return ClientName(f"client:{self._number}")

    async def dial(
        self, make_protocol: Callable[[], asyncio.Protocol], host: str
    ) -> tuple[Line, asyncio.Protocol]:
        """What `create_connection` gives: the line to the broker of this name."""
        process = self._world.processes.get(BrokerName(host))
        if process is None:
            raise gaierror(EAI_NONAME, f"there is no broker {host!r} in this network")
        await asyncio.sleep(self._world.links.options.delay_min / 1e6)
        protocol = make_protocol()
        line = Line(self._world, self, process.name, protocol)
        if not line.open():
            raise ConnectionRefusedError(f"broker {host!r} is down")
        return line, protocol

    def of(self, broker: BrokerName) -> list[Line]:
        return [each for each in self.open if each.broker == broker]
