"""Play a rolling upgrade, and the way back, with real brokers of two versions under load.

    python tools/rolling_upgrade.py                 from 0.1 to this tree, and back
    python tools/rolling_upgrade.py --old REVISION

The old version is built as a wheel from git and installed into a folder of its own. A network of
three brokers (publishers, a relay, subscribers) starts with the old version. While a client
publishes numbered events and others read them by name, each broker is stopped and started with the
other version, one by one; then all of them back. The exit code is 1 if an event was lost, came
twice or out of order, or if a gap was told. Durable topics alone: the changelog says which services
cannot be mixed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path
from typing import Literal

import gapless

ROOT = Path(__file__).resolve().parent.parent
LAST_OF_0_1 = "c32f89c2^"
"""The last commit of version 0.1, which has no tag."""

NETWORK = """
[[cell]]
name = "p"
brokers = [{ name = "p", listen = "127.0.0.1:0" }]
links = ["r"]
[[cell]]
name = "r"
brokers = [{ name = "r", listen = "127.0.0.1:0" }]
links = ["s"]
[[cell]]
name = "s"
subscribers = true
brokers = [{ name = "s", listen = "127.0.0.1:0" }]
[[topic]]
name = "t"
pubends = ["p"]
"""
TokenKeeper = Literal["client", "broker"]
NAMES = ("p", "r", "s")
READY_S = 120.0
BETWEEN_S = 3.0
"""How long the load goes on between two restarts."""


def build_old(revision: str, work: Path) -> Path:
    """Build the wheel of a revision, and install it into a folder of its own."""
    tree, installed = work / "tree", work / "installed"
    archive = subprocess.run(
        ["git", "archive", revision], cwd=ROOT, check=True, capture_output=True
    ).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        files.extractall(tree, filter="data")
    wheels = work / "wheels"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", str(wheels), str(tree)], check=True)
    [wheel] = wheels.glob("*.whl")
    target = ["--no-deps", "--target", str(installed), str(wheel)]
    subprocess.run([*pip, "install", *target], check=True)
    return installed


class MixedNetwork:
    """The brokers, each of either version."""

    def __init__(self, work: Path, old: Path) -> None:
        self._file, self._data = work / "network.toml", work / "data"
        self._file.write_text(NETWORK)
        self._paths = {"old": str(old), "new": str(ROOT / "src")}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._log = (work / "log").open("ab")

    async def start(self, name: str, version: str) -> None:
        environment = os.environ | {"PYTHONPATH": self._paths[version]}
        run = "from gapless.cli import main; main()"
        command = [sys.executable, "-c", run, "broker", str(self._file), name]
        command += ["--data", str(self._data), "--admin", "none"]
        self._running[name] = self._spawn(command, environment)
        for _ in range(int(READY_S * 10)):
            if self._told(name).get("process") == self._running[name].pid:
                return
            if self._running[name].poll() is not None:
                break
            await asyncio.sleep(0.1)
        raise SystemExit(f"{name} ({version}) does not start; see {self._log.name}")

    def _spawn(self, command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        log = self._log
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def _told(self, name: str) -> dict[str, object]:
        try:
            found: dict[str, object] = json.loads((self._data / name / "address.json").read_text())
        except (OSError, ValueError):
            return {}
        return found

    def kill_all(self) -> None:
        """None of them outlives us."""
        for process in self._running.values():
            process.kill()

    def url(self, name: str) -> str:
        return str(self._told(name)["url"])

    async def stop(self, name: str, *, kill: bool) -> None:
        process = self._running.pop(name)
        process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        await asyncio.to_thread(process.wait)

    async def stop_all(self) -> None:
        for name in list(self._running):
            await self.stop(name, kill=True)


class Load:
    """Numbered events in, and what readers got of them."""

    def __init__(self, network: MixedNetwork) -> None:
        self._network = network
        self.published = 0
        self.got: dict[TokenKeeper, list[int]] = {"broker": [], "client": []}
        self.gaps: list[str] = []
        self.is_over = False

    async def publish(self) -> None:
        async with (
            gapless.connect(self._network.url("p"), patience_s=READY_S) as client,
            client.publisher("t", name="feed") as publisher,
        ):
            while not self.is_over:
                await publisher.send({"number": self.published})
                self.published += 1
                await asyncio.sleep(0.001)

    async def read(self, keeper: TokenKeeper) -> None:
        async with gapless.connect(self._network.url("s"), patience_s=READY_S) as client:
            name = f"reader-{keeper}"
            async with client.subscribe("t", name=name, tokens=keeper) as subscription:
                async for event in subscription:
                    if isinstance(event, gapless.Gap):
                        self.gaps.append(f"{keeper}: {event}")
                    elif isinstance(event, gapless.Event):
                        self.got[keeper].append(int(str(event.attributes["number"])))
                        if len(self.got[keeper]) % 100 == 0:
                            await subscription.acknowledge()

    def wrong(self) -> list[str]:
        wanted = list(range(self.published))
        found = [
            f"{keeper}: {len(got)} of {len(wanted)}, {len(got) - len(set(got))} twice"
            for keeper, got in self.got.items()
            if got != wanted
        ]
        return found + self.gaps


async def play(network: MixedNetwork) -> int:
    for name in NAMES:
        await network.start(name, "old")
    load = Load(network)
    reading = [asyncio.create_task(load.read(keeper)) for keeper in load.got]
    await asyncio.sleep(BETWEEN_S)
    publishing = asyncio.create_task(load.publish())
    kill = False
    for version in ("new", "old"):
        for name in NAMES if version == "new" else reversed(NAMES):
            await asyncio.sleep(BETWEEN_S)
            kill = not kill  # every other one as after a crash
            await network.stop(name, kill=kill)
            await network.start(name, version)
            read = ", ".join(f"{len(got)} read" for got in load.got.values())
            print(f"{name} is {version}; {load.published} published, {read}", flush=True)
            for task in (publishing, *reading):
                if task.done():
                    task.result()
    await asyncio.sleep(BETWEEN_S)
    load.is_over = True
    await publishing
    for _ in range(int(READY_S * 10)):
        if all(len(got) >= load.published for got in load.got.values()):
            break
        await asyncio.sleep(0.1)
    for task in reading:
        task.cancel()
    await asyncio.gather(*reading, return_exceptions=True)
    await network.stop_all()
    wrong = load.wrong()
    print("\n".join(wrong) or f"{load.published} events: 0 lost, 0 doubled, 0 gaps, both ways")
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--old", default=LAST_OF_0_1, help="the revision of the old version")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gapless-upgrade-") as folder:
        work = Path(folder)
        network = MixedNetwork(work, build_old(given.old, work))
        try:
            return asyncio.run(play(network))
        finally:
            network.kill_all()


if __name__ == "__main__":
    sys.exit(main())
