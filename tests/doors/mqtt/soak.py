"""kill -9 against a network of three, with clients that others wrote, unmodified.

    python -m tests.doors.mqtt.soak --kills 200 --modules FOLDER

paho, mosquitto_pub and mosquitto_sub take part, and where `--modules` names a folder with the npm
package `mqtt` in its node_modules, MQTT.js under Node and in a headless Chromium over WebSocket.
Publishers send numbers of QoS 1 and 2 while brokers are killed and come back. In the end every
subscriber must have each number of QoS 1 that was acknowledged, and each of QoS 2 once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from contextlib import AsyncExitStack, ExitStack, suppress
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from gapless.testing.processes.brokers import Processes, topic

NAMES = ("top", "east", "west")
PORTS = range(20_000, 30_000)
PAUSE_S = 0.05
END_S = 60.0
NODE = """
const mqtt = require('mqtt'), [url, id] = process.argv.slice(1);
const client = mqtt.connect(url, {clientId: id, clean: false, protocolVersion: 5,
  reconnectPeriod: 300, properties: {sessionExpiryInterval: 4294967295}});
client.once('connect', () => client.subscribe('soak/#', {qos: 2},
  () => console.log('ready')));
client.on('error', () => {});
client.on('message', (topic, payload) => console.log(topic + ' ' + payload));
"""
PAGE = """
async ([url, id]) => {
  window.got = [];
  const client = mqtt.connect(url, {clientId: id, clean: false, protocolVersion: 5,
    reconnectPeriod: 300, properties: {sessionExpiryInterval: 4294967295}});
  client.on('error', () => {});
  client.on('message', (topic, payload) => window.got.push(topic + ' ' + payload));
  await new Promise(done => client.once('connect',
    () => client.subscribe('soak/#', {qos: 2}, done)));
}
"""


def free_ports(count: int) -> list[int]:
    """Ports below those that the system gives away: while a broker is down, nobody else gets its
    port, neither another server nor the client itself, which would read its own CONNECT."""
    found: list[int] = []
    with ExitStack() as stack:
        for port in random.sample(PORTS, len(PORTS)):
            each = stack.enter_context(socket.socket())
            with suppress(OSError):
                each.bind(("127.0.0.1", port))
                found.append(port)
            if len(found) == count:
                return found
    raise OSError("there are not enough free ports")


class Network:
    """Three brokers at fixed ports."""

    def __init__(self, folder: Path) -> None:
        ports = free_ports(9)
        self.mqtt = dict(zip(NAMES, ports[3:6], strict=True))
        self.web = dict(zip(NAMES, ports[6:], strict=True))
        cells = [
            f'[[cell]]\nname = "{name}"\nbrokers = [{{ name = "{name}", '
            f'listen = "127.0.0.1:{port}", mqtt = "127.0.0.1:{self.mqtt[name]}", '
            f'mqtt_ws = "127.0.0.1:{self.web[name]}" }}]\n'
            + ('links = ["top"]\n' if name != "top" else "")
            + "subscribers = true\n"
            for name, port in zip(NAMES, ports, strict=False)
        ]
        self.processes = Processes(*cells, topic("mqtt", *NAMES), folder=folder)


class Taker:
    """What one subscriber has got: lines of topic and number."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.got: Counter[str] = Counter()

    def lines(self) -> Counter[str]:
        return self.got


def session(label: str, port: int) -> paho.Client:
    """A durable session of paho."""
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, label, protocol=paho.MQTTv5)
    client.reconnect_delay_set(0.2, 1)
    properties = Properties(PacketTypes.CONNECT)
    properties.SessionExpiryInterval = 0xFFFFFFFF
    client.connect("127.0.0.1", port, keepalive=10, clean_start=False, properties=properties)
    return client


class PahoTaker(Taker):
    """paho, in this process."""

    def __init__(self, label: str, port: int) -> None:
        super().__init__(label)
        self.ready = threading.Event()
        self._client = session(label, port)
        self._client.on_message = lambda _, __, got: self.got.update(
            [f"{got.topic} {got.payload.decode()}"]
        )
        self._client.on_subscribe = lambda *_: self.ready.set()
        self._client.loop_start()
        self._client.subscribe("soak/#", 2)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


class ProcessTaker(Taker):
    """A subscriber whose process prints what it gets. Its end is told at once, with the last that
    it said."""

    def __init__(self, label: str, command: list[str], **more: Any) -> None:
        super().__init__(label)
        self.ready = threading.Event()
        self.is_over = False
        self._said: deque[str] = deque(maxlen=40)
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._said.append(line)
            if line.startswith("soak/"):
                self.got[line.strip()] += 1
            else:
                self.ready.set()
        if not self.is_over:
            code = self._process.wait()
            print(f"{self.label} has ended with {code}:", *self._said, sep="\n", file=sys.stderr)

    def close(self) -> None:
        self.is_over = True
        self._process.kill()
        self._process.wait()
        self._thread.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


class BrowserTaker(Taker):
    """MQTT.js in a headless Chromium."""

    def __init__(self, label: str, page: Any) -> None:
        super().__init__(label)
        self.page = page

    async def fetch(self) -> None:
        self.got = Counter(await self.page.evaluate("window.got"))


class PahoSender:
    """Publishes numbers of QoS 1 and 2; `done` has what was answered.

    paho calls `on_publish` under a lock of its own that `publish` takes too: the callback takes no
    lock, and another thread looks at what it has noted.
    """

    def __init__(self, label: str, port: int) -> None:
        self.done: list[str] = []
        self._label = label
        self._client = session(label, port)
        self._sent: dict[int, str] = {}
        self._answers: deque[int] = deque()
        self._client.on_publish = lambda _, __, number, *___: self._answers.append(number)
        self._client.loop_start()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _note(self) -> None:
        while self._answers:
            self.done.append(self._sent.pop(self._answers.popleft()))

    def _run(self) -> None:
        number = 0
        while not self._is_over.wait(PAUSE_S):
            self._note()
            if len(self._sent) > 40:
                continue
            qos = 1 + number % 2
            place, text = f"soak/{self._label}/{qos}", str(number)
            sent = self._client.publish(place, text, qos)
            self._sent[sent.mid] = f"{place} {text}"
            number += 1

    def stop(self) -> bool:
        """Send nothing more; whether all was answered in time."""
        self._is_over.set()
        self._thread.join()
        until_s = time.monotonic() + END_S
        while self._sent and time.monotonic() < until_s:
            time.sleep(0.1)
            self._note()
        self._client.disconnect()
        self._client.loop_stop()
        return not self._sent


class CommandSender:
    """mosquitto_pub, once for each number, repeated until it succeeds: QoS 1."""

    def __init__(self, label: str, port: int) -> None:
        self.done: list[str] = []
        self._is_over = threading.Event()
        self._place = f"soak/{label}/1"
        self._port = port
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._is_over.wait(PAUSE_S * 10):
            command = ["mosquitto_pub", "-V", "5", "-p", str(self._port), "-q", "1"]
            command += ["-t", self._place, "-m", str(number)]
            while subprocess.run(command, capture_output=True, check=False).returncode:
                if self._is_over.wait(0.3):
                    return
            self.done.append(f"{self._place} {number}")
            number += 1

    def stop(self) -> bool:
        self._is_over.set()
        self._thread.join(END_S)
        return True


class Soak:
    """One soak."""

    def __init__(self, folder: Path, modules: Path | None, seed: int) -> None:
        self._network = Network(folder)
        self._modules = modules
        self._dice = random.Random(seed)
        self._takers: list[Any] = []
        self._senders: list[PahoSender | CommandSender] = []

    async def run(self, kills: int) -> dict[str, Any]:
        processes = self._network.processes
        async with processes, AsyncExitStack() as stack:
            await processes.start(*NAMES)
            await self._begin(stack)
            begin_s = time.monotonic()
            for number in range(kills):
                name = self._dice.choice(NAMES)
                processes.kill(name)
                await asyncio.sleep(self._dice.random() / 2)
                await processes.start(name)
                await asyncio.sleep(self._dice.random())
                over = [n for n, each in processes.running.items() if each.poll() is not None]
                assert not over, f"brokers have ended by themselves: {over}"
                took_s = time.monotonic() - begin_s
                print(f"{number + 1:3} of {kills}  {took_s:6.0f} s  kill {name}", file=sys.stderr)
            answered = [await asyncio.to_thread(each.stop) for each in self._senders]
            outcome = {"kills": kills, "answered": all(answered), **await self._judge()}
            if outcome["missing"] or outcome["twice"] or not outcome["answered"]:
                for name in NAMES:
                    print(name, processes.log(name)[-4000:], file=sys.stderr)
            return outcome

    async def _begin(self, stack: AsyncExitStack) -> None:
        at, web = self._network.mqtt, self._network.web
        made: list[Any] = [PahoTaker("paho", at["east"])]
        if shutil.which("mosquitto_sub"):
            # QoS 1: libmosquitto 2.0.11 itself loses and doubles QoS 2, see docs/how-to/mqtt.md
            options = ["-V", "5", "-c", "-i", "command", "-x", "4294967295", "-q", "1", "-k", "10"]
            command = ["mosquitto_sub", "-p", str(at["west"]), *options, "-t", "soak/#", "-v", "-d"]
            made.append(ProcessTaker("mosquitto_sub", command))
            made[-1].ready.set()
        if self._modules is not None:
            command = ["node", "-e", NODE, f"mqtt://127.0.0.1:{at['top']}", "node"]
            made.append(ProcessTaker("MQTT.js under Node", command, cwd=self._modules))
        for each in made:
            stack.callback(each.close)
            assert await asyncio.to_thread(each.ready.wait, END_S), f"{each.label} cannot begin"
        if self._modules is not None:
            made.append(await self._browse(stack, f"ws://127.0.0.1:{web['west']}"))
        self._takers = made
        await self._probe(at["top"])
        self._senders = [PahoSender("one", at["top"]), PahoSender("two", at["west"])]
        if shutil.which("mosquitto_pub"):
            self._senders.append(CommandSender("mosquitto_pub", at["east"]))

    async def _probe(self, port: int) -> None:
        """Publish until all subscribers get it: mosquitto_sub does not say when it is ready."""
        probe = session("probe", port)
        probe.loop_start()
        until_s = time.monotonic() + END_S
        while not all("soak/probe 0" in each.lines() for each in self._takers):
            assert time.monotonic() < until_s, "a subscriber gets nothing"
            probe.publish("soak/probe", "0", 1)
            await asyncio.sleep(0.5)
            await self._fetch()
        probe.disconnect()
        probe.loop_stop()

    async def _fetch(self) -> None:
        for each in self._takers:
            if isinstance(each, BrowserTaker):
                with suppress(TimeoutError):
                    await each.fetch()

    async def _browse(self, stack: AsyncExitStack, url: str) -> BrowserTaker:
        from playwright.async_api import async_playwright

        assert self._modules is not None
        script = self._modules / "node_modules" / "mqtt" / "dist" / "mqtt.min.js"
        player = await stack.enter_async_context(async_playwright())
        program = shutil.which("chromium") or shutil.which("google-chrome")
        browser = await player.chromium.launch(executable_path=program, args=["--no-sandbox"])
        stack.push_async_callback(browser.close)
        page = await browser.new_page()
        await page.add_script_tag(path=script)
        await page.evaluate(PAGE, [url, "browser"])
        return BrowserTaker("MQTT.js in Chromium", page)

    async def _judge(self) -> dict[str, Any]:
        """What each subscriber misses, and what of QoS 2 came twice, when nothing comes."""
        wanted = {line for each in self._senders for line in each.done}
        until_s = time.monotonic() + END_S
        while True:
            await self._fetch()
            missing = {e.label: sorted(wanted - e.lines().keys()) for e in self._takers}
            if not any(missing.values()) or time.monotonic() > until_s:
                break
            await asyncio.sleep(0.5)
        await asyncio.sleep(2)  # for what comes twice
        return {
            "published": len(wanted),
            "received": {e.label: e.lines().total() for e in self._takers},
            "missing": {label: lines[:10] for label, lines in missing.items() if lines},
            "most": {e.label: e.lines().most_common(3) for e in self._takers},
            "twice": {
                e.label: twice
                for e in self._takers
                if e.label != "mosquitto_sub"  # it takes them with QoS 1
                and (twice := [x for x, n in e.lines().items() if n > 1 and "/2 " in x])
            },
        }


def soak(kills: int, modules: Path | None = None, seed: int = 1) -> dict[str, Any]:
    """The outcome; `missing` and `twice` are empty if all promises were kept."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(Soak(Path(folder), modules, seed).run(kills))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--modules", type=Path, help="a folder with node_modules/mqtt")
    given = parser.parse_args()
    outcome = soak(given.kills, given.modules, given.seed)
    print(json.dumps(outcome, indent=2))
    if outcome["missing"] or outcome["twice"] or not outcome["answered"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
