"""Clients of the doors: connections to their own broker, each under the token of a caller.

Theory of operation
    Requests that end soon and MQTT sessions share one client for each token, whatever the door. The
    client connects when the first of them comes, and is closed when there was none for `IDLE_S`. A
    stream of deliveries over HTTP gets a client of its own: its credit is its own, so one slow
    reader delays nobody else.
    The broker checks the token when a client connects, and each request after that. A client whose
    connection is lost for good (its token was revoked, the broker is stopping) is not used again.

Invariants
    I1  two callers share a client only if they show the same token
    I2  at most `CLIENTS_MAX` clients are shared; beyond it the idle one that was used longest ago
        is closed
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from gapless.client.client import connect
from gapless.client.errors import RefusedError
from gapless.core.errors import GaplessError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from gapless.client.client import Client

CLIENTS_MAX = 10_000
"""Shared clients, which is tokens in use; where all are busy, a further token is refused."""

IDLE_S = 30.0
"""How long a shared client without requests stays connected."""

PATIENCE_S = 10.0
"""How long a request waits for the broker. The broker is in the same process: it is stopping, or
cannot take the request for now."""

REJECTIONS = ("not admitted", "counts no more", "has expired")
"""What the broker says to a client that it does not let in, or no longer."""


class NotAdmittedError(GaplessError):
    """The broker did not let the caller in: no client of its token exists."""

    default_remedy = "Give a valid token."


class BusyError(GaplessError):
    """A bound of the door is reached; the same request may succeed later."""

    default_remedy = "Try again in a few seconds."


class SharedClient:
    """One client and those that use it. It connects at once, and closes itself when idle. Each
    `begin` is followed by one `end`."""

    def __init__(self, client: Client, on_idle: Callable[[SharedClient], None]) -> None:
        self.client = client
        self.users = 0
        self.opening = asyncio.create_task(enter(client))
        self._on_idle = on_idle
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_fit(self) -> bool:
        """Whether it can be used again: it is not lost for good."""
        opening = self.opening
        if not opening.done():
            return True
        has_failed = opening.cancelled() or opening.exception() is not None
        return not (has_failed or self.client.channel.problem)

    def begin(self) -> None:
        self.users += 1
        self.stop_timer()

    def end(self) -> None:
        self.users -= 1
        if not self.users:
            wait_s = IDLE_S if self.is_fit else 0.0
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._on_idle, self)

    def stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def close(self) -> None:
        self.stop_timer()
        self.opening.cancel()
        await asyncio.gather(self.opening, return_exceptions=True)
        await self.client.close()


class DoorClients:
    """The clients of all doors. `url` is the broker's own; `ca` its authority, where it has one."""

    def __init__(self, url: str, ca: Path | None = None) -> None:
        self._url = url
        self._ca = ca
        self._shared: dict[str, SharedClient] = {}  # by token; the last one was used last
        self._closing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def shared(self, token: str) -> AsyncIterator[Client]:
        """The client of this token, for a request that ends soon."""
        entry = await self.hold(token)
        try:
            yield entry.client
        finally:
            entry.end()

    async def hold(self, token: str) -> SharedClient:
        """The client of this token, connected; the caller calls its `end`."""
        entry = self._shared.pop(token, None)
        if entry is None or not entry.is_fit:
            entry = self._add(token)
        self._shared[token] = entry
        entry.begin()
        try:
            await asyncio.shield(entry.opening)
        except BaseException:
            entry.end()
            raise
        return entry

    @asynccontextmanager
    async def own(self, token: str) -> AsyncIterator[Client]:
        """A client for one stream, closed at its end."""
        client = self._connect(token)
        await enter(client)
        try:
            yield client
        finally:
            await client.close()

    async def close(self) -> None:
        """Close all shared clients."""
        for token, entry in list(self._shared.items()):
            self._drop(token, entry)
        while self._closing:
            await asyncio.wait(self._closing)

    def _add(self, token: str) -> SharedClient:
        if len(self._shared) >= CLIENTS_MAX:
            idle = next((key for key, each in self._shared.items() if not each.users), None)
            if idle is None:
                raise BusyError(f"{CLIENTS_MAX} tokens are in use at this broker's doors")
            self._drop(idle, self._shared[idle])
        return SharedClient(self._connect(token), lambda entry: self._drop(token, entry))

    def _connect(self, token: str) -> Client:
        if self._ca is None:
            return connect(self._url, patience_s=PATIENCE_S)
        if not token:  # the client would look for one in the broker's environment
            raise NotAdmittedError("not admitted: no token was given")
        return connect(self._url, patience_s=PATIENCE_S, token=token, ca=self._ca)

    def _drop(self, token: str, entry: SharedClient) -> None:
        if self._shared.get(token) is entry:
            del self._shared[token]
        closing = asyncio.create_task(entry.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


async def enter(client: Client) -> Client:
    """The client, connected; `NotAdmittedError` if its token is wrong."""
    try:
        return await client.__aenter__()
    except RefusedError as error:
        if is_rejection(error):
            raise NotAdmittedError(error.problem, error.remedy) from None
        raise


def is_rejection(error: GaplessError) -> bool:
    """Does the broker refuse the caller, and not one request?"""
    return any(text in error.problem for text in REJECTIONS)
