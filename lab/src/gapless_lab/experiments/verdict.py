"""What is said of one claim."""

from __future__ import annotations

from typing import NamedTuple


class Verdict(NamedTuple):
    """One line of the table."""

    experiment: str
    claim: str
    paper: str
    value: str
    holds: bool | None
    """None: the value is shown and not judged, because an input of the experiment decides it."""

    @property
    def word(self) -> str:
        return "not judged" if self.holds is None else "yes" if self.holds else "no"


def summary(verdicts: list[Verdict]) -> str:
    """How many claims hold, of those that are judged."""
    judged = [each for each in verdicts if each.holds is not None]
    rest = len(verdicts) - len(judged)
    held = sum(bool(each.holds) for each in judged)
    unjudged = f" {rest} are shown and not judged: an input decides them." if rest else ""
    return f"{held} of {len(judged)} claims hold.{unjudged}"
