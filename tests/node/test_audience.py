"""Audience: equal conditions are matched once, and idle durable subscriptions cost nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.identity import ClientName
from gapless.filters.filter import Filter
from gapless.node.audience import DURABLE, Audience

if TYPE_CHECKING:
    from gapless.core.events import Attributes

ANN, BOB = ClientName("ann"), ClientName("bob")
RED, BLUE = Filter.parse("colour = 'red'"), Filter.parse("colour = 'blue'")
EVENTS: list[Attributes] = [{"colour": "red"}, {"colour": "blue"}, {"colour": "red"}]


def test_equal_conditions_are_one_group_with_all_its_members() -> None:
    audience = Audience()
    audience.add((ANN, 1), RED)
    audience.add((BOB, 7), Filter.parse(" colour='red' "))
    audience.add((DURABLE, 3), RED)
    audience.check()
    [(group, indices)], _ = audience.match(EVENTS)
    assert indices == [0, 2]
    assert list(group.connected) == [(ANN, 1), (BOB, 7)]
    assert list(group.durable) == [3]
    assert len(audience) == 3


def test_each_group_gets_its_own_events() -> None:
    audience = Audience()
    audience.add((ANN, 1), RED)
    audience.add((ANN, 2), BLUE)
    groups, singles = audience.match(EVENTS, apart=False)
    found = {str(group.condition): indices for group, indices in groups}
    assert found == {str(RED): [0, 2], str(BLUE): [1]}
    assert singles == {}


def test_who_is_alone_in_its_group_is_found_by_client() -> None:
    audience = Audience()
    audience.add((ANN, 1), RED)
    audience.add((ANN, 2), BLUE)
    audience.add((BOB, 7), Filter.parse(""))
    assert audience.match(EVENTS) == (
        [],
        {ANN: ([0, 1, 2], [1, 2, 1]), BOB: ([0, 1, 2], [7, 7, 7])},
    )
    audience.add((BOB, 8), RED)
    audience.add((DURABLE, 3), BLUE)
    audience.check()
    groups, singles = audience.match(EVENTS)
    assert [indices for _, indices in groups] == [[0, 2], [1]]
    assert singles == {BOB: ([0, 1, 2], [7, 7, 7])}
    audience.remove((ANN, 1))
    audience.remove((DURABLE, 3))
    audience.check()
    assert audience.match(EVENTS).singles[BOB] == ([0, 0, 1, 2, 2], [8, 7, 7, 8, 7])


def test_only_attached_durable_subscriptions_are_listed_as_such() -> None:
    audience = Audience()
    for number in (1, 2, 3):
        audience.add((DURABLE, number), RED)
    audience.attach(2)
    [(group, _)], _ = audience.match(EVENTS)
    assert list(group.attached) == [2]
    audience.detach(2)
    audience.detach(99)
    assert list(group.attached) == []
    audience.attach(3)
    audience.remove((DURABLE, 3))
    audience.check()
    assert list(group.attached) == []


def test_a_group_goes_with_its_last_member() -> None:
    audience = Audience()
    audience.add((ANN, 1), RED)
    audience.add((DURABLE, 1), RED)
    audience.remove((ANN, 1))
    assert (ANN, 1) not in audience
    assert (DURABLE, 1) in audience
    assert len(audience.match(EVENTS).groups) == 1
    audience.remove((DURABLE, 1))
    audience.check()
    assert audience.match(EVENTS) == ([], {})
    assert len(audience) == 0
