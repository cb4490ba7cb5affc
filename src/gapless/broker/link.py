"""One link: a TCP connection to a client or to another broker, from its Hello to its Goodbye.

Theory of operation
    `wire.link` is the machine of Hello, keep-alive and Goodbye; this is its driver over asyncio.
    Without security the broker says `Hello` at once; with it, only when the other end has proved
    its identity. Messages to send are queued and leave at the end of the loop's turn as one write.
    The broker reads a large frame only when there is room for all of it (`room`), and only if the
    frame's first bytes name a kind and a topic that its sender has the right to. Messages that were
    read wait while their sender does not read its answers. Long answers leave one by one, so that
    no more than one is prepared beyond the bound.
    Whatever goes wrong (bytes that are no message, a message that makes no sense, silence where a
    Hello or a heartbeat is due, a queue over its bound) ends this link, with a `Goodbye` that says
    why if possible, and touches no other link. A wrong proof is answered late, and nothing is read
    meanwhile. Messages that take long to handle wait for their turn (`broker.schedule`).

Invariants
    I1  at most `broker_queue_bytes_max` or `client_queue_bytes_max` bytes, and one turn's output,
        wait to be sent; of answers at most `client_queue_bytes_high` and one more
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Protocol, cast

from gapless.broker.event_reader import STEP_BYTES
from gapless.broker.frames import Frames
from gapless.broker.memory import BACKED_UP_BYTES, NO_ROOM, UNREAD, LinkMemory
from gapless.core.client_messages import Publish, Subscribed
from gapless.core.errors import AccessError, GaplessError, ProtocolError, WireError
from gapless.core.messages import Message
from gapless.core.range_messages import Positions, PositionsQuery, RangeRead, ReadRange
from gapless.core.roster_messages import Roster, RosterQuery
from gapless.core.topic_messages import TopicList, TopicsQuery
from gapless.core.transaction_messages import Stage
from gapless.node.dispatch import KINDS as SERVICE_KINDS
from gapless.wire.codec import Unknown
from gapless.wire.head import HEAD_BYTES, read_head
from gapless.wire.kinds import codec
from gapless.wire.link import (
    DropLink,
    EndLink,
    KeepAlive,
    LinkMachine,
    LinkPhase,
    PeerLeft,
    PeerOpened,
    SendOnLink,
    goodbye,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gapless.broker.schedule import Schedule
    from gapless.broker.security.principals import Principal
    from gapless.broker.security.tls import Certificate
    from gapless.broker.settings import Settings
    from gapless.core.identity import BrokerName, PeerName
    from gapless.core.messages import Hello

KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""The kernel notices after a minute that a peer's machine is gone, even if nothing is sent."""

END_S = 0.8
"""How long a peer may take to read the Goodbye that ends its link, and what was sent before."""

IS_DONE = object()

OTHERS_FIRST = "others come first"
DEAF = "it does not read"

BULKY = frozenset((ReadRange, PositionsQuery, TopicsQuery, RosterQuery))
"""Requests whose answers may be long, which their sender has to read before it gets more."""

LONG = frozenset((RangeRead, Positions, TopicList, Subscribed, Roster))
"""Those answers. Each leaves at once, so that the broker knows how much is not read."""

ANSWERS_MAX = 256
"""Short answers that may wait for the end of the turn; then they leave."""

WITH_EVENTS = frozenset((Publish.__struct_config__.tag, Stage.__struct_config__.tag))
"""Kinds of messages of clients that may be longer than `request_bytes_max`."""


class Owner(Protocol):
    """What a link asks of the broker it belongs to."""

    settings: Settings
    hello: Hello
    denial_delay_s: float
    schedule: Schedule
    room: LinkMemory

    def opened(self, link: Link) -> bool:
        """Whether to say Hello at once. If not, the link has ended, or the peer has to prove its
        identity first."""
        ...

    def greeted(self, link: Link, hello: Hello) -> PeerName: ...
    def keep_alive(self, broker: PeerName) -> KeepAlive: ...
    def begun(self, link: Link, head: dict[str, str | int]) -> bool:
        """Whether a large message that begins so is wanted. If not, its sender was told why."""
        ...

    def received(self, link: Link, message: Message) -> None: ...
    def closed(self, link: Link, reason: str) -> None: ...
    def checking(self, link: Link, message: Publish | Stage) -> Iterator[None] | None:
        """Steps that check a large publication; None: there is no need."""
        ...


class Link(asyncio.Protocol):
    """One connection. `peer` is None until the other end has said Hello."""

    def __init__(self, owner: Owner, dialled: BrokerName | None = None) -> None:
        self.dialled = dialled
        self.peer: PeerName | None = None
        self.principal: Principal | None = None
        self.who = ""  # the client that its memory is charged to; empty for brokers
        self.is_broker = False
        self.address = "?"
        self.bytes_in = self.bytes_out = self.messages_in = self.messages_out = 0
        self.dropped = self.unknown = 0
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._owner = owner
        self._codec = codec(*SERVICE_KINDS)
        self._inbox: deque[memoryview] = deque()  # read, and not taken yet
        self._checking: tuple[Message, Iterator[None]] | None = None  # the first of them, if large
        self._is_let_in = False  # is there room for the frame that is being read?
        self._outbox: list[Message] = []
        self._is_long = False  # is there a long answer in it?
        self._holds: set[str] = set()  # why the link does not read now
        self._has_answers = False  # that only this link knows of, so it has to flush them
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        settings = owner.settings
        self._machine = LinkMachine(
            owner.hello,
            self._loop.time(),
            hello_s=settings.hello_patience_s,
            hello_bytes_max=settings.hello_bytes_max,
            frame_s=settings.frame_patience_s,
        )
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = inf  # when it fires
        self._pressing: asyncio.TimerHandle | None = None
        self._reason = "the other end closed it"

    # --- the transport's side --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.address = show_address(transport.get_extra_info("peername"))
        keep_alive(transport.get_extra_info("socket"))
        settings = self._owner.settings
        high = min(BACKED_UP_BYTES, settings.client_queue_bytes_high)
        self._transport.set_write_buffer_limits(high=high)
        self._set_timer()
        if self._owner.opened(self):
            self._say_hello()

    @property
    def certificate(self) -> Certificate | None:
        """The verified certificate of the other end, if it has shown one."""
        transport = self._transport
        return transport.get_extra_info("peercert") if transport is not None else None

    def _say_hello(self) -> None:
        assert self._transport is not None
        self._transport.write(bytes(self._codec.frames([self._machine.greet()])))

    def data_received(self, data: bytes) -> None:
        self.bytes_in += len(data)
        machine = self._machine
        if machine.is_over:
            return
        frames = machine.feed(data, self._loop.time())
        self._inbox += frames
        if frames and self._is_let_in:
            self._is_let_in = False
            self._owner.room.finished(self)
        if self.is_broker:
            self.work(lambda: False)
        else:
            self._owner.schedule.serve(self)

    def work(self, is_over: Callable[[], bool]) -> bool:
        """Handle messages that were read, until there are none or `is_over`. True: there are more,
        for another turn of the loop. Nothing is read meanwhile."""
        machine = self._machine
        try:
            while self.has_work and not machine.is_over:
                self._advance()
                if not self.is_broker and (self._is_long or len(self._outbox) >= ANSWERS_MAX):
                    self._has_answers = False
                    self.flush()
                if is_over() and not self.is_broker:
                    break
            if not self._inbox and machine.unframer.error is not None and not self.is_closing:
                raise machine.unframer.error
        except AccessError as error:
            self._deny(error)
        except (WireError, ProtocolError) as error:
            self.end(error)
        if self._has_answers:
            self._has_answers = False
            self.flush()
        if machine.is_over:
            self._drop_work()
        elif not self.has_work and machine.unframer.buffered_bytes:
            self._begin_frame()
        return self.has_work

    @property
    def has_work(self) -> bool:
        """Are there messages to handle now? A client's messages wait while it does not read its
        answers."""
        is_blocked = not self.is_broker and not self._holds <= {NO_ROOM, OTHERS_FIRST}
        return not is_blocked and (bool(self._inbox) or self._checking is not None)

    def _drop_work(self) -> None:
        self._inbox.clear()
        self._checking = None

    def _advance(self) -> None:
        """Handle a message, or do one step of checking a large one."""
        if self._checking is not None:
            message, steps = self._checking
            if next(steps, IS_DONE) is IS_DONE:
                self._checking = None
                self._take(message)
            return
        payload = self._inbox[0]
        decoded = self._decoded(payload)
        if type(decoded) in BULKY and not self.is_broker and not self._may_ask():
            self._hold(UNREAD)
            return
        self._inbox.popleft()
        is_large = len(payload) > STEP_BYTES and not self.is_broker and self.peer is not None
        if is_large and isinstance(decoded, Publish | Stage):
            checking = self._owner.checking(self, decoded)
            if checking is not None:
                self._checking = decoded, checking
                return
        self._take(decoded)

    def wait_turn(self) -> None:
        self._hold(OTHERS_FIRST)

    def go_on(self) -> None:
        self.read_on(OTHERS_FIRST)

    def _may_ask(self) -> bool:
        return self._owner.room.may_ask(self, sum(map(len, self._inbox)))

    def _decoded(self, payload: memoryview) -> Message | Unknown:
        """Decode a message. A client's large message must be a publication: others take long."""
        size = len(payload)
        if size > self._owner.settings.request_bytes_max and not self.is_broker:
            too_long = self._too_long(read_head(bytes(payload[:HEAD_BYTES])).get("kind"), size)
            if too_long is not None:
                raise too_long
        return self._codec.decode(payload)

    def _too_long(self, kind: object, size: int) -> WireError | None:
        """Why a client's message of this kind and size is not taken, if it is not."""
        settings = self._owner.settings
        has_events = kind in WITH_EVENTS
        limit = settings.publish_bytes_max if has_events else settings.request_bytes_max
        if size <= limit:
            return None
        remedy = (
            "Ask for less at a time. Only events make messages longer, and their kind comes first."
        )
        return WireError(
            f"a request has {size} bytes; the limit is {limit}",
            "Publish smaller batches." if has_events else remedy,
        )

    # --- a frame that is not whole yet -----------------------------------------------------------

    def _begin_frame(self) -> None:
        """A frame has begun: decide whether the rest is wanted, and whether there is room."""
        if self.is_broker or self._machine.is_over:
            return
        settings, unframer = self._owner.settings, self._machine.unframer
        try:
            self._machine.begin_frame(self._loop.time())
        except WireError as error:
            self.end(error)
            return
        self._set_timer()
        size = unframer.awaited
        if size <= settings.small_frame_bytes or self._is_let_in or NO_ROOM in self._holds:
            return
        begin = unframer.begin(HEAD_BYTES)
        if len(begin) < min(size, HEAD_BYTES):
            return
        head = read_head(begin)
        if (too_long := self._too_long(head.get("kind"), size)) is not None:
            self.end(too_long)
        elif not self._owner.begun(self, head):
            unframer.skip()
            self.flush()
        else:
            self._ask_for_room(size)

    def _ask_for_room(self, size: int) -> None:
        buffered_bytes = self._machine.unframer.buffered_bytes
        try:
            self._is_let_in = self._owner.room.let_in(self, size, buffered_bytes)
        except ProtocolError as error:
            self.end(error)
            return
        if not self._is_let_in:
            self._hold(NO_ROOM)
            self._press_later()

    def _press_later(self) -> None:
        stall_s = self._owner.settings.frame_stall_s
        self._pressing = self._loop.call_later(stall_s, self._press)

    def _press(self) -> None:
        """This link still waits for room: drop links that have stalled with theirs."""
        if NO_ROOM in self._holds and not self.is_closing:
            self._owner.room.drop_stalled()
            self._press_later()

    def has_stalled(self) -> bool:
        """Has nothing come for long, though this link reads?"""
        stalled_s = self._loop.time() - self._machine.heard_s
        return not self._holds and stalled_s > self._owner.settings.frame_stall_s

    # --- what is not read just now ---------------------------------------------------------------

    @property
    def unsent_bytes(self) -> int:
        try:
            return self._transport.get_write_buffer_size() if self._transport is not None else 0
        except RuntimeError:  # uvloop has closed it
            return 0

    def pause_writing(self) -> None:
        """asyncio calls this when the other end does not read."""
        if not self.is_broker:
            self._owner.room.count(self)

    def resume_writing(self) -> None:
        if not self.is_broker:
            self._owner.room.count(self)
        self.read_on(DEAF)

    def _hold(self, reason: str) -> None:
        if not self._holds and not self.is_closing and self._transport is not None:
            with suppress(RuntimeError):  # uvloop has closed it
                self._transport.pause_reading()
        self._holds.add(reason)

    def read_on(self, reason: str) -> None:
        """This reason not to read is gone: read again if there is no other."""
        was_held = reason in self._holds
        self._holds.discard(reason)
        if reason == NO_ROOM:
            self._is_let_in = True
        if was_held and self.has_work and reason != OTHERS_FIRST:
            self._owner.schedule.serve(self)
        if was_held and not self._holds and not self.is_closing and self._transport is not None:
            self._machine.hear(self._loop.time())  # nothing could come while we did not read
            self._transport.resume_reading()

    def eof_received(self) -> None:
        return None

    def connection_lost(self, error: Exception | None) -> None:
        if self.gone.done():
            return
        self._machine.close(self._loop.time())
        self._transport = None  # uvloop refuses every question about a closed transport
        self._drop_work()
        self._owner.schedule.leave(self)
        for timer in (self._timer, self._pressing):
            if timer is not None:
                timer.cancel()
        self.gone.set_result(None)
        self._owner.closed(self, str(error) if error else self._reason)

    def abandon(self) -> None:
        """The dial was cancelled. If that was after the connection had been made, uvloop has closed
        the transport and never calls `connection_lost`."""
        if self._transport is not None:
            self.connection_lost(None)

    # --- messages --------------------------------------------------------------------------------

    def _take(self, message: Message | Unknown) -> None:
        self.messages_in += 1
        if isinstance(message, Unknown):
            self.unknown += 1
            return
        match self._machine.receive(message):
            case Publish() | Stage() as taken if not self.is_broker:
                limit = self._owner.settings.publish_events_max
                if len(taken.events) > limit:
                    raise ProtocolError(
                        f"a message has {len(taken.events)} events, the limit is {limit}",
                        "Publish smaller batches.",
                    )
                self._owner.received(self, taken)
            case Message() as taken:
                self._owner.received(self, taken)
            case SendOnLink(reply):
                self.answer(reply)
            case PeerOpened(hello):
                self._greet(hello)
            case PeerLeft(said):
                self._reason = said.problem or "the other end said goodbye"
                self.close()
            case None:
                pass

    def _greet(self, hello: Hello) -> None:
        self.is_broker = hello.sender is not None
        self.peer = self._owner.greeted(self, hello)
        if self.is_broker:
            self._machine.keep_alive(self._owner.keep_alive(self.peer), self._loop.time())
        self._set_timer()
        if not self._machine.has_greeted:
            self._say_hello()

    def _deny(self, error: AccessError) -> None:
        self.stop_reading()
        self._machine.deny(error, self._loop.time(), self._owner.denial_delay_s)
        self._set_timer()

    def _set_timer(self) -> None:
        due_s = self._machine.deadline
        if due_s == self._timer_s:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_s = due_s
        self._timer = self._loop.call_at(due_s, self._fire) if due_s < inf else None

    def _fire(self) -> None:
        self._timer, self._timer_s = None, inf
        could_read = self._holds <= {DEAF, UNREAD}  # these are the other end's fault
        match self._machine.fire(self._loop.time(), could_read=could_read):
            case SendOnLink(ping):
                self.send(ping)
                self.flush()
            case EndLink(error):
                self.end(error)
            case DropLink(problem):
                self.drop(self._reason if self.is_closing else problem)
            case None:
                pass
        self._set_timer()

    def answer(self, message: Message) -> None:
        """Queue a reply to the message that is being taken; it leaves when no more can be taken."""
        self.send(message)
        self._has_answers = True

    def send(self, message: Message) -> None:
        """Queue a message; it leaves with the next `flush`."""
        self._outbox.append(message)
        if type(message) in LONG:
            self._is_long = True

    def flush(self, frames: Frames | None = None) -> None:
        """Send what is queued with one write. Beyond the bound, drop it (to a broker) or the link
        (to a client). `frames`: the cache of messages encoded in this turn."""
        messages, self._outbox = self._outbox, []
        self._is_long = False
        if self.is_closing or not messages or self._transport is None:
            return
        try:
            self._write(messages, frames, self._transport)
        except RuntimeError:  # uvloop has closed the transport, and calls nobody
            self.connection_lost(None)

    def _write(
        self, messages: list[Message], frames: Frames | None, transport: asyncio.Transport
    ) -> None:
        waiting = transport.get_write_buffer_size()
        if waiting and self._is_too_much(waiting):
            self.dropped += len(messages) if self.is_broker else 0
            return
        try:
            pieces = (frames or Frames()).of(messages)
        except WireError as error:
            self.end(error)
            return
        self.messages_out += len(messages)
        if len(pieces) == 1:
            self.bytes_out += len(pieces[0])
            transport.write(pieces[0])
        else:
            self.bytes_out += sum(map(len, pieces))
            transport.writelines(pieces)
        if not self.is_broker:
            self._look_at_unsent()

    def _look_at_unsent(self) -> None:
        """Stop reading from a client that has not read its answers."""
        unsent = self.unsent_bytes
        if unsent > BACKED_UP_BYTES:
            self._owner.room.count(self)
        if unsent > self._owner.settings.client_queue_bytes_high:
            self._hold(DEAF)

    def _is_too_much(self, waiting: int) -> bool:
        """Are too many sent bytes unread? A client's link ends then."""
        settings = self._owner.settings
        if self.is_broker:
            return waiting > settings.broker_queue_bytes_max
        if waiting <= settings.client_queue_bytes_max:
            return False
        self._reason = f"{waiting} bytes were sent and not taken"
        self.abort()
        return True

    # --- the end ---------------------------------------------------------------------------------

    def end(self, error: GaplessError) -> None:
        """Say why, and close; the other end has a moment to read that."""
        self._reason = str(error)
        self.send(goodbye(error))
        self._close_within(END_S)

    def fall_silent(self, error: GaplessError) -> None:
        """Say why the link ends and nothing else: what is queued is lost. Where some of it is on
        its way already, close at once."""
        self._outbox = []
        if self.unsent_bytes:
            self.abort()
        else:
            self.end(error)

    def close(self) -> None:
        """Send what is queued, then close. What still comes is ignored. The other end has
        `drain_patience_s` to read the rest."""
        self._close_within(self._owner.settings.drain_patience_s)

    def _close_within(self, patience_s: float) -> None:
        is_first = not self.is_closing and self._transport is not None
        if is_first:
            self.flush()
        if not self.gone.done():
            self._machine.close(self._loop.time(), patience_s)
            self._set_timer()
        if is_first and self._transport is not None and not self._transport.is_closing():
            self._transport.close()  # a second close would break a TLS transport of Python 3.11

    @property
    def is_closing(self) -> bool:
        return self._machine.phase is LinkPhase.CLOSING

    def stop_reading(self) -> None:
        self._hold("for good")

    def drop(self, problem: str) -> None:
        """Close at once, for this reason; what is queued is lost."""
        self._reason = problem
        self.abort()

    def abort(self) -> None:
        """Close at once; what is queued is lost."""
        self._machine.close(self._loop.time())
        if self._transport is not None:
            self._transport.abort()


def keep_alive(connection: socket.socket | None) -> None:
    if connection is None or connection.family == socket.AF_UNIX:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def show_address(name: object) -> str:
    if not name:
        return "a socket of this machine"
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) and len(name) >= 2 else str(name)
