"""kill -9: a broker process with an MQTT door comes back, and clients go on by the rules."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from gapless.doors.mqtt.packets import (
    AnswerPacket,
    ConnectPacket,
    Kind,
    PublishPacket,
    SubscribePacket,
    TopicFilter,
)
from tests.broker.stage import run
from tests.children import PROGRAM, child, told
from tests.doors.mqtt.stage import Peer

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

KILLS = int(os.environ.get("MQTT_KILLS", "2"))
"""More of them: MQTT_KILLS=200 pytest tests/doors/mqtt/test_crash.py, with a longer patience."""

WINDOW = 8


class Server:
    """A broker process that is killed and started again on the same data."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self.port = 0
        self.process: subprocess.Popen[str] | None = None
        self._peers: list[Peer] = []

    async def start(self) -> None:
        places = ["--listen", "127.0.0.1:0", "--mqtt", "127.0.0.1:0", "--admin", "none"]
        command = [*PROGRAM, "serve", *places, "--data", str(self._folder)]
        process = self._stack.enter_context(child(command))
        line = await asyncio.to_thread(told, process)
        self.port = int(line.rsplit(":", 1)[1])
        self.process = process

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def hang_up(self) -> None:
        """No connection outlives the test, or the process that it was to."""
        for peer in self._peers:
            peer.cut()
        self._peers.clear()

    async def join(self, client: str) -> Peer:
        peer = Peer(*await asyncio.open_connection("127.0.0.1", self.port), 5)
        self._peers.append(peer)
        peer.send(ConnectPacket(5, client, False, 0, properties={"session_expiry": 0xFFFFFFFF}))
        peer.connack = await peer.expect(Kind.CONNACK)
        return peer


class Sender:
    """Publishes 0, 1, 2, … and repeats by the rules what was not answered."""

    def __init__(self, client: str, topic: str, qos: int) -> None:
        self.client, self.topic, self.qos = client, topic, qos
        self.next = 0
        self.done = 0
        self.open: dict[int, tuple[int, bool]] = {}  # by packet: number, and whether it is released

    async def work(self, server: Server, until: int) -> None:
        """Until this many are answered, or (0) all that were sent; a lost connection ends it."""
        peer = await server.join(self.client)
        for packet, (number, is_released) in self.open.items():
            self.send(peer, packet, number, is_released=is_released, dup=True)
        while self.done < until if until else self.open:
            while until and len(self.open) < WINDOW:
                packet = self.next % 50 + 1
                if packet in self.open:
                    break
                self.open[packet] = (self.next, False)
                self.send(peer, packet, self.next, is_released=False, dup=False)
                self.next += 1
            got = await peer.read()
            if got is None:
                return
            if got.kind == Kind.PUBREC:
                self.open[got.packet] = (self.open[got.packet][0], True)
                peer.send(AnswerPacket(Kind.PUBREL, got.packet))
            elif got.kind in (Kind.PUBACK, Kind.PUBCOMP) and got.packet in self.open:
                del self.open[got.packet]
                self.done += 1
        peer.cut()

    def send(self, peer: Peer, packet: int, number: int, *, is_released: bool, dup: bool) -> None:
        if is_released:
            peer.send(AnswerPacket(Kind.PUBREL, packet))
        else:
            text = str(number).encode()
            peer.send(PublishPacket(self.topic, text, self.qos, False, dup, packet))


class Taker:
    """Keeps what it gets, and what it has not released."""

    def __init__(self, client: str, topic: str, qos: int) -> None:
        self.client, self.topic, self.qos = client, topic, qos
        self.got: list[int] = []
        self.unreleased: set[int] = set()

    async def work(self, server: Server, until: int) -> None:
        """Until it has `until` different numbers; a lost connection ends it."""
        peer = await server.join(self.client)
        if not peer.connack.body[0]:
            peer.send(SubscribePacket(1, (TopicFilter(self.topic, self.qos),)))
            await peer.expect(Kind.SUBACK)
        while len(set(self.got)) < until:
            got = peer.held.pop(0) if peer.held else await peer.read()
            if got is None:
                return
            if got.kind == Kind.PUBLISH and got.qos == 2:
                if got.packet not in self.unreleased:
                    self.unreleased.add(got.packet)
                    self.got.append(int(got.payload))
                peer.send(AnswerPacket(Kind.PUBREC, got.packet))
            elif got.kind == Kind.PUBLISH:
                self.got.append(int(got.payload))
                peer.send(AnswerPacket(Kind.PUBACK, got.packet))
            elif got.kind == Kind.PUBREL:
                self.unreleased.discard(got.packet)
                peer.send(AnswerPacket(Kind.PUBCOMP, got.packet))
        peer.cut()


@pytest.mark.slow
def test_no_qos_1_is_lost_and_no_qos_2_comes_twice_through_kill_9(tmp_path: Path) -> None:
    async def main() -> None:
        with ExitStack() as stack:
            server = Server(tmp_path, stack)
            await server.start()
            senders = [Sender(f"s{qos}", f"t/{qos}", qos) for qos in (1, 2)]
            takers = [Taker(f"r{qos}", f"t/{qos}", qos) for qos in (1, 2)]
            await asyncio.gather(*(each.work(server, 0) for each in takers))
            for _ in range(KILLS):
                goal = senders[1].done + 60
                lasting = [asyncio.create_task(each.work(server, 1 << 30)) for each in takers]
                lasting.append(asyncio.create_task(senders[0].work(server, 1 << 30)))
                await senders[1].work(server, goal)
                server.kill()
                await asyncio.gather(*lasting)
                server.hang_up()
                await server.start()
            for each in senders:
                await each.work(server, 0)
            totals = [each.next for each in senders]
            await asyncio.gather(
                *(each.work(server, total) for each, total in zip(takers, totals, strict=True))
            )
            server.hang_up()
            assert sorted(set(takers[0].got)) == list(range(totals[0]))
            assert sorted(takers[1].got) == list(range(totals[1]))

    run(main())
