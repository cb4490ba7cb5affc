"""What the documentation shows is true: its Python runs, and says what the comments say."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

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
