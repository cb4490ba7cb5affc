"""One link: a TCP connection to a client or to another broker, from its Hello to its Goodbye.

Theory of operation
    Both ends say `Hello` at once; until the other's has come nothing else is taken. Where there is
    security, who was connected to says it only when the other has proved who it is. What arrives
    is cut into frames, decoded, and handed over message by message. What is to be sent is queued
    and leaves at the end of the loop's turn as one write.
    A large frame is read only when there is room for all of it (`room`), and only if its kind and
    its sender's rights, which its first bytes tell, allow it; one that is not whole in time
    ends the link. Messages that were read wait while their sender does not read its answers: long
    answers leave one by one, so that no more than one is prepared beyond the bound.
    Whatever goes wrong (bytes that are no message, a message that makes no sense, silence where a
    Hello or a heartbeat is due, a queue over its bound) ends this link, with a `Goodbye` that says
    why where it can be said, and touches nobody else. A wrong proof is answered late, and nothing
    is read meanwhile. What takes long to work off waits its turn (`broker.schedule`).

Invariants
    I1  no message is handed over before the Hello, nor after the link began to close
    I2  at most `broker_queue_bytes_max` or `client_queue_bytes_max` bytes, and one turn's output,
        wait to be sent; of answers at most `client_queue_bytes_high` and one more
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Protocol, cast

from gapless.broker.event_reader import STEP_BYTES
from gapless.broker.frames import Frames
from gapless.broker.memory import BACKED_UP_BYTES, NO_ROOM, UNREAD, LinkMemory
from gapless.core.client_messages import Publish, Subscribed
from gapless.core.errors import AccessError, GaplessError, ProtocolError, WireError
from gapless.core.messages import Goodbye, Hello, Ping, Pong
from gapless.core.range_messages import Positions, PositionsQuery, RangeRead, ReadRange
from gapless.core.roster_messages import Roster, RosterQuery
from gapless.core.topic_messages import TopicList, TopicsQuery
from gapless.core.transaction_messages import Stage
from gapless.node.service import KINDS as SERVICE_KINDS
from gapless.wire.codec import Unknown
from gapless.wire.framing import Unframer
from gapless.wire.head import HEAD_BYTES, read_head
from gapless.wire.kinds import codec
from gapless.wire.version import agree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gapless.broker.schedule import Schedule
    from gapless.broker.security.principals import Principal
    from gapless.broker.security.tls import Certificate
    from gapless.broker.settings import Settings
    from gapless.core.identity import BrokerName, PeerName
    from gapless.core.messages import Message

KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""A peer whose machine is gone is noticed after a minute, even if we have nothing to send."""

SILENT_LOOKS = 4
"""Looks that find nothing in a row, and a link has been silent for too long."""

END_S = 0.8
"""How long a peer that is told why its link ends may take to read it, and what was sent before."""

IS_DONE = object()

OTHERS_FIRST = "others come first"
DEAF = "it does not read"

BULKY = frozenset((ReadRange, PositionsQuery, TopicsQuery, RosterQuery))
"""Requests whose answers may be long, which their sender has to read before it gets more."""

LONG = frozenset((RangeRead, Positions, TopicList, Subscribed, Roster))
"""Those answers. Each leaves at once, so that it is known how much its receiver has not read."""

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
        """Whether to say Hello at once; or else the link has ended, or is to prove itself first."""
        ...

    def greeted(self, link: Link, hello: Hello) -> PeerName: ...
    def begun(self, link: Link, head: dict[str, str | int]) -> bool:
        """Whether a large message that begins so is wanted; or else the sender was told why not."""
        ...

    def received(self, link: Link, message: Message) -> None: ...
    def closed(self, link: Link, reason: str) -> None: ...
    def checking(self, link: Link, message: Publish | Stage) -> Iterator[None] | None:
        """The steps in which to look at a large publication; None: there is no need."""
        ...


class Link(asyncio.Protocol):
    """One connection. `peer` is None until the other end has said who it is."""

    def __init__(self, owner: Owner, dialled: BrokerName | None = None) -> None:
        self.dialled = dialled
        self.peer: PeerName | None = None
        self.principal: Principal | None = None
        self.who = ""  # whose share of the room it takes; empty: nobody's, as of brokers
        self.is_broker = False
        self.is_kept = False  # we say something when it is time to, so that the other end answers
        self.is_closing = False
        self.address = "?"
        self.bytes_in = self.bytes_out = self.messages_in = self.messages_out = 0
        self.dropped = self.unknown = 0
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._owner = owner
        self._codec = codec(*SERVICE_KINDS)
        self._unframer = Unframer(first_bytes_max=owner.settings.hello_bytes_max)
        self._inbox: deque[memoryview] = deque()  # read, and not taken yet
        self._checking: tuple[Message, Iterator[None]] | None = None  # the first of them, if large
        self._frame_count = 0  # that were read
        self._frame_watch: asyncio.TimerHandle | None = None  # that the rest of a frame comes
        self._closing: asyncio.TimerHandle | None = None  # that it is gone in time
        self._heard_s = 0.0  # when something came last
        self._is_let_in = False  # is there room for the frame that is being read?
        self._outbox: list[Message] = []
        self._is_long = False  # is there a long answer in it?
        self._has_greeted = self._is_denied = False
        self._holds: set[str] = set()  # why nothing is read just now
        self._has_answers = False  # of our own, which nobody else knows are to be sent
        self._transport: asyncio.Transport | None = None
        self._patience: asyncio.TimerHandle | None = None
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
        loop = asyncio.get_running_loop()
        self._patience = loop.call_later(settings.hello_patience_s, self._has_no_hello)
        if self._owner.opened(self):
            self._say_hello()

    @property
    def certificate(self) -> Certificate | None:
        """What the other end has shown, if this is TLS and it did; it was verified."""
        transport = self._transport
        return transport.get_extra_info("peercert") if transport is not None else None

    def _say_hello(self) -> None:
        assert self._transport is not None
        self._has_greeted = True
        self._transport.write(bytes(self._codec.frames([self._owner.hello])))

    def data_received(self, data: bytes) -> None:
        self.bytes_in += len(data)
        self._heard_s = monotonic()
        if self.is_closing or self._is_denied:
            return
        frames: list[memoryview] = []
        with contextlib.suppress(WireError):  # `work` finds it, after what came before it
            frames = self._unframer.feed(data)
        self._inbox += frames
        self._frame_count += len(frames)
        if frames and self._is_let_in:
            self._is_let_in = False
            self._owner.room.finished(self)
        if self.is_broker:
            self.work(lambda: False)
        else:
            self._owner.schedule.serve(self)

    def work(self, is_over: Callable[[], bool]) -> bool:
        """Take messages that were read, until there are none or `is_over`; whether there are more,
        which are taken in another turn of the loop. Nothing is read meanwhile."""
        try:
            while self.has_work and not (self.is_closing or self._is_denied):
                self._advance()
                if not self.is_broker and (self._is_long or len(self._outbox) >= ANSWERS_MAX):
                    self._has_answers = False
                    self.flush()
                if is_over() and not self.is_broker:
                    break
            if not self._inbox and self._unframer.error is not None and not self.is_closing:
                raise self._unframer.error
        except AccessError as error:
            self._deny(error)
        except (WireError, ProtocolError) as error:
            self.end(error)
        if self._has_answers:
            self._has_answers = False
            self.flush()
        if self.is_closing or self._is_denied:
            self._drop_work()
        elif not self.has_work and self._unframer.buffered_bytes:
            self._begin_frame()
        return self.has_work

    @property
    def has_work(self) -> bool:
        """Are there messages that may be taken now? Those of a client wait while it does not read
        its answers."""
        is_blocked = not self.is_broker and not self._holds <= {NO_ROOM, OTHERS_FIRST}
        return not is_blocked and (bool(self._inbox) or self._checking is not None)

    def _drop_work(self) -> None:
        self._inbox.clear()
        self._checking = None

    def _advance(self) -> None:
        """Take a message; or a step of looking at one that is large."""
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
        """What takes long to decode is looked at first: of clients, publications only are large."""
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
        remedy = "Ask for less at a time; only messages with events may be longer, and say their "
        return WireError(
            f"a request has {size} bytes; the limit is {limit}",
            "Publish smaller batches." if has_events else f"{remedy}kind first.",
        )

    # --- a frame that is not whole yet -----------------------------------------------------------

    def _begin_frame(self) -> None:
        """The beginning of a frame is here: is the rest wanted, and is there room for it?"""
        if self.is_broker or self.is_closing or self._is_denied:
            return
        settings, size = self._owner.settings, self._unframer.awaited
        if self._frame_watch is None:
            self._watch_frame(settings.frame_patience_s)
        if self.peer is None and size > settings.hello_bytes_max:
            problem = f"a frame of {size} bytes is announced before a Hello; the limit is"
            self.end(WireError(f"{problem} {settings.hello_bytes_max}", "Say Hello first."))
            return
        if size <= settings.small_frame_bytes or self._is_let_in or NO_ROOM in self._holds:
            return
        begin = self._unframer.begin(HEAD_BYTES)
        if len(begin) < min(size, HEAD_BYTES):
            return
        head = read_head(begin)
        if (too_long := self._too_long(head.get("kind"), size)) is not None:
            self.end(too_long)
        elif not self._owner.begun(self, head):
            self._unframer.skip()
            self.flush()
        else:
            self._ask_for_room(size)

    def _ask_for_room(self, size: int) -> None:
        try:
            self._is_let_in = self._owner.room.let_in(self, size, self._unframer.buffered_bytes)
        except ProtocolError as error:
            self.end(error)
            return
        if not self._is_let_in:
            self._hold(NO_ROOM)
            self._press_later()

    def _press_later(self) -> None:
        stall_s = self._owner.settings.frame_stall_s
        self._pressing = asyncio.get_running_loop().call_later(stall_s, self._press)

    def _press(self) -> None:
        """We still wait for room: others may not keep theirs for nothing."""
        if NO_ROOM in self._holds and not self.is_closing:
            self._owner.room.drop_stalled()
            self._press_later()

    def has_stalled(self) -> bool:
        """Has our frame brought nothing for long, though we read?"""
        return not self._holds and monotonic() - self._heard_s > self._owner.settings.frame_stall_s

    def _watch_frame(self, patience_s: float) -> None:
        loop, count = asyncio.get_running_loop(), self._frame_count
        self._frame_watch = loop.call_later(patience_s, self._look_at_frame, count)

    def _look_at_frame(self, count: int) -> None:
        """Has the frame become whole that was begun `frame_patience_s` ago?"""
        self._frame_watch = None
        if self.is_closing or not self._unframer.buffered_bytes:
            return
        patience_s = self._owner.settings.frame_patience_s
        if self._frame_count > count or self._holds - {DEAF, UNREAD}:
            self._watch_frame(patience_s)
            return
        have, size = self._unframer.buffered_bytes, self._unframer.awaited
        problem = f"{have} bytes of a frame of {size} came within {patience_s:g} s"
        self.end(WireError(problem, "Send smaller messages, or over a faster network."))

    # --- what is not read just now ---------------------------------------------------------------

    @property
    def unsent_bytes(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def pause_writing(self) -> None:
        """The other end does not read."""
        if not self.is_broker:
            self._owner.room.count(self)

    def resume_writing(self) -> None:
        if not self.is_broker:
            self._owner.room.count(self)
        self.read_on(DEAF)

    def _hold(self, reason: str) -> None:
        if not self._holds and not self.is_closing and self._transport is not None:
            self._transport.pause_reading()
        self._holds.add(reason)

    def read_on(self, reason: str) -> None:
        """Unless there is another reason not to."""
        was_held = reason in self._holds
        self._holds.discard(reason)
        if reason == NO_ROOM:
            self._is_let_in = True
        if was_held and self.has_work and reason != OTHERS_FIRST:
            self._owner.schedule.serve(self)
        if was_held and not self._holds and not self.is_closing and self._transport is not None:
            self._heard_s = monotonic()  # nothing could come while we did not read
            self._transport.resume_reading()

    def eof_received(self) -> None:
        return None

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closing = True
        self._drop_work()
        self._owner.schedule.leave(self)
        for timer in (self._patience, self._frame_watch, self._pressing, self._closing):
            if timer is not None:
                timer.cancel()
        if not self.gone.done():
            self.gone.set_result(None)
        self._owner.closed(self, str(error) if error else self._reason)

    # --- messages --------------------------------------------------------------------------------

    def _take(self, message: Message | Unknown) -> None:
        self.messages_in += 1
        if isinstance(message, Unknown):
            self.unknown += 1
        elif isinstance(message, Goodbye):
            self._reason = message.problem or "the other end said goodbye"
            self.close()
        elif self.peer is None:
            self._greet(message)
        elif isinstance(message, Hello):
            raise ProtocolError("a second Hello came on one link")
        elif self.is_broker:
            self._owner.received(self, message)
        elif isinstance(message, Ping):
            self.answer(Pong(message.number))
        elif not isinstance(message, Pong):
            limit = self._owner.settings.publish_events_max
            if isinstance(message, Publish | Stage) and len(message.events) > limit:
                raise ProtocolError(
                    f"a message has {len(message.events)} events, the limit is {limit}",
                    "Publish smaller batches.",
                )
            self._owner.received(self, message)

    def _greet(self, message: Message) -> None:
        if not isinstance(message, Hello):
            raise WireError("the first message is no Hello")
        agree(self._owner.hello, message)
        if self._patience is not None:
            self._patience.cancel()
        self.is_broker = message.sender is not None
        self.peer = self._owner.greeted(self, message)
        if self.is_broker:
            self._watch_silence()
        if not self._has_greeted:
            self._say_hello()

    def _deny(self, error: AccessError) -> None:
        """End it, but not at once: guessing is to be slow."""
        self._is_denied = True
        self.stop_reading()
        loop = asyncio.get_running_loop()
        self._patience = loop.call_later(self._owner.denial_delay_s, self.end, error)

    def _has_no_hello(self) -> None:
        self.end(
            WireError(
                f"no Hello came within {self._owner.settings.hello_patience_s:g} s",
                "Say Hello first; docs/reference/wire-format.md has the messages.",
            )
        )

    def _watch_silence(self, silent: int = 0) -> None:
        """Heartbeats come on a link that works. One that lost its way is never closed by TCP while
        something in between answers for the other end, so it must not be waited for. Where nobody
        has heartbeats to send, a link that is to be kept is looked after here. `silent`: how many
        looks in a row have found nothing."""
        loop, pause_s = asyncio.get_running_loop(), self._owner.settings.silence_s / SILENT_LOOKS
        self._patience = loop.call_later(pause_s, self._look, self.bytes_in, silent)

    def _look(self, bytes_before: int, silent: int) -> None:
        if self.is_kept:
            self.send(Ping(0))
            self.flush()
        if self.bytes_in > bytes_before:
            self._watch_silence()
        elif silent + 1 < SILENT_LOOKS:
            self._watch_silence(silent + 1)
        elif not self.is_closing:
            self._reason = f"it brought nothing for {self._owner.settings.silence_s:g} s"
            self.abort()

    def answer(self, message: Message) -> None:
        """The same as `send`, while a message of this link is being taken."""
        self.send(message)
        self._has_answers = True

    def send(self, message: Message) -> None:
        """Queue a message; it leaves with the next `flush`."""
        self._outbox.append(message)
        if type(message) in LONG:
            self._is_long = True

    def flush(self, frames: Frames | None = None) -> None:
        """Send what is queued with one write; beyond the bound drop it (a broker's) or the link.
        `frames`: made of messages that others got just now."""
        messages, self._outbox = self._outbox, []
        self._is_long = False
        if self.is_closing or not messages or self._transport is None:
            return
        waiting = self._transport.get_write_buffer_size()
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
            self._transport.write(pieces[0])
        else:
            self.bytes_out += sum(map(len, pieces))
            self._transport.writelines(pieces)
        if not self.is_broker:
            self._look_at_unsent()

    def _look_at_unsent(self) -> None:
        """Who has not read that much of its answers may not ask for more."""
        unsent = self.unsent_bytes
        if unsent > BACKED_UP_BYTES:
            self._owner.room.count(self)
        if unsent > self._owner.settings.client_queue_bytes_high:
            self._hold(DEAF)

    def _is_too_much(self, waiting: int) -> bool:
        """Have too many bytes been sent and not taken? A client's link ends then."""
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
        """Say why, and close; at once if the other end does not read that for a while."""
        self._reason = str(error)
        self.send(Goodbye(error.problem, error.remedy, final=isinstance(error, AccessError)))
        self._close_within(END_S)

    def close(self) -> None:
        """Send what is queued, then close. What still comes is not taken. Who does not read what is
        left is not waited for longer than `drain_patience_s`."""
        self._close_within(self._owner.settings.drain_patience_s)

    def _close_within(self, patience_s: float) -> None:
        if not self.is_closing and self._transport is not None:
            self.flush()
            self.is_closing = True
            self._transport.close()
        if self._closing is not None:
            self._closing.cancel()
        if not self.gone.done():
            self._closing = asyncio.get_running_loop().call_later(patience_s, self.abort)

    def stop_reading(self) -> None:
        self._hold("for good")

    def drop(self, problem: str) -> None:
        """Close at once: there is no room for what it does not read."""
        self._reason = problem
        self.abort()

    def abort(self) -> None:
        """Close at once; what is queued is lost."""
        self.is_closing = True
        if self._transport is not None:
            self._transport.abort()


def keep_alive(connection: socket.socket | None) -> None:
    if connection is None:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def show_address(name: object) -> str:
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) and len(name) >= 2 else str(name)
