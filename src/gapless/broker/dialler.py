"""The dialler: keeps a link to every neighbour that is ours to dial, for as long as it runs.

Of two neighbours the one whose name sorts first dials. After a failure it waits, longer each time,
and at random, so that brokers which lost the same neighbour do not all return at once. After a link
was up it starts with short waits again.
The neighbour of a broker that has just started may be in the middle of a long wait. So that broker
knocks: it connects once and says Hello. The neighbour refuses that link as always, but dials at
once.
A broker further away is dialled once when something is to be sent there, and again when more is.

A broker with standbys has several addresses. They are tried one after the other, beginning with the
one that was good last; only the process that holds the name listens.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from gapless.broker.addresses import parse_address
from gapless.broker.link import Link
from gapless.broker.link_table import ANYBODY, SAME_FILE
from gapless.broker.logs import logger
from gapless.core.errors import WireError
from gapless.core.messages import Goodbye
from gapless.wire.framing import Unframer
from gapless.wire.kinds import codec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from ssl import SSLContext

    from gapless.broker.link_table import Links
    from gapless.core.identity import BrokerName

KNOCK_BYTES = 1 << 12
NEXT_S = 1.0
"""How long one of several addresses is tried before the next one is."""
CalledT = TypeVar("CalledT")


class Dialler:
    """Dials the neighbours of one broker."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._settings = links.settings
        kept = [name for name in links.neighbours if links.name < name]
        kept += [ANYBODY] if self._settings.join is not None else []
        self._knocked = {name: asyncio.Event() for name in kept}
        self._tasks = [asyncio.create_task(self._keep(name), name=f"dial {name}") for name in kept]
        self._tasks += [
            asyncio.create_task(self._knock(name), name=f"knock at {name}")
            for name in links.neighbours
            if name < links.name
        ]
        self._turns: dict[BrokerName, int] = {}
        self._once: dict[BrokerName, asyncio.Task[None]] = {}
        links.on_missing = self._reach
        links.on_knock = self._hear

    def _reach(self, name: BrokerName) -> None:
        if name not in self._once and not self._links.is_draining:
            task = asyncio.create_task(self._try(name), name=f"dial {name}")
            self._once[name] = task
            task.add_done_callback(lambda _: self._once.pop(name, None))

    async def _try(self, name: BrokerName) -> None:
        try:
            await self._dial(name)
        except OSError as error:
            logger.debug("no answer", extra={"peer": name, "error": str(error)})
            self._links.give_up(name)

    async def _keep(self, name: BrokerName) -> None:
        wait_s, told = self._settings.redial_s, False
        while True:
            try:
                link = await self._dial(name)
            except OSError as error:
                self._note(name, error)
                if not told:
                    logger.warning("no answer", extra={"peer": name, "error": str(error)})
                told = True
            else:
                await link.gone
                if link.peer is not None:
                    wait_s, told = self._settings.redial_s, False
                else:
                    self._turn(name)
            if await self._is_knocked(name, wait_s * random.uniform(0.5, 1.0)):
                wait_s, told = self._settings.redial_s, False
            else:
                wait_s = min(2 * wait_s, self._settings.redial_longest_s)

    async def _is_knocked(self, name: BrokerName, wait_s: float) -> bool:
        """Wait, at most until the other broker knocks; whether it did."""
        event = self._knocked[name]
        try:
            async with asyncio.timeout(wait_s):
                await event.wait()
        except TimeoutError:
            return False
        event.clear()
        return True

    def _hear(self, name: BrokerName) -> None:
        if name in self._knocked:
            self._knocked[name].set()

    async def _knock(self, name: BrokerName) -> None:
        """Tell a neighbour, who dials us, that we have started. If it does not run, it will dial
        when it starts."""
        try:
            await self._each_address(name, partial(self._knock_at, name))
        except OSError as error:
            self._note(name, error)
            logger.debug("no answer", extra={"peer": name, "error": str(error)})

    async def _knock_at(self, name: BrokerName, host: str, port: int) -> None:
        reader, writer = await asyncio.open_connection(host, port, ssl=self._context)
        try:
            writer.write(codec().frames([self._links.hello]))
            answer = b""  # until it has read our Hello, and closes
            while data := await reader.read(KNOCK_BYTES):
                answer = (answer + data)[:KNOCK_BYTES]
            self._hear_refusal(name, answer)
        finally:
            writer.transport.abort()

    def _hear_refusal(self, name: BrokerName, answer: bytes) -> None:
        """A broker that does not know us will never dial: say so at once."""
        known = codec()
        with contextlib.suppress(WireError):
            for frame in Unframer().feed(answer):
                message = known.decode(frame)
                if isinstance(message, Goodbye) and message.remedy == SAME_FILE:
                    self._links.note_problem(name, message.problem)

    def _note(self, name: BrokerName, error: OSError) -> None:
        """A refused dial says that no broker runs there: the node need not wait for its silence."""
        if isinstance(error, ConnectionRefusedError) and name != ANYBODY:
            self._links.give_up(name)

    @property
    def _context(self) -> SSLContext | None:
        access = self._links.access
        return access.tls.dial if access is not None else None

    async def _dial(self, name: BrokerName) -> Link:
        async def dial(host: str, port: int) -> Link:
            loop, link = asyncio.get_running_loop(), Link(self._links, name)
            try:
                await loop.create_connection(lambda: link, host, port, ssl=self._context)
            except BaseException:
                link.abandon()
                raise
            return link

        if (near := await self._dial_near(name)) is not None:
            return near
        if name == ANYBODY and self._settings.join is not None:
            async with asyncio.timeout(self._settings.hello_patience_s):
                return await dial(*parse_address(self._settings.join))
        return await self._each_address(name, dial)

    async def _each_address(
        self, name: BrokerName, call: Callable[[str, int], Awaitable[CalledT]]
    ) -> CalledT:
        """The first success of a call with each address of the broker. If there is none: an error
        that says more than that nobody listens, if there is one."""
        known = self._links.address_book.find(name)
        patience_s = self._settings.hello_patience_s
        patience_s = min(patience_s, NEXT_S) if len(known) > 1 else patience_s
        problem: OSError | None = None
        for _ in known:
            host, port = known[self._turns.get(name, 0) % len(known)]
            try:
                async with asyncio.timeout(patience_s):
                    return await call(host, port)
            except OSError as error:
                if problem is None or not isinstance(error, ConnectionRefusedError):
                    problem = error
                self._turn(name)
        assert problem is not None
        raise problem

    def _turn(self, name: BrokerName) -> None:
        """Begin with the next address."""
        self._turns[name] = self._turns.get(name, 0) + 1

    async def _dial_near(self, name: BrokerName) -> Link | None:
        """In this process, or by the Unix socket of a broker with the same data folder. With
        security brokers prove who they are by TLS."""
        if (near := self._links.near.dial(name, lambda: Link(self._links, name))) is not None:
            return near
        path = self._links.address_book.find_socket(name) if self._context is None else None
        if path is None:
            return None
        loop, link = asyncio.get_running_loop(), Link(self._links, name)
        try:
            async with asyncio.timeout(self._settings.hello_patience_s):
                await loop.create_unix_connection(lambda: link, str(path))
        except OSError:
            link.abandon()
            return None  # a broker that is gone has left it
        except BaseException:
            link.abandon()
            raise
        return link

    async def close(self) -> None:
        tasks = [*self._tasks, *self._once.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
