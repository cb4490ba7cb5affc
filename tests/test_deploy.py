"""The deployment files say what the product understands; tools check them where they are found."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from gapless.broker.networks import read_network
from gapless.cli import app
from tests.broker.stage import run
from tests.children import PROGRAM

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "gapless"
SECURE = ("--set", "security.secret=keys")


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    place = shutil.which(
        "helm", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    )
    if place is None:
        pytest.skip("no helm on this machine")
    return subprocess.run([place, *arguments], capture_output=True, text=True, check=False)


def rendered(*options: str) -> dict[str, Any]:
    """What the chart makes, by kind."""
    finished = helm("template", "trial", str(CHART), *options)
    assert finished.returncode == 0, finished.stderr
    return {each["kind"]: each for each in yaml.safe_load_all(finished.stdout) if each}


def check_options(command: list[str]) -> None:
    """Each option of a command line is one that the command has."""
    shown = CliRunner().invoke(app, [command[0], "--help"], env={"COLUMNS": "200"}).output
    for option in (each.partition("=")[0] for each in command[1:] if each.startswith("--")):
        assert re.search(rf"{option}\b", shown), (command[0], option)


def test_the_chart_is_well_formed() -> None:
    finished = helm("lint", "--strict", str(CHART), *SECURE)
    assert finished.returncode == 0, finished.stdout


def test_the_chart_runs_one_broker_without_a_store() -> None:
    pods = rendered(*SECURE, "--set", "broker.settings.connections_max=7")
    assert pods["StatefulSet"]["spec"]["replicas"] == 1
    container = pods["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/ready"
    assert "--security=/security" in container["args"]
    check_options(container["args"])
    assert pods["ConfigMap"]["data"]["gapless.toml"].strip() == "connections_max = 7"


def test_the_chart_runs_a_standby_beside_a_broker_with_a_store() -> None:
    pods = rendered(*SECURE, "--set", "store.secret=database")
    assert pods["StatefulSet"]["spec"]["replicas"] == 2
    container = pods["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]
    assert "--store=$(GAPLESS_STORE)" in container["args"]
    assert container["env"][0]["valueFrom"]["secretKeyRef"] == {"name": "database", "key": "url"}
    check_options(container["args"])


def test_the_chart_is_not_insecure_by_accident() -> None:
    finished = helm("template", "trial", str(CHART))
    assert finished.returncode != 0
    assert "security.insecure=true" in finished.stderr
    args = rendered("--set", "security.insecure=true")["StatefulSet"]
    assert "--insecure" in args["spec"]["template"]["spec"]["containers"][0]["args"]


def test_the_compose_file_runs_the_brokers_of_its_network() -> None:
    text = (DEPLOY / "compose" / "compose.yml").read_text(encoding="utf-8")
    services = yaml.safe_load(text)["services"]
    network = read_network(DEPLOY / "compose" / "network.toml")
    brokers = {name for name, each in services.items() if each.get("command", [""])[0] == "broker"}
    assert brokers == {broker.name for cell in network.cells for broker in cell.brokers}
    for each in services.values():
        if "command" in each and each["command"][0] in ("broker", "serve"):
            check_options(each["command"])
    for name in brokers:
        assert services[name]["command"][2] == name
    for each in services.values():  # what is mounted from the repository is there
        for source in (mount.partition(":")[0] for mount in each.get("volumes", ())):
            assert not source.startswith(".") or (DEPLOY / "compose" / source).exists(), source
    scraped = yaml.safe_load((DEPLOY / "compose" / "prometheus.yml").read_text(encoding="utf-8"))
    assert scraped["rule_files"] == ["alerts.yml"]
    targets = scraped["scrape_configs"][0]["static_configs"][0]["targets"]
    assert {target.partition(":")[0] for target in targets} <= services.keys()


def test_the_image_copies_what_exists_and_runs_a_command_that_exists() -> None:
    text = (DEPLOY / "container" / "Dockerfile").read_text(encoding="utf-8")
    for line in re.findall(r"^COPY (?!--)(.*)$", text, re.MULTILINE):
        assert all((ROOT / source).exists() for source in line.split()[:-1]), line
    assert re.findall(r"^USER (.*)$", text, re.MULTILINE) == ["10001"]
    check_options(re.findall(r'"([^"]*)"', re.findall(r"^CMD (.*)$", text, re.MULTILINE)[0]))


def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    text = (DEPLOY / "systemd" / "gapless.service").read_text(encoding="utf-8")
    started = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)[0]
    check_options(shlex.split(started)[1:])
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze on this machine")
    unit = tmp_path / "gapless.service"
    unit.write_text(text.replace("/opt/gapless/bin/gapless", "/bin/true"), encoding="utf-8")
    finished = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
    )
    assert "gapless.service" not in finished.stderr, finished.stderr


def test_a_broker_tells_systemd_that_it_is_ready_and_that_it_stops(tmp_path: Path) -> None:
    async def main() -> list[bytes]:
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(str(tmp_path / "notify"))
            manager.setblocking(False)
            broker = await asyncio.create_subprocess_exec(
                *PROGRAM, "serve", "--data", str(tmp_path / "data"),
                "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
                env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")},
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
            told = [await loop.sock_recv(manager, 1000)]
            broker.send_signal(signal.SIGTERM)
            told.append(await loop.sock_recv(manager, 1000))
            assert await broker.wait() == 0
            return told

    assert run(main()) == [b"READY=1", b"STOPPING=1"]
