"""Some seconds of the fuzzer of whole brokers, and proof that it finds what it is for.

`python fuzz/node.py --steps 10_000_000` is the long run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fuzz.node import EPISODE_STEPS, Player, find
from gapless.node.durable.subscription_requests import SubscriptionRequests
from gapless.node.routing import Routing
from gapless.node.subscriptions.attachments import Attachments

if TYPE_CHECKING:
    from gapless.core.identity import ClientName, Instant


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_well_formed_messages_in_odd_orders_end_no_broker(seed: int) -> None:
    assert find(seed, 4_000) is None


def test_the_same_seed_gives_the_same_steps() -> None:
    one, other = (Player(3, 5) for _ in range(2))
    assert one.run(EPISODE_STEPS) is other.run(EPISODE_STEPS) is None
    assert one.episode.steps == other.episode.steps


def has_session(self: Attachments, client: ClientName, number: int) -> bool:
    return self._session(client, number) is not None


@pytest.mark.slow
def test_a_number_that_is_free_too_soon_is_found_and_shown_in_few_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Attachments, "has", has_session)
    found = find(2, 60_000, plays_max=400)
    assert found is not None
    assert "AssertionError: I3" in found
    assert found.count("\n  say(") <= 6, found


def next_hop_always(self: Routing, message: object, now: Instant) -> list[object]:
    target = self.network.cell_of[message.receiver].name  # type: ignore[attr-defined]
    return [self.network.next_hop(self.cell, target)]


@pytest.mark.slow
def test_an_answer_that_does_not_know_its_way_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Routing, "send_on", next_hop_always)
    found = find(1, 60_000, plays_max=20)
    assert found is not None
    assert "again: python fuzz/node.py --seed 1 --episode" in found


@pytest.mark.slow
def test_what_stays_behind_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def keep(self: SubscriptionRequests, client: ClientName, now: Instant) -> None:
        self.homes.disconnect(client)

    monkeypatch.setattr(SubscriptionRequests, "disconnect", keep)
    found = find(1, 60_000, plays_max=20)
    assert found is not None


KEPT = [
    (77, 1180),  # a broker of a ring denies a topic
    (78, 735),  # acknowledged before it was written, and then there was no room
    (81, 47),  # a hold that waits for the epoch to be durable, while its topic is deleted
    (82, 2877),  # published to a root that has the topic's record, but no group yet
    (79, 1280),  # a start under an old claim, while the next life of the name is being written
    (20261119, 875),  # another topic of the same incarnation
    (20261118, 80),  # a count of changes beyond what brokers can tell each other
    (20261120, 1547),  # a name that was never opened, in the second life after a lost disk
    (777002, 8005),  # a partition without a broker
    (777001, 3254),  # a crash between the end of a topic and that of its subscriptions
    (20261118, 65),  # a member of a group shows a token
    (20261121, 1342),  # a broker says that a condition was changed to what is none
]
"""Episodes that found something once: seed, and number."""


@pytest.mark.parametrize(("seed", "episode"), KEPT)
def test_episodes_that_found_something_find_nothing_more(seed: int, episode: int) -> None:
    assert find(seed, 1, first=episode) is None
