"""The style rules that a program can check."""

from __future__ import annotations

import ast
import pkgutil
import re
import tokenize
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULE_LINES_NOTED = 700
FUNCTION_LINES_MAX = 70
SOURCES = sorted(
    path
    for folder in ("src", "lab/src", "tests", "benchmarks", "fuzz", "tools")
    for path in (ROOT / folder).rglob("*.py")
)
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))

FORBIDDEN_NAMES = {"utils", "util", "common", "helpers", "helper", "base", "types", "misc"}
MACHINE_PATH = re.compile(r"(?<![\w.])/(root|tmp|work|home)/\w")
REGISTRY = re.compile("pypi" + r"\.org|python" + r"hosted|npmjs" + r"\.org|deb\.debian")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_a_module_has_a_telling_name_and_short_functions(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert path.stem not in FORBIDDEN_NAMES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < FUNCTION_LINES_MAX, node.name


def test_long_modules_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """No limit: a module is one idea. A long one is printed, for somebody to look at."""
    for path in SOURCES:
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > MODULE_LINES_NOTED:
            with capsys.disabled():
                print(f"{name_of(path)} has {lines} lines: is it one idea?")


@pytest.mark.parametrize("path", [*SOURCES, *PAGES], ids=name_of)
def test_no_file_names_one_machine_or_a_registry(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not MACHINE_PATH.search(text)
    assert not REGISTRY.search(text)


def prose_of(path: Path) -> str:
    return re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)


def anchors_of(path: Path) -> set[str]:
    """Where links into a page may lead: its headings, as MkDocs and GitHub name them."""
    headings = re.findall(r"^#+ (.*)$", prose_of(path), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings}


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_a_page_has_one_title_and_its_links_lead_somewhere(path: Path) -> None:
    prose = prose_of(path)
    assert len(re.findall(r"^# ", prose, flags=re.MULTILINE)) == 1
    for target, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", prose):
        if "://" not in target:
            there = path.parent / target if target else path
            assert there.exists(), target
            assert not anchor or anchor in anchors_of(there), f"{target}#{anchor}"


def test_every_page_is_in_the_navigation_once() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = re.findall(r"^ +- ([\w/.-]+\.md)$", nav, flags=re.MULTILINE)
    pages = [str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")]
    assert sorted(listed) == sorted(pages)


def test_every_decision_is_in_the_index_and_has_its_parts() -> None:
    index = (ROOT / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")
    parts = ["## Context", "## Decision", "## Consequences", "## What would change our mind"]
    assert len({path.name[:5] for path in DECISIONS}) == len(DECISIONS), "a number is given twice"
    for path in DECISIONS:
        text = path.read_text(encoding="utf-8")
        assert re.match(r"\d{4}-", path.name), path.name
        title = text.splitlines()[0].removeprefix("# ")
        assert f"[{title}]({path.name})" in index
        assert [part for part in parts if f"\n{part}" not in text] == [], path.name
        assert "| Status |" in text, path.name


def test_every_test_file_mirrors_a_module() -> None:
    """Where a test file stands says what it tests; these folders cut across modules."""
    across = {"conformance", "end_to_end", "golden", "papers", "processes", "sim"}
    for path in (ROOT / "tests").rglob("test_*.py"):
        folder = path.relative_to(ROOT / "tests").parent
        if folder.parts and folder.parts[0] not in across:
            if folder.parts[0] == "lab":
                mirrored = ROOT / "lab" / "src" / "gapless_lab" / Path(*folder.parts[1:])
            else:
                mirrored = ROOT / "src" / "gapless" / folder
            assert mirrored.is_dir(), path


# --- every reference resolves ---------------------------------------------------------------------

PLACE = re.compile(r"(?<![\w./-])(?:[\w*-]+/)*[\w*-]+\.(?:py|md|txt|png)\b(?!\()")
"""A file that is named: with folders or without, perhaps a pattern."""

FOLDER = re.compile(
    r"(?<![\w./~-])(?:src|lab|tests|docs|benchmarks|fuzz|tools)(?:/[\w*-]+)*/?(?![\w/.*-])"
)
CITED = re.compile(r"(docs/[\w/-]+\.md)((?:,\s+\d+(?:\.\d+)*(?![\w%]))+)")
LINKED = re.compile(r"\[[^\]]*, (\d+(?:\.\d+)*)\]\(([^)#]+\.md)\)")
DOTTED = re.compile(r"(?<![\w./@-])gapless(?:\.[A-Za-z_]\w*)+")
ELSEWHERE = {"gapless.toml", "stomp.py"}
"""Names of other projects, and of a user's own settings file."""

FILES = [
    str(path.relative_to(ROOT))
    for folder in ("src", "lab", "tests", "docs", "benchmarks", "fuzz", "tools", ".ci")
    for path in (ROOT / folder).rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
] + [path.name for path in ROOT.iterdir() if path.is_file()]


@cache
def written_in(path: Path) -> str:
    """What a file says to its readers: a page, or the comments and docstrings of a module."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    with path.open("rb") as source:
        return "\n".join(
            token.string
            for token in tokenize.tokenize(source.readline)
            if token.type == tokenize.COMMENT or token.string.startswith(('"""', 'r"""'))
        )


@cache
def is_file(place: str) -> bool:
    """Does a file of the repository end so?"""
    pattern = re.compile(r"(?:.*/)?" + re.escape(place).replace(r"\*", "[^/]*"))
    return any(pattern.fullmatch(each) for each in FILES)


@cache
def sections_of(page: Path) -> set[str]:
    return set(re.findall(r"^#+ (\d+(?:\.\d+)*)\.? ", prose_of(page), flags=re.MULTILINE))


@pytest.mark.parametrize("path", [*SOURCES, *PAGES], ids=name_of)
def test_every_file_that_is_named_exists_and_cited_sections_too(path: Path) -> None:
    said = written_in(path)
    assert "PROTOCOLS" not in said, "cite docs/protocols/, by page and section"
    for place in set(PLACE.findall(said)):
        assert place in ELSEWHERE or is_file(place), place
    for folder in FOLDER.findall(said):
        assert list(ROOT.glob(folder)), folder
    for page, numbers in CITED.findall(said):
        for number in re.findall(r"\d+(?:\.\d+)*", numbers):
            assert number in sections_of(ROOT / page), f"{page}, {number}"
    for number, page in LINKED.findall(said):
        assert number in sections_of(path.parent / page), f"{page}, {number}"


@pytest.mark.parametrize("path", [*SOURCES, *PAGES], ids=name_of)
def test_every_name_that_is_given_to_readers_can_be_imported(path: Path) -> None:
    for name in sorted(set(DOTTED.findall(written_in(path)))):
        if name not in ELSEWHERE:
            assert pkgutil.resolve_name(name) is not None


def test_the_code_map_names_modules_that_there_are() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    table = text[text.index("| in `node/` |") :].split("\n\n")[0]
    node = ROOT / "src" / "gapless" / "node"
    listed = {path for path in node.rglob("*.py") if path.name == "__init__.py"}
    for row in table.splitlines()[2:]:
        first, says = row.split("|")[1:3]
        folders = re.findall(r"`(\w+)/`", first)
        for name in re.findall(r"`(\w+)`", says if folders else first):
            listed.add(node.joinpath(*folders, f"{name}.py"))
    assert listed == set(node.rglob("*.py"))
    others = text.replace(table, "")
    for folder in re.findall(r"^\| `(\w+)/` \|", others, flags=re.MULTILINE):
        assert (ROOT / "src" / "gapless" / folder).is_dir(), folder
