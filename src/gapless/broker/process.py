"""A broker as a process, or several in one: the event loop, the signals, the logs.

Theory of operation
    The first SIGTERM or SIGINT drains the broker, also while it starts; a second one stops the
    process at once, whatever its loop is doing, which is safe: what was acknowledged is on the
    disk. SIGHUP has two senses. Where the terminal has gone that the broker was started in, it
    drains, unless it was started to outlive that (`nohup`). Else it reloads: the certificate, its
    key, the principals, the network file and the settings file are read anew, and what has changed
    is applied or refused (`broker.configuration`). SIGUSR1 and SIGUSR2 print where each thread is.
    No other signal that people send by habit ends a broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import os
import signal
import socket
import sys
from functools import cache, partial
from typing import TYPE_CHECKING

from gapless.broker import logs
from gapless.broker.addresses import STANDS_BY, is_loopback, read_addresses, write_addresses
from gapless.broker.broker import Broker
from gapless.broker.configuration import Configuration
from gapless.broker.descriptors import ask_for_more
from gapless.broker.doors import show_doors
from gapless.broker.lease import Standby
from gapless.broker.logs import logger
from gapless.broker.near import NearBrokers
from gapless.core.errors import StorageError, UsageError
from gapless.core.extras import require_extra
from gapless.node.config import Config
from gapless.storage.replica.store import StorageFencedError
from gapless.wire.buffers import keep_buffers

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from pathlib import Path
    from types import FrameType

    from gapless.broker.lease import Holding, StoreOptions
    from gapless.broker.settings import Settings
    from gapless.core.errors import GaplessError
    from gapless.core.identity import BrokerName
    from gapless.node.network import Network

TERMINAL = "/dev/tty"
STOPPING = (signal.SIGTERM, signal.SIGINT)
ASKING = (signal.SIGUSR1, signal.SIGUSR2)
EXIT_AT_ONCE = 1
GIVE_WAY_S = 1.0
"""How long a holder that has handed over lets others ask for the lease first."""
SAY = partial(print, flush=True)  # into a pipe too
NO_SECURITY = (
    "without security: it listens on loopback only, and every user of this machine "
    "may do everything"
)
COLLECT_AFTER = (100_000, 20, 20)
"""Objects made and not freed before young ones are looked at for cycles; rounds of that before
older ones are."""


def run(
    name: BrokerName,
    network: Network,
    settings: Settings,
    *,
    config: Config | None = None,
    log_json: bool = False,
    log_level: str = "INFO",
    tell: Callable[[str], None] = SAY,
    with_parent: bool = False,
    store: StoreOptions | None = None,
    reread: Callable[[], Configuration] | None = None,
    others: Sequence[BrokerName] = (),
) -> None:
    """Run a broker, and `others` beside it, until a signal stops them; raises what made one fail,
    which ends all.

    With `with_parent` they also stop when standard input is closed, as it is when the process
    that holds its other end is gone, however that came about. With `store`, for a single broker,
    the process stands by until it has the lease there, and again after it has lost it. `reread`
    reads the files anew that brokers are started with, for a reload.
    """
    require_extra("broker", "a broker")
    logs.set_up(as_json=log_json, level=log_level)
    keep_buffers()
    ask_for_more()
    configuration, near = Configuration(network, settings, config or Config()), NearBrokers()
    lives = [Lives(each, configuration, reread, near) for each in (name, *others)]
    if store is None:
        run_loop(serve_together(lives, tell, with_parent=with_parent))
    else:
        folder = settings.data / name / "volume"
        run_loop(serve_by_lease(lives[0], store, folder, tell, with_parent=with_parent))


class Lives:
    """The lives of one broker in this process: each reload that changes something begins one."""

    def __init__(
        self,
        name: BrokerName,
        configuration: Configuration,
        reread: Callable[[], Configuration] | None,
        near: NearBrokers,
    ) -> None:
        self.near = near
        self._name = name
        self._configuration = configuration
        self._before: Configuration | None = None
        self._reread = reread

    def make(self, holding: Holding | None = None) -> Broker:
        now = self._configuration
        broker = Broker(self._name, now.network, now.settings, now.limits, holding, self.near)
        broker.reread = self._reread
        return broker

    def go_on(self, broker: Broker) -> bool:
        """Whether the broker has stopped to begin anew."""
        if broker.successor is None:
            return False
        self._before, self._configuration = self._configuration, broker.successor
        return True

    def go_back(self, error: GaplessError) -> bool:
        """The broker cannot begin with new files: whether there are old ones to go on with."""
        if self._before is None:
            return False
        logger.error("the old files count: the new ones do not work", extra={"reason": str(error)})
        self._configuration, self._before = self._before, None
        return True


async def serve_together(
    all_lives: Sequence[Lives], tell: Callable[[str], None], *, with_parent: bool = False
) -> None:
    """Serve several brokers in one loop until a signal comes; if one fails, all stop."""
    stop = asyncio.Event()
    Signals(stop, all_lives[0].near.reload).listen()
    try:
        async with asyncio.TaskGroup() as group:
            for lives in all_lives:
                group.create_task(serve_lives(lives, tell, stop, with_parent=with_parent))
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None


async def serve_lives(
    lives: Lives, tell: Callable[[str], None], stop: asyncio.Event, *, with_parent: bool = False
) -> None:
    """Serve until `stop` is set, over reloads."""
    while True:
        broker = lives.make()
        try:
            await serve(broker, tell, stop, with_parent=with_parent)
        except (UsageError, StorageError) as error:
            if broker.is_served or not lives.go_back(error):
                raise
        else:
            if stop.is_set() or not lives.go_on(broker):
                return


def run_loop(main: Coroutine[object, object, None]) -> None:
    """On uvloop where there is one."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)


async def serve(
    broker: Broker,
    tell: Callable[[str], None],
    stop: asyncio.Event,
    *,
    with_parent: bool = False,
) -> None:
    """Start, tell that it is ready, wait for a failure or for `stop`; drain."""
    async with broker:
        collect_rarely()
        if with_parent:
            loop = asyncio.get_running_loop()
            loop.add_reader(sys.stdin.fileno(), _on_input, stop)
        scheme = "https" if broker.access is not None else "http"
        admin = f", admin at {scheme}://{broker.admin_address}" if broker.admin_address else ""
        doors = show_doors(broker.doors.addresses, is_secure=broker.access is not None)
        with contextlib.suppress(OSError):  # nobody reads it: no reason not to serve
            tell(f"broker {broker.name!r} is ready at {broker.url}{admin}{doors}")
            if broker.admin_problem and broker.settings.admin:
                where = f"the admin port is at {broker.admin_address}"
                where = where if broker.admin_address else "there is no admin port"
                tell(f"{where}: {broker.admin_problem}")
            if broker.access is None and is_loopback(broker.address):
                tell(NO_SECURITY)
        tell_manager("READY=1")
        failing = asyncio.create_task(broker.wait())
        others = [asyncio.create_task(each.wait()) for each in (stop, broker.has_successor)]
        done, rest = await asyncio.wait((failing, *others), return_when=asyncio.FIRST_COMPLETED)
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        tell_manager("RELOADING=1" if broker.successor is not None else "STOPPING=1")
    if failing in done:
        failing.result()  # raises why it failed


async def serve_by_lease(
    lives: Lives,
    store: StoreOptions,
    folder: Path,
    tell: Callable[[str], None],
    *,
    with_parent: bool = False,
) -> None:
    """Stand by, serve under the lease, and stand by again if that is lost, until a signal comes."""
    while (holding := await stand_by(store, folder, tell, with_parent=with_parent)) is not None:
        broker, stop = lives.make(holding), asyncio.Event()
        Signals(stop, broker.reload).listen()
        leaving = asyncio.create_task(leave_when_asked(holding, stop))
        try:
            await serve(broker, tell, stop, with_parent=with_parent)
            if lives.go_on(broker):
                continue
            if not leaving.done():
                return
            tell(f"broker {broker.name!r} has handed over")
            await asyncio.sleep(GIVE_WAY_S)
        except StorageFencedError as error:
            tell(f"broker {broker.name!r} no longer holds its name: {error.problem}")
        finally:
            leaving.cancel()
            await asyncio.to_thread(holding.close)


async def leave_when_asked(holding: Holding, stop: asyncio.Event) -> None:
    """Set `stop` when `gapless hand-over` has asked for it."""
    while not holding.lease.is_to_leave:  # noqa: ASYNC110 - it is set by another thread
        await asyncio.sleep(holding.watch_s)
    stop.set()


async def stand_by(
    store: StoreOptions, folder: Path, tell: Callable[[str], None], *, with_parent: bool
) -> Holding | None:
    """Until this process has the lease; None if a signal, or the end of its parent, came first."""
    standby = await asyncio.to_thread(Standby, store, folder)
    stop = asyncio.Event()
    Signals(stop).listen()
    if with_parent:
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), _on_input, stop)
    stopping = asyncio.create_task(stop.wait())
    waiting = asyncio.create_task(asyncio.to_thread(standby.wait))
    last = read_addresses(folder.parent)
    kept = {"listen": last.get("listen"), "process": os.getpid(), "state": STANDS_BY}
    write_addresses(folder.parent, kept)
    with contextlib.suppress(OSError):
        tell(f"broker {store.name!r} stands by until it has the lease")
    tell_manager("READY=1", "STATUS=standing by")
    try:
        await asyncio.wait((waiting, stopping), return_when=asyncio.FIRST_COMPLETED)
        standby.stop()
        holding = await waiting
        if holding is not None and stop.is_set():
            await asyncio.to_thread(holding.close)
            return None
        return holding
    finally:
        stopping.cancel()
        await asyncio.to_thread(standby.close)


def tell_manager(*lines: str) -> None:
    """Tell systemd, if it started this process as a unit of `Type=notify`; see sd_notify(3)."""
    place = os.environ.get("NOTIFY_SOCKET", "")
    if place.startswith(("/", "@")):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
            to.sendto("\n".join(lines).encode(), place.replace("@", "\0", 1))


def collect_rarely() -> None:
    """A broker makes tuples by the million and hardly a cycle: looking for cycles at the usual
    pace took more than half of its time at 100 subscribers. What is there at the start stays."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)


def _on_input(stop: asyncio.Event) -> None:
    """Standard input has something to read: nothing is ever sent, so it is its end."""
    if not os.read(sys.stdin.fileno(), 1024):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        stop.set()


class Signals:
    """What each signal does to a broker. Python runs the handlers between two of its instructions,
    also while the loop is busy; what touches the loop is put off until that has its turn."""

    def __init__(self, stop: asyncio.Event, reload: Callable[[], object] = lambda: None) -> None:
        """`reload`: reads files anew; a process that stands by has read none."""
        self._stop = stop
        self._reload = reload
        self._loop = asyncio.get_running_loop()
        self._terminal = own_terminal()
        self._is_told = False

    def listen(self) -> None:
        for each in STOPPING:
            signal.signal(each, self._on_stop)
        signal.signal(signal.SIGHUP, self._on_hang_up)
        for each in ASKING:
            faulthandler.register(each)

    def _on_stop(self, number: int, _: FrameType | None) -> None:
        name = signal.Signals(number).name
        if self._is_told:
            try:
                logger.warning("stopped at once", extra={"signal": name})
            finally:
                os._exit(EXIT_AT_ONCE)
        self._is_told = True
        self._soon(self._begin_stop, name)

    def _begin_stop(self, reason: str) -> None:
        logger.info("stopping", extra={"signal": reason})
        self._stop.set()

    def _on_hang_up(self, *_: object) -> None:
        if not self._terminal.is_gone():
            self._soon(self._reload)
        elif not self._is_told:
            self._is_told = True
            self._soon(self._begin_stop, "SIGHUP: the terminal is closed")

    def _soon(self, call: Callable[..., object], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: we are about to end anyway
            self._loop.call_soon_threadsafe(call, *arguments)


class Terminal:
    """The terminal that this process was started in, if there is one. Make it before a handler for
    SIGHUP is set.

    SIGHUP means "read your files anew" to a process without a terminal, and "your terminal is gone"
    to a process that has one. A terminal that has hung up cannot be opened any more, which tells
    the two apart. A process that was started with SIGHUP ignored, as `nohup` does, outlives its
    terminal.
    """

    def __init__(self) -> None:
        self._counts = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and can_open()

    def is_gone(self) -> bool:
        """Whether we were to live no longer than the terminal, and it has hung up."""
        return self._counts and not can_open()


@cache
def own_terminal() -> Terminal:
    """One for the process, from before its first handler for SIGHUP."""
    return Terminal()


def can_open() -> bool:
    try:
        os.close(os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
