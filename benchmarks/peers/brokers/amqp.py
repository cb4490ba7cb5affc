"""The lean client of RabbitMQ: AMQP 0-9-1, without what is not needed here."""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from benchmarks.peers.brokers.lean import LeanClient

if TYPE_CHECKING:
    from benchmarks.peers.adapter import Setting
    from benchmarks.peers.model import Event, Interest

PREFETCH = 500
BINDS_AT_ONCE = 100
FRAME = struct.Struct(">BHI")
LONG = struct.Struct(">Q")
DELIVER, ACK, NACK = (struct.pack(">HH", 60, method) for method in (60, 80, 120))
CLOSES = (struct.pack(">HH", 10, 50), struct.pack(">HH", 20, 40))  # connection, channel


def exchange_of(setting: Setting) -> str:
    return "ev.fanout" if setting.workload.startswith("W1") else "ev.headers"


def binding(interest: Interest) -> dict[str, str]:
    """The arguments with which a queue is bound to the headers exchange."""
    wanted = {"symbol": interest.symbol, "exchange": interest.exchange}
    return {"x-match": "all", **{name: value for name, value in wanted.items() if value}}


def queue_of(client_name: str, interest: Interest) -> str:
    return f"q.{interest.name if interest.durable else client_name}"


def short(text: str) -> bytes:
    return bytes((len(text),)) + text.encode()


def long(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def table(entries: dict[str, Any]) -> bytes:
    out = b""
    for name, value in entries.items():
        out += short(name)
        match value:
            case bool():
                out += b"t" + bytes((value,))
            case int():
                out += b"l" + struct.pack(">q", value)
            case float():
                out += b"d" + struct.pack(">d", value)
            case dict():
                out += b"F" + table(value)
            case _:
                out += b"S" + long(value.encode())
    return long(out)


def frame(kind: int, channel: int, body: bytes) -> bytes:
    return FRAME.pack(kind, channel, len(body)) + body + b"\xce"


def method(kind: int, number: int, arguments: bytes = b"", channel: int = 1) -> bytes:
    return frame(1, channel, struct.pack(">HH", kind, number) + arguments)


class Lean(LeanClient):
    """See the module docstring."""

    async def open(self) -> None:
        self._interests: dict[bytes, list[Interest]] = {}
        self._is_durable = False
        self._number = 0
        self._oldest = 1
        self._tags: dict[int, int] = {}
        await self.dial()
        self.send(b"AMQP\0\0\x09\x01")
        await self.expect(10, 10)
        can = {"publisher_confirms": True, "basic.nack": True, "consumer_cancel_notify": True}
        login = short("PLAIN") + long(b"\0guest\0guest") + short("en_US")
        self.send(method(10, 11, table({"capabilities": can}) + login, 0))
        await self.expect(10, 30)
        self.send(method(10, 31, struct.pack(">HIH", 2_047, 131_072, 0), 0))
        self.send(method(10, 40, short("/") + b"\0\0", 0))
        await self.expect(10, 41)
        self.send(method(20, 10, b"\0"))
        await self.expect(20, 11)

    async def expect(self, kind: int, number: int) -> None:
        got = await self.answer()
        if got[:4] != struct.pack(">HH", kind, number):
            raise RuntimeError(f"expected {kind},{number}, got {got[:200]!r}")

    # --- what comes ------------------------------------------------------------------------------

    def feed(self, data: bytes) -> int:
        start, last = 0, 0
        done: list[int] = []
        while len(data) - start >= FRAME.size + 1:
            body = start + FRAME.size
            end = body + FRAME.unpack_from(data, start)[2] + 1
            if end > len(data):
                break
            kind = data[body : body + 4]
            if kind == DELIVER:
                delivered = self._deliver(data, body, end)
                if delivered is None:
                    break
                last, end = delivered
            elif kind == ACK:
                self._confirm(LONG.unpack_from(data, body + 4)[0], data[body + 12] & 1, done)
            elif kind == NACK or (kind in CLOSES and not self.is_closing):
                self.fail(data[body:end].decode(errors="replace"))
                return len(data)
            elif data[start] == 1:
                self.answered(data[body : end - 1])
            start = end
        if last and self._is_durable:
            self.send(method(60, 80, LONG.pack(last) + b"\1"))
        if done:
            self.on_confirm(done)
        return start

    def _deliver(self, data: bytes, method_body: int, head: int) -> tuple[int, int] | None:
        """(delivery tag, end) of a delivery whose header frame starts at `head`; None if it is not
        whole."""
        if len(data) - head < FRAME.size + 1:
            return None
        body = head + FRAME.size + FRAME.unpack_from(data, head)[2] + 1
        if len(data) - body < FRAME.size + 1:
            return None
        end = body + FRAME.size + FRAME.unpack_from(data, body)[2] + 1
        if end > len(data):
            return None
        payload = data[body + FRAME.size : end - 1]
        interests = self._interests.get(b"")
        if interests is not None:
            interests[0].sink(payload)
        else:
            symbol = data.index(b"symbolS", head, body) + 11
            at = data.index(b"priced", head, body) + 6
            (price,) = struct.unpack_from(">d", data, at)
            for interest in self._interests[data[symbol : symbol + 5]]:
                if price > interest.price_above:
                    interest.sink(payload)
        name_end = method_body + 5 + data[method_body + 4]
        return LONG.unpack_from(data, name_end)[0], end

    def _confirm(self, number: int, multiple: int, done: list[int]) -> None:
        first = self._oldest if multiple else number
        for each in range(first, number + 1):
            tag = self._tags.pop(each, None)
            if tag is not None:
                done.append(tag)
        if multiple:
            self._oldest = number + 1

    # --- publishing ------------------------------------------------------------------------------

    async def start_publisher(self, *, confirmed: bool) -> None:
        if confirmed:
            self.send(method(85, 10, b"\0"))
            await self.expect(85, 11)

    def publish(self, event: Event, payload: bytes, tag: int | None) -> None:
        if event.cache is None:
            event.cache = self._head(event, len(payload))
        if tag is not None:
            self._number += 1
            self._tags[self._number] = tag
        self.out.append(event.cache + payload + b"\xce")

    def _head(self, event: Event, size: int) -> bytes:
        """All frames up to the payload."""
        exchange = exchange_of(self.setting)
        properties = table(
            {
                "symbol": event.symbol,
                "price": event.price,
                "volume": event.volume,
                "exchange": event.exchange,
            }
        )
        flags = 0x2000
        if self.setting.durable:
            flags, properties = 0x3000, properties + b"\x02"
        return (
            method(60, 40, b"\0\0" + short(exchange) + short("") + b"\0")
            + frame(2, 1, struct.pack(">HHQH", 60, 0, size, flags) + properties)
            + FRAME.pack(3, 1, size)
        )

    # --- subscribing -----------------------------------------------------------------------------

    async def subscribe(self, interests: list[Interest]) -> None:
        first = interests[0]
        self._is_durable = first.durable
        for interest in interests:
            self._interests.setdefault(interest.symbol.encode(), []).append(interest)
        queue = queue_of(self.name, first)
        bits = bytes((2 if first.durable else 4 | 8,))  # durable, or exclusive and auto-delete
        self.send(method(50, 10, b"\0\0" + short(queue) + bits + table({})))
        await self.expect(50, 11)
        to = b"\0\0" + short(queue) + short(exchange_of(self.setting)) + short("") + b"\0"
        for start in range(0, len(interests), BINDS_AT_ONCE):
            some = interests[start : start + BINDS_AT_ONCE]
            self.send(b"".join(method(50, 20, to + table(binding(each))) for each in some))
            for _ in some:
                await self.expect(50, 21)
        if first.durable:
            self.send(method(60, 10, struct.pack(">IHB", 0, PREFETCH, 0)))
            await self.expect(60, 11)
        no_ack = bytes((0 if first.durable else 2,))
        self.send(method(60, 20, b"\0\0" + short(queue) + short("c") + no_ack + table({})))
        await self.expect(60, 21)

    async def close(self) -> None:
        if not self.gone.is_set():
            self.is_closing = True
            if self._is_durable:  # no more, and acknowledge what is here
                self.send(method(60, 30, short("c") + b"\0"))
                with suppress(RuntimeError, ConnectionError, TimeoutError):
                    await self.expect(60, 31)
            self.send(method(10, 50, struct.pack(">H", 200) + short("bye") + bytes(4), 0))
            with suppress(TimeoutError):
                await asyncio.wait_for(self.gone.wait(), 2)
        await self.shut()
