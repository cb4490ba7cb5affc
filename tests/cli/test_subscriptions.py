"""The durable subscriptions are shown in words."""

from __future__ import annotations

import pytest

from gapless.cli.subscriptions import rows
from gapless.cli.terminal import show_size, show_span


def subscription(**changes: object) -> dict[str, object]:
    usual = {
        "name": "desk", "topic": "t", "condition": "", "state": "live", "pending": 0, "gaps": 0,
        "pending_is": "exact", "pending_bytes": 0, "pending_bytes_is": "exact", "rate": None,
        "oldest_pending_s": None, "unacknowledged": 0, "last_contact_s": 0.0,
    }  # fmt: skip
    return {**usual, **changes}


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, "live"),
        ({"state": "catching up"}, "catching up"),
        ({"state": "away", "last_contact_s": 120}, "away (2.0 min)"),
        ({"state": "away", "last_contact_s": None}, "away"),
        ({"state": "reading", "last_contact_s": 3}, "reading (3.0 s)"),
    ],
)
def test_a_state_says_since_when_there_was_no_contact(
    changes: dict[str, object], state: str
) -> None:
    (row,) = rows({"b": [subscription(**changes)], "silent": None})
    assert (row["broker"], row["state"], row["condition"]) == ("b", state, "(everything)")


@pytest.mark.parametrize(
    ("accuracy", "shown"),
    [("exact", "8,980"), ("at least", "≥ 8,980"), ("at most", "≤ 8,980"), ("about", "≈ 8,980")],
)
def test_a_bound_is_marked(accuracy: str, shown: str) -> None:
    (row,) = rows({"b": [subscription(pending=8_980, pending_is=accuracy)]})
    assert row["pending"] == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "-"), (0.25, "0.2 s"), (119, "119.0 s"), (120, "2.0 min"), (7_200, "2.0 h"),
        (432_000, "5.0 d"),
    ],
)  # fmt: skip
def test_a_time_is_shown_in_the_unit_that_fits(seconds: float | None, shown: str) -> None:
    assert show_span(seconds) == shown


@pytest.mark.parametrize(
    ("size", "accuracy", "shown"),
    [
        (None, "about", "?"), (0, "about", "0 B"), (999, "exact", "999 B"),
        (1_500, "about", "≈ 1.5 kB"), (2_000_000, "exact", "2.0 MB"),
    ],
)  # fmt: skip
def test_a_size_is_shown_in_the_unit_that_fits(size: int | None, accuracy: str, shown: str) -> None:
    assert show_size(size, accuracy) == shown
