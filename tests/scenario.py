"""Scenario files: steps and what comes of them, as text that people read.

A file is prose (`#`), steps (a verb and its arguments), `----`, what comes of them, a blank line.
`play` feeds each step to `perform` and compares; with `rewrite` it writes what came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def play(path: Path, perform: Callable[[str, list[str]], list[str]], *, rewrite: bool) -> None:
    """Play a scenario file; with `rewrite`, replace its expectations by what happened."""
    written: list[str] = []
    lines = iter(path.read_text(encoding="utf-8").splitlines())
    for line in lines:
        written.append(line)
        if not line or line.startswith("#"):
            continue
        steps = [line, *iter(lambda: next(lines), "----")]
        written += [*steps[1:], "----"]
        expected = list(iter(lambda: next(lines, ""), ""))
        found = [out for step in steps for out in perform(*_words(step))]
        assert rewrite or found == expected, f"{path.name}: {steps}"
        written += [*found, ""]
    if rewrite:
        path.write_text("\n".join(written).rstrip("\n") + "\n", encoding="utf-8")


def _words(step: str) -> tuple[str, list[str]]:
    verb, *arguments = step.split()
    return verb, arguments
