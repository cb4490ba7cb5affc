"""`--set NAME=VALUE` reaches the broker, or is refused with what to write."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gapless.broker import settings
from gapless.broker.settings import Settings
from gapless.cli.limits import PLACES, read_limits
from gapless.core.errors import UsageError
from gapless.node.config import Config
from tests.cli.test_serve import gapless, serving

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_limits_of_the_node_and_of_the_process_are_told_apart(tmp_path: Path) -> None:
    assert read_limits(None) == (Config(), {})
    given = ["subscriptions_max=1_000", "propagates=false", "silence_s=2.5", "connections_max=7"]
    config, process = read_limits(given)
    assert config == Config(subscriptions_max=1_000, propagates=False)
    assert process == {"silence_s": 2.5, "connections_max": 7}
    assert Settings(data=tmp_path, **process).silence_s == 2.5


def test_a_link_bears_more_than_the_node_lets_wait_for_it(tmp_path: Path) -> None:
    large = 500_000_000
    config, process = read_limits([f"client_queue_bytes_max={large}"])
    assert config.client_queue_bytes_max == large
    assert Settings(data=tmp_path, **process).client_queue_bytes_max > large
    assert read_limits(["client_queue_bytes_max=1000"])[1] == {}


@pytest.mark.parametrize(
    ("pair", "problem"),
    [
        ("nothing=1", "'nothing=1' sets no limit"),
        ("subscriptions_max", "'subscriptions_max' sets no limit"),
        ("listen=127.0.0.1:0", "sets no limit"),
        ("subscriptions_max=many", "Give it a whole number"),
        ("silence_s=long", "Give it a number"),
        ("propagates=1", "Give it true or false"),
        ("subscriptions_max=0", "subscriptions_max must be above zero"),
        ("silence_s=-1", "silence_s must be above zero"),
        ("dead_after=10", "dead_after must be more than heartbeat"),
    ],
)
def test_what_cannot_be_set_is_told(pair: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        read_limits([pair])


def test_a_broker_keeps_to_the_limit_that_it_was_given(tmp_path: Path) -> None:
    with serving(tmp_path, "--set", "topics_max=1") as (url, _):
        assert gapless("topic", "create", "one", "--url", url).returncode == 0
        refused = gapless("topic", "create", "two", "--url", url)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "1 names of topics, which is its limit" in refused.stderr


TEXT = re.compile(r"\b[a-z][a-z_]*_max\b")
ARGUMENTS = {"window_events_max"}
"""Of calls of the client."""


def test_every_limit_that_an_error_names_can_be_set() -> None:
    """Advice that nobody can follow is worse than none."""
    known = {each.name for each in (*fields(Config), *fields(Settings))} - {*PLACES}
    for path, text in texts_of(Path(settings.__file__).parents[1]):
        for name in TEXT.findall(text):
            assert name in known | ARGUMENTS, f"{path} says {text!r}"
            if name in known:
                read_limits([f"{name}=1000000000"])  # it is taken


def texts_of(folder: Path) -> Iterator[tuple[Path, str]]:
    """All texts in the sources but docstrings and plain names: what somebody may be told."""
    for path in sorted(folder.rglob("*.py")):
        if path.relative_to(folder).parts[0] in ("sim", "testing"):
            continue  # for those who work on it
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Expr(value=ast.Constant(value=str()) as docstring):
                    docstring.value = ""
                case ast.Constant(value=str() as text) if not text.isidentifier():
                    yield path, text


def test_a_limit_that_is_set_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="subscriptions_max is set twice"):
        read_limits(["subscriptions_max=1", "subscriptions_max=2"])
