"""What an application asks for is checked, and every way to say where to start is understood."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from gapless.client.subscription_options import SubscriptionOptions, check_options, parse_start
from gapless.core.errors import UsageError
from gapless.core.token import Token

TOKEN = Token({"t/0": 7})


def wish(**changes: Any) -> SubscriptionOptions:
    usual = {
        "name": "desk", "order": "publisher", "start": "latest", "tokens": "client",
        "interruption": "raise", "silence": False,
    }  # fmt: skip
    return check_options("t", "a = 1", **{**usual, **changes})


@pytest.mark.parametrize(
    ("start", "meaning"),
    [
        ("latest", (None, False, None)),
        ("earliest", (None, True, None)),
        (TOKEN, (TOKEN, False, None)),
        (' {"t/0":7}', (TOKEN, False, None)),
        (datetime(1970, 1, 1, 0, 0, 1, 5, UTC), (None, False, 1_000_005)),
        (datetime(1970, 1, 1, 2, 0, 0, 0, timezone(timedelta(hours=2))), (None, False, 0)),
    ],
)
def test_a_start_is_now_the_oldest_a_token_or_an_instant(start: Any, meaning: object) -> None:
    assert parse_start(start) == meaning


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"start": "yesterday"}, "is no place to start"),
        ({"start": "{7"}, "not JSON"),
        ({"start": {"t/0": 7}}, "not JSON"),
        ({"start": datetime(2026, 1, 1)}, "no time zone"),  # noqa: DTZ001
        ({"order": "any"}, "order='any' is no choice"),
        ({"tokens": "me"}, "tokens='me' is no choice"),
        ({"interruption": "x"}, "interruption='x' is no choice"),
        ({"name": None, "start": "earliest"}, "anonymous"),
        ({"name": None, "tokens": "broker"}, "anonymous"),
        ({"name": ""}, "not empty"),
    ],
)
def test_what_cannot_be_is_refused_in_words(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        wish(**changes)


def test_a_wish_says_what_was_asked_for() -> None:
    made = wish(start=TOKEN, tokens="broker", interruption="gap", silence=True)
    assert (made.topic, made.condition, made.name) == ("t", "a = 1", "desk")
    assert (made.token, made.tokens, made.resumes, made.silence) == (TOKEN, "broker", True, True)
