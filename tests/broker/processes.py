"""Brokers as real processes, to be killed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Self

from gapless.broker.address import read_addresses
from gapless.cli.status import ask
from tests.broker.stage import wait_until

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = [sys.executable, "-c", "from gapless.cli import main; main()"]


class Town:
    """The processes of a network, by broker. What is left at the end is killed."""

    def __init__(self, folder: Path, text: str, *, has_admin: bool = False) -> None:
        self.folder = folder
        self._admin = "127.0.0.1:0" if has_admin else "none"
        self.file = folder / "network.toml"
        self.file.write_text(text, encoding="utf-8")
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    async def start(self, *names: str) -> None:
        """Start these and wait until they are ready."""
        for name in names:
            self._spawn(name)
        for name in names:
            await wait_until(lambda name=name: self.is_ready(name))  # type: ignore[misc]

    def _spawn(self, name: str) -> None:
        (self.folder / name).mkdir(exist_ok=True)
        command = [*PROGRAM, "broker", str(self.file), name, "--with-parent"]
        command += ["--admin", self._admin, "--data", str(self.folder)]
        with (self.folder / name / "log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log
            )

    def is_ready(self, name: str) -> bool:
        process = self.processes[name]
        assert process.poll() is None, self.log(name)
        return read_addresses(self.folder / name).get("process") == str(process.pid)

    def url(self, name: str) -> str:
        return read_addresses(self.folder / name)["url"]

    async def subscriptions(self, name: str) -> list[dict[str, Any]]:
        """The durable subscriptions of a broker, as its admin port tells."""
        address = read_addresses(self.folder / name)["admin"]
        found = await asyncio.to_thread(ask, address, "subscriptions")
        assert isinstance(found, list), f"{name} does not answer"
        return found

    def log(self, name: str) -> str:
        return (self.folder / name / "log").read_text(encoding="utf-8")

    def kill(self, name: str) -> None:
        """As `kill -9` does."""
        self.processes[name].kill()
        self._forget(name)

    async def ended(self, name: str) -> int:
        """Wait for one to end by itself; its exit code."""
        process = self.processes[name]
        await wait_until(lambda: process.poll() is not None)
        self._forget(name)
        return process.returncode

    def _forget(self, name: str) -> None:
        process = self.processes.pop(name)
        process.wait()
        assert process.stdin is not None
        process.stdin.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for name in list(self.processes):
            await asyncio.to_thread(self.kill, name)
