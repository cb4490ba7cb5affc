"""The configuration refuses values that cannot work."""

from __future__ import annotations

import ast
import itertools
from dataclasses import fields
from pathlib import Path

import pytest

from gapless.core.errors import UsageError
from gapless.knowledge.timing import KnowledgeTiming
from gapless.node import config
from gapless.node.config import Config


@pytest.mark.parametrize(
    "name", [each.name for each in fields(Config) if each.name != "propagates"]
)
def test_no_limit_or_timer_may_be_zero(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} must be above zero"):
        Config(**{name: 0})  # type: ignore[arg-type]


def test_a_repeated_nack_must_be_able_to_pass() -> None:
    with pytest.raises(UsageError, match="nack_forget must be less than nack_repeat"):
        Config(nack_forget=5, nack_repeat=5)


def test_a_neighbour_is_not_dead_before_it_could_answer() -> None:
    with pytest.raises(UsageError, match="dead_after must be more than heartbeat"):
        Config(heartbeat=5, dead_after=5)


def test_what_the_machines_need_is_there() -> None:
    timing: KnowledgeTiming = Config()  # mypy checks the types, this the names
    assert [
        name
        for name in vars(KnowledgeTiming)
        if not name.startswith("_") and not hasattr(timing, name)
    ] == []


def test_every_field_says_what_it_means_or_stands_next_to_one_that_does() -> None:
    """A field is followed by its docstring; a `*_longest` may share that of the field before, and
    so may a `*_shortest`."""
    tree = ast.parse(Path(config.__file__).read_text(encoding="utf-8"))
    [body] = [node.body for node in tree.body if isinstance(node, ast.ClassDef)]
    for node, following in itertools.pairwise(body):
        if isinstance(node, ast.AnnAssign) and not ast.unparse(node.target).endswith(
            ("_longest", "_shortest")
        ):
            assert isinstance(following, ast.Expr), ast.unparse(node)
