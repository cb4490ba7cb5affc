"""The durable subscriptions are shown in words."""

from __future__ import annotations

import pytest

from gapless.cli.subscriptions import rows, show_span


def subscription(**changes: object) -> dict[str, object]:
    usual = {
        "name": "desk", "topic": "t", "condition": "", "attached": True, "catching_up": [],
        "behind_s": 0.25,
    }  # fmt: skip
    return {**usual, **changes}


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, "level"),
        ({"catching_up": ["t/0"]}, "catching up"),
        ({"attached": False}, "away"),
    ],
)
def test_one_is_level_catches_up_or_is_away(changes: dict[str, object], state: str) -> None:
    (row,) = rows({"b": [subscription(**changes)], "silent": None})
    assert (row["broker"], row["state"], row["condition"]) == ("b", state, "(everything)")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "all"), (0.25, "0.2 s"), (119, "119.0 s"), (120, "2.0 min"), (7_200, "2.0 h"),
        (432_000, "5.0 d"),
    ],
)  # fmt: skip
def test_what_is_kept_is_shown_as_a_time(seconds: float | None, shown: str) -> None:
    assert show_span(seconds) == shown
