"""What the documentation shows is true: its Python runs, and says what the comments say."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from gapless.node.config import Config
from gapless.scribe.settings import RingSettings

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
