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
    LINK_SOCKET,
    check_exposure,
    link_socket,
    parse_address,
    read_addresses,
    show_endpoint,
    write_addresses,
)
from gapless.broker.admin.console import Console
from gapless.broker.admin.inquiry import EventInquiry
from gapless.broker.admin.subscriptions import SubscriptionFigures
from gapless.broker.clock import TimedSubscribers
from gapless.broker.configuration import Configuration, Reloading, compare
from gapless.broker.dialler import Dialler
from gapless.broker.disk import Disk
from gapless.broker.doors import Doors
from gapless.broker.drift import Drift
from gapless.broker.event_reader import EventReader
from gapless.broker.link import Link
from gapless.broker.link_table import Links
from gapless.broker.listener import stop_listening
from gapless.broker.log_survey import LogSurvey, LookAhead
from gapless.broker.logs import logger
from gapless.broker.memory import LinkMemory
from gapless.broker.migration import migrate
from gapless.broker.near import NearBrokers
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
from gapless.storage.backup import Snapshot
from gapless.storage.disk import DiskVolume
from gapless.storage.identity import renew_seal
from gapless.storage.replica.store import StorageFencedError
from gapless.version import __version__
from gapless.wire.events import extend_event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gapless.broker.admin.port import Admin
    from gapless.broker.lease import Holding
    from gapless.broker.security.access import Access
    from gapless.core.effects import Persist
    from gapless.core.identity import BrokerName, PeerName
    from gapless.core.messages import Message
    from gapless.node.network import BrokerEntry, Network

BACKLOG = 1024
BACKUP_BYTES = 4 << 20
"""Of a backup that leave in one answer."""

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
        near: NearBrokers | None = None,
    ) -> None:
        """`holding`: the lease under which it runs, if its commits go to a store too. `near`: the
        brokers of this process, which are linked without sockets."""
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
        self.is_served = False  # has it ever been ready?
        self.reread: Callable[[], Configuration] | None = None
        """Reads the files anew that the broker was started with."""
        self.successor: Configuration | None = None
        """It is to begin anew with this one; None: it is no longer in the network file."""
        self.has_successor = asyncio.Event()
        self._network = network
        self._limits = config or Config()
        self._is_closed = False
        self._holding = holding
        self._near = near or NearBrokers()
        self._losses_told = 0
        self._backup: tuple[int, Snapshot] | None = None
        self._backups = 0

    @staticmethod
    def _entry(network: Network, name: BrokerName) -> BrokerEntry:
        return next(each for each in network.cell_of[name].brokers if each.name == name)

    # --- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._address_wanted()  # a slip of the pen is told before a folder is made
        self._secure()
        holding = self._holding
        if holding is None:
            migrate(self.folder / "volume")
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
        self._links.near = self._near if self.access is None else NearBrokers()
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
        mirror = holding.mirror if holding else None
        self._disk = Disk(volume, self._pump.carry_out, self.fail, mirror)
        self._admin: Admin | None = None
        try:
            await self._listen()
        except BaseException:
            await self._disk.close()
            raise
        self._links.hello = replace(self._links.hello, admin=self.admin_address or "")
        if self.settings.join is not None:
            self._links.hello = replace(self._links.hello, address=self.address)
        self._pump.start()
        self._drift = Drift(self._links, asyncio.get_running_loop().time())
        self._watch_lease()
        self._ahead = LookAhead(node.durable.ranges.outlook, survey)
        self._near.add(self.name, lambda: Link(self._links), self.reload)
        self._dialler = Dialler(self._links)
        try:
            await self.doors.open(self.url, self.access, node)
        except BaseException:
            await self.drain()
            raise
        self.is_ready = self.is_served = True
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

    def reload(self, *, only_look: bool = False) -> Reloading:
        """Read certificates, principals, network and settings anew; `broker.configuration` says
        what follows. With `only_look` nothing changes. Bad files are logged, and do not count."""
        if not self.is_ready:
            return Reloading(refused=("the broker is starting or stopping: try again",))
        try:
            if self.access is not None and not only_look:
                self.access.reload(clock.read() / 1e6)
                logger.info("certificate and principals reloaded")
            found = self._look_at_files(only_look=only_look)
        except UsageError as error:
            found = Reloading(refused=(str(error),))
        for line in () if only_look else found.refused:
            logger.error("nothing was reloaded", extra={"reason": line})
        if not found.refused and not found.differences:
            logger.info("network and settings are what they were")
        return found

    def _look_at_files(self, *, only_look: bool) -> Reloading:
        if self.reread is None:
            return Reloading()
        old, new = Configuration(self._network, self.settings, self._limits), self.reread()
        found = compare(self.name, self._pump.node, old, new)
        if found.is_applied and not only_look:
            for line in found.differences:
                logger.info("reloading", extra={"difference": line})
            if self.name in new.network.cell_of:
                self.successor = new
            self.has_successor.set()
        return found

    def give_away(self) -> dict[str, object]:
        """Give all named subscriptions to other brokers, from now on; what is still here."""
        drain = self._pump.node.durable.drain
        if not drain.takers:
            return {"problem": "there is no other broker that takes subscribers", "remaining": {}}
        if not drain.is_on:
            logger.info("this broker is drained", extra={"takers": ", ".join(drain.takers)})
            self._pump.drain()
        pubends = sorted(self._pump.node.durable.streams.pubends)
        is_finished = drain.is_finished(clock.read())
        found = {"problem": "", "remaining": drain.remaining(), "finished": is_finished}
        return {**found, "pubends": pubends}

    def back_up(self, number: int) -> tuple[int, bytes]:
        """The next piece of a backup, and its number; 0 begins one, and no bytes end it. There is
        one at a time. Called from threads."""
        if number == 0 or self._backup is None:
            head = {"broker": self.name, "software": __version__, "time": clock.read()}
            self._backup = self._backups + 1, Snapshot(self._volume, head)
            self._backups += 1
            number = number and -1
        current, snapshot = self._backup
        if number not in (0, current):
            raise UsageError("another backup has begun", "Begin again.")
        return current, snapshot.take(BACKUP_BYTES)

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
        try:
            server = await self._bind(host, wanted)
        except OSError as error:
            if port != 0 or error.errno != errno.EADDRINUSE:
                raise cannot_listen(show_endpoint(host, port), error) from error
            server = await self._bind(host, 0)
        self._servers = [server]
        self.address = show_endpoint(*server.sockets[0].getsockname()[:2])
        try:
            self._check_exposure(self.address, "--listen")
            self._servers += await self._listen_beside()
            await self._listen_for_admin()
            self.doors.bind(last, self._check_exposure)
            await self._serve()
        except BaseException:
            for server in self._servers:
                server.close()
            if self._admin is not None:
                await self._admin.close()
            await self.doors.close()
            raise
        told: dict[str, str | int | None] = {
            "listen": self.address,
            "admin": self.admin_address,
            "process": os.getpid(),
        }
        told |= {"network": f"{self._network.digest:016x}"}
        told |= {"url": self.url, "admin_problem": self.admin_problem, **self.doors.addresses}
        write_addresses(self.folder, told)

    async def _listen_beside(self) -> list[asyncio.Server]:
        """Bind the socket for brokers of this machine, and the address that brokers share."""
        servers = list[asyncio.Server]()
        path = link_socket(self.folder) if self.access is None else None
        if path is not None:
            try:
                path.unlink(missing_ok=True)  # of an earlier life: the folder is ours alone
                server = await asyncio.get_running_loop().create_unix_server(
                    lambda: Link(self._links), str(path), backlog=BACKLOG, start_serving=False
                )
                servers.append(server)
                path.chmod(0o600)
            except OSError as error:  # a disk that is full, or that has no sockets
                logger.warning("brokers are linked by TCP alone", extra={"reason": str(error)})
        shared = self.settings.shared_listen
        if shared is not None:
            self._check_exposure(shared, "--listen")
            try:
                servers.append(await self._bind(*parse_address(shared), reuse_port=True))
            except OSError as error:
                raise cannot_listen(shared, error) from error
        return servers

    async def _bind(self, host: str, port: int, *, reuse_port: bool = False) -> asyncio.Server:
        return await asyncio.get_running_loop().create_server(
            lambda: Link(self._links),
            host,
            port,
            backlog=BACKLOG,
            reuse_port=reuse_port,
            start_serving=False,
            ssl=self.access.tls.port if self.access else None,
            ssl_handshake_timeout=self.settings.hello_patience_s if self.access else None,
        )

    async def _serve(self) -> None:
        """Take connections. Two processes that start at once may both have the address so far: who
        is second learns it here. uvloop would say nothing, so it gets what listens already."""
        try:
            for each in self._servers[0].sockets:
                with socket.socket(fileno=os.dup(each.fileno())) as same:
                    same.listen(BACKLOG)
        except OSError as error:
            raise cannot_listen(self.address, error) from error
        for server in self._servers:
            await server.start_serving()

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
        self._near.discard(self.name)
        for server in self._servers:
            await stop_listening(server)
        (self.folder / LINK_SOCKET).unlink(missing_ok=True)
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
        holding, drift, loop = self._holding, self._drift, asyncio.get_running_loop()
        if holding is None or self._failure.done():
            return
        if not holding.has_ended():
            if drift.is_under_way:
                logger.info("the store is back, and the lease is good", extra={"broker": self.name})
                drift.end()
                self.flush()
            drift.look(loop.time())
        elif holding.is_lost:
            self.fail(holding.ended())
            return
        else:
            if holding.is_cut_off:
                drift.look(loop.time())
                self.flush()
            if not drift.go_on(StorageFencedError(NO_LEASE, ELSEWHERE)):
                self.fail(holding.ended())
                return
        self.is_ready = not drift.is_under_way
        entry = self._entry(self._network, self.name)
        in_file = self._links.address_book.shown(self.name) if entry.standbys else ()
        self._links.tell_own((*in_file, self.address, *holding.standby_addresses))
        loop.call_later(holding.watch_s, self._watch_lease)

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
        if self._holding is not None and self._holding.must_be_silent:
            return  # `_watch_lease` decides what follows
        self._disk.flush()
        self._links.flush()

    def hurry(self, peers: Sequence[PeerName]) -> None:
        if self._holding is None or not self._holding.must_be_silent:
            self._links.hurry(peers)

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
            "network": f"{self._network.digest:016x}",
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
