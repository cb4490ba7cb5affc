"""Brokers of one process, and the links between them: bytes that one link writes, the other reads.

Theory of operation
    `NearBrokers` has the brokers of this process that take links, by name. A broker that dials one
    of them gets a pair of transports without sockets. What one end writes is read at the other end
    in a later turn of the loop, never inside the call that wrote it: a node is not entered twice.
    The links above are the usual ones, with Hello, keep-alive and bounds.

Invariants
    I1  bytes arrive in order, and none after `connection_lost`
    I2  `get_write_buffer_size` counts what the other end has not read
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gapless.core.identity import BrokerName

PLACE = "this process"
HIGH_BYTES = 1 << 16
LinkT = TypeVar("LinkT", bound=asyncio.Protocol)


class NearBrokers:
    """The brokers of one process."""

    def __init__(self) -> None:
        self._accept: dict[BrokerName, Callable[[], asyncio.Protocol]] = {}
        self._reload: dict[BrokerName, Callable[[], object]] = {}

    def add(
        self,
        name: BrokerName,
        accept: Callable[[], asyncio.Protocol],
        reload: Callable[[], object],
    ) -> None:
        """The broker takes links from now on; each call of `accept` makes one."""
        self._accept[name] = accept
        self._reload[name] = reload

    def discard(self, name: BrokerName) -> None:
        self._accept.pop(name, None)
        self._reload.pop(name, None)

    def reload(self) -> None:
        """Let all brokers of the process read their files anew."""
        for reload in list(self._reload.values()):
            reload()

    def dial(self, name: BrokerName, make: Callable[[], LinkT]) -> LinkT | None:
        """A new link, connected with one of that broker, if it is here."""
        if name not in self._accept:
            return None
        link = make()
        connect(link, self._accept[name]())
        return link


def connect(one: asyncio.Protocol, other: asyncio.Protocol) -> None:
    """Give both protocols the ends of a connection."""
    here, there = NearTransport(one), NearTransport(other)
    here.peer, there.peer = there, here
    one.connection_made(here)
    other.connection_made(there)


class NearTransport(asyncio.Transport):
    """One end of a connection inside a process; see the module docstring."""

    peer: NearTransport

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__({"peername": PLACE})
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._unread: deque[bytes] = deque()
        self._unread_bytes = 0
        self._high = HIGH_BYTES
        self._is_paused = False  # does our protocol not read?
        self._is_full = False  # was our protocol told not to write?
        self._is_due = False
        self._is_ended = False  # will the other end write no more?
        self._is_closing = False
        self._is_lost = False

    # --- writing ---------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing or self.peer._is_lost:
            return
        self.peer._arrive(bytes(data))  # a copy: buffers are used again
        if self.get_write_buffer_size() > self._high and not self._is_full:
            self._is_full = True
            self._protocol.pause_writing()

    def writelines(self, pieces: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(pieces))

    def get_write_buffer_size(self) -> int:
        return self.peer._unread_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_BYTES if high is None else high

    # --- reading ---------------------------------------------------------------------------------

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        self._come_back()

    def is_reading(self) -> bool:
        return not self._is_paused and not self._is_closing

    def _arrive(self, data: bytes) -> None:
        self._unread.append(data)
        self._unread_bytes += len(data)
        self._come_back()

    def _come_back(self) -> None:
        if not self._is_due and not self._is_lost:
            self._is_due = True
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        """Hand over what was there when this turn began."""
        self._is_due = False
        for _ in range(len(self._unread)):
            if self._is_paused or self._is_closing or not self._unread:
                break
            data = self._unread.popleft()
            self._unread_bytes -= len(data)
            self.peer._is_taken()
            self._protocol.data_received(data)
        if self._is_ended and (not self._unread or self._is_closing):
            self._lose()
        elif self._unread and not self._is_paused:
            self._come_back()

    def _is_taken(self) -> None:
        if self._is_full and not self._is_lost and self.get_write_buffer_size() <= self._high // 4:
            self._is_full = False
            self._loop.call_soon(self._protocol.resume_writing)

    # --- the end ---------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        """The other end still reads what was written."""
        if self._is_closing:
            return
        self._is_closing = True
        self.peer._end()
        self._loop.call_soon(self._lose)

    def abort(self) -> None:
        self.peer._forget()
        self.close()

    def _end(self) -> None:
        self._is_ended = True
        self._come_back()

    def _forget(self) -> None:
        self._unread.clear()
        self._unread_bytes = 0
        self._is_paused = False

    def _lose(self) -> None:
        if not self._is_lost:
            self._is_lost = self._is_closing = True
            self._forget()
            self.peer._end()
            self._protocol.connection_lost(None)
