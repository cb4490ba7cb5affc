"""A loss that need not be, or is told badly, is found."""

from __future__ import annotations

import pytest

from gapless.core.client_messages import (
    CaughtUp,
    FellBehind,
)
from gapless.core.ticks import Span
from gapless.testing.named import Named
from gapless.testing.record import Violation
from tests.testing.named_facts import CLIENT, NAME, PUBEND, Facts

GAP = "a gap only where"


@pytest.fixture
def facts() -> Facts:
    return Facts()


@pytest.fixture
def named() -> Named:
    return Named(name=NAME)


def test_a_loss_of_what_was_released_before_it_began_is_fine_once(
    facts: Facts, named: Named
) -> None:
    facts.log(10, 20, 30)
    facts.chop(21)
    session = facts.attach(named, 5)
    facts.lose(session, 10, 21)
    with pytest.raises(Violation, match=rf"{GAP}.*all below 21 was settled"):
        facts.lose(session, 10, 21)


def test_a_loss_in_two_pieces_is_found(facts: Facts, named: Named) -> None:
    facts.log(10, 20, 30, 40)
    facts.chop(21)
    session = facts.attach(named, 5)
    facts.lose(session, 10, 11)
    with pytest.raises(Violation, match="one with the loss before"):
        facts.lose(session, 20, 21)


def test_two_losses_with_an_event_or_a_rest_between_them_are_two(
    facts: Facts, named: Named
) -> None:
    facts.log(10, 20, 30)
    facts.chop(31)
    session = facts.attach(named, 5)
    facts.lose(session, 10, 11)
    facts.deliver(session, 21, 20)
    facts.lose(session, 30, 31)
    facts.watch.told(CLIENT, CaughtUp(session.number, PUBEND))
    facts.watch.told(CLIENT, FellBehind(session.number, PUBEND))
    facts.lose(session, 31, 32)


def test_a_loss_of_what_is_still_in_the_log_is_found(facts: Facts, named: Named) -> None:
    facts.log(10, 20)
    facts.chop(11)
    session = facts.attach(named, 5)
    with pytest.raises(Violation, match=rf"{GAP}.*20 is still in the log"):
        facts.lose(session, 10, 21)


def test_a_loss_told_to_one_that_keeps_up_is_found(facts: Facts, named: Named) -> None:
    session = facts.attach(named, 5, level=True)
    with pytest.raises(Violation, match=rf"{GAP}.*it keeps up"):
        facts.lose(session, 6, 8)


def test_a_loss_of_what_it_never_acknowledged_is_found_unless_the_policy_says_so() -> None:
    for policy in ({}, {"retention_bytes": 1}):
        facts, named = Facts(**policy), Named(name=NAME)
        session = facts.attach(named, 5)
        facts.log(10)
        facts.chop(11)
        if policy:
            facts.lose(session, 10, 11)
        else:
            with pytest.raises(Violation, match=rf"{GAP}.*it never acknowledged 10"):
                facts.lose(session, 10, 11)


def test_what_it_acknowledged_itself_may_be_lost_to_one_who_goes_back(
    facts: Facts, named: Named
) -> None:
    facts.attach(named, 5)
    facts.log(10)
    named.acknowledge({PUBEND: 11})
    session = facts.attach(named, 5, token={PUBEND: 5})
    facts.lose(session, 10, 11)
    facts.watch.skip(session, PUBEND, Span(10, 11))
    facts.watch.finish()
