"""Public names stay: a release takes none away silently, and the changelog names each new one.

`tests/public_names` has the names of each release (`tools/public_names.py` lists them).
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gapless.version import __version__
from tools.public_names import public_names

ROOT = Path(__file__).parent.parent
RELEASES = sorted((ROOT / "tests" / "public_names").glob("*.txt"))
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def parts(lines: list[str]) -> dict[str, list[str]]:
    """By name: its parameters, as they are written."""
    found = (re.fullmatch(r"([\w.]+)(?:\((.*)\))?", line) for line in lines)
    return {each[1]: (each[2] or "").split(", ") for each in found if each is not None}


NOW = parts(public_names())


@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.stem)
def test_what_a_release_had_is_there_and_takes_the_same_arguments(release: Path) -> None:
    for name, parameters in parts(release.read_text(encoding="utf-8").splitlines()).items():
        assert name in NOW, f"{name} is gone: say so in the changelog, and take it off {release}"
        missing = [each for each in parameters if each not in NOW[name]]
        assert not missing, f"{name} takes {missing} no more, or with another default"


def test_the_changelog_names_what_is_new_since_the_last_release() -> None:
    section = CHANGELOG.partition("\n## ")[2].partition("\n## ")[0]
    last = parts(RELEASES[-1].read_text(encoding="utf-8").splitlines())
    words = set(re.findall(r"\w+", section))
    for name, parameters in NOW.items():
        if name not in last:  # a new class speaks for its members
            assert words & set(name.split(".")[-2:]), f"the changelog does not name {name}"
        for each in parameters if name in last else ():
            word = each.partition("=")[0].lstrip("*") or "*"
            assert each in last[name] or word in words | {"*"}, (
                f"the changelog does not name {each} of {name}"
            )


def test_changelog_package_and_chart_agree_on_the_version() -> None:
    heading = re.search(r"^## (\d+\.\d+\.\d+), (.*)$", CHANGELOG, re.MULTILINE)
    assert heading is not None
    is_open = heading[2] == "not yet released"
    assert __version__ == heading[1] + (".dev0" if is_open else "")
    chart = (ROOT / "deploy" / "helm" / "gapless" / "Chart.yaml").read_text(encoding="utf-8")
    assert re.findall(r"(?:version|appVersion): \"?([\d.]+)", chart) == [heading[1]] * 2


def test_every_earlier_version_has_its_date_and_says_what_breaks() -> None:
    sections = re.split(r"^## ", CHANGELOG, flags=re.MULTILINE)[1:]
    assert all(re.match(r"\d+\.\d+\.\d+, \d+ \w+ \d{4}\n", each) for each in sections[1:])
    assert all("**Breaks**" in each for each in sections[:-1])  # the first one breaks nothing


def test_public_names_have_types(tmp_path: Path) -> None:
    """A program that uses the public names passes a strict check against the installed package."""
    program = tmp_path / "application.py"
    program.write_text(APPLICATION, encoding="utf-8")
    options = ["--strict", "--no-incremental", "--follow-imports=silent", "--config-file="]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, str(program)],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


APPLICATION = """
import gapless
from gapless.sync import connect


async def main(url: str) -> list[object]:
    async with gapless.connect(url) as client:
        await client.create_topic("trades")
        receipt = await client.publish("trades", {"price": 92.5}, b"x")
        tick: int = receipt.tick
        found: list[object] = [tick]
        async with client.subscribe("trades", "price > 90", name="desk") as subscription:
            async for item in subscription:
                if isinstance(item, gapless.Gap):
                    found.append(item.span)
                elif isinstance(item, gapless.Event):
                    found.append(item.attributes["price"])
                token: str = subscription.token.to_json()
                found.append(token)
        return found


def script(url: str) -> None:
    with connect(url) as client, client.publisher("trades", name="feed") as publisher:
        publisher.send({"price": 1})
    print(gapless.Filter.parse("price > 90").matches({"price": 91}))
"""
