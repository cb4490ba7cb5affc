"""A broker: volume, node, pump, links and dialler put together, and its life from start to stop.

Theory of operation
    Start: read what security needs, if the network has any; open the volume (which locks its
    folder, so that two brokers never share it, and recovers it), make the node from it, listen,
    tell where, dial the neighbours.
    Stop, in order: accept nobody, read nothing more, finish the writes under way and send what
    follows from them, say goodbye, close the volume. A stop that is cut short loses nothing that
    was acknowledged: a crash is just that.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Self

from msgspec.structs import replace

from gapless import machine_code
from gapless.broker import clock
from gapless.broker.addresses import (
    check_exposure,
    parse_address,
    read_addresses,
    show_endpoint,
    write_addresses,
)
from gapless.broker.admin.console import Console
from gapless.broker.admin.inquiry import EventInquiry
from gapless.broker.admin.subscriptions import SubscriptionFigures
from gapless.broker.clock import TimedSubscribers
from gapless.broker.dialler import Dialler
from gapless.broker.disk import Disk
from gapless.broker.doors import Doors
from gapless.broker.event_reader import EventReader
from gapless.broker.link import Link
from gapless.broker.link_table import Links
from gapless.broker.listener import stop_listening
from gapless.broker.log_survey import LogSurvey, LookAhead
from gapless.broker.logs import logger
from gapless.broker.memory import LinkMemory
from gapless.broker.networks import SINGLE, single_network
from gapless.broker.pump import Pump
from gapless.broker.quotas import Quotas, owned
from gapless.broker.security.policy import read_security
from gapless.broker.settings import Settings
from gapless.core.errors import StorageError, UsageError
from gapless.core.messages import Goodbye
from gapless.core.store import NO_IDENTITY, DiskIdentity
from gapless.node.config import Config
from gapless.node.context import EventEncoding
from gapless.node.node import Node
from gapless.node.parts import Parts
from gapless.node.seal import DISK, SEALS, Seal
from gapless.storage.disk import DiskVolume
from gapless.storage.identity import renew_seal
from gapless.storage.replica.store import StorageFencedError
from gapless.wire.events import extend_event

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gapless.broker.admin.port import Admin
    from gapless.broker.lease import Holding
    from gapless.broker.security.access import Access
    from gapless.core.effects import Persist
    from gapless.core.identity import BrokerName, PeerName
    from gapless.core.messages import Message
    from gapless.node.network import BrokerEntry, Network

BACKLOG = 1024
LOST = "events were lost with an earlier disk: those who want them are told a gap"
NO_LEASE = "the broker lost its lease: its store cannot be reached, or another process has its name"
COPIED = (
    "the data folder is a copy: what came after it was made is lost, and those who want it are told"
    " a gap"
)
ELSEWHERE = "Connect to another address of the broker, or again later."


class Broker:
    """One broker of a network. `async with` starts and stops it; `wait` returns when it failed."""

    def __init__(
        self,
        name: BrokerName,
        network: Network,
        settings: Settings,
        config: Config | None = None,
        holding: Holding | None = None,
    ) -> None:
        """`holding`: the lease under which it runs, if its commits go to a store too."""
        if not __debug__:
            raise UsageError("a broker does not run under python -O", "Run it without -O.")
        if name not in network.cell_of:
            known = ", ".join(sorted(network.cell_of))
            raise UsageError(f"the network has no broker {name!r}", f"It has: {known}.")
        self.name = name
        self.settings = settings
        self.folder = settings.data / name
        self.address = ""
        self.admin_address: str | None = None
        self.admin_problem = "" if settings.admin else "it was switched off by --admin none"
        """Why there is no admin port, or why it is not where it was to be."""
        self.access: Access | None = None
        self.doors = Doors(settings, self._entry(network, name))
        self.console: Console | None = None  # where there is an admin port
        self.started_at = clock.read()
        self.is_ready = False
        self._network = network
        self._limits = config or Config()
        self._is_closed = False
        self._holding = holding
        self._losses_told = 0

    @staticmethod
    def _entry(network: Network, name: BrokerName) -> BrokerEntry:
        return next(each for each in network.cell_of[name].brokers if each.name == name)

    # --- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._address_wanted()  # a slip of the pen is told before a folder is made
        self._secure()
        holding = self._holding
        volume = holding.volume if holding else DiskVolume(self.folder / "volume")
        self._volume = volume
        logger.info("volume opened", extra={"folder": self.folder, "recovery": volume.recovery})
        volume.on_damage(tell_damage)
        quotas = self._quotas()
        room = LinkMemory(self.settings, self._limits.principal_share_percent)
        self._links = Links(self.name, self._network, self.settings, self.access, room, quotas)
        machine_code.suggest(self.folder / "compiled")
        if problem := machine_code.complaint():
            logger.warning("this broker does without compiled code", extra={"reason": problem})
        volume.identity = self._identify_disk(volume)
        if Seal(volume).is_copy:
            logger.error(COPIED, extra={"folder": self.folder})
        reader, survey = EventReader(), LogSurvey()
        self._links.reader = reader
        node = Node(
            self.name,
            self._network,
            volume,
            clock.read(),
            encoding=EventEncoding(reader.attributes_of, reader.check, survey, extend_event),
            config=self._limits,
            parts=Parts(subscribers=TimedSubscribers),
        )
        if self.settings.join is not None:
            node.wait_to_join()
        self._pump = self._links.pump = Pump(node, self, self.fail, self.settings.check_every_s)
        quotas.durable = owned(node)
        self._figures = SubscriptionFigures(node)
        self.inquiry = EventInquiry(node, self.access)
        self._disk = Disk(volume, self._pump.carry_out, self.fail)
        self._admin: Admin | None = None
        try:
            await self._listen()
        except BaseException:
            await self._disk.close()
            raise
        if self.settings.join is not None:
            self._links.hello = replace(self._links.hello, address=self.address)
        self._pump.start()
        self._watch_lease()
        self._ahead = LookAhead(node.durable.ranges.outlook, survey)
        self._dialler = Dialler(self._links)
        try:
            await self.doors.open(self.url, self.access, node)
        except BaseException:
            await self.drain()
            raise
        self.is_ready = True
        logger.info(
            "broker ready",
            extra={"broker": self.name, "listen": self.address, "admin": self.admin_address},
        )

    def _identify_disk(self, volume: DiskVolume) -> DiskIdentity:
        """What tells the disk from copies of it; nothing where a store has what it has lost."""
        if self._holding is not None:
            return NO_IDENTITY
        try:
            return DiskIdentity(*renew_seal(self.folder, volume.get(SEALS, DISK)))
        except OSError as error:
            logger.warning("the data folder cannot be sealed", extra={"reason": str(error)})
            return NO_IDENTITY

    def _secure(self) -> None:
        if self._network.security is not None:
            from gapless.broker.security.access import Access

            folder = self.settings.security_folder
            security = read_security(self._network.security, self.name, folder)
            self.access = Access(security, self.settings.hello_patience_s)

    def _quotas(self) -> Quotas:
        """What one principal may have, unless the network file says otherwise."""
        part, security = self._limits.principal_share_percent, self.access and self.access.security
        connections = max(1, self.settings.connections_max * part // 100)
        subscriptions = max(1, self._limits.subscriptions_max * part // 100)
        if security:
            connections = security.principal_connections_max
            subscriptions = security.principal_subscriptions_max or subscriptions
        return Quotas(connections, subscriptions)

    def reload(self) -> None:
        """New certificates and principals count from now on; bad ones are logged and do not."""
        if self.access is None and self._network.security is not None:
            return  # it is starting, and is about to read them
        if self.access is None:
            logger.warning(
                "there is nothing to reload without security",
                extra={"remedy": "restart the broker to change its limits or its network"},
            )
            return
        try:
            self.access.reload(clock.read() / 1e6)
        except UsageError as error:
            logger.error("nothing was reloaded", extra={"reason": str(error)})
        else:
            logger.info("certificate and principals reloaded")

    @property
    def url(self) -> str:
        """For clients."""
        return f"{'gapless+tls' if self.access else 'gapless'}://{self.address}"

    def _address_wanted(self) -> tuple[str, int]:
        if self.settings.admin is not None:
            parse_address(self.settings.admin)
        configured = self._entry(self._network, self.name).listen
        return parse_address(self.settings.listen or configured)

    async def _listen(self) -> None:
        host, port = self._address_wanted()
        last = read_addresses(self.folder)
        wanted = parse_address(last["listen"])[1] if port == 0 and "listen" in last else port
        loop = asyncio.get_running_loop()

        async def listen(at: int) -> asyncio.Server:
            return await loop.create_server(
                lambda: Link(self._links),
                host,
                at,
                backlog=BACKLOG,
                start_serving=False,
                ssl=self.access.tls.port if self.access else None,
                ssl_handshake_timeout=self.settings.hello_patience_s if self.access else None,
            )

        try:
            self._server = await listen(wanted)
        except OSError as error:
            if port != 0 or error.errno != errno.EADDRINUSE:
                raise cannot_listen(show_endpoint(host, port), error) from error
            self._server = await listen(0)
        self.address = show_endpoint(*self._server.sockets[0].getsockname()[:2])
        try:
            self._check_exposure(self.address, "--listen")
            await self._listen_for_admin()
            self.doors.bind(last, self._check_exposure)
            await self._serve()
        except BaseException:
            self._server.close()
            if self._admin is not None:
                await self._admin.close()
            await self.doors.close()
            raise
        told = {"listen": self.address, "admin": self.admin_address, "process": os.getpid()}
        told |= {"url": self.url, "admin_problem": self.admin_problem, **self.doors.addresses}
        write_addresses(self.folder, told)

    async def _serve(self) -> None:
        """Take connections. Two processes that start at once may both have the address so far: who
        is second learns it here. uvloop would say nothing, so it gets what listens already."""
        try:
            for each in self._server.sockets:
                with socket.socket(fileno=os.dup(each.fileno())) as same:
                    same.listen(BACKLOG)
        except OSError as error:
            raise cannot_listen(self.address, error) from error
        await self._server.start_serving()

    async def _listen_for_admin(self) -> None:
        if self.settings.admin is not None:
            from gapless.broker.admin.port import Admin

            self.console = Console(self, self._pump)
            at = parse_address(self.settings.admin)
            last = read_addresses(self.folder).get("admin")
            self._admin = await Admin.open(
                self,
                (at[0], at[1] or (parse_address(last)[1] if last else 0)),
                self.access,
                self._check_exposure,
                self.settings.admin_hosts,
                is_metrics_open=self.settings.metrics_open,
            )
            self.admin_address = self._admin.address if self._admin else None
            if self._admin is None:
                self.admin_problem = "gapless[broker] is not installed"
            elif at[1] and parse_address(self._admin.address)[1] != at[1]:
                wanted = show_endpoint(*at)
                self.admin_problem = f"{wanted} is in use"
                extra = {"wanted": wanted, "instead": self.admin_address}
                logger.warning("the admin port is elsewhere", extra=extra)

    def _check_exposure(self, endpoint: str, option: str) -> None:
        check_exposure(
            endpoint,
            option=option,
            is_secure=self.access is not None,
            insecure=self.settings.insecure,
        )

    async def wait(self) -> None:
        """Until the broker has failed; raises why."""
        await asyncio.shield(self._failure)

    def fail(self, error: BaseException) -> None:
        """The broker cannot go on: whoever waits learns why."""
        self._pump.stop()
        if self._holding is not None:
            self._holding.stop()
        self.is_ready = False
        if not self._failure.done():
            if isinstance(error, StorageFencedError):
                logger.warning("the lease is lost", extra={"reason": error.problem})
            elif isinstance(error, StorageError):
                logger.error("the disk failed", extra={"reason": str(error)})
            else:
                logger.error("an invariant is broken", exc_info=error)
            self._failure.set_exception(error)

    async def drain(self) -> None:
        """Stop in order; see the module docstring. Fine to repeat."""
        if self._is_closed:
            return
        self._is_closed = True
        self.is_ready = False
        logger.info("draining", extra={"broker": self.name, "writes": self._disk.pending})
        await self.doors.close(at_once=self._failure.done())
        self._links.is_draining = True
        await stop_listening(self._server)
        await self._dialler.close()
        await self._ahead.close()
        for link in self._links.all:
            link.stop_reading()
        if not self._failure.done():
            self._pump.leave()
            await self._disk.wait_idle()
        self._pump.stop()
        if self._holding is not None:
            await self._let_go(self._holding)
        await self._part()
        if self._admin is not None:
            await self._admin.close()
        await self._disk.close()
        if self._failure.done():
            self._failure.exception()  # whoever waited has it; nobody else needs to
        logger.info("broker stopped", extra={"broker": self.name})

    def _watch_lease(self) -> None:
        """Look a few times in each lease whether it has ended, though nothing happens."""
        if self._holding is not None and not self._failure.done():
            if self._holding.has_ended():
                self.fail(self._holding.ended())
            else:
                loop = asyncio.get_running_loop()
                loop.call_later(self._holding.watch_s, self._watch_lease)

    async def _let_go(self, holding: Holding) -> None:
        """Let a standby take over. After the lease nothing is said any more but goodbye."""
        if holding.has_ended():
            for link in list(self._links.all):
                link.fall_silent(StorageFencedError(NO_LEASE, ELSEWHERE))
        self._holding = None  # from now on there is nothing to watch
        await asyncio.to_thread(holding.release)

    async def _part(self) -> None:
        """Say goodbye to all, and give them a while to take it. A connection that the system had
        accepted already may come meanwhile: it is told by itself, and waited for too."""
        loop, links = asyncio.get_running_loop(), self._links.all
        for link in list(links):
            link.send(Goodbye("the broker is stopping", "Connect to another, or again later."))
            link.close()
        end_s = loop.time() + self.settings.drain_patience_s
        while links and loop.time() < end_s:
            await asyncio.wait([link.gone for link in links], timeout=end_s - loop.time())
        for link in list(links):
            link.abort()
        await asyncio.sleep(0)  # in which they are gone

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.drain()

    # --- where the node's effects go -------------------------------------------------------------

    def send(self, to: PeerName, message: Message) -> None:
        if self.console is not None and to == self.console.client.name:
            self.console.client.receive(message)
        else:
            self._links.send(to, message)

    def persist(self, effect: Persist) -> None:
        self._disk.write(effect)

    def flush(self) -> None:
        if len(losses := self._pump.node.durable.streams.losses) > self._losses_told:
            for pubend, span in losses[self._losses_told :]:
                logger.error(LOST, extra={"pubend": pubend, "from": span.start, "to": span.end})
            self._losses_told = len(losses)
        if self._holding is not None and self._holding.has_ended():
            self.fail(self._holding.ended())
            return
        self._disk.flush()
        self._links.flush()

    # --- figures ---------------------------------------------------------------------------------

    def subscription_names(self) -> list[str]:
        """The durable subscriptions that live here."""
        return self._figures.names()

    def measured_subscriptions(self) -> list[str]:
        """Those of them that have metrics of their own."""
        self._figures.names()
        return self._figures.oldest_names(self.settings.metrics_subscriptions_max)

    def subscriptions(self, names: Sequence[str] | None = None) -> list[dict[str, object]]:
        """State, lag and rate of each of these durable subscriptions; None: of all."""
        names = self._figures.names() if names is None else names
        return self._figures.describe(names, clock.read())

    def statistics(self) -> dict[str, object]:
        """All figures of this broker: JSON-able, nested."""
        from dataclasses import asdict

        return {
            **self._pump.node.statistics(),
            "ready": self.is_ready,
            "address": self.address,
            "uptime_s": round((clock.read() - self.started_at) / 1e6, 3),
            "steps": self._pump.steps,
            "step_times": self._pump.step_times.statistics(),
            "turn_times": self._pump.turn_times.statistics(),
            "failed_requests": self._pump.failed_requests,
            "matching_s": getattr(self._pump.node.subscribers, "matching_ns", 0) / 1e9,
            "matching_slices": self._pump.node.subscribers.meter.slices,
            "links": self._links.statistics(),
            "disk": {
                "pending": self._disk.pending,
                "full": self._disk.full,
                **asdict(self._volume.statistics()),
            },
            **({"store": self._holding.statistics()} if self._holding else {}),
        }


def embedded(topics: Iterable[str], data: Path | str, listen: str = "127.0.0.1:0") -> Broker:
    """A single broker for the event loop of this program: `async with embedded(…) as broker`."""
    settings = Settings(data=Path(data), listen=listen, admin=None)
    return Broker(SINGLE, single_network(topics), settings)


def tell_damage(damage: StorageError) -> None:
    logger.error(
        "the disk is damaged: those who want this are told a gap", extra={"reason": damage}
    )


def cannot_listen(where: str, error: OSError) -> UsageError:
    used = error.errno == errno.EADDRINUSE
    return UsageError(
        f"cannot listen on {where}: {'it is in use' if used else error.strerror}",
        "Stop what uses it, or give another address with --listen (port 0: any).",
    )
