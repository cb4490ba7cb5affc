"""The MQTT door: listens, admits clients, and keeps what sessions share.

Theory of operation
    The door is a client of its own broker: each MQTT client's requests go over a gapless connection
    under that client's own token, so rights, quotas and bounds are those of any client. Clients
    with the same token share a connection (`doors/clients.py`), which a session holds until it is
    over or comes back with another. What the door needs for itself (its topic, retained
    messages, the end of sessions) goes over a connection of its own.
    A connection begins with CONNECT. The door proves the token by connecting with it, ends an
    earlier connection of the same client, and hands the session on to its `Host`. A session that
    another door of the network has is taken over, or its client is redirected there if it says that
    it follows redirects (`SessionDirectory`).
    The door of the broker that has a group ends it when it has no members and no session has its
    filter.

Bounds: `CONNECTIONS_MAX` connections, `SESSIONS_MAX` sessions; beyond them a client is refused with
"server busy" or "quota exceeded".
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING

from gapless.client.errors import RefusedError
from gapless.core.errors import GaplessError
from gapless.doors.clients import BusyError
from gapless.doors.mqtt.connection import MqttConnection, WebSocketConnection
from gapless.doors.mqtt.directory import SessionDirectory
from gapless.doors.mqtt.gathering import Gathering
from gapless.doors.mqtt.host import GROUP, Host, group_name
from gapless.doors.mqtt.journal import DoorJournal
from gapless.doors.mqtt.mapping import (
    DEFAULT_TOPIC,
    MqttMessage,
    attributes_of,
    matches,
    message_of,
)
from gapless.doors.mqtt.packets import ConnectPacket, connack
from gapless.doors.mqtt.retained import Retained
from gapless.doors.mqtt.session import Key, MqttSession, TopicSubscription
from gapless.doors.mqtt.sources import SharedFeed
from gapless.version import __version__

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping

    from gapless.client.client import Client
    from gapless.client.delivery import Receipt
    from gapless.client.subscription import Subscription
    from gapless.doors.clients import SharedClient
    from gapless.doors.mqtt.directory import SessionEntry
    from gapless.doors.surroundings import DoorSurroundings

logger = logging.getLogger("gapless.mqtt")

BACKLOG = 1024
"""Connections that the system holds until they are taken."""

CONNECTIONS_MAX = 10_000
SESSIONS_MAX = 100_000
CLIENT_BYTES_MAX = 700
"""The longest client identifier: it is part of names at the broker."""

RETENTION_S = 7 * 24 * 3600.0
"""How long the door's own topic keeps messages for sessions that do not fetch them."""

RETENTION_BYTES = 4 << 30
CLAIMS_S = 2.0
"""How often the door looks which gapless topics there are."""

BEGIN_S = 2.0
"""How long the door waits, before it opens, for the topics by which doors tell each other."""

RETRY_S = 1.0
TICK_S = 0.25
SYSTEM_S = 10.0
REDIRECT = "redirect"
"""The user property of CONNECT by which a client says that it follows redirects."""

BAD_LOGIN, NOT_AUTHORIZED, BAD_METHOD, BAD_CLIENT, BUSY = 0x86, 0x87, 0x8C, 0x85, 0x89
OTHER_SERVER = 0x9C
OLD_CODES = {BAD_LOGIN: 4, NOT_AUTHORIZED: 5, BAD_METHOD: 5, BAD_CLIENT: 2, BUSY: 3}


class AdmissionError(Exception):
    """A client is not admitted; `code` is the reason code of its CONNACK."""

    def __init__(self, code: int, problem: str = "", server: str = "") -> None:
        super().__init__(problem)
        self.code = code
        self.server = server  # that the client should use


class MqttDoor:
    """An MQTT door; it listens at `mqtt` and `mqtt_ws`."""

    def __init__(self, surroundings: DoorSurroundings, *, json_payload: bool = False) -> None:
        self._broker = surroundings
        self.json_payload = json_payload
        self.claims: frozenset[str] = frozenset()
        self.tasks: set[asyncio.Task[None]] = set()
        self.gathering = Gathering(self.tasks)
        self._claimed_s = 0.0
        self._hosts: dict[str, Host] = {}
        self._connections: set[MqttConnection] = set()
        self._feeds: dict[tuple[int, str, str], SharedFeed] = {}
        self._idle_groups: set[str] = set()  # that had no member when the door looked last
        self._unsure: dict[str, dict[int, tuple[int, str]]] = {}
        self._turns: dict[str, tuple[asyncio.Lock, int]] = {}  # with how many wait or have it
        self._endings: dict[str, asyncio.Task[None]] = {}
        self._positions: dict[str, int] = {}
        self._servers: list[asyncio.Server] = []
        self._opened = AsyncExitStack()  # what is closed last
        self._received = self.sent = 0
        self._started_s = time.time()

    # --- life ------------------------------------------------------------------------------------

    async def open(self, listeners: dict[str, socket.socket]) -> None:
        """Bring back what an earlier life of the broker has left, and take connections."""
        identities = self._broker.identities
        self._token = identities.lend_to_door() if identities else ""
        self.own = await self._opened.enter_async_context(self._broker.clients.own(self._token))
        self.journal = self.open_journal()
        self._opened.push_async_callback(self.journal.close)
        self.retained = Retained(self.journal.facts("retained"))
        with suppress(RefusedError):  # it exists, with other settings
            await self.own.create_topic(
                DEFAULT_TOPIC, retention_seconds=RETENTION_S, retention_bytes=RETENTION_BYTES
            )
        await self.read_claims()
        self._restore()
        address = self._broker.addresses.get("mqtt") or self._broker.addresses.get("mqtt_ws", "")
        self._sessions = SessionDirectory(
            (self._broker.name, address), self.journal, self._on_session
        )
        followed = [(self._begin_retained, self._follow_retained)]
        if not self._broker.is_alone:
            followed.append((lambda: self._sessions.open(self.own), self._sessions.follow))
            self._spawn(self._sessions.publish(self.own))
        begun = [asyncio.Event() for _ in followed]
        for (begin, follow), event in zip(followed, begun, strict=True):
            self._spawn(self._keep_following(begin, follow, event))
        with suppress(TimeoutError):  # another broker is down: the door opens all the same
            async with asyncio.timeout(BEGIN_S):
                for event in begun:
                    await event.wait()
        self._spawn(self._tick())
        loop, tls = asyncio.get_running_loop(), self._broker.tls_with_certificates
        for name, kind in {"mqtt": MqttConnection, "mqtt_ws": WebSocketConnection}.items():
            if (listener := listeners.pop(name, None)) is not None:
                server = await loop.create_server(
                    lambda kind=kind: kind(self), sock=listener, backlog=BACKLOG, ssl=tls
                )
                self._servers.append(server)

    def open_journal(self) -> DoorJournal:
        """What an earlier life of this broker has written."""
        return DoorJournal(self._broker.folder / "mqtt")

    async def close(self, *, at_once: bool = False) -> None:
        """End all connections and stop reading; sessions live on in the journal."""
        for server in self._servers:
            server.close()
        for host in list(self._hosts.values()):
            if host.peer is not None:
                host.perform(host.session.stop())
        for connection in list(self._connections):
            connection.close()
        for host in list(self._hosts.values()):
            await host.detach()
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for feed in list(self._feeds.values()):
            await feed.close()
        await self._opened.aclose()

    def _spawn(self, work: object) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work)  # type: ignore[arg-type]
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def log(self, what: str, error: Exception) -> None:
        logger.warning(what, extra={"reason": str(error)})

    async def _tick(self) -> None:
        """Deadlines of sessions; figures; which topics there are."""
        told_s = time.time()
        while True:
            await asyncio.sleep(TICK_S)
            now_s = time.time()
            for host in list(self._hosts.values()):
                due = host.session.deadline_s
                if due is not None and due <= now_s:
                    host.fire(now_s)
            if now_s - told_s >= SYSTEM_S:
                told_s = now_s
                self._tell_figures()
                await self._end_groups()
            if now_s - self._claimed_s >= CLAIMS_S:
                with suppress(GaplessError):
                    await self.read_claims()

    async def read_claims(self) -> None:
        """Which gapless topics there are: each claims the MQTT topics below its name."""
        topics = await self.own.topics()
        self._claimed_s = time.time()
        self.claims = frozenset(
            each.name
            for each in topics
            if each.service == "durable" and each.name != DEFAULT_TOPIC and "/" not in each.name
        )

    # --- admission -------------------------------------------------------------------------------

    def begin(self, connection: MqttConnection) -> bool:
        """A connection is made. False: there are too many."""
        if len(self._connections) >= CONNECTIONS_MAX:
            return False
        self._connections.add(connection)
        return True

    def lose(self, connection: MqttConnection, host: Host | None) -> None:
        """A connection is gone."""
        self._connections.discard(connection)
        if host is not None and host.peer is connection:
            host.perform(host.session.lose(time.time()))
            if not host.is_over:
                host.detach()

    async def admit(self, connection: MqttConnection, packet: ConnectPacket) -> Host | None:
        """The host of the client's session, with this connection; None: it was refused."""
        try:
            name = self._name_of(packet)
            try:
                owner, token = self._proof(connection, packet)
                client = await self._broker.clients.hold(token)
            except GaplessError as error:
                code = BUSY if isinstance(error, BusyError) else BAD_LOGIN
                raise AdmissionError(code, str(error)) from None
            try:
                async with self._turn(name):
                    return await self._seat(connection, packet, name, owner, client)
            finally:
                client.end()
        except AdmissionError as error:
            self._refuse(connection, packet, error)
            return None

    def _name_of(self, packet: ConnectPacket) -> str:
        if "authentication_method" in packet.properties:
            raise AdmissionError(BAD_METHOD)
        if not packet.client:
            if packet.version == 3 or (packet.version == 4 and not packet.clean):
                raise AdmissionError(BAD_CLIENT)
            return f"auto-{secrets.token_hex(8)}"
        if len(packet.client.encode()) > CLIENT_BYTES_MAX:
            problem = f"a client identifier has at most {CLIENT_BYTES_MAX} bytes"
            raise AdmissionError(BAD_CLIENT, problem)
        return packet.client

    @asynccontextmanager
    async def _turn(self, name: str) -> AsyncIterator[None]:
        """One connection of a client at a time is seated."""
        lock, users = self._turns.get(name, (asyncio.Lock(), 0))
        self._turns[name] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            users = self._turns[name][1] - 1
            if users:
                self._turns[name] = (lock, users)
            else:
                del self._turns[name]

    async def _seat(
        self,
        connection: MqttConnection,
        packet: ConnectPacket,
        name: str,
        owner: str,
        client: SharedClient,
    ) -> Host | None:
        """Give the connection to the client's session, which may be new."""
        host = self._hosts.get(name)
        if host is not None and host.owner != owner:
            raise AdmissionError(NOT_AUTHORIZED, "the session is another principal's")
        if host is not None and host.peer is not None:
            host.perform(host.session.take_over(time.time()))
            await host.detach()
        host = self._hosts.get(name)  # it may have ended with its connection
        if host is not None and packet.clean:
            host.perform(host.session.discard())
            host = None
        if connection.is_closed:
            return None
        present = host is not None
        if host is None:
            if len(self._hosts) >= SESSIONS_MAX:
                raise AdmissionError(BUSY, "there are too many sessions")
            await self._wait_end(name)
            host = Host(self, MqttSession(name), owner)
            present = await self._fetch(host, packet)
            self._hosts[name] = host
        is_ready = True
        try:
            await host.prepare(client)
        except GaplessError as error:
            self.log("a session cannot go on yet", error)
            is_ready = False  # the connection ends; a reason code would end some clients for good
        if not is_ready or connection.is_closed:
            if not present:
                del self._hosts[name]
                host.let_go()
            return None
        host.attach(connection, packet, present=present, assigned=not packet.client)
        return host

    async def _fetch(self, host: Host, packet: ConnectPacket) -> bool:
        """Take the session over from another door; False: there is none, or the client wants a new
        one."""
        name = host.session.client
        host.moves = self._sessions.moves(name) + 1
        entry = self._sessions.get(name)
        if entry is None:
            return False
        if entry.record["owner"] != host.owner:
            raise AdmissionError(NOT_AUTHORIZED, "the session is another principal's")
        if packet.clean:
            self._sessions.tell(name, host.moves)  # that door ends it when it hears of it
            return False
        follows = any(key == REDIRECT for key, _ in packet.properties.get("user", []))
        if follows and entry.address:
            raise AdmissionError(OTHER_SERVER, f"the session is at {entry.door}", entry.address)
        host.restore({**entry.record, "moves": host.moves})
        return True

    def tell_session(self, host: Host) -> None:
        """A session of this door has begun or changed."""
        if not self._broker.is_alone:
            self._sessions.tell(host.session.client, host.moves, host.record()[2])

    def _on_session(self, client: str, entry: SessionEntry) -> None:
        """Another door has a session of this client, or has ended it."""
        host = self._hosts.get(client)
        if host is None or (host.moves, self._broker.name) >= (entry.moves, entry.door):
            return
        del self._hosts[client]
        if host.peer is not None:
            host.perform(host.session.take_over(time.time()))
        self._spawn(host.forget(is_moved=entry.record.get("serial") == host.serial))

    def _proof(self, connection: MqttConnection, packet: ConnectPacket) -> tuple[str, str]:
        """Who the client is, and the token that proves it to the broker."""
        identities = self._broker.identities
        if identities is None:
            return "", ""
        token = (packet.password or b"").decode("utf-8", "replace")
        if token:
            name = token.rpartition(".")[0]
            if packet.user and packet.user != name:
                raise GaplessError("not admitted: the token is not this user's", "Check both.")
            return name, token
        principal = identities.by_proof("", connection.certificate)
        if principal is None:
            raise GaplessError("not admitted: no token or certificate was given", "Give one.")
        return principal.name, identities.lend(principal)

    def _refuse(
        self, connection: MqttConnection, packet: ConnectPacket, error: AdmissionError
    ) -> None:
        code, problem = error.code, str(error)
        properties = {}
        if packet.version == 5 and problem and packet.properties.get("request_problem", 1):
            properties = {"reason_string": " ".join(problem.split())[:1000]}
        if error.server:
            properties["server_reference"] = error.server
        told = code if packet.version == 5 else OLD_CODES[code]
        connection.write(connack(packet.version, told, present=False, properties=properties))
        connection.close()

    # --- sessions --------------------------------------------------------------------------------

    def end(self, host: Host) -> None:
        """A session is over."""
        if self._hosts.get(host.session.client) is host:
            del self._hosts[host.session.client]
        host.is_over = True
        if host.session.client in self.journal.facts("session") and not self._broker.is_alone:
            self._sessions.tell(host.session.client, host.moves)
        ending = asyncio.create_task(host.forget())
        self._endings[host.session.client] = ending
        self.tasks.add(ending)

        def done(task: asyncio.Task[None]) -> None:
            self.tasks.discard(task)
            if self._endings.get(host.session.client) is task:
                del self._endings[host.session.client]
            if not task.cancelled() and (error := task.exception()) is not None:
                self.log("a session did not end cleanly", error)  # type: ignore[arg-type]

        ending.add_done_callback(done)

    async def _wait_end(self, name: str) -> None:
        ending = self._endings.get(name)
        if ending is not None:
            await asyncio.wait((ending,))

    def facts_of(self, client: str) -> list[tuple[str, str]]:
        """What the journal has of a session."""
        found = [("session", client)] if client in self.journal.facts("session") else []
        for table in ("in", "out"):
            found += [(table, k) for k in self.journal.facts(table) if k.endswith(f" {client}")]
        return found

    def doubt(self, client: str, packet: int, number: int, topic: str) -> None:
        """The broker may have this message of QoS 2 or not."""
        self._unsure.setdefault(client, {})[packet] = (number, topic)

    def unsure(self, client: str) -> dict[int, tuple[int, str]]:
        """By packet: the number and topic of messages that the broker may have or not."""
        return self._unsure.get(client, {})

    def _restore(self) -> None:
        """Sessions of an earlier life of the broker."""
        for client, value in self.journal.facts("session").items():
            read = json.loads(value)
            host = self._hosts[client] = Host(self, MqttSession(client), read["owner"])
            host.restore(read)
        for key, value in self.journal.facts("in").items():
            packet, client = key.split(" ", 1)
            number, topic = value.decode().split(" ", 1)
            if client in self._hosts:
                self._hosts[client].session.incoming[int(packet)] = int(number)
                self.doubt(client, int(packet), int(number), topic)
        for key, value in self.journal.facts("out").items():
            tick, pubend, rest = key.split(" ", 2)
            for topic in (DEFAULT_TOPIC, *self.claims):
                client = rest.removeprefix(f"{topic} ")
                if client != rest and client in self._hosts:
                    packet, is_released = value.decode().split()
                    self._hosts[client].session.recover(
                        Key(topic, pubend, int(tick)), int(packet), is_released=is_released == "1"
                    )
                    break

    # --- what sessions share ---------------------------------------------------------------------

    async def feed(self, client: Client, topic: str, condition: str) -> SharedFeed:
        """The shared subscription of this condition, begun; raises why it cannot be."""
        key = (id(client), topic, condition)
        feed = self._feeds.get(key)
        if feed is None or feed.is_over:
            feed = self._feeds[key] = SharedFeed(client, topic, condition)
        try:
            await feed.begun()
        except GaplessError:
            if self._feeds.get(key) is feed:
                del self._feeds[key]
            raise
        return feed

    def leave_feed(self, feed: SharedFeed, host: Host, name: str) -> None:
        if feed.leave(host, name):
            for key, each in list(self._feeds.items()):
                if each is feed:
                    del self._feeds[key]
            self._spawn(feed.close())

    async def end_groups(self, shared: Iterable[TopicSubscription]) -> None:
        """Sessions have these filters no longer. A broker without others knows whether any has one:
        if not, the group ends at once, so that what is published now is for nobody. In a network
        `_end_groups` finds out."""
        if self._broker.is_alone:
            names = {group_name(each.group, each.plain, each.where) for each in shared}
            for name in names - self._wanted_groups():
                await self.end_subscription(name)

    def _wanted_groups(self) -> set[str]:
        """The groups that sessions of this door have filters of."""
        return {
            group_name(each.group, each.plain, each.where)
            for host in self._hosts.values()
            for each in host.session.subscriptions.values()
            if each.group
        }

    async def _end_groups(self) -> None:
        """End the groups of this broker that nobody uses any more."""
        wanted = self._wanted_groups()
        for record in self._sessions.records():
            for fields in record["subscriptions"]:
                each = TopicSubscription(**fields)
                wanted.add(group_name(each.group, each.plain, each.where))
        idle = {
            name
            for each in self._broker.subscriptions(self._token, None)
            if (name := str(each["name"])).startswith(GROUP)
            and name not in wanted
            and not each["attached"]
        }
        for name in idle & self._idle_groups:
            await self.end_subscription(name)
        self._idle_groups = idle

    async def end_subscription(self, name: str) -> None:
        with suppress(GaplessError):  # it is gone already
            await self.own.unsubscribe(name)

    # --- messages that all are concerned with ----------------------------------------------------

    def count_received(self, count: int) -> None:
        self._received += count

    def positions(self) -> Mapping[str, int]:
        """By pubend: the last tick that this door has a receipt for."""
        return dict(self._positions)

    def note(self, topic: str, message: MqttMessage, receipt: Receipt | None) -> None:
        """A message is on stable storage."""
        if receipt is not None:
            last = self._positions.get(receipt.pubend, 0)
            self._positions[receipt.pubend] = max(last, receipt.tick)
        if message.retain:
            tick = receipt.tick if receipt is not None else int(time.time() * 1e6) << 10
            self._retain(topic, message, tick)

    def _retain(self, topic: str, message: MqttMessage, tick: int) -> None:
        fact = self.retained.put(
            message, attributes_of(message, json_payload=self.json_payload), tick
        )
        if fact is not None and topic != DEFAULT_TOPIC:
            self.journal.write([fact])  # there is no named subscription that would bring it again

    async def _keep_following(
        self,
        begin: Callable[[], Awaitable[Subscription]],
        follow: Callable[[Subscription], Awaitable[None]],
        begun: asyncio.Event,
    ) -> None:
        """Follow a topic of the doors for good; where another broker is down, try again."""
        while True:
            try:
                subscription = await begin()
                begun.set()
                try:
                    await follow(subscription)
                finally:
                    await subscription.close()
            except GaplessError as error:
                self.log("the door cannot follow a topic of its own yet", error)
            await asyncio.sleep(RETRY_S)

    async def _begin_retained(self) -> Subscription:
        name = f"mqtt-retained@{self._broker.name}"
        subscription = self.own.subscribe(
            DEFAULT_TOPIC, "mqtt_retain = TRUE", name=name, start="earliest"
        )
        await subscription.__aenter__()
        return subscription

    async def _follow_retained(self, subscription: Subscription) -> None:
        async for batch in subscription.batches():
            facts = []
            for each in batch:
                attributes = getattr(each, "attributes", None)
                if attributes is None:
                    continue
                message = message_of(attributes, each.body, each.topic)  # type: ignore[union-attr]
                fact = self.retained.put(message, attributes, each.tick)  # type: ignore[union-attr]
                if fact is not None:
                    facts.append(fact)
            if facts:
                await self.journal.write(facts)
            await subscription.acknowledge()

    def send_retained(self, host: Host, subscription: TopicSubscription) -> None:
        if subscription.levels[0] == "$SYS":
            for message in self._figures():
                if matches(subscription.levels, message.topic):
                    host.send_message(message, subscription)
            return
        for message in self.retained.matching(subscription):
            host.send_message(message, subscription)

    def _figures(self) -> list[MqttMessage]:
        connected = sum(host.peer is not None for host in self._hosts.values())
        subscriptions = sum(len(host.session.subscriptions) for host in self._hosts.values())
        figures = {
            "version": f"gapless {__version__}",
            "uptime": f"{int(time.time() - self._started_s)} seconds",
            "clients/connected": connected,
            "clients/total": len(self._hosts),
            "subscriptions/count": subscriptions,
            "retained messages/count": len(self.retained),
            "messages/received": self._received,
        }
        return [
            MqttMessage(f"$SYS/broker/{name}", str(value).encode(), 2)
            for name, value in figures.items()
        ]

    def _tell_figures(self) -> None:
        figures = None
        for host in self._hosts.values():
            for subscription in list(host.session.subscriptions.values()):
                if subscription.levels[0] == "$SYS" and host.peer is not None:
                    figures = figures or self._figures()
                    for message in figures:
                        if matches(subscription.levels, message.topic):
                            host.send_message(message, subscription)
