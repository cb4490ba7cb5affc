"""Mosquitto 2: MQTT 3.1.1, QoS 0 (W1, W2), QoS 1 with durable sessions (W3 to W5).

W2: a topic for each symbol; the client compares prices. Durable: it keeps sessions in memory and
writes all of them out now and then, here every second, which is the best it has; its
acknowledgement does not wait for that.
"""

from __future__ import annotations

import asyncio
import shutil
import struct
from typing import TYPE_CHECKING, Any

from benchmarks.peers.adapter import HOST, Broker, Client, Peer
from benchmarks.peers.brokers.lean import LeanClient

if TYPE_CHECKING:
    from benchmarks.peers.adapter import Setting
    from benchmarks.peers.model import Event, Interest

CONNACK, PUBLISH, PUBACK, SUBACK = 2, 3, 4, 9
TOPICS_AT_ONCE = 200
WAITING_PACKETS_HIGH = 500


class Server(Broker):
    """mosquitto."""

    def command(self) -> list[str]:
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        lines = [
            f"listener {self.setting.port} {HOST}",
            "allow_anonymous true",
            "max_queued_messages 0",
            "max_queued_bytes 0",
            "set_tcp_nodelay true",
            "max_inflight_messages 1000",
            "log_type error",
            "user root",
        ]
        if self.setting.durable:
            lines += ["persistence true", f"persistence_location {data}/", "autosave_interval 1"]
        (self.folder / "mosquitto.conf").write_text("\n".join(lines) + "\n")
        program = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
        return [program, "-c", str(self.folder / "mosquitto.conf")]


def topic(event: Event) -> str:
    return f"ev/{event.exchange}/{event.symbol}"


def pattern(interest: Interest) -> str:
    if interest.symbol:
        return f"ev/+/{interest.symbol}"
    return f"ev/{interest.exchange}/#" if interest.exchange else "ev/#"


def quality(setting: Setting) -> int:
    return 1 if setting.durable else 0


def is_session_kept(client: Client) -> bool:
    return client.setting.durable and client.name.startswith("sub")


def hand_out(body: bytes, interests: list[Interest]) -> None:
    """Attributes as a line, then the payload."""
    line_end = body.index(b"\n")
    for interest in interests:
        if not interest.symbol or float(body[6 : body.index(b" ", 6)]) > interest.price_above:
            interest.sink(body[line_end + 1 :])


def by_symbol(interests: list[Interest]) -> dict[str, list[Interest]]:
    found: dict[str, list[Interest]] = {}
    for interest in interests:
        found.setdefault(interest.symbol, []).append(interest)
    return found


def encode_size(size: int) -> bytes:
    out = b""
    while True:
        size, low = divmod(size, 128)
        if not size:
            return out + bytes((low,))
        out += bytes((low | 128,))


def decode_size(data: bytes, start: int) -> tuple[int, int]:
    """(size, where it ends); -1 if it is not whole."""
    size = shift = 0
    while start < len(data):
        size |= (data[start] & 127) << shift
        start += 1
        if data[start - 1] < 128:
            return size, start
        shift += 7
    return -1, start


def text(data: str) -> bytes:
    return struct.pack(">H", len(data)) + data.encode()


class Lean(LeanClient):
    """MQTT 3.1.1, without what is not needed here."""

    async def open(self) -> None:
        self._interests = by_symbol(self.planned)  # a durable session delivers at once
        self._quality = quality(self.setting)
        self._packet = 0
        self._tags: dict[int, int] = {}
        await self.dial()
        clean = 0 if is_session_kept(self) else 2
        body = text("MQTT") + bytes((4, clean)) + b"\0\0" + text(self.name)
        self.send(b"\x10" + encode_size(len(body)) + body)
        await self.answer()

    def feed(self, data: bytes) -> int:
        start, end_of_data = 0, len(data)
        acknowledgements: list[bytes] = []
        done: list[int] = []
        everything = self._interests.get("")
        while end_of_data - start >= 2:
            first, size, body = data[start], data[start + 1], start + 2
            if size & 128:
                size, body = decode_size(data, start + 1)
            end = body + size
            if size < 0 or end > end_of_data:
                break
            kind = first >> 4
            if kind == PUBLISH:
                name_end = body + 2 + (data[body] << 8) + data[body + 1]
                payload = name_end
                if first & 6:
                    payload += 2
                    acknowledgements.append(b"\x40\x02" + data[name_end:payload])
                symbol = data[name_end - 5 : name_end].decode() if everything is None else ""
                hand_out(data[payload:end], everything or self._interests[symbol])
            elif kind == PUBACK:
                done.append(self._tags.pop((data[body] << 8) + data[body + 1]))
            elif kind in (CONNACK, SUBACK):
                self.answered()
            start = end
        if acknowledgements:
            self.send(b"".join(acknowledgements))
        if done:
            self.on_confirm(done)
        return start

    def publish(self, event: Event, payload: bytes, tag: int | None) -> None:
        if event.cache is None:
            name, line = text(topic(event)), event.prefix()
            size = len(name) + 2 * self._quality + len(line) + len(payload)
            first = bytes((0x30 | self._quality << 1,))
            event.cache = (first + encode_size(size) + name, line)
        head, line = event.cache
        number = b""
        if tag is not None:
            self._packet = self._packet % 65_535 + 1
            self._tags[self._packet] = tag
            number = self._packet.to_bytes(2, "big")
        self.out.append(b"%b%b%b%b" % (head, number, line, payload))

    async def subscribe(self, interests: list[Interest]) -> None:
        topics = sorted(set(map(pattern, interests)))
        for first in range(0, len(topics), TOPICS_AT_ONCE):
            some = topics[first : first + TOPICS_AT_ONCE]
            body = b"\0\1" + b"".join(text(each) + bytes((self._quality,)) for each in some)
            self.send(b"\x82" + encode_size(len(body)) + body)
            await self.answer()

    async def close(self) -> None:
        if not self.gone.is_set():
            self.send(b"\xe0\0")
        await self.shut()


class Library(Client):
    """paho-mqtt, driven by the event loop as aiomqtt does it."""

    async def open(self) -> None:
        from paho.mqtt.client import CallbackAPIVersion
        from paho.mqtt.client import Client as Paho

        loop = self._loop = asyncio.get_running_loop()
        self._quality = quality(self.setting)
        self._interests = by_symbol(self.planned)
        self._tags: dict[int, int] = {}
        self._early: set[int] = set()  # confirmed before `publish` has returned
        self._answer: asyncio.Future[None] = loop.create_future()
        self._is_closing = False
        paho = self._paho = Paho(
            CallbackAPIVersion.VERSION2,
            client_id=self.name,
            clean_session=not is_session_kept(self),
            reconnect_on_failure=False,
        )
        paho.max_inflight_messages_set(0xFFFF)
        paho.max_queued_messages_set(0)
        paho.on_connect = paho.on_subscribe = self._answered
        paho.on_message = self._take
        paho.on_publish = self._published
        paho.on_socket_open = self._opened
        paho.on_socket_close = self._closed
        paho.on_socket_register_write = lambda _, __, sock: loop.add_writer(sock, paho.loop_write)
        paho.on_socket_unregister_write = lambda _, __, sock: loop.remove_writer(sock)
        paho.connect(HOST, self.setting.port, keepalive=600)
        await asyncio.wait_for(self._answer, 10)

    def _opened(self, _: object, __: object, sock: Any) -> None:
        sock.setsockopt(6, 1, 1)  # TCP_NODELAY
        self._loop.add_reader(sock, self._paho.loop_read, 100)

    def _closed(self, _: object, __: object, sock: Any) -> None:
        self._loop.remove_reader(sock)
        if not self._is_closing:
            self._is_closing = True
            self.on_lost()

    def _answered(self, *_: object) -> None:
        if not self._answer.done():
            self._answer.set_result(None)

    def _take(self, _: object, __: object, message: Any) -> None:
        interests = self._interests.get("") or self._interests[message.topic[-5:]]
        hand_out(message.payload, interests)

    def _published(self, _: object, __: object, number: int, *___: object) -> None:
        tag = self._tags.pop(number, None)
        if tag is not None:
            self.on_confirm((tag,))
        elif self._quality:
            self._early.add(number)

    def publish(self, event: Event, payload: bytes, tag: int | None) -> None:
        if event.cache is None:
            event.cache = (topic(event), event.prefix())
        name, line = event.cache
        number = self._paho.publish(name, line + payload, 0 if tag is None else 1).mid
        if tag is None:
            return
        if number in self._early:
            self._early.discard(number)
            self.on_confirm((tag,))
        else:
            self._tags[number] = tag

    async def flush(self) -> None:
        waiting = self._paho._out_packet
        while len(waiting) > WAITING_PACKETS_HIGH:  # noqa: ASYNC110 (paho tells nobody)
            await asyncio.sleep(0)

    async def subscribe(self, interests: list[Interest]) -> None:
        topics = sorted(set(map(pattern, interests)))
        for first in range(0, len(topics), TOPICS_AT_ONCE):
            self._answer = self._loop.create_future()
            some = topics[first : first + TOPICS_AT_ONCE]
            self._paho.subscribe([(each, self._quality) for each in some])
            await asyncio.wait_for(self._answer, 20)

    async def close(self) -> None:
        self._is_closing = True
        self._paho.disconnect()
        await asyncio.sleep(0.02)


class Mosquitto(Peer):
    """Eclipse Mosquitto."""

    name, port = "mosquitto", 11883
    filters = "topic; the client drops half"

    def is_installed(self) -> bool:
        return shutil.which("mosquitto", path="/usr/sbin:/usr/bin:/usr/local/sbin") is not None

    def broker(self, setting: Setting) -> Broker:
        return Server(setting)

    def client(self, setting: Setting, name: str) -> Client:
        return (Library if setting.client == "lib" else Lean)(setting, name)


PEER = Mosquitto()
