"""The record of a named subscription: a table says what may happen, and nothing else does."""

from __future__ import annotations

from itertools import product

import pytest

from gapless.core.client_messages import Subscribe
from gapless.core.identity import SubscriptionName, TopicName
from gapless.node.subscriptions.record import TRANSITIONS, Happening, Phase, Record

DESK = SubscriptionName("desk")


def request(number: int, *, moves: int = 0) -> Subscribe:
    return Subscribe(TopicName("news"), number, number, name=DESK, moves=moves)


def test_every_phase_has_a_row_and_can_be_reached() -> None:
    assert set(TRANSITIONS) == set(Phase)
    reached = {Phase.ABSENT}
    for _ in Phase:
        reached |= {after for phase in reached for after in TRANSITIONS[phase].values()}
    assert reached == set(Phase)


def test_every_happening_has_its_place() -> None:
    assert {each for row in TRANSITIONS.values() for each in row} == set(Happening)


def test_a_new_subscription_is_claimed_started_written_and_lives() -> None:
    record, phases = Record(DESK), []
    for each in (Happening.CLAIM, Happening.START, Happening.CREATE, Happening.WRITTEN):
        record.become(each)
        phases.append(record.phase)
    assert phases == [Phase.CLAIMING, Phase.STARTING, Phase.CREATING, Phase.LIVE]


def test_one_that_moves_in_arrives_until_its_old_broker_has_forgotten_it() -> None:
    record = Record(DESK, phase=Phase.LIVE)
    phases = []
    for each in (Happening.ARRIVE, Happening.SETTLE):
        record.become(each)
        phases.append(record.phase)
    assert phases == [Phase.ARRIVING, Phase.LIVE]


@pytest.mark.parametrize(
    ("phase", "happening"),
    [each for each in product(Phase, Happening) if each[1] not in TRANSITIONS[each[0]]],
)
def test_what_the_table_does_not_list_is_a_defect(phase: Phase, happening: Happening) -> None:
    record = Record(DESK, phase=phase)
    with pytest.raises(AssertionError, match=happening.value):
        record.become(happening)
    assert record.phase is phase


@pytest.mark.parametrize("end", [Happening.END, Happening.MOVE_OUT])
def test_a_life_that_ends_leaves_those_who_wait_where_they_were(end: Happening) -> None:
    record = Record(DESK, phase=Phase.LIVE, starts=[request(1)])
    record.become(end)
    assert record.phase is Phase.STARTING
    record = Record(DESK, phase=Phase.LIVE, is_claimed=True)
    record.become(end)
    assert record.phase is Phase.CLAIMING
    assert not record.is_idle


def test_the_grant_is_the_first_request_under_a_name_that_came_from_nowhere() -> None:
    record = Record(DESK)
    assert record.grant is None
    record.starts += [request(1, moves=3), request(2, moves=4)]
    assert record.grant is record.starts[0]
