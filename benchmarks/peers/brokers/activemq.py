"""ActiveMQ 5 over STOMP 1.1: topics, message selectors, durable topic subscriptions.

W2: selectors, in the broker. Durable: a durable subscription with a selector for each subscriber,
KahaDB with a sync before each receipt.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.peers.adapter import HOST, Broker, Client, Peer
from benchmarks.peers.brokers.lean import LeanClient

if TYPE_CHECKING:
    from benchmarks.peers.adapter import Setting
    from benchmarks.peers.model import Event, Interest

HOME = Path(os.environ.get("ACTIVEMQ_HOME", "/usr/share/activemq"))
TOPIC = "/topic/ev"
PREFETCH, PREFETCH_DURABLE = 32_766, 500

CONFIGURATION = """\
<beans xmlns="http://www.springframework.org/schema/beans"
  xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
  xsi:schemaLocation="http://www.springframework.org/schema/beans
    http://www.springframework.org/schema/beans/spring-beans-2.0.xsd
    http://activemq.apache.org/schema/core
    http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" useJmx="false" brokerName="bench"
      persistent="{persistent}" dataDirectory="{data}" advisorySupport="false"
      schedulePeriodForDestinationPurge="0">
    {store}
    <systemUsage><systemUsage>
      <memoryUsage><memoryUsage limit="600 mb"/></memoryUsage>
      <storeUsage><storeUsage limit="20 gb"/></storeUsage>
      <tempUsage><tempUsage limit="5 gb"/></tempUsage>
    </systemUsage></systemUsage>
    <transportConnectors>
      <transportConnector name="stomp"
        uri="stomp+nio://{host}:{port}?transport.closeAsync=false"/>
    </transportConnectors>
  </broker>
</beans>
"""
STORE = (
    '<persistenceAdapter><kahaDB directory="{data}/kahadb" journalDiskSyncStrategy="always"/>'
    "</persistenceAdapter>"
)


class Server(Broker):
    """ActiveMQ, in a Java of its own."""

    def command(self) -> list[str]:
        data, port = self.folder / "data", self.setting.port
        data.mkdir(exist_ok=True)
        text = CONFIGURATION.format(
            persistent=str(self.setting.durable).lower(),
            data=data,
            store=STORE.format(data=data) if self.setting.durable else "",
            host=HOST,
            port=port,
        )
        (self.folder / "activemq.xml").write_text(text)
        jars = [
            HOME / "bin/activemq.jar",
            *HOME.glob("lib/*.jar"),
            *HOME.glob("lib/optional/*.jar"),
        ]
        places = {"home": HOME, "base": self.folder, "conf": self.folder, "data": data}
        return [
            "java",
            "-Xms1g",
            "-Xmx1g",
            "-cp",
            ":".join(map(str, [self.folder, *sorted(jars)])),
            *(f"-Dactivemq.{name}={place}" for name, place in places.items()),
            f"-Djava.io.tmpdir={data}",
            "org.apache.activemq.console.Main",
            "start",
            f"xbean:file:{self.folder}/activemq.xml",
        ]

    def is_ready(self) -> bool:
        return self.answers(b"CONNECT\naccept-version:1.1\nhost:x\n\n\0", b"CONNECTED")


def headers(event: Event) -> dict[str, str]:
    return {
        "symbol": event.symbol,
        "price": f"{event.price:.2f}",
        "volume": str(event.volume),
        "exchange": event.exchange,
    }


def subscription(interest: Interest) -> dict[str, str]:
    """The headers that say what is wanted."""
    found = {"activemq.prefetchSize": str(PREFETCH_DURABLE if interest.durable else PREFETCH)}
    if interest.condition():
        found["selector"] = interest.condition()
    if interest.durable:
        found["activemq.subscriptionName"] = interest.name
    return found


def encode(command: str, **fields: str) -> bytes:
    lines = [command, *(f"{name.replace('__', '-')}:{value}" for name, value in fields.items())]
    return ("\n".join(lines) + "\n\n\0").encode()


class Lean(LeanClient):
    """STOMP 1.1."""

    async def open(self) -> None:
        self._interests: dict[bytes, Interest] = {}
        await self.dial()
        name = {"client__id": self.name} if self.setting.durable else {}
        self.send(encode("CONNECT", accept__version="1.1", host="bench", **name))
        await self.answer()

    def feed(self, data: bytes) -> int:
        start, find = 0, data.find
        last: dict[bytes, bytes] = {}  # by subscription: what to acknowledge, with all before it
        done: list[int] = []
        while start < len(data):
            if data[start] == ord("\n"):  # between frames
                start += 1
                continue
            body = find(b"\n\n", start) + 2
            if body < 2:
                break
            head = data[start:body]
            length = _field(head, b"content-length")
            end = body + int(length) if length else find(b"\0", body)
            if end < 0 or end >= len(data):
                break
            if head.startswith(b"MESSAGE"):
                number = _field(head, b"subscription")
                interest = self._interests[number]
                interest.sink(data[body:end])
                if interest.durable:
                    last[number] = _field(head, b"message-id")
            elif head.startswith(b"RECEIPT"):
                receipt = _field(head, b"receipt-id")
                if receipt[:1] == b"p":
                    done.append(int(receipt[1:]))
                else:
                    self.answered()
            elif head.startswith(b"CONNECTED"):
                self.answered()
            else:
                self.fail(data[start:end].decode(errors="replace"))
                return len(data)
            start = end + 1
        if last:
            frame = b"ACK\nsubscription:%s\nmessage-id:%s\n\n\0"
            self.send(b"".join(frame % each for each in last.items()))
        if done:
            self.on_confirm(done)
        return start

    def publish(self, event: Event, payload: bytes, tag: int | None) -> None:
        if event.cache is None:
            fields = {"destination": TOPIC, "content-length": str(len(payload)), **headers(event)}
            lines = "\n".join(f"{name}:{value}" for name, value in fields.items())
            event.cache = f"SEND\n{lines}\n".encode()
        receipt = b"" if tag is None else b"persistent:true\nreceipt:p%d\n" % tag
        self.out.append(b"%s%s\n%s\0" % (event.cache, receipt, payload))

    async def subscribe(self, interests: list[Interest]) -> None:
        for first in range(0, len(interests), 100):
            some = interests[first : first + 100]
            for interest in some:
                number = f"s{interest.id}"
                self._interests[number.encode()] = interest
                fields = {
                    "destination": TOPIC,
                    "id": number,
                    "ack": "client" if interest.durable else "auto",
                    "receipt": number,
                    **subscription(interest),
                }
                self.send(encode("SUBSCRIBE", **fields))
            for _ in some:
                await self.answer()

    async def close(self) -> None:
        if not self.gone.is_set():
            self.is_closing = True
            self.send(encode("DISCONNECT", receipt="bye"))
            with suppress(ConnectionError, TimeoutError):
                await self.answer()
        await self.shut()


def _field(head: bytes, name: bytes) -> bytes:
    start = head.find(b"\n%s:" % name)
    if start < 0:
        return b""
    start += len(name) + 2
    return head[start : head.index(b"\n", start)]


class Library(Client):
    """stomp.py, which has a thread for each connection."""

    is_threaded = True

    async def open(self) -> None:
        await asyncio.to_thread(self._open)

    def _open(self) -> None:
        import stomp

        self._interests: dict[str, Interest] = {}
        self._is_closing = False
        self._subscribed = threading.Event()
        self._stomp = stomp.Connection11(
            [(HOST, self.setting.port)],
            auto_decode=False,
            reconnect_attempts_max=1,
            heartbeats=(0, 0),
        )
        self._stomp.set_listener("", self)  # calls what is named on_…
        name = {"client-id": self.name} if self.setting.durable else {}
        self._stomp.connect(wait=True, headers=name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_"):  # the rest of what a listener may have
            return lambda *_: None
        raise AttributeError(name)

    def on_message(self, frame: Any) -> None:
        number = frame.headers["subscription"]
        interest = self._interests[number]
        interest.sink(frame.body)
        if interest.durable:
            self._stomp.ack(frame.headers["message-id"], number)

    def on_receipt(self, frame: Any) -> None:
        receipt = frame.headers["receipt-id"]
        if receipt[0] == "p":
            self.on_confirm((int(receipt[1:]),))
        else:
            self._subscribed.set()

    def on_disconnected(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self.on_lost()

    def publish(self, event: Event, payload: bytes, tag: int | None) -> None:
        if event.cache is None:
            event.cache = headers(event)
        fields = event.cache
        if tag is not None:
            fields = {**fields, "persistent": "true", "receipt": f"p{tag}"}
        self._stomp.send(TOPIC, payload, headers=fields)

    async def subscribe(self, interests: list[Interest]) -> None:
        await asyncio.to_thread(self._subscribe, interests)

    def _subscribe(self, interests: list[Interest]) -> None:
        for interest in interests:
            number = f"s{interest.id}"
            self._interests[number] = interest
            receipt = {"receipt": "r"} if interest is interests[-1] else {}
            acknowledge = "client" if interest.durable else "auto"
            fields = subscription(interest)
            self._stomp.subscribe(TOPIC, number, ack=acknowledge, headers=fields, **receipt)
        self._subscribed.wait(30)

    async def close(self) -> None:
        self._is_closing = True
        await asyncio.to_thread(self._stomp.disconnect)


class ActiveMQ(Peer):
    """Apache ActiveMQ."""

    name, port = "activemq", 16161
    fsyncs = True
    filters = "selector, in the broker"
    warm_s = 8.0  # Java compiles

    def is_installed(self) -> bool:
        return HOME.is_dir() and shutil.which("java") is not None

    def broker(self, setting: Setting) -> Broker:
        return Server(setting)

    def client(self, setting: Setting, name: str) -> Client:
        return (Library if setting.client == "lib" else Lean)(setting, name)


PEER = ActiveMQ()
