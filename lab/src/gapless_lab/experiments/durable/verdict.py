"""What is said of one claim."""

from __future__ import annotations

from typing import NamedTuple


class Verdict(NamedTuple):
    """One line of the table."""

    experiment: str
    claim: str
    paper: str
    value: str
    holds: bool
