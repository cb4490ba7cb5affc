"""The MQTT door in a simulated network: brokers crash, connections break, and promises are checked.

    python -m tests.doors.mqtt.simulated --seeds 200

Theory of operation
    The door is the shipped one, with its sessions, hosts and sources, on a loop of simulated time
    (`gapless.testing`). It is a client of a simulated broker and dies with it: a crash cancels
    everything that the door had begun and drops what its journal had not synced, or a part of it.
    Simulated are also the MQTT connections, which delay bytes and break at any of them. The clients
    are correct ones with a memory that outlives connections: senders of numbers with QoS 1 and 2,
    and receivers with durable sessions.
    Each seed draws when what breaks. In the end everything is healed, and must come to rest: every
    number that a sender was answered for has reached every receiver, of QoS 2 exactly once.

Invariants (of a run; `Violation` names the one that is broken)
    I1  no message of QoS 1 or 2 that was answered is lost
    I2  no message of QoS 2 comes twice
    I3  a session whose SUBSCRIBE was answered is present at the next CONNECT
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections import Counter, deque
from contextvars import ContextVar, copy_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapless.core.errors import GaplessError
from gapless.doors.clients import DoorClients
from gapless.doors.mqtt.connection import MqttConnection
from gapless.doors.mqtt.door import MqttDoor
from gapless.doors.mqtt.journal import DoorJournal
from gapless.doors.mqtt.packets import (
    FOREVER,
    AnswerPacket,
    ConnectPacket,
    Kind,
    PublishPacket,
    Splitter,
    SubscribePacket,
    TopicFilter,
    decode,
    encode,
)
from gapless.doors.surroundings import DoorSurroundings
from gapless.testing import SimulatedNetwork
from gapless.testing.record import Violation

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence

    from gapless.doors.mqtt.journal import Fact

NETWORK = """
[[cell]]
name = "top"
brokers = [{ name = "top", listen = "127.0.0.1:1" }]
[[cell]]
name = "edge"
links = ["top"]
subscribers = true
brokers = [{ name = "edge", listen = "127.0.0.1:2" }]
[[topic]]
name = "mqtt"
pubends = ["top"]
"""
FAULTS_S = 20.0
"""How long things break, in simulated seconds."""

REST_S = 200.0
"""How long it may take afterwards until everything has come."""

WINDOW = 20
LIVES: ContextVar[DoorLife | None] = ContextVar("life", default=None)


class SimulatedDisk:
    """What the door's journal has on disk."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[str, bytes]] = {}

    def apply(self, facts: Sequence[Fact]) -> None:
        for table, key, value in facts:
            rows = self.tables.setdefault(table, {})
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = value


class SimulatedJournal(DoorJournal):
    """The door's journal; syncs take their time, and a crash loses what was not synced."""

    def __init__(self, disk: SimulatedDisk, dice: random.Random) -> None:
        self._disk, self._dice = disk, dice
        self._waiting: deque[tuple[Sequence[Fact], asyncio.Future[None]]] = deque()
        self._is_lost = False

    def facts(self, table: str) -> Mapping[str, bytes]:
        return self._disk.tables.setdefault(table, {})

    def write(self, facts: Sequence[Fact]) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.append((facts, future))
        loop.call_later(self._dice.choice((0.0, 0.002, 0.05)), self._sync)
        return future

    def _sync(self) -> None:
        if self._waiting and not self._is_lost:
            facts, future = self._waiting.popleft()
            self._disk.apply(facts)
            if not future.done():
                future.set_result(None)

    def crash(self) -> None:
        """Of what is not synced, the disk may have the first writes."""
        self._is_lost = True
        for facts, _ in list(self._waiting)[: self._dice.randint(0, len(self._waiting))]:
            self._disk.apply(facts)

    async def close(self) -> None:
        """Nothing is held."""


class SimulatedDoor(MqttDoor):
    """The door, with a simulated journal."""

    def __init__(self, surroundings: DoorSurroundings, own_journal: SimulatedJournal) -> None:
        super().__init__(surroundings)
        self._own_journal = own_journal

    def open_journal(self) -> DoorJournal:
        return self._own_journal


class DoorLife:
    """The door from a start of its broker to the crash: all that it begins ends with it."""

    def __init__(self, network: SimulatedNetwork, disk: SimulatedDisk, dice: random.Random) -> None:
        self.tasks: set[asyncio.Task[Any]] = set()
        self.pipes: set[Pipe] = set()
        self.is_open = False
        self._journal = SimulatedJournal(disk, dice)
        self._door = SimulatedDoor(
            DoorSurroundings(
                name="edge",
                folder=Path("unused"),
                clients=DoorClients(network.url("edge")),
                subscriptions=lambda _, __: [],
                addresses={},
                is_alone=True,
            ),
            self._journal,
        )
        self._context = copy_context()
        self._context.run(LIVES.set, self)
        self.opening = self._context.run(asyncio.ensure_future, self._open())

    async def _open(self) -> None:
        await self._door.open({})
        self.is_open = True

    def accept(self, pipe: Pipe) -> MqttConnection:
        self.pipes.add(pipe)
        made = MqttConnection(self._door)
        self.run(made.connection_made, pipe)
        return made

    def run(self, call: Callable[..., object], *arguments: object) -> None:
        """Call the door; what it begins belongs to this life."""
        self._context.run(call, *arguments)

    def crash(self) -> None:
        self._journal.crash()
        self.is_open = False
        for pipe in list(self.pipes):
            pipe.break_off(tell_door=False)
        self._cancel()

    def _cancel(self) -> None:
        """Also what cancelled tasks begin."""
        left = [task for task in self.tasks if not task.done()]
        for task in left:
            task.cancel()
        if left:
            asyncio.get_running_loop().call_later(0.001, self._cancel)


def make_task(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **more: Any
) -> asyncio.Task[Any]:
    """A task that its life knows."""
    task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **more)
    life = LIVES.get()
    if life is not None:
        life.tasks.add(task)
        task.add_done_callback(life.tasks.discard)
    return task


def close_soon(generator: AsyncGenerator[Any, Any]) -> None:
    """A generator that nobody runs any more: the simulated loop has no threads to tell of it."""
    asyncio.get_running_loop().create_task(generator.aclose())


class Pipe(asyncio.Transport):
    """A connection of a client to the door: the door's transport, and the client's end."""

    def __init__(self, life: DoorLife, client: MqttClient, dice: random.Random) -> None:
        super().__init__()
        self._life, self._client, self._dice = life, client, dice
        self._loop = asyncio.get_running_loop()
        self._is_closing = self._is_broken = False
        self._arrives_s = [0.0, 0.0]  # the last of each direction
        self._connection = life.accept(self)

    def _later(self, direction: int, call: Callable[..., object], *arguments: object) -> None:
        """In order, after a delay."""
        at_s = self._loop.time() + self._dice.choice((0.0, 0.001, 0.02))
        self._arrives_s[direction] = at_s = max(at_s, self._arrives_s[direction])
        self._loop.call_at(at_s, self._arrive, call, arguments)

    def _arrive(self, call: Callable[..., object], arguments: tuple[object, ...]) -> None:
        if not self._is_broken:
            call(*arguments)

    # --- the client's end ------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        self._later(0, self._take, data)

    def _take(self, data: bytes) -> None:
        if not self._is_closing:
            self._life.run(self._connection.data_received, data)

    def break_off(self, *, tell_door: bool = True) -> None:
        """Both ends learn of it, or only the client; what is on its way is lost."""
        if not self._is_broken:
            self._is_broken = True
            self._life.pipes.discard(self)
            if tell_door:
                self._loop.call_soon(self._life.run, self._connection.connection_lost, None)
            self._client.lost(self)

    # --- the door's end --------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._is_closing:
            self._later(1, self._client.take, self, bytes(data))

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._later(1, self.break_off)

    def is_closing(self) -> bool:
        return self._is_closing or self._is_broken

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """It takes everything."""

    def pause_reading(self) -> None:
        """The door has at most a client's window to do."""

    def resume_reading(self) -> None:
        """See above."""


class MqttClient:
    """A correct client with a durable session. It sends numbers, or receives them, or both."""

    def __init__(self, name: str, qos: int, *, sends: int, receives: bool) -> None:
        self.name, self._qos, self._left, self.receives = name, qos, sends, receives
        self.got: Counter[bytes] = Counter()
        self.done: list[tuple[int, bytes]] = []  # QoS and payload of what was answered finally
        self.is_subscribed = False
        self.pipe: Pipe | None = None
        self._open: dict[int, PublishPacket] = {}  # sent, and not released
        self._released: dict[int, PublishPacket] = {}
        self._known: set[int] = set()  # QoS 2, received and not released
        self._number = self._count = 0
        self._is_connected = False
        self._splitter = Splitter()

    @property
    def is_idle(self) -> bool:
        return not (self._left or self._open or self._released)

    def connect(self, life: DoorLife, dice: random.Random) -> None:
        """Begin a connection."""
        self._is_connected, self._splitter = False, Splitter()
        self.pipe = Pipe(life, self, dice)
        given = {"session_expiry": FOREVER, "receive_maximum": dice.choice((1, 5, 100))}
        self._send(ConnectPacket(5, self.name, False, 0, properties=given))

    def lost(self, pipe: Pipe) -> None:
        if self.pipe is pipe:
            self.pipe = None
            self._is_connected = False

    def _send(self, packet: Any) -> None:
        if self.pipe is not None:
            self.pipe.send(encode(packet, 5))

    def publish(self) -> None:
        """Send the next number, if there is room for it."""
        if not self._is_connected or not self._left:
            return
        if len(self._open) + len(self._released) >= WINDOW:
            return
        while True:
            self._number = self._number % 50 + 1  # numbers are used again soon
            if self._number not in self._open and self._number not in self._released:
                break
        self._left -= 1
        self._count += 1
        payload = f"{self.name} {self._count}".encode()
        qos = self._count % 2 + 1 if self._qos == 2 else 1
        packet = PublishPacket(f"sim/{self.name}", payload, qos, packet=self._number)
        self._open[self._number] = packet
        self._send(packet)

    # --- what the door sends ---------------------------------------------------------------------

    def take(self, pipe: Pipe, data: bytes) -> None:
        if self.pipe is pipe:
            for first, body in self._splitter.feed(data):
                self._on_frame(first, body)

    def _on_frame(self, first: int, body: bytes) -> None:
        match first >> 4:
            case Kind.CONNACK:
                self._on_connack(present=bool(body[0]), code=body[1])
            case Kind.SUBACK:
                self.is_subscribed = body[-1] < 0x80
            case Kind.DISCONNECT | Kind.PINGRESP:
                pass
            case Kind.PUBLISH:
                packet = decode(first, body, 5)
                assert isinstance(packet, PublishPacket)
                self._on_publish(packet)
            case _:
                answer = decode(first, body, 5)
                assert isinstance(answer, AnswerPacket)
                self._on_answer(answer.kind, answer.packet)

    def _on_connack(self, *, present: bool, code: int) -> None:
        if code:
            return
        self._is_connected = True
        if self.is_subscribed and not present:
            raise Violation("I3", f"the session of {self.name} is gone")
        if not present:
            self._known.clear()
        if self.receives:  # again on each connection, as mosquitto_sub does
            self._send(SubscribePacket(1, (TopicFilter("sim/#", self._qos),)))
        for packet in self._open.values():
            again = (packet.topic, packet.payload, packet.qos, packet.retain, True, packet.packet)
            self._send(PublishPacket(*again))
        for number in self._released:
            self._send(AnswerPacket(Kind.PUBREL, number))

    def _on_publish(self, packet: PublishPacket) -> None:
        if packet.qos == 2:
            if packet.packet not in self._known:
                self._known.add(packet.packet)
                self._receive(packet)
            self._send(AnswerPacket(Kind.PUBREC, packet.packet))
        else:
            self._receive(packet)
            if packet.qos:
                self._send(AnswerPacket(Kind.PUBACK, packet.packet))

    def _receive(self, packet: PublishPacket) -> None:
        self.got[packet.payload] += 1
        if packet.qos == 2 and self.got[packet.payload] > 1:
            raise Violation("I2", f"{self.name} has got {packet.payload!r} twice")

    def _on_answer(self, kind: Kind, number: int) -> None:
        if kind == Kind.PUBREL:
            self._known.discard(number)
            self._send(AnswerPacket(Kind.PUBCOMP, number))
        elif kind == Kind.PUBREC:
            if number in self._open:
                self._released[number] = self._open.pop(number)
            self._send(AnswerPacket(Kind.PUBREL, number))
        else:
            kept = self._open if kind == Kind.PUBACK else self._released
            if (packet := kept.pop(number, None)) is not None:
                self.done.append((packet.qos, packet.payload))


class SimulatedRun:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(f"mqtt of {seed}")
        self._network = SimulatedNetwork(NETWORK, seed=seed)
        self._disk = SimulatedDisk()
        self._life: DoorLife | None = None
        self._problem: BaseException | None = None
        self._clients = [
            MqttClient("a", 2, sends=60, receives=False),
            MqttClient("b", 2, sends=40, receives=True),
            MqttClient("c", 1, sends=0, receives=True),
            MqttClient("d", 2, sends=0, receives=True),
        ]

    def play(self) -> int:
        """How many messages came; `Violation` if a promise is broken."""
        self._network.run(self._main(), limit_s=1_000.0)
        return sum(each.got.total() for each in self._clients)

    async def _main(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_task_factory(make_task)  # type: ignore[arg-type]  # it makes tasks only
        loop.set_exception_handler(self._on_error)
        sys.set_asyncgen_hooks(finalizer=close_soon)
        while not all(each.is_subscribed for each in self._receivers):
            await self._turn()
        end_s = loop.time() + FAULTS_S
        while loop.time() < end_s:
            self._break()
            for each in self._clients:
                if self._dice.random() < 0.5:
                    each.publish()
            await self._turn()
        self._network.heal()
        await self._rest()
        if self._life is not None:
            self._life.crash()

    def _on_error(self, _: object, about: dict[str, Any]) -> None:
        """A violation in a callback ends the run."""
        error = about.get("exception")
        if isinstance(error, Violation | AssertionError):
            self._problem = error

    @property
    def _receivers(self) -> list[MqttClient]:
        return [each for each in self._clients if each.receives]

    async def _turn(self) -> None:
        """Let some time pass; who is away comes back."""
        if self._problem is not None:
            raise self._problem
        life = self._life
        if life is None or (life.opening.done() and life.opening.exception() is not None):
            if life is not None:
                assert isinstance(life.opening.exception(), GaplessError), life.opening.exception()
                life.crash()
            if self._network.is_up("edge"):
                self._life = DoorLife(self._network, self._disk, self._dice)
        elif life.is_open:
            for each in self._clients:
                if each.pipe is None and self._dice.random() < 0.3:
                    each.connect(life, self._dice)
        await asyncio.sleep(self._dice.choice((0.01, 0.05, 0.2)))

    def _break(self) -> None:
        dice, network = self._dice, self._network
        if dice.random() < 0.03 and network.is_up("edge"):
            network.crash("edge", back_after_s=dice.choice((0.0, 0.3, 2.0)))
            if self._life is not None:
                self._life.crash()
                self._life = None
        if dice.random() < 0.02 and network.is_up("top"):
            network.crash("top", back_after_s=dice.choice((0.0, 0.3, 2.0)))
        if dice.random() < 0.1:
            pipe = dice.choice(self._clients).pipe
            if pipe is not None:
                pipe.break_off()

    async def _rest(self) -> None:
        """Until everything that was sent is answered and has come."""
        end_s = asyncio.get_running_loop().time() + REST_S
        while missing := self._missing():
            if asyncio.get_running_loop().time() > end_s:
                raise Violation("I1", f"these do not come: {missing[:5]}")
            for each in self._clients:
                each.publish()
            await self._turn()
        await asyncio.sleep(2)  # for what comes twice
        if self._problem is not None:
            raise self._problem

    def _missing(self) -> list[str]:
        found = [f"{each.name} is not answered" for each in self._clients if not each.is_idle]
        for sender in self._clients:
            for _, payload in sender.done:
                found += [
                    f"{payload!r} to {each.name}"
                    for each in self._receivers
                    if payload not in each.got
                ]
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=1)
    given = parser.parse_args()
    total = 0
    for seed in range(given.first, given.first + given.seeds):
        try:
            total += SimulatedRun(seed).play()
        except Violation as violation:
            print(f"seed {seed}: {violation}")
            sys.exit(1)
    print(f"{given.seeds} seeds, {total:,} messages, no violation")


if __name__ == "__main__":
    main()
