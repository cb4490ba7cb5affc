"""The doors of a broker: bound with its port, opened when it serves, closed before it stops.

A door gets what it needs and nothing more: the broker's own address, where it is a client like any
other; the certificate to show; and what the holder of a token may see of the named subscriptions,
for which clients have no request.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from gapless.broker.addresses import EVERYWHERE, parse_address, show_endpoint
from gapless.broker.security.rights import Right
from gapless.core.errors import UsageError
from gapless.core.identity import SubscriptionName

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.broker.security.access import Access
    from gapless.broker.settings import Settings
    from gapless.doors.http.door import HttpDoor
    from gapless.durable.subscriptions import DurableSubscription
    from gapless.node.node import Node

BACKLOG = 128
"""Connections that the system holds until they are taken."""

MISSING = "pip install 'gapless[broker]'"
LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""By the address that listens everywhere: where its own process reaches it."""


class Doors:
    """The doors of one broker; `http`: where that door listens, if there is one."""

    def __init__(self, settings: Settings, http: str | None) -> None:
        self.http_address: str | None = None
        self._settings = settings
        self._wanted = settings.http or http
        self._listener: socket.socket | None = None
        self._door: HttpDoor | None = None

    def bind(self, last: dict[str, str], check: Callable[[str, str], None]) -> None:
        """Take the address; connections wait until `open`. `last`: the addresses of the life
        before, for port 0; `check` raises if it may not listen there."""
        if self._wanted is None:
            return
        try:
            import gapless.doors.http.door  # noqa: F401 - what is missing is told before it serves
        except ImportError as error:
            raise UsageError(f"there is no HTTP door: {error}", f"{MISSING}.") from None
        host, port = parse_address(self._wanted)
        again = parse_address(last["http"])[1] if port == 0 and "http" in last else port
        try:
            self._listener = listen(host, again)
        except UsageError:
            if again == port:
                raise
            self._listener = listen(host, port)
        self.http_address = show_endpoint(*self._listener.getsockname()[:2])
        try:
            check(self.http_address, "--http")
        except UsageError:
            self._listener.close()
            raise

    async def open(self, url: str, access: Access | None, node: Node) -> None:
        """Serve. `url`: where clients reach the broker."""
        if self._listener is None:
            return
        from gapless.doors.http.door import DoorSurroundings, HttpDoor

        security = access.security if access else None
        surroundings = DoorSurroundings(
            url=own_url(url),
            ca=security.path(security.authority) if security else None,
            tls=access.tls.door if access else None,
            subscriptions=lambda token, name: visible(node, name, access, token),
        )
        host = parse_address(self._wanted or "")[0]
        hosts = (host, *self._settings.http_hosts)
        self._door = HttpDoor(surroundings, hosts, self._settings.http_origins)
        listener, self._listener = self._listener, None
        await self._door.open(listener)

    async def close(self, *, at_once: bool = False) -> None:
        if self._listener is not None:
            self._listener.close()
        if self._door is not None:
            await self._door.close(at_once=at_once)


def listen(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise UsageError(
            f"cannot listen on {show_endpoint(host, port)} for HTTP: {error.strerror}",
            "Stop what uses it, or give another address with --http (port 0: any).",
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
