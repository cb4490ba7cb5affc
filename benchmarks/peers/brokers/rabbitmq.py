"""RabbitMQ 3 over AMQP 0-9-1.

W1: a fanout exchange, a queue for each subscriber. W2: a headers exchange on the symbol, a queue
for each connection; the client compares prices. Durable: durable classic queues, persistent
messages, confirmations after a sync, acknowledgements.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.peers.adapter import HOST, Broker, Client, Peer
from benchmarks.peers.brokers.amqp import (
    PREFETCH,
    Lean,
    binding,
    exchange_of,
    method,
    queue_of,
    short,
    table,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.peers.adapter import Setting
    from benchmarks.peers.model import Event, Interest

PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
WAITING_BYTES_HIGH = 256 << 10


class Server(Broker):
    """The Erlang machine, and its port mapper on a port of its own."""

    _mapper: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        (self.folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = {HOST}:{self.setting.port}\n"
            "loopback_users = none\nlog.file.level = warning\nlog.console = false\n"
            "vm_memory_high_watermark.absolute = 6GB\ndisk_free_limit.absolute = 200MB\n"
        )
        (self.folder / "enabled_plugins").write_text("[].\n")
        (self.folder / "env.conf").write_text("")
        return [str(PROGRAM)]

    def environment(self) -> dict[str, str]:
        folder = str(self.folder)
        return {
            **os.environ,
            "HOME": folder,
            "ERL_EPMD_PORT": str(self.setting.port + 2),
            "ERL_EPMD_ADDRESS": HOST,
            "RABBITMQ_NODENAME": "bench@localhost",
            "RABBITMQ_MNESIA_BASE": f"{folder}/mnesia",
            "RABBITMQ_LOG_BASE": f"{folder}/log",
            "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq.conf",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/enabled_plugins",
            "RABBITMQ_CONF_ENV_FILE": f"{folder}/env.conf",
            "RABBITMQ_PID_FILE": f"{folder}/pid",
            "RABBITMQ_DIST_PORT": str(self.setting.port + 1),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }

    def before_start(self) -> None:
        port = self.setting.port + 2
        self._mapper = subprocess.Popen(
            ["epmd", "-port", str(port), "-address", HOST],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for _ in range(100):
            try:
                socket.create_connection((HOST, port), 0.2).close()
                break
            except OSError:
                time.sleep(0.05)

    def after_stop(self) -> None:
        if self._mapper is not None:
            self._mapper.send_signal(signal.SIGTERM)
            try:
                self._mapper.wait(5)
            except subprocess.TimeoutExpired:
                self._mapper.kill()
                self._mapper.wait()
            self._mapper = None

    def pid(self) -> int:
        """Of the Erlang machine, which the script may have started or become."""
        with suppress(OSError, ValueError):
            pid = int((self.folder / "pid").read_text())
            if Path(f"/proc/{pid}").exists():
                return pid
        return super().pid()

    def is_ready(self) -> bool:
        return self.answers(b"AMQP\0\0\x09\x01", b"\x01")


class Library(Client):
    """pika, on the event loop."""

    async def open(self) -> None:
        import pika
        from pika.adapters.asyncio_connection import AsyncioConnection

        loop = asyncio.get_running_loop()
        opened: asyncio.Future[None] = loop.create_future()
        self._is_closing = False

        def closed(*_: object) -> None:
            if not self._is_closing:
                self._is_closing = True
                self.on_lost()

        def failed(_: object, error: object) -> None:
            if not opened.done():
                opened.set_exception(ConnectionError(str(error)))

        self._connection = AsyncioConnection(
            pika.ConnectionParameters(HOST, self.setting.port, heartbeat=0),
            on_open_callback=lambda _: opened.set_result(None),
            on_open_error_callback=failed,
            on_close_callback=closed,
            custom_ioloop=loop,
        )
        await asyncio.wait_for(opened, 20)
        channel: asyncio.Future[Any] = loop.create_future()
        self._connection.channel(on_open_callback=channel.set_result)
        self._channel = await asyncio.wait_for(channel, 20)
        self._properties = pika.BasicProperties
        self._number, self._oldest = 0, 1
        self._tags: dict[int, int] = {}

    async def _call(self, call: Callable[..., object], *arguments: object, **named: object) -> None:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        call(*arguments, callback=future.set_result, **named)
        await asyncio.wait_for(future, 30)

    async def start_publisher(self, *, confirmed: bool) -> None:
        if confirmed:
            await self._call(self._channel.confirm_delivery, self._confirmed)

    def _confirmed(self, frame: Any) -> None:
        number = frame.method.delivery_tag
        first = self._oldest if frame.method.multiple else number
        tags = [self._tags.pop(each) for each in range(first, number + 1) if each in self._tags]
        if frame.method.multiple:
            self._oldest = number + 1
        if tags:
            self.on_confirm(tags)

    def publish(self, event: Event, payload: bytes, tag: int | None) -> None:
        if event.cache is None:
            headers = {
                "symbol": event.symbol,
                "price": f"{event.price:.2f}",  # pika knows no floats
                "volume": event.volume,
                "exchange": event.exchange,
            }
            mode = 2 if self.setting.durable else 1
            event.cache = self._properties(headers=headers, delivery_mode=mode)
        if tag is not None:
            self._number += 1
            self._tags[self._number] = tag
        self._channel.basic_publish(exchange_of(self.setting), "", payload, event.cache)

    async def flush(self) -> None:
        transport = self._connection._transport
        size = getattr(transport, "get_write_buffer_size", lambda: 0)
        while size() > WAITING_BYTES_HIGH:  # noqa: ASYNC110 (pika tells nobody)
            await asyncio.sleep(0.001)

    async def subscribe(self, interests: list[Interest]) -> None:
        first, channel = interests[0], self._channel
        queue = queue_of(self.name, first)
        kind = {"durable": True} if first.durable else {"exclusive": True, "auto_delete": True}
        await self._call(channel.queue_declare, queue=queue, **kind)
        if first.durable:
            await self._call(channel.basic_qos, prefetch_count=PREFETCH)
        by_symbol: dict[str, list[Interest]] = {}
        for each in interests:
            by_symbol.setdefault(each.symbol, []).append(each)
            await self._call(
                channel.queue_bind,
                queue=queue,
                exchange=exchange_of(self.setting),
                routing_key="",
                arguments=binding(each),
            )

        def take(_: object, delivery: Any, properties: Any, body: bytes) -> None:
            if not first.symbol:
                first.sink(body)
                if first.durable:
                    channel.basic_ack(delivery.delivery_tag)
                return
            headers = properties.headers
            for each in by_symbol[headers["symbol"]]:
                if float(headers["price"]) > each.price_above:
                    each.sink(body)

        await self._call(
            channel.basic_consume,
            queue=queue,
            on_message_callback=take,
            auto_ack=not first.durable,
        )

    async def close(self) -> None:
        self._is_closing = True
        with suppress(Exception):
            self._connection.close()
        await asyncio.sleep(0.05)


class RabbitMQ(Peer):
    """RabbitMQ."""

    name, port = "rabbitmq", 15673
    fsyncs = True
    filters = "headers exchange; the client drops half"

    def is_installed(self) -> bool:
        return PROGRAM.exists() and shutil.which("epmd") is not None

    def broker(self, setting: Setting) -> Broker:
        return Server(setting)

    def client(self, setting: Setting, name: str) -> Client:
        return (Library if setting.client == "lib" else Lean)(setting, name)

    async def prepare(self, setting: Setting) -> None:
        client = Lean(setting, "admin")
        await client.open()
        for exchange, kind in (("ev.fanout", "fanout"), ("ev.headers", "headers")):
            declared = b"\0\0" + short(exchange) + short(kind) + b"\x02" + table({})
            client.send(method(40, 10, declared))
            await client.expect(40, 11)
        await client.close()


PEER = RabbitMQ()
