"""What others chose is shown on a terminal, and obeyed by none: names, conditions, attributes."""

from __future__ import annotations

import ast
import io
import json
import os
import pty
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import gapless.cli
from gapless.cli.audit import verdict_lines, verdict_table
from gapless.cli.status import brokers_table, rows
from gapless.cli.terminal import pairs, visible, visible_lines
from gapless.client.client import connect
from gapless.core.errors import GaplessError
from gapless.pipelines.verdict import Verdict
from tests.broker.stage import run
from tests.children import PATIENCE_S, PROGRAM
from tests.cli.test_serve import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

ESCAPE = "\x1b]0;owned\x07\x1b[2J\x1b[31m"
NAME = "[/nope][link=http://example.com]x[/link][bold red]y"
CONDITION = f"a <> '{ESCAPE}' AND b <> '[/nope]'"
SELDOM = {"serve", "broker", "up", "supervision", "help", "commands", "terminal"}
LABORATORY = {"demo", "demo_view", "experiment", "matching_demo", "simulate", "soak"}
"""Print nothing that others chose, or in their own way."""


def test_commands_print_in_one_way() -> None:
    """A `typer.echo` of a name is how the next control character would come to a terminal."""
    for path in sorted(Path(str(gapless.cli.__file__)).parent.glob("*.py")):
        if path.stem in SELDOM | LABORATORY or path.stem.endswith(("_figures", "_runs")):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                is_other = called in ("typer.echo", "typer.secho", "print", "Table", "click.echo")
                is_row = called.endswith(".add_row") and called != "shown.add_row"
                is_known = path.stem == "__init__" and "interrupted" in ast.unparse(node)
                assert is_known or not (is_other or is_row), f"{path.name}:{node.lineno} {called}"


@given(st.text() | st.characters(categories=["Cc", "Cf", "Zl", "Zp", "Cs", "Co"]))
def test_whatever_a_text_holds_it_is_one_line_of_characters_that_can_be_seen(text: str) -> None:
    shown = visible(text)
    assert shown.replace("\t", "").isprintable()
    assert visible(shown) == shown
    shown.encode()
    assert visible_lines(text).split("\n") == [visible(line) for line in text.split("\n")]


@given(st.dictionaries(st.text(), st.text() | st.floats(allow_nan=False)))
def test_json_stays_the_same_json(found: dict[str, object]) -> None:
    assert json.loads(visible(json.dumps(found))) == found


def test_a_name_cannot_pretend_to_be_another_line() -> None:
    assert pairs({"name": "a\nname=b"}) == r"name=a\nname=b"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A broker on which everything is called as badly as can be."""
    folder = tmp_path_factory.mktemp("hostile")
    with serving(folder) as (url, _):
        run(set_up(url))
        yield url, folder


async def set_up(url: str) -> None:
    event = ({f"x{ESCAPE}": ESCAPE, "a": "z", "b": "[/no]"}, ESCAPE.encode())
    async with connect(url) as client:
        await client.create_topic(NAME)
        async with client.subscribe(NAME, CONDITION, name=NAME):
            pass
        await client.publish_many(NAME, [event] * 4)
        with pytest.raises(GaplessError):
            await client.create_topic(f"t{ESCAPE}")


def shown(*arguments: str, stdin: bytes = b"", code: int = 0) -> str:
    """All that a command prints, on a terminal and into a pipe: nothing in it that is obeyed."""
    command = [*PROGRAM, *arguments]
    known = {**os.environ, "TERM": "dumb", "COLUMNS": "400"}
    piped = subprocess.run(
        command, input=stdin, capture_output=True, check=False, env=known, timeout=PATIENCE_S
    )
    assert piped.returncode == code, piped.stderr.decode()
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=theirs, stderr=theirs, env=known
    ) as process:
        os.close(theirs)
        assert process.stdin is not None
        process.stdin.write(stdin)
        process.stdin.close()
        pieces = []
        while True:
            try:
                piece = os.read(ours, 1 << 16)
            except OSError:  # the end of a terminal
                break
            if not piece:
                break
            pieces.append(piece)
        os.close(ours)
        process.wait(PATIENCE_S)
    on_terminal = b"".join(pieces)
    for said in (piped.stdout, piped.stderr, on_terminal):
        assert b"Traceback" not in said, said.decode()
        assert not {*said} & {0x1B, 0x07, 0x7F, 0x9B}, said
    return on_terminal.decode() + piped.stdout.decode() + piped.stderr.decode()


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_lists_show_hostile_names_as_they_are(stage: tuple[str, Path], more: tuple[str]) -> None:
    url, folder = stage
    for words in (("topic", "list", "--url", url), ("subscriptions", "--data", str(folder))):
        assert NAME in shown(*words, *more), words
    shown("status", "--data", str(folder), *more)


def test_every_command_shows_what_others_chose(stage: tuple[str, Path]) -> None:
    url, folder = stage
    to, lake = ("--url", url), str(folder / "lake")
    assert NAME in shown("topic", "show", NAME, *to)
    assert NAME in shown("topic", "create", NAME, *to)
    assert NAME in shown("publish", NAME, f"k{ESCAPE}={ESCAPE}", *to)
    assert r"x\u001b" in shown("read", NAME, "--limit", "1", *to)
    assert r"x\u001b" in shown("read", NAME, "--limit", "1", "--json", *to)
    wanted = ("subscribe", NAME, CONDITION, "--name", NAME, "--count", "1")
    assert r"x\u001b" in shown(*wanted, *to)
    assert r"x\u001b" in shown(*wanted, "--json", *to)
    shown("pipeline", "archive", NAME, lake, *to)
    assert r"k\u001b" in shown("pipeline", "replay", NAME, "--lake", lake, "--no-log")


def test_every_refusal_shows_what_it_refuses(stage: tuple[str, Path]) -> None:
    to = ("--url", stage[0])
    assert NAME in shown("publish", f"no{NAME}", "a=1", *to, code=1)
    shown("topic", "create", f"t{ESCAPE}", *to, code=1)
    shown("topic", "show", ESCAPE, *to, code=1)
    shown("unsubscribe", f"n{ESCAPE}", *to, code=1)
    shown("subscribe", NAME, f"a {ESCAPE} b", *to, code=2)
    shown("subscribe", NAME, "b = 1", "--name", NAME, *to, code=1)
    shown("read", NAME, "--from", ESCAPE, *to, code=2)
    shown("publish", NAME, ESCAPE, *to, code=2)
    shown("publish", NAME, "a=1", "--url", f"gapless://{ESCAPE}", code=1)
    shown("topic", ESCAPE, code=2)


def test_conditions_and_files_are_shown_too(tmp_path: Path) -> None:
    shown("filter", CONDITION, "--explain")
    shown("filter", f"a = {ESCAPE}", code=2)
    shown("filter", f'"a{ESCAPE}" = "b{ESCAPE}"', "--explain")
    line = json.dumps({"a": "x\x7f\u202e", "b": "y"}, ensure_ascii=False).encode() + b"\n"
    shown("filter", "b = 'y'", "-", stdin=line)
    shown("filter", "b = 'y'", "-", stdin=b'{"a\x1b": 1}\n', code=2)
    path = tmp_path / "e.csv"
    path.write_text(f"a,b{ESCAPE},b{ESCAPE}\n1,2,3\n")
    shown("publish", "t", "--file", str(path), code=1)
    path.write_text(f"a{ESCAPE},b\n1,2\n")
    shown("publish", "t", "--file", str(path), "--types", "c=int", code=2)


def test_tables_of_brokers_and_verdicts_take_any_name() -> None:
    said = dict.fromkeys((NAME, ESCAPE), "not shown")
    verdicts = [Verdict(subscription=name) for name in said]
    for table in (brokers_table(said), verdict_table(verdicts)):
        console = Console(width=400, file=io.StringIO(), record=True)
        console.print(table)
        text = console.export_text()
        assert NAME in text
        assert "\x1b" not in text
    assert not any("\x1b" in line for line in verdict_lines(verdicts))
    assert [row["broker"] for row in rows(said)] == list(said)
