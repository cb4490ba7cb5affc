"""What a client consumes over all its sessions is held against brute force."""

from __future__ import annotations

import pytest

from gapless.core.client_messages import (
    CaughtUp,
)
from gapless.core.ticks import Span
from gapless.testing.named import Named
from gapless.testing.record import Violation
from tests.testing.named_facts import CLIENT, NAME, PUBEND, Facts

ACROSS = "exactly once across sessions"


@pytest.fixture
def facts() -> Facts:
    return Facts()


@pytest.fixture
def named() -> Named:
    return Named(name=NAME)


def test_a_client_that_leaves_and_returns_has_nothing_against_it(
    facts: Facts, named: Named
) -> None:
    first = facts.attach(named, 5, level=True)
    facts.log(10, 20, 30)
    facts.deliver(first, 31, 10, 20, 30)
    facts.consume(first, 11, 10)
    facts.watch.gone(CLIENT)
    second = facts.attach(named, 11, token={PUBEND: 11})
    facts.deliver(second, 31, 20, 30)
    facts.watch.told(CLIENT, CaughtUp(second.number, PUBEND))
    for tick in (20, 30):
        facts.consume(second, tick + 1, tick)
    named.acknowledge(named.token)
    facts.chop(31)
    facts.watch.finish()
    assert named.consumed[PUBEND] == [10, 20, 30]


def test_an_event_consumed_again_in_another_session_is_found(facts: Facts, named: Named) -> None:
    facts.log(10)
    first = facts.attach(named, 5)
    facts.consume(first, 11, 10)
    with pytest.raises(Violation, match=rf"{ACROSS}.*its token was at 11"):
        facts.consume(first, 11, 10)


def test_an_event_that_a_token_passes_over_is_found(facts: Facts, named: Named) -> None:
    facts.log(10, 20)
    first = facts.attach(named, 5)
    with pytest.raises(Violation, match=rf"{ACROSS}.*where 10 20 match"):
        facts.consume(first, 21, 20)


def test_who_goes_back_consumes_again_and_only_from_there(facts: Facts, named: Named) -> None:
    facts.log(10, 20, 30)
    first = facts.attach(named, 5)
    facts.consume(first, 31, 10, 20, 30)
    second = facts.attach(named, 15, token={PUBEND: 15})
    assert named.consumed[PUBEND] == [10]
    facts.consume(second, 31, 20, 30)
    facts.watch.finish()


def test_who_acknowledged_and_went_back_may_go_on_from_there(facts: Facts, named: Named) -> None:
    facts.log(10, 20)
    facts.consume(facts.attach(named, 5), 21, 10, 20)
    named.acknowledge(named.token)
    facts.attach(named, 5, token={PUBEND: 5})
    facts.attach(named, 21)
    facts.watch.finish()
    assert named.gaps[PUBEND] == [Span(5, 21)]


def test_an_event_logged_behind_a_token_is_found_at_the_end(facts: Facts, named: Named) -> None:
    facts.consume(facts.attach(named, 5), 20)
    facts.watch.gone(CLIENT)
    facts.log(10)
    with pytest.raises(Violation, match=rf"{ACROSS}.*differ at 10"):
        facts.watch.finish()
