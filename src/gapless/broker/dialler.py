"""The dialler: keeps a link to every neighbour that is ours to dial, for as long as it runs.

Of two neighbours the one whose name sorts first dials. After a failure it waits, longer each time,
and at random, so that brokers which lost the same neighbour do not all return at once. After a link
was up it starts with short waits again.
The neighbour of a broker that has just started may be in the middle of a long wait. So that broker
knocks: it connects once and says Hello. The neighbour refuses that link as always, but dials at
once.
A broker further away is dialled once when something is to be sent there, and again when more is.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from gapless.broker.addresses import parse_address
from gapless.broker.link import Link
from gapless.broker.link_table import ANYBODY
from gapless.broker.logs import logger
from gapless.wire.kinds import codec

if TYPE_CHECKING:
    from ssl import SSLContext

    from gapless.broker.link_table import Links
    from gapless.core.identity import BrokerName

KNOCK_BYTES = 1 << 12


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
        hello = codec().frames([self._links.hello])
        try:
            async with asyncio.timeout(self._settings.hello_patience_s):
                host, port = self._links.address_book.find(name)
                reader, writer = await asyncio.open_connection(host, port, ssl=self._context)
                try:
                    writer.write(hello)
                    while await reader.read(KNOCK_BYTES):
                        pass  # until it has read our Hello, and closes
                finally:
                    writer.transport.abort()
        except OSError as error:
            self._note(name, error)
            logger.debug("no answer", extra={"peer": name, "error": str(error)})

    def _note(self, name: BrokerName, error: OSError) -> None:
        """A refused dial says that no broker runs there: the node need not wait for its silence."""
        if isinstance(error, ConnectionRefusedError) and name != ANYBODY:
            self._links.give_up(name)

    @property
    def _context(self) -> SSLContext | None:
        access = self._links.access
        return access.tls.dial if access is not None else None

    async def _dial(self, name: BrokerName) -> Link:
        join = self._settings.join if name == ANYBODY else None
        host, port = parse_address(join) if join else self._links.address_book.find(name)
        loop, link = asyncio.get_running_loop(), Link(self._links, name)
        try:
            async with asyncio.timeout(self._settings.hello_patience_s):
                await loop.create_connection(lambda: link, host, port, ssl=self._context)
        except BaseException:
            link.abandon()
            raise
        return link

    async def close(self) -> None:
        tasks = [*self._tasks, *self._once.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
