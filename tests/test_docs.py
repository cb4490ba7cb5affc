"""What the documentation shows is true: its Python runs, and says what the comments say."""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gapless.node.config import Config
from gapless.scribe.settings import RingSettings
from tests.children import PATIENCE_S, PROGRAM, child

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    for number, block in enumerate(
        re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    )
]
SAID = re.compile(r"print\(.*\)  # (.*)$")


@pytest.mark.parametrize("block", BLOCKS)
def test_a_python_example_runs_and_prints_what_it_says(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # some open a volume here
    expected = [found[1] for line in block.splitlines() if (found := SAID.match(line))]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block, "example", "exec"), {})
    if expected:
        assert printed.getvalue().splitlines() == expected


def test_the_readme_shows_the_two_commands_that_do_everything() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in ("demo", "test"):
        assert re.search(rf"^make {command}$", text, flags=re.MULTILINE)
        assert re.search(rf"^{command}: setup", targets, flags=re.MULTILINE)


def test_every_target_of_the_makefile_is_described() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"^\.PHONY: (.*)$", text, flags=re.MULTILINE)
    assert phony is not None
    described = re.findall(r"^([a-z]+):.*  ## .+$", text, flags=re.MULTILINE)
    assert sorted(phony[1].split()) == sorted(described)


UNITS = {"ms": 1_000, "s": 1_000_000, "MiB": 1 << 20, "": 1}


def value_of(text: str) -> int:
    """A default as a page writes it: 200 ms, 1,000, 16 MiB."""
    number, _, unit = text.partition(" ")
    return int(number.replace(",", "")) * UNITS[unit]


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "protocols").glob("*.md")), ids=str)
def test_defaults_that_the_page_of_a_protocol_gives_are_those_in_use(page: Path) -> None:
    in_use = RingSettings() if page.stem == "scribe" else Config()
    text = page.read_text(encoding="utf-8")
    for table in re.findall(r"^\| \w+ \| default \|.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE):
        for row in table.splitlines():
            names, default = (cell.strip() for cell in row.split("|")[1:3])
            settings = re.findall(r"`(\w+)`", names)
            if not settings or not hasattr(in_use, settings[0]):
                continue  # a limit that cannot be set, or is a topic's
            given = [value_of(each) for each in re.split(r"[;,] (?=\d)", default)]
            assert given == [getattr(in_use, each) for each in settings], names


class Newcomer:
    """Follows `docs/tutorial/first-steps.md`: a broker, a subscriber, and commands beside them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        program = folder / "bin" / "gapless"
        program.parent.mkdir()
        program.write_text(f"#!{sys.executable}\nfrom gapless.cli import main\nmain()\n")
        program.chmod(0o755)
        self.environment = {**os.environ, "PATH": f"{program.parent}{os.pathsep}{os.defpath}"}

    @contextlib.contextmanager
    def broker(self) -> Any:
        serve = [*PROGRAM, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
        with child(serve, cwd=self.folder, stderr=subprocess.DEVNULL) as process:
            assert process.stdout is not None
            found = re.search(r"gapless://\S+:\d+", process.stdout.readline())
            assert found is not None
            self.environment["GAPLESS_URL"] = found[0]
            yield process

    def run(self, block: str) -> str:
        done = subprocess.run(
            ["bash", "-euc", block], cwd=self.folder, env=self.environment, check=True,
            capture_output=True, text=True, timeout=PATIENCE_S,
        )  # fmt: skip
        return done.stdout

    @contextlib.contextmanager
    def subscriber(self, block: str) -> Any:
        command = ["bash", "-euc", f"exec {block}"]
        with child(command, cwd=self.folder, env=self.environment) as process:
            assert process.stderr is not None
            assert "subscribed to trades" in process.stderr.readline()
            yield process
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE_S)


def test_a_newcomer_can_follow_the_first_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (ROOT / "docs" / "tutorial" / "first-steps.md").read_text(encoding="utf-8")
    shell = re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL)
    [subscribe] = re.findall(r"```console\n(.*?)```", text, flags=re.DOTALL)
    [program] = re.findall(r"```py\n(.*?)```", text, flags=re.DOTALL)
    [crash] = re.findall(r"```text\n([^`]*?kill -9[^`]*?)gapless serve\n```", text)
    create, publish, away, back, clean = shell
    newcomer = Newcomer(tmp_path)
    with newcomer.broker() as first:
        newcomer.run(create)
        with newcomer.subscriber(subscribe) as subscriber:
            newcomer.run(publish)
            lines = [subscriber.stdout.readline() for _ in range(2)]
        assert [line.split()[-1] for line in lines] == ["price=92.5", "price=95"]
        assert re.search(r"name=desk-7 .*state=away.* pending=1 ", newcomer.run(away))
        assert newcomer.run(back).endswith("price=97\n")
        newcomer.run(crash)
        assert first.wait(PATIENCE_S) == -signal.SIGKILL
    with newcomer.broker():
        assert newcomer.run(back).endswith("price=98\n")
        printed = io.StringIO()
        monkeypatch.chdir(tmp_path)
        with contextlib.redirect_stdout(printed):
            url = newcomer.environment["GAPLESS_URL"]
            exec(compile(program.replace("gapless://127.0.0.1:7117", url), "steps", "exec"), {})
        said = [found[1] for found in re.finditer(r"print\(.*\)  # (.*)", program)]
        assert printed.getvalue().splitlines() == said
        newcomer.run(clean)
