"""Fingerprint: which code the values of an experiment speak of.

Theory of operation
    An experiment speaks of the protocol that it plays, and of its own modules that play it. The
    fingerprint is a hash of their syntax trees without docstrings and comments: prose may change.
    Modules that judge or draw are not in it: they make no values. Nor is the rest of the product:
    it changes daily, and the papers say nothing of it.
    Outcomes that were kept count while the fingerprint is the same, and a page says which it was.
"""

from __future__ import annotations

import ast
import hashlib
from importlib.util import find_spec
from pathlib import Path

PROTOCOLS = {
    "exactly-once": ("knowledge",),
    "propagation": ("knowledge", "propagation"),
    "durable": ("knowledge", "durable"),
    "partitions": ("tree",),
    "multicast": ("scribe",),
}
"""By experiment, the packages of the product that it speaks of."""

JUDGES = frozenset({"claims.py", "crash_claims.py", "figures.py", "real.py", "real_claims.py"})
"""Modules of an experiment that make no values of a page."""


def fingerprint(experiment: str) -> str:
    """Of the code that the values of this experiment speak of."""
    packages = [f"gapless.{name}" for name in PROTOCOLS[experiment]]
    own = f"gapless_lab.experiments.{experiment.replace('-', '_')}"
    found = hashlib.blake2b(digest_size=6)
    for package in (*packages, own):
        for path in sorted(folder_of(package).glob("*.py")):
            if package != own or path.name not in JUDGES:
                found.update(f"{package}/{path.name}".encode())
                found.update(meaning(path.read_text()).encode())
    return found.hexdigest()


def folder_of(package: str) -> Path:
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def meaning(source: str) -> str:
    """The syntax tree as text, without docstrings and comments."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [each for each in body if not is_prose(each)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def is_prose(statement: ast.AST) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)
