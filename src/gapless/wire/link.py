"""One end of a link, without I/O: Hello, keep-alive, Goodbye, and how long each may take.

Theory of operation
    Both ends of a link run this machine; it does not know which of them dialled. The driver feeds
    it bytes and gets frames back, decodes these when it likes, and shows each message to `receive`,
    which returns what the driver has to do. The driver calls `fire` when `deadline` has come, and
    skips messages of kinds that it does not know.
    Each end states in its Hello the range of protocol versions that it understands, and the link
    opens if these ranges meet (`agree`). Nothing else is taken before the Hello, and no long frame.
    A link that has lost its way is never closed by TCP while something in between answers for the
    other end. So a machine with a `KeepAlive` looks at regular times whether bytes have come, and
    gives the link up after some looks in a row that found none. Any byte counts: an end that works
    for long and answers pings meanwhile is alive. Looks are counted rather than seconds: if our own
    process stood still, that is one look, and what came meanwhile is read before the next.
    A link ends with a Goodbye that says why, if the other end reads it in time.

Invariants
    I1  no message is handed over before the Hello, nor after the link began to close
    I2  the phase changes as `TRANSITIONS` says
    I3  after an error in the bytes no frame comes out any more; the good ones before it do
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import TYPE_CHECKING

from gapless.core.errors import AccessError, GaplessError, ProtocolError, WireError
from gapless.core.messages import Goodbye, Hello, Ping, Pong
from gapless.wire.framing import FRAME_BYTES_MAX, Unframer

if TYPE_CHECKING:
    from gapless.core.messages import Message


class LinkPhase(Enum):
    """How far one end of a link is."""

    OPENING = "opening"  # the other end's Hello has not come
    OPEN = "open"
    DENIED = "denied"  # the other end may not be here, and will be told after a delay
    CLOSING = "closing"  # what is queued still leaves; nothing is taken


TRANSITIONS = {
    LinkPhase.OPENING: frozenset((LinkPhase.OPEN, LinkPhase.DENIED, LinkPhase.CLOSING)),
    LinkPhase.OPEN: frozenset((LinkPhase.DENIED, LinkPhase.CLOSING)),
    LinkPhase.DENIED: frozenset((LinkPhase.CLOSING,)),
    LinkPhase.CLOSING: frozenset((LinkPhase.CLOSING,)),
}


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """How an end makes sure that the other end is still there."""

    look_s: float
    """The time between two looks whether bytes have come."""
    looks_max: int
    """The number of looks in a row without a byte after which the link is given up."""
    ping_after: int | None = 1
    """A ping is sent at each look from this number of silent ones on; 0: always, None: never."""
    has_heartbeats: bool = False
    """Pings and pongs are the application's: they are handed over to it."""


@dataclass(frozen=True, slots=True)
class PeerOpened:
    """The other end has said Hello. A driver that has not greeted yet does so now."""

    hello: Hello


@dataclass(frozen=True, slots=True)
class PeerLeft:
    """The other end has said Goodbye: send what is queued, and close."""

    goodbye: Goodbye


@dataclass(frozen=True, slots=True)
class SendOnLink:
    """Send this message."""

    message: Ping | Pong


@dataclass(frozen=True, slots=True)
class EndLink:
    """Say why (`goodbye`), and close."""

    error: GaplessError


@dataclass(frozen=True, slots=True)
class DropLink:
    """Close at once, without a Goodbye: the other end does not read."""

    problem: str


class LinkMachine:
    """One end of a link. Times are seconds of any clock that never goes back."""

    def __init__(
        self,
        hello: Hello,
        now_s: float,
        *,
        hello_s: float = inf,
        hello_bytes_max: int = FRAME_BYTES_MAX,
        frame_s: float = inf,
    ) -> None:
        """The other end has `hello_s` for its Hello, which has at most `hello_bytes_max` bytes, and
        `frame_s` for each frame that it has begun."""
        self.phase = LinkPhase.OPENING
        self.is_over = False
        """Nothing more is taken: the link is denied or closing."""
        self.deadline = inf
        """When to call `fire`."""
        self.heard_s = now_s
        """When bytes came last."""
        self.unframer = Unframer(first_bytes_max=hello_bytes_max)
        self.frame_count = 0  # that came whole
        self.has_greeted = False
        self._hello = hello
        self._hello_s = hello_s
        self._hello_bytes_max = hello_bytes_max
        self._frame_s = frame_s
        self._keep_alive: KeepAlive | None = None
        self._silent_looks = 0
        self._has_heard = False  # since the last look
        self._denial: GaplessError | None = None
        self._end_due = now_s + hello_s  # of the wait for a Hello, of a denial, of the closing
        self._look_due = inf
        self._frame_due = inf
        self._frames_before = 0  # frames that were whole when the awaited one began
        self._set_deadline()

    # --- what comes ------------------------------------------------------------------------------

    def feed(self, data: bytes, now_s: float) -> list[memoryview]:
        """The frames that these bytes complete. Bad bytes end them: `unframer.error` says why, to
        be raised once the frames before them are taken."""
        self.heard_s = now_s
        self._has_heard = True
        try:
            frames = self.unframer.feed(data)
        except WireError:
            return []
        self.frame_count += len(frames)
        return frames

    def hear(self, now_s: float) -> None:
        """Count the other end as alive at this time."""
        self.heard_s = now_s
        self._has_heard = True

    def receive(self, message: Message) -> Message | PeerOpened | PeerLeft | SendOnLink | None:
        """What to do about a message. The message itself: the application takes it. None: nothing.
        `WireError` or `ProtocolError`: end the link."""
        if self.phase is LinkPhase.OPEN and type(message) not in LINK_KINDS:
            return message
        if isinstance(message, Goodbye):
            return PeerLeft(message)
        if self.phase is LinkPhase.OPENING:
            return self._open(message)
        if isinstance(message, Hello):
            raise ProtocolError("a second Hello came on one link")
        if self._keep_alive is not None and self._keep_alive.has_heartbeats:
            return message
        return SendOnLink(Pong(message.number)) if isinstance(message, Ping) else None

    def _open(self, message: Message) -> PeerOpened:
        if not isinstance(message, Hello):
            raise WireError("the other end's first message is no Hello")
        agree(self._hello, message)
        self._become(LinkPhase.OPEN, inf)
        return PeerOpened(message)

    def begin_frame(self, now_s: float) -> None:
        """A frame is not whole yet: it has to come in time, and be short before a Hello."""
        if self._frame_due == inf:
            self._await_frame(now_s)
        size = self.unframer.awaited
        if self.phase is LinkPhase.OPENING and size > self._hello_bytes_max:
            raise WireError(
                f"a frame of {size} bytes is announced before a Hello; the limit is "
                f"{self._hello_bytes_max}",
                "Say Hello first.",
            )

    def _await_frame(self, now_s: float) -> None:
        self._frames_before = self.frame_count
        self._frame_due = now_s + self._frame_s
        self._set_deadline()

    # --- what is said ----------------------------------------------------------------------------

    def greet(self) -> Hello:
        """Our Hello, to be sent once."""
        assert not self.has_greeted
        self.has_greeted = True
        return self._hello

    def keep_alive(self, keep_alive: KeepAlive, now_s: float) -> None:
        """From now on look whether anything comes."""
        self._keep_alive = keep_alive
        self._has_heard = True  # the first look is too early to find it silent
        if not self.is_over:
            self._look_due = now_s + keep_alive.look_s
            self._set_deadline()

    def deny(self, error: GaplessError, now_s: float, delay_s: float) -> None:
        """End the link, but only after a delay: guessing is to be slow."""
        self._denial = error
        self._become(LinkPhase.DENIED, now_s + delay_s)

    def close(self, now_s: float, within_s: float = inf) -> None:
        """Nothing more is taken; what is queued has `within_s` to leave."""
        self._become(LinkPhase.CLOSING, now_s + within_s)

    def _become(self, phase: LinkPhase, due_s: float) -> None:
        assert phase in TRANSITIONS[self.phase], (self.phase, phase)
        self.phase = phase
        self.is_over = phase in (LinkPhase.DENIED, LinkPhase.CLOSING)
        self._end_due = due_s
        if self.is_over:
            self._look_due = self._frame_due = inf
        self._set_deadline()

    # --- time ------------------------------------------------------------------------------------

    def fire(
        self, now_s: float, *, could_read: bool = True
    ) -> SendOnLink | EndLink | DropLink | None:
        """What is due. `could_read`: False if the driver itself did not read what came."""
        if now_s >= self._end_due:
            self._end_due = inf
            due: SendOnLink | EndLink | DropLink | None = self._end_of_wait()
        elif now_s >= self._frame_due:
            self._frame_due = inf
            due = self._look_at_frame(now_s, could_read=could_read)
        elif now_s >= self._look_due:
            self._look_due = inf
            due = self._look(now_s)
        else:
            return None
        self._set_deadline()
        return due

    def _end_of_wait(self) -> EndLink | DropLink:
        if self.phase is LinkPhase.OPENING:
            return EndLink(
                WireError(
                    f"no Hello came within {self._hello_s:g} s",
                    "Say Hello first; docs/reference/wire-format.md has the messages.",
                )
            )
        if self._denial is not None and self.phase is LinkPhase.DENIED:
            return EndLink(self._denial)
        return DropLink("the other end did not read what was left")

    def _look_at_frame(self, now_s: float, *, could_read: bool) -> EndLink | None:
        """Has the frame become whole that was begun `frame_s` ago?"""
        have, size = self.unframer.buffered_bytes, self.unframer.awaited
        if not have:
            return None
        if self.frame_count > self._frames_before or not could_read:
            self._await_frame(now_s)
            return None
        problem = f"{have} bytes of a frame of {size} came within {self._frame_s:g} s"
        return EndLink(WireError(problem, "Send smaller messages, or over a faster network."))

    def _look(self, now_s: float) -> SendOnLink | DropLink | None:
        """Has anything come since the last look?"""
        keep_alive = self._keep_alive
        assert keep_alive is not None
        self._silent_looks = 0 if self._has_heard else self._silent_looks + 1
        self._has_heard = False
        if self._silent_looks >= keep_alive.looks_max:
            return DropLink(f"nothing came for {keep_alive.look_s * keep_alive.looks_max:g} s")
        self._look_due = now_s + keep_alive.look_s
        if keep_alive.ping_after is None or self._silent_looks < keep_alive.ping_after:
            return None
        return SendOnLink(Ping(self._silent_looks))

    def _set_deadline(self) -> None:
        self.deadline = min(self._end_due, self._look_due, self._frame_due)


LINK_KINDS = frozenset((Hello, Goodbye, Ping, Pong))
"""Messages that `receive` does not hand over as they are."""


def goodbye(error: GaplessError) -> Goodbye:
    """What to say before a link is closed for this reason."""
    return Goodbye(error.problem, error.remedy, final=isinstance(error, AccessError))


def agree(mine: Hello, theirs: Hello) -> int:
    """The protocol version to speak: the highest that both ends understand."""
    version = min(mine.version, theirs.version)
    if version >= max(mine.version_min, theirs.version_min):
        return version
    too_old, side = (
        (theirs, "the other end") if theirs.version < mine.version else (mine, "this end")
    )
    raise WireError(
        f"no common protocol version: we speak {_range(mine)}, the other end {_range(theirs)}",
        f"Upgrade {side}{_named(too_old)}.",
    )


def _range(hello: Hello) -> str:
    if hello.version_min == hello.version:
        return str(hello.version)
    return f"{hello.version_min} to {hello.version}"


def _named(hello: Hello) -> str:
    names = [name for name in (hello.sender, hello.software) if name]
    return f" ({', '.join(names)})" if names else ""
