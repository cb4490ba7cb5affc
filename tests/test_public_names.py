"""Public names stay: a release takes none away silently, and the changelog names each new one.

`tests/public_names` has the names of each release (`tools/public_names.py` lists them).
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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
