"""A start beside the one asked for is found."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.testing.named import Birth, Named
from gapless.testing.record import Violation
from tests.testing.named_facts import NAME, PUBEND, Facts

START = "it starts where"


@pytest.fixture
def facts() -> Facts:
    return Facts()


@pytest.fixture
def named() -> Named:
    return Named(name=NAME)


@pytest.mark.parametrize("start", [10, 12])
def test_a_start_beside_the_token_is_found(facts: Facts, named: Named, start: int) -> None:
    facts.attach(named, 5)
    with pytest.raises(Violation, match=START):
        facts.attach(named, start, token={PUBEND: 11})


def test_without_a_token_a_start_lies_between_what_was_assured_and_said(
    facts: Facts, named: Named
) -> None:
    facts.attach(named, 5)
    named.acknowledge({PUBEND: 30})
    named.assure({PUBEND: 20})
    facts.attach(named, 20)
    facts.attach(named, 30)
    for start in (19, 31):
        with pytest.raises(Violation, match=START):
            facts.attach(named, start)


@pytest.mark.parametrize(
    ("birth", "good", "bad"),
    [
        (Birth(at="instant", instant=3), 3 << 10, 5 << 10),
        (Birth(at="token", token={PUBEND: 7}), 7, 0),
    ],
)
def test_a_first_start_elsewhere_is_found(facts: Facts, birth: Birth, good: int, bad: int) -> None:
    asked: dict[str, Any] = {
        "token": birth.token,
        "instant": birth.instant,
        "earliest": birth.at == "earliest",
    }
    facts.attach(Named(name=NAME, birth=birth), good, **asked)
    with pytest.raises(Violation, match=START):
        facts.attach(Named(name=NAME, birth=birth), bad, **asked)


def test_who_begins_with_the_oldest_event_misses_none_that_is_kept(facts: Facts) -> None:
    facts.log(10, 20, 30)
    facts.chop(11)
    for start in (1, 11, 20):
        facts.attach(Named(name=NAME, birth=Birth(at="earliest")), start, earliest=True)
        facts.attach(Named(name=NAME), start, token={})
    with pytest.raises(Violation, match=START):
        facts.attach(Named(name=NAME, birth=Birth(at="earliest")), 21, earliest=True)
    with pytest.raises(Violation, match=START):
        facts.attach(Named(name=NAME), 21, token={})
