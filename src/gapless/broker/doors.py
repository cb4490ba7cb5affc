"""The doors of a broker: bound with its port, opened when it serves, closed before it stops.

A door listens at one or more entrances. Each entrance has an option, a setting and a field of the
network file, all of one name. A door gets what it needs and nothing more: its listening sockets,
and `DoorSurroundings`.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from gapless.broker.addresses import EVERYWHERE, parse_address, show_endpoint
from gapless.broker.security.rights import Right
from gapless.core.errors import UsageError
from gapless.core.identity import SubscriptionName
from gapless.doors.surroundings import DoorSurroundings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gapless.broker.security.access import Access
    from gapless.broker.settings import Settings
    from gapless.doors.clients import DoorClients
    from gapless.durable.subscriptions import DurableSubscription
    from gapless.node.network import BrokerEntry
    from gapless.node.node import Node

BACKLOG = 128
"""Connections that the system holds until they are taken."""

MISSING = "pip install 'gapless[broker]'"
LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""By the address that listens everywhere: where its own process reaches it."""


class Entrance(NamedTuple):
    """An address at which a door may listen."""

    name: str
    protocol: str
    scheme: str
    secure_scheme: str

    @property
    def option(self) -> str:
        return f"--{self.name.replace('_', '-')}"


ENTRANCES = (
    Entrance("http", "HTTP", "http", "https"),
    Entrance("mqtt", "MQTT", "mqtt", "mqtts"),
    Entrance("mqtt_ws", "MQTT over WebSocket", "ws", "wss"),
)


class Door(Protocol):
    """Another protocol by which clients reach the broker: see `gapless.doors`."""

    async def open(self, listeners: dict[str, socket.socket]) -> None:
        """Take connections from now on. The door takes its own listeners out of `listeners`."""

    async def close(self, *, at_once: bool = False) -> None:
        """Also after an `open` that failed. `at_once`: the broker has failed."""


class Doors:
    """The doors of one broker. `addresses`: by entrance, where it listens. `opened`: by name."""

    def __init__(self, settings: Settings, entry: BrokerEntry) -> None:
        self.addresses: dict[str, str] = {}
        self.opened: dict[str, Door] = {}
        self._settings = settings
        self._name = entry.name
        self._listeners: dict[str, socket.socket] = {}
        self._clients: DoorClients | None = None
        self._wanted: dict[str, str] = {
            each.name: address
            for each in ENTRANCES
            if (address := getattr(settings, each.name) or getattr(entry, each.name))
        }

    def bind(self, last: Mapping[str, str], check: Callable[[str, str], None]) -> None:
        """Take the addresses; connections wait until `open`. `last`: the addresses of the life
        before, for port 0; `check` raises if it may not listen there."""
        if "http" in self._wanted:
            try:
                import gapless.doors.http.door  # noqa: F401 - missing: told before it serves
            except ImportError as error:
                raise UsageError(f"there is no HTTP door: {error}", f"{MISSING}.") from None
        for entrance in ENTRANCES:
            if entrance.name in self._wanted:
                self._listeners[entrance.name] = listener = self._listen(entrance, last)
                endpoint = show_endpoint(*listener.getsockname()[:2])
                check(endpoint, entrance.option)
                self.addresses[entrance.name] = endpoint

    def _listen(self, entrance: Entrance, last: Mapping[str, str]) -> socket.socket:
        host, port = parse_address(self._wanted[entrance.name])
        if port == 0 and entrance.name in last:
            with suppress(UsageError):  # another process may have it meanwhile
                return listen(host, parse_address(last[entrance.name])[1], entrance)
        return listen(host, port, entrance)

    async def open(self, url: str, access: Access | None, node: Node) -> None:
        """Serve. `url`: where clients reach the broker."""
        if not self.addresses:
            return
        from gapless.doors.clients import DoorClients

        security = access.security if access else None
        ca = security.path(security.authority) if security else None
        self._clients = DoorClients(own_url(url), ca)
        surroundings = DoorSurroundings(
            name=self._name,
            folder=self._settings.data / self._name,
            clients=self._clients,
            subscriptions=lambda token, name: visible(node, name, access, token),
            addresses={
                name: at
                for name, at in self.addresses.items()
                if parse_address(at)[0] not in EVERYWHERE  # which leads nobody here
            },
            is_alone=len(node.network.cell_of) == 1,
            tls=access.tls.door if access else None,
            tls_with_certificates=access.tls.port if access else None,
            identities=access,
        )
        if "http" in self.addresses:
            from gapless.doors.http.door import HttpDoor

            hosts = (parse_address(self._wanted["http"])[0], *self._settings.http_hosts)
            self.opened["http"] = HttpDoor(surroundings, hosts, self._settings.http_origins)
        if "mqtt" in self.addresses or "mqtt_ws" in self.addresses:
            from gapless.doors.mqtt.door import MqttDoor

            self.opened["mqtt"] = MqttDoor(surroundings, json_payload=self._settings.mqtt_json)
        for door in self.opened.values():
            await door.open(self._listeners)

    async def close(self, *, at_once: bool = False) -> None:
        for listener in self._listeners.values():
            listener.close()
        for door in self.opened.values():
            await door.close(at_once=at_once)
        if self._clients is not None:
            await self._clients.close()


def show_doors(addresses: Mapping[str, str], *, is_secure: bool) -> str:
    """Where the doors are, for the line that says that the broker is ready."""
    return "".join(
        f", {each.protocol} at {each.secure_scheme if is_secure else each.scheme}://{at}"
        for each in ENTRANCES
        if (at := addresses.get(each.name))
    )


def listen(host: str, port: int, entrance: Entrance) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        where = f"{show_endpoint(host, port)} for {entrance.protocol}"
        raise UsageError(
            f"cannot listen on {where}: {error.strerror}",
            f"Stop what uses it, or give another address with {entrance.option} (port 0: any).",
        ) from error
    listener.setblocking(False)
    return listener


def own_url(url: str) -> str:
    """The broker's address for its own process."""
    scheme, _, endpoint = url.partition("://")
    host, port = parse_address(endpoint)
    if host in EVERYWHERE:
        host = LOOPBACK[host]
    return f"{scheme}://{show_endpoint(host, port)}"


def visible(
    node: Node, name: str | None, access: Access | None, token: str
) -> list[dict[str, Any]]:
    """Named subscriptions that live here, or the one of this name: those of the token's holder, and
    those on topics that it administers."""
    principal = access.by_proof(token) if access else None
    if access and principal is None:
        return []

    def is_visible(each: DurableSubscription) -> bool:
        owner, topic = each.definition.owner, str(each.definition.topic)
        return principal is None or (
            owner == principal.name or principal.rights.may(Right.ADMINISTER, topic)
        )

    subscriptions = node.durable.subscriptions
    named = subscriptions.get(SubscriptionName(name)) if name is not None else None
    found = ([named] if named else []) if name is not None else subscriptions.all()
    return [
        {
            "name": each.definition.name,
            "topic": each.definition.topic,
            "where": each.definition.condition,
            "attached": node.durable.session(each.definition.name) is not None,
            "acknowledged": dict(each.acknowledged),
        }
        for each in sorted(found, key=lambda each: each.definition.name)
        if is_visible(each)
    ]
