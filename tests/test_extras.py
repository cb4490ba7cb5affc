"""A plain installation is the client and the command line; what it lacks is named."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from gapless.broker import embedded
from gapless.core.extras import EXTRAS, missing_extra
from tests.broker.stage import run

ROOT = Path(__file__).parent.parent
LACKING = "import sys\nfor name in {names!r}: sys.modules[name] = None\n"
"""A module that is None in `sys.modules` cannot be imported: as if it were not installed."""

CLIENT = """
from gapless.sync import connect
with connect({url!r}) as client:
    with client.subscribe("t", "a > 1", name="desk") as events:
        for a in range(1000):
            client.publish("t", {{"a": a, "b": "text"}})
        found = iter(events)
        print(sum(next(found).attributes["a"] for _ in range(998)))
"""


def without_extras(code: str) -> subprocess.CompletedProcess[str]:
    names = [module for modules in EXTRAS.values() for module in modules] + ["uvloop"]
    return subprocess.run(
        [sys.executable, "-c", LACKING.format(names=names) + code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def without_extras_run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return without_extras(f"from gapless.cli import main\nsys.argv[1:] = {arguments!r}\nmain()")


def test_each_module_belongs_to_the_extra_that_the_package_declares() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = project["optional-dependencies"]
    for extra, modules in EXTRAS.items():
        names = {re.match(r"[\w-]+", line)[0].replace("-", "_") for line in declared[extra]}  # type: ignore[index]
        assert set(modules) <= names, extra


def test_a_client_publishes_and_subscribes_without_any_extra(tmp_path: Path) -> None:
    async def main() -> subprocess.CompletedProcess[str]:
        async with embedded(["t"], tmp_path) as broker:
            code = CLIENT.format(url=f"gapless://{broker.address}")
            return await asyncio.to_thread(without_extras, code)

    finished = run(main())
    assert finished.stdout.split() == [str(sum(range(2, 1000)))], finished.stderr


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (("serve", "--data", "{}"), "broker"),
        (("security", "init", "{}"), "security"),
        (("pipeline", "audit", "t", "{}", "--master", "local[1]"), "spark"),
    ],
)
def test_a_command_that_needs_more_says_which_extra_brings_it(
    tmp_path: Path, arguments: tuple[str, ...], extra: str
) -> None:
    place = str(tmp_path / "data")
    finished = without_extras_run(*(each.format(place) for each in arguments))
    assert finished.returncode == 2, finished.stderr
    assert f"gapless[{extra}]" in " ".join(finished.stderr.split()), finished.stderr
    assert "Traceback" not in finished.stderr


def test_help_needs_no_extra() -> None:
    finished = without_extras_run("--help")
    assert finished.returncode == 0, finished.stderr


def test_a_module_of_no_extra_has_no_remedy() -> None:
    assert missing_extra("nowhere") is None
