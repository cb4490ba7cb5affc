"""The dialler: keeps a link to every neighbour that is ours to dial, for as long as it runs.

Of two neighbours the one whose name sorts first dials. After a failure it waits a little, at
random so that brokers which lost the same neighbour do not all return at once, and longer each
time; once a link was up, it starts with short waits again.
A broker further away is dialled once when something is to be sent there: whoever wants to reach it
says so again.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from gapless.broker.address import parse_address
from gapless.broker.link import Link
from gapless.broker.links import ANYBODY
from gapless.broker.logs import logger

if TYPE_CHECKING:
    from gapless.broker.links import Links
    from gapless.core.identity import BrokerName


class Dialler:
    """Dials the neighbours of one broker."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._settings = links.settings
        self._tasks = [
            asyncio.create_task(self._keep(name), name=f"dial {name}")
            for name in links.neighbours
            if links.name < name
        ]
        if self._settings.join is not None:
            self._tasks.append(asyncio.create_task(self._keep(ANYBODY), name="dial to join"))
        self._once: dict[BrokerName, asyncio.Task[None]] = {}
        links.on_missing = self._reach

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
                if not told:
                    logger.warning("no answer", extra={"peer": name, "error": str(error)})
                told = True
            else:
                await link.gone
                if link.peer is not None:
                    wait_s, told = self._settings.redial_s, False
            await asyncio.sleep(wait_s * random.uniform(0.5, 1.0))
            wait_s = min(2 * wait_s, self._settings.redial_longest_s)

    async def _dial(self, name: BrokerName) -> Link:
        join = self._settings.join if name == ANYBODY else None
        host, port = parse_address(join) if join else self._links.whereabouts.find(name)
        loop = asyncio.get_running_loop()
        access = self._links.access
        context = access.tls.dial if access is not None else None
        async with asyncio.timeout(self._settings.hello_patience_s):
            _, link = await loop.create_connection(
                lambda: Link(self._links, name), host, port, ssl=context
            )
        return link

    async def close(self) -> None:
        tasks = [*self._tasks, *self._once.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
