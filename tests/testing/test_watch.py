"""What a named subscription gets is as it was told before."""

from __future__ import annotations

import pytest

from gapless.core.client_messages import (
    CaughtUp,
    Deliveries,
    Ended,
    FellBehind,
    Refused,
)
from gapless.core.events import EventBatch
from gapless.testing.named import Named
from gapless.testing.record import Violation
from tests.testing.named_facts import CLIENT, NAME, PUBEND, TOPIC, Facts


@pytest.fixture
def facts() -> Facts:
    return Facts()


@pytest.fixture
def named() -> Named:
    return Named(name=NAME)


def test_deliveries_of_the_other_kind_are_found(facts: Facts, named: Named) -> None:
    facts.log(10)
    session = facts.attach(named, 5)
    session.behind.clear()
    session.position[PUBEND] = 5
    message = Deliveries(TOPIC, 11, PUBEND, only=session.number)
    with pytest.raises(Violation, match="as announced"):
        facts.watch.told(CLIENT, message)
    with pytest.raises(Violation, match="as announced"):
        facts.watch.told(CLIENT, CaughtUp(session.number, PUBEND))
    session.behind.add(PUBEND)
    event = EventBatch.join(facts.record.logs[PUBEND].events.values())
    message = Deliveries(TOPIC, 11, PUBEND, (10,), event, ((session.number,),))
    with pytest.raises(Violation, match="as announced"):
        facts.watch.told(CLIENT, message)
    with pytest.raises(Violation, match="as announced"):
        facts.watch.told(CLIENT, FellBehind(session.number, PUBEND))


def test_silence_for_everybody_does_not_move_one_that_is_behind(facts: Facts, named: Named) -> None:
    facts.log(10)
    session = facts.attach(named, 5)
    facts.watch.told(CLIENT, Deliveries(TOPIC, 11, PUBEND))
    assert session.position[PUBEND] == 5


def test_an_end_or_a_refusal_is_just_only_if_another_session_came_later(
    facts: Facts, named: Named
) -> None:
    first = facts.attach(named, 5)
    end, refusal = Ended(1, "taken over"), Refused(1, "taken over", "")
    with pytest.raises(Violation, match="nobody's wish"):
        facts.watch.sent(facts.host, CLIENT, end)
    with pytest.raises(Violation, match="refused for good"):
        facts.watch.told(CLIENT, refusal)
    facts.attach(named, 5, token={PUBEND: 5})
    facts.watch.sent(facts.host, CLIENT, end)
    facts.watch.told(CLIENT, refusal)
    assert first.live
