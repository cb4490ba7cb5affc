"""Clients that want the same share one subscription, from the first that comes to the last."""

from __future__ import annotations

import pytest

from gapless.core.identity import ClientName, TopicName
from gapless.node.reliable.groups import SharedSubscription, SharedSubscriptions

FEED = TopicName("feed")
ANN, BOB = (ClientName("ann"), 1), (ClientName("bob"), 1)


def shared() -> tuple[SharedSubscriptions[int], SharedSubscription[int]]:
    groups: SharedSubscriptions[int] = SharedSubscriptions()
    group = SharedSubscription(FEED, FEED, "", 7)
    groups.add(group)
    groups.enter(group, ANN, 10)
    groups.enter(group, BOB, 11)
    return groups, group


def test_who_waits_is_let_in_with_its_request_and_is_a_member_from_then_on() -> None:
    groups, group = shared()
    groups.check()
    assert group.let_in() == {ANN: 10, BOB: 11}
    assert list(group.members) == [ANN, BOB]
    assert (groups.subscription_count, ANN in groups) == (2, True)
    assert groups.find(FEED, "") is groups.named(7) is group
    groups.check()


def test_a_group_is_gone_with_the_last_that_leaves() -> None:
    groups, group = shared()
    assert groups.leave([ANN]) == []
    assert groups.leave(groups.of_client(BOB[0])) == [group]
    assert groups.find(FEED, "") is None
    groups.check()


def test_a_group_that_is_removed_takes_all_who_are_in_it_along() -> None:
    groups, group = shared()
    groups.remove(group)
    assert (list(groups), groups.subscription_count, ANN in groups) == ([], 0, False)
    groups.check()


def test_a_group_in_force_in_which_somebody_waits_is_found_out() -> None:
    groups, group = shared()
    group.is_in_force = True
    with pytest.raises(AssertionError, match="I2"):
        groups.check()
