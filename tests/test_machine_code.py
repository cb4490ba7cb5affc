"""Compiled code is kept where this user alone can write, and is never loaded from elsewhere."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gapless import machine_code
from gapless.machine_code import is_ours_alone
from tests import strangers
from tests.children import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

SMALL = "from gapless import machine_code\ndef add(a):\n    return a + 1\n"
PROGRAM = """
import json, sys, warnings
sys.path.insert(0, sys.argv[1])
import small
from gapless import machine_code
for folder in sys.argv[2:]:
    from pathlib import Path
    machine_code.suggest(Path(folder))
made = machine_code.keep(small.add, nogil=True)
assert made(1) == 2
hits = sum(made.stats.cache_hits.values())
print(json.dumps([str(made.stats.cache_path), hits, machine_code.complaint()]))
"""
MATCHER = """
import warnings
from gapless import Matcher
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    matcher = Matcher({number: f"a = {number}" for number in range(5_000)})
    assert matcher.match({"a": 4_711}) == [4_711]
    Matcher({number: f"a = {number}" for number in range(5_000)})
print(len(told), matcher.statistics()["engine"], *(str(each.message) for each in told))
"""


def run_small(
    sources: Path, *arguments: object, environment: dict[str, str], user: bool = True
) -> tuple[str, int, str | None]:
    """Where a small function is kept, whether it was there, and what the process complains of."""
    import json

    command = [sys.executable, "-c", PROGRAM, str(sources), *map(str, arguments)]
    ran = subprocess.run(
        [*strangers.prefix(), *command] if user else command,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    path, hits, complaint = json.loads(ran.stdout)
    return path, hits, complaint


@pytest.fixture
def small() -> Iterator[Path]:
    """A folder that others can come to and not write, with a module of one function."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        (Path(name) / "small.py").write_text(SMALL)
        yield Path(name)


def test_every_function_that_is_kept_is_kept_by_its_one_owner() -> None:
    for path in sorted(strangers.SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.keyword)
                and node.arg == "cache"
                and path.stem != "machine_code"
            ):
                raise AssertionError(f"{path} asks numba to keep something by itself")


def test_a_user_without_a_home_keeps_code_where_the_process_suggests() -> None:
    with strangers.installation() as sources, strangers.belongings() as own:
        (sources / "small.py").write_text(SMALL)
        known = strangers.environment(sources, TMPDIR=str(own))
        path, hits, complaint = run_small(sources, own / "data" / "b", environment=known)
        assert Path(path).is_relative_to(own / "data" / "b")
        assert (hits, complaint) == (0, None)
        assert run_small(sources, own / "data" / "b", environment=known) == (path, 1, None)
        path, hits, complaint = run_small(sources, environment=known)
        assert Path(path).is_relative_to(own / f"gapless-{strangers.USER}")
        assert (hits, complaint) == (0, None)


def test_what_can_be_kept_nowhere_is_compiled_all_the_same_and_told() -> None:
    with strangers.installation() as sources:
        (sources / "small.py").write_text(SMALL)
        known = strangers.environment(sources, TMPDIR="/nonexistent", NUMBA_CACHE_DIR="/nowhere")
        program = f"import tempfile; tempfile.tempdir = '/nonexistent'\n{PROGRAM}"
        ran = subprocess.run(
            [*strangers.prefix(), sys.executable, "-c", program, str(sources), "/nowhere"],
            env=known,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        assert machine_code.COMPLAINT in ran.stdout


@pytest.mark.parametrize("temporary", ["theirs", "none"])
def test_a_program_matches_5000_filters_where_nothing_can_be_written(temporary: str) -> None:
    with strangers.installation() as sources, strangers.belongings() as own:
        tempdir = str(own) if temporary == "theirs" else "/nonexistent"
        program = f"import tempfile; tempfile.tempdir = {tempdir!r}\n{MATCHER}"
        ran = subprocess.run(
            [*strangers.prefix(), sys.executable, "-c", program],
            env=strangers.environment(sources),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        if temporary == "theirs":
            assert ran.stdout.split() == ["0", "python"]
        else:
            assert ran.stdout.startswith(f"1 python {machine_code.COMPLAINT}")


def test_a_folder_that_others_can_write_is_not_used(small: Path) -> None:
    open_to_all = small / "open"
    (open_to_all / f"gapless-{os.geteuid()}").mkdir(parents=True)
    known = {**os.environ, "NUMBA_CACHE_DIR": str(open_to_all)}
    open_to_all.chmod(0o777)
    path, *_ = run_small(small, environment=known, user=False)
    assert not Path(path).is_relative_to(open_to_all)
    open_to_all.chmod(0o755)
    path, *_ = run_small(small, environment=known, user=False)
    assert Path(path).is_relative_to(open_to_all)


def test_a_folder_that_somebody_else_made_first_is_not_used(small: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a folder of another user")
    shared, theirs = small / "shared", small / "shared" / "gapless-0"
    theirs.mkdir(parents=True)
    shared.chmod(0o1777)
    os.chown(theirs, strangers.USER, strangers.USER)
    known = {**os.environ, "NUMBA_CACHE_DIR": str(shared)}
    path, *_ = run_small(small, environment=known, user=False)
    assert not Path(path).is_relative_to(shared)


def test_a_link_to_elsewhere_is_not_followed(small: Path) -> None:
    shared = small / "shared"
    shared.mkdir()
    (small / "elsewhere").mkdir(mode=0o700)
    (shared / f"gapless-{os.geteuid()}").symlink_to(small / "elsewhere")
    known = {**os.environ, "NUMBA_CACHE_DIR": str(shared)}
    path, *_ = run_small(small, environment=known, user=False)
    assert not Path(path).is_relative_to(small / "elsewhere")


def test_a_cache_beside_the_sources_that_more_can_write_than_these_is_not_used(
    small: Path,
) -> None:
    known = {**os.environ, "XDG_CACHE_HOME": str(small / "home")}
    path, *_ = run_small(small, environment=known, user=False)
    assert Path(path) == small / "__pycache__"
    (small / "__pycache__").chmod(0o777)
    path, *_ = run_small(small, environment=known, user=False)
    assert Path(path).is_relative_to(small / "home")


def test_what_was_compiled_beside_read_only_sources_is_found() -> None:
    with strangers.installation() as sources, strangers.belongings() as own:
        (sources / "small.py").write_text(SMALL)
        root = strangers.environment(sources)
        path, *_ = run_small(sources, environment=root, user=False)
        assert Path(path) == sources / "__pycache__"
        known = strangers.environment(sources, TMPDIR=str(own))
        path, hits, _ = run_small(sources, environment=known)
        assert Path(path).is_relative_to(own)
        assert hits == 1


def test_a_damaged_file_is_as_if_it_were_not_there(small: Path) -> None:
    known = dict(os.environ)
    path, *_ = run_small(small, environment=known, user=False)
    for damaged in Path(path).glob("small.*.nb[ic]"):
        damaged.write_bytes(b"\x80\x05no pickle")
    assert run_small(small, environment=known, user=False)[1] == 0
    assert run_small(small, environment=known, user=False)[1] == 1


def test_folders_are_ours_alone_up_to_the_root(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert is_ours_alone(inner)
    if os.geteuid() == 0:
        with strangers.belongings() as theirs:
            (theirs / "a").mkdir()
            assert not is_ours_alone(theirs / "a")
