"""Two legitimate copies of a publication share a broker in the window; one number tells them."""

from __future__ import annotations

from itertools import combinations

import pytest

from gapless.core.identity import BrokerName
from gapless.tree.messages import Hop, Position
from gapless.tree.settings import TreeSettings
from gapless.tree.trail import Hops, NearbyNumbers, Sources, extend, is_legitimate

SETTINGS = TreeSettings(failures_tolerated=1, repeats="trail", tags="literal")
A, B, C, D = (BrokerName(name) for name in "ABCD")


def at(broker: BrokerName, number: int, epoch: int = 1) -> Hop:
    return Hop(broker, Position(epoch, number))


def test_a_step_over_others_leaves_their_places_empty() -> None:
    hops = extend((at(A, 7),), at(B, 3), bypassed=[C, D])
    assert hops == (Hop(D, None), Hop(C, None), at(B, 3), at(A, 7))


def test_more_bypassed_than_tolerated_is_not_legitimate() -> None:
    assert is_legitimate((Hop(C, None), at(B, 1), at(A, 1)), SETTINGS)
    assert not is_legitimate((Hop(C, None), at(B, 1), Hop(A, None)), SETTINGS)
    assert is_legitimate((Hop(D, None), at(C, 1), at(B, 1), Hop(A, None)), SETTINGS)


def test_a_copy_that_came_another_way_is_a_repeat() -> None:
    seen = NearbyNumbers(SETTINGS)
    assert not seen.is_repeat((at(C, 5), Hop(B, None), at(A, 2)))
    assert seen.is_repeat((Hop(C, None), at(B, 9), at(A, 2)))
    assert not seen.is_repeat((Hop(C, None), at(B, 10), at(A, 3)))


def test_what_is_late_counts_as_a_repeat() -> None:
    seen = NearbyNumbers(SETTINGS)
    assert not seen.is_repeat((at(A, 2),))
    assert seen.is_repeat((at(A, 1),))


def test_the_numbers_of_a_new_life_are_higher() -> None:
    seen = NearbyNumbers(SETTINGS)
    assert not seen.is_repeat((at(A, 50, epoch=1),))
    assert not seen.is_repeat((at(A, 1, epoch=2),))


@pytest.mark.parametrize("failures", [1, 2, 3])
def test_any_two_legitimate_ways_share_a_broker_in_the_window(failures: int) -> None:
    """All ways through a long path, by which brokers of the last 2δ+1 they bypass."""
    settings = TreeSettings(failures_tolerated=failures, repeats="trail", tags="literal")
    path = [BrokerName(f"b{i}") for i in range(settings.window)]

    def way(bypassed: tuple[int, ...]) -> Hops:
        return tuple(
            Hop(broker, None) if i in bypassed else at(broker, 1) for i, broker in enumerate(path)
        )

    ways = [
        way(bypassed)
        for count in range(settings.window + 1)
        for bypassed in combinations(range(settings.window), count)
    ]
    legitimate = [hops for hops in ways if is_legitimate(hops, settings)]
    assert 0 < len(legitimate) < len(ways)
    for one in legitimate:
        seen = NearbyNumbers(settings)
        assert not seen.is_repeat(one)
        assert all(seen.is_repeat(other) for other in legitimate)


def test_the_number_of_a_source_tells_its_repeats_however_they_came() -> None:
    sources = Sources(TreeSettings(sources_max=2))
    assert sources.repeats(A, 1, [5]) == 0
    assert sources.repeats(A, 1, [5]) == 1
    assert sources.repeats(A, 1, [4]) == 1
    assert sources.repeats(A, 1, [4, 5, 6, 7]) == 2
    assert sources.repeats(B, 1, [1]) == 0
    assert sources.repeats(A, 2, [1]) == 0


def test_beyond_the_limit_the_source_that_is_silent_for_longest_is_forgotten() -> None:
    sources = Sources(TreeSettings(sources_max=2))
    for broker in (A, B, A, C):
        sources.repeats(broker, 1, [7])
    assert sources.repeats(A, 1, [7]) == 1
    assert sources.repeats(C, 1, [7]) == 1
    assert sources.repeats(B, 1, [7]) == 0


def test_where_the_source_tells_repeats_everything_is_legitimate() -> None:
    bypassing = tuple(Hop(broker, None) for broker in (A, B, C, D))
    assert is_legitimate(bypassing, TreeSettings(failures_tolerated=1))
