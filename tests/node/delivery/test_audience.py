"""Audience: equal conditions are matched once, and idle durable subscriptions cost nothing."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np

from gapless.core.identity import ClientName
from gapless.filters.filter import Filter
from gapless.filters.matcher import Matcher
from gapless.node.delivery import audience as module
from gapless.node.delivery.audience import DURABLE, Audience, Soles

if TYPE_CHECKING:
    import pytest

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


def test_matches_are_shared_out_all_at_once_as_they_are_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dice, audience = random.Random(4), Audience()
    audience._matcher = Matcher(engine="compiled")
    colours = [f"c{number}" for number in range(40)]
    events: list[Attributes] = [{"colour": dice.choice(colours)} for _ in range(200)]
    keys: list[tuple[ClientName, int]] = []
    for step in range(300):
        if keys and dice.random() < 0.3:
            audience.remove(keys.pop(dice.randrange(len(keys))))
        else:
            name = dice.choice([ANN, BOB, ClientName("cid"), DURABLE])
            condition = f"colour = '{dice.choice(colours)}'" + dice.choice(["", " AND TRUE"])
            audience.add((name, step), Filter.parse(condition))
            keys.append((name, step))
        audience.check()
        if step % 10 == 0:
            at_once = audience.match(events)
            with monkeypatch.context() as singly:
                singly.setattr(module, "CLIENTS_MAX", -1)
                one_by_one = audience.match(events)
            assert at_once == one_by_one
    assert at_once.groups
    assert len(at_once.singles) == 3


def test_a_client_that_left_leaves_its_place_to_another() -> None:
    soles = Soles()
    for handle, name in enumerate([ANN, BOB, ANN]):
        soles.set(handle, (name, handle))
    soles.set(0, None)
    soles.check()
    assert len(soles) == 2
    soles.set(2, (ClientName("cid"), 9))
    soles.check()
    assert len(soles) == 2
    handles = np.array([2, 1, 2, 0], np.uint32)
    assert soles.are(handles).tolist() == [True, True, True, False]
    some = np.arange(3, dtype=np.uint32)
    assert dict(soles.share_out(some, handles[:3])) == {
        BOB: ([1], [1]),
        ClientName("cid"): ([0, 2], [9, 9]),
    }
    assert dict(soles.share_out(some[:0], handles[:0])) == {}
