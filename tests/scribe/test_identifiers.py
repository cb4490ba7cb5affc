"""Points on a circle: prefixes, digits, distances, and who is responsible."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.errors import UsageError
from gapless.scribe.identifiers import Identifier, NodeId, Space

SMALL = Space(8, 2)
points = st.integers(0, 255).map(lambda value: NodeId(Identifier(value)))


def test_digits_and_prefixes_are_those_of_the_written_number() -> None:
    space = Space(16, 4)
    assert [space.digit(0xA1B2, index) for index in range(4)] == [0xA, 1, 0xB, 2]
    assert space.prefix_length(0xA1B2, 0xA1C2) == 2
    assert space.prefix_length(0xA1B2, 0xA1B2) == 4
    assert space.prefix_length(0x0000, 0x8000) == 0


@given(points, points)
def test_distance_is_the_short_way_round(one: NodeId, other: NodeId) -> None:
    steps = min((one - other) % 256, (other - one) % 256)
    assert SMALL.distance(one, other) == SMALL.distance(other, one) == steps


@given(points, points, points)
def test_who_lies_between_shares_as_long_a_prefix(low: NodeId, middle: NodeId, key: NodeId) -> None:
    """I1: so the far end of a leaf set is always a way on."""
    if low <= middle <= key or key <= middle <= low:
        assert SMALL.prefix_length(middle, key) >= SMALL.prefix_length(low, key)


def test_of_two_equally_near_the_smaller_is_responsible() -> None:
    nodes = [NodeId(Identifier(12)), NodeId(Identifier(8))]
    assert SMALL.closest(10, nodes) == 8


def test_a_topic_is_where_its_two_names_say() -> None:
    space = Space()
    assert space.topic_id("a", "b") == space.topic_id("a", "b") < 1 << 128
    assert space.topic_id("ab", "c") != space.topic_id("a", "bc")


def test_bits_that_cannot_be_cut_into_digits_are_refused() -> None:
    with pytest.raises(UsageError, match="cannot be cut"):
        Space(10, 4)
