"""NATS 2: core (W1, W2) and JetStream (W3 to W5).

W2: a subject for each symbol; the client compares prices. Durable: one stream in files, a durable
push consumer for each subscriber with a subject filter. Its acknowledgement of a publication
follows the write, not a sync: it syncs every two minutes, and 2.9 has no setting for that.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from benchmarks.peers.adapter import HOST, Broker, Client, Peer
from benchmarks.peers.brokers.lean import LeanClient

if TYPE_CHECKING:
    from benchmarks.peers.adapter import Setting
    from benchmarks.peers.model import Event, Interest

ACK_WAIT_S = 5
PENDING_MAX = 2_000
HELLO = {"verbose": False, "headers": True, "no_responders": True, "lang": "py", "protocol": 1}
PUBLICATIONS, REQUESTS = b"8888", b"9999"  # subscription numbers of answers


class Server(Broker):
    """nats-server."""

    def command(self) -> list[str]:
        lines = [f"host: {HOST}", f"port: {self.setting.port}", "max_pending: 256MB"]
        if self.setting.durable:
            lines.append(f'jetstream {{ store_dir: "{self.folder}/data", max_file_store: 20GB }}')
        (self.folder / "nats.conf").write_text("\n".join(lines))
        return ["nats-server", "-c", str(self.folder / "nats.conf")]


def subject(event: Event) -> str:
    return f"ev.{event.exchange}.{event.symbol}"


def pattern(interest: Interest) -> str:
    if interest.symbol:
        return f"ev.*.{interest.symbol}"
    return f"ev.{interest.exchange}.>" if interest.exchange else "ev.>"


class Lean(LeanClient):
    """The text protocol of NATS."""

    async def open(self) -> None:
        self._interests: dict[bytes, Interest] = {}
        self._replies: dict[bytes, bytes] = {}  # by subscription: how to acknowledge the last
        self._pongs: deque[asyncio.Future[None]] = deque()
        self._inbox = f"_INBOX.{self.name}".encode()
        self._done: list[int] = []
        self._is_durable = False
        await self.dial()
        await self.answer()
        self.send(b"CONNECT %s\r\n" % json.dumps(HELLO).encode())
        await self._ping()

    async def _ping(self) -> None:
        future = asyncio.get_running_loop().create_future()
        self._pongs.append(future)
        self.send(b"PING\r\n")
        await asyncio.wait_for(future, 30)

    async def request(self, api: str, body: dict[str, Any]) -> bool:
        """Whether it was done."""
        data = json.dumps(body).encode()
        reply = b"%s.rq" % self._inbox
        self.send(b"SUB %s %s\r\n" % (reply, REQUESTS))
        self.send(b"PUB $JS.API.%s %s %d\r\n%s\r\n" % (api.encode(), reply, len(data), data))
        answer = json.loads(await self.answer())
        self.send(b"UNSUB %s\r\n" % REQUESTS)
        return "error" not in answer

    # --- what comes ------------------------------------------------------------------------------

    def feed(self, data: bytes) -> int:
        start, find = 0, data.find
        while (line_end := find(b"\r\n", start)) >= 0:
            if data[start] in b"HM":  # HMSG, MSG
                words = data[start:line_end].split()
                end = line_end + 4 + int(words[-1])
                if end > len(data):
                    break
                has_headers = data[start] == ord("H")
                body = line_end + 2 + (int(words[-2]) if has_headers else 0)
                reply = words[3] if len(words) == 5 + has_headers else None
                self._take(words, reply, data[line_end:body], data[body : end - 2])
                start = end
            else:
                self._obey(data[start:line_end])
                start = line_end + 2
        if self._replies:
            self.send(b"".join(b"PUB %s 0\r\n\r\n" % each for each in self._replies.values()))
            self._replies.clear()
        if self._done:
            done, self._done = self._done, []
            self.on_confirm(done)
        return start

    def _take(self, words: list[bytes], reply: bytes | None, headers: bytes, body: bytes) -> None:
        interest = self._interests.get(words[2])
        if interest is not None:
            if interest.symbol:
                price = headers.index(b"price: ") + 7
                if float(headers[price : headers.index(b"\r", price)]) <= interest.price_above:
                    return
            interest.sink(body)
            if reply is not None:
                self._replies[words[2]] = reply
        elif words[2] == PUBLICATIONS:
            if b'"error"' in body or b" 503" in headers:
                self.fail(body.decode())
            self._done.append(int(words[1].rpartition(b".")[2]))
        else:
            self.answered(body)

    def _obey(self, line: bytes) -> None:
        if line.startswith(b"PING"):
            self.send(b"PONG\r\n")
        elif line.startswith(b"PONG"):
            self._pongs.popleft().set_result(None)
        elif line.startswith(b"INFO"):
            self.answered()

    # --- publishing ------------------------------------------------------------------------------

    async def start_publisher(self, *, confirmed: bool) -> None:
        if confirmed:
            self.send(b"SUB %s.* %s\r\n" % (self._inbox, PUBLICATIONS))
            await self._ping()

    def publish(self, event: Event, payload: bytes, tag: int | None) -> None:
        if event.cache is None:
            headers = (
                f"NATS/1.0\r\nsymbol: {event.symbol}\r\nprice: {event.price:.2f}\r\n"
                f"volume: {event.volume}\r\nexchange: {event.exchange}\r\n\r\n"
            ).encode()
            sizes = b" %d %d\r\n" % (len(headers), len(headers) + 250)
            event.cache = (b"HPUB %s" % subject(event).encode(), sizes + headers)
        command, rest = event.cache
        reply = b"" if tag is None else b" %s.%d" % (self._inbox, tag)
        self.out.append(b"%s%s%s%s\r\n" % (command, reply, rest, payload))

    # --- subscribing -----------------------------------------------------------------------------

    async def subscribe(self, interests: list[Interest]) -> None:
        for interest in interests:
            number = b"%d" % (interest.id + 1)
            self._interests[number] = interest
            on = pattern(interest)
            if interest.durable:
                self._is_durable = True
                await self._make_consumer(interest)
                on = f"dlv.{interest.name}"
            self.send(b"SUB %s %s\r\n" % (on.encode(), number))
        await self._ping()

    async def _make_consumer(self, interest: Interest) -> None:
        if await self.request(f"CONSUMER.INFO.EV.{interest.name}", {}):
            return
        config = {
            "durable_name": interest.name,
            "deliver_subject": f"dlv.{interest.name}",
            "deliver_policy": "all",
            "ack_policy": "all",
            "ack_wait": ACK_WAIT_S * 10**9,
            "filter_subject": pattern(interest),
            "max_ack_pending": PENDING_MAX,
            "replay_policy": "instant",
        }
        api = f"CONSUMER.DURABLE.CREATE.EV.{interest.name}"
        assert await self.request(api, {"stream_name": "EV", "config": config}), api

    async def close(self) -> None:
        if self._is_durable and not self.gone.is_set():  # no more, and acknowledge what is here
            self.send(b"".join(b"UNSUB %s\r\n" % number for number in self._interests))
            await self._ping()
            await self._ping()
        await self.shut()


class Library(Client):
    """nats-py."""

    async def open(self) -> None:
        import nats

        self._is_closing = False
        self._fresh: list[tuple[Event, bytes, int | None]] = []

        async def lost(*_: object) -> None:
            if not self._is_closing:
                self._is_closing = True
                self.on_lost()

        self._nats = await nats.connect(
            f"nats://{HOST}:{self.setting.port}",
            allow_reconnect=False,
            connect_timeout=5,
            pending_size=8 << 20,
            closed_cb=lost,
            disconnected_cb=lost,
        )

    async def start_publisher(self, *, confirmed: bool) -> None:
        if confirmed:
            self._stream = self._nats.jetstream(publish_async_max_pending=4_000)

    def publish(self, event: Event, payload: bytes, tag: int | None) -> None:
        if event.cache is None:
            headers = {
                "symbol": event.symbol,
                "price": f"{event.price:.2f}",
                "volume": str(event.volume),
                "exchange": event.exchange,
            }
            event.cache = (subject(event), headers)
        self._fresh.append((event, payload, tag))

    async def flush(self) -> None:
        fresh, self._fresh = self._fresh, []
        for event, payload, tag in fresh:
            on, headers = event.cache
            if tag is None:
                await self._nats.publish(on, payload, headers=headers)
            else:
                future = await self._stream.publish_async(on, payload, headers=headers)
                future.add_done_callback(lambda done, tag=tag: self._confirm(done, tag))

    def _confirm(self, done: asyncio.Future[Any], tag: int) -> None:
        if not done.cancelled() and done.exception() is None:
            self.on_confirm((tag,))

    async def subscribe(self, interests: list[Interest]) -> None:
        for interest in interests:
            if interest.durable:
                await self._subscribe_durable(interest)
            else:
                await self._subscribe(interest)
        await self._nats.flush(30)

    async def _subscribe(self, interest: Interest) -> None:
        async def take(message: Any) -> None:
            if not interest.symbol or float(message.headers["price"]) > interest.price_above:
                interest.sink(message.data)

        await self._nats.subscribe(
            pattern(interest), cb=take, pending_msgs_limit=4_000_000, pending_bytes_limit=1 << 30
        )

    async def _subscribe_durable(self, interest: Interest) -> None:
        from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

        async def take(message: Any) -> None:
            interest.sink(message.data)
            await message.ack()

        config = ConsumerConfig(
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=ACK_WAIT_S,
            deliver_policy=DeliverPolicy.ALL,
            deliver_subject=f"dlv.{interest.name}",
            max_ack_pending=PENDING_MAX,
        )
        await self._nats.jetstream().subscribe(
            pattern(interest),
            durable=interest.name,
            stream="EV",
            cb=take,
            manual_ack=True,
            config=config,
        )

    async def close(self) -> None:
        self._is_closing = True
        with suppress(Exception):
            await asyncio.wait_for(self._nats.drain(), 10)


class Nats(Peer):
    """NATS."""

    name, port = "nats", 14222
    filters = "subject; the client drops half"

    def is_installed(self) -> bool:
        return shutil.which("nats-server") is not None

    def broker(self, setting: Setting) -> Broker:
        return Server(setting)

    def client(self, setting: Setting, name: str) -> Client:
        return (Library if setting.client == "lib" else Lean)(setting, name)

    async def prepare(self, setting: Setting) -> None:
        if setting.durable:
            client = Lean(setting, "admin")
            await client.open()
            stream = {"name": "EV", "subjects": ["ev.>"], "storage": "file", "num_replicas": 1}
            limits = {"retention": "limits", "max_bytes": -1, "max_msgs": -1, "discard": "old"}
            assert await client.request("STREAM.CREATE.EV", stream | limits)
            await client.close()


PEER = Nats()
