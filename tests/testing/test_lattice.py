"""The lattice: the whole join table spelt out, its laws, and the shadow that enforces it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.ticks import Span
from gapless.knowledge.neighbours import SOURCE, Edge
from gapless.knowledge.relay import RelayPlace
from gapless.testing.lattice import JOIN, Belief, Shadow, StrictStream, lower, strict
from tests.knowledge.notation import BROKER, CONFIG, HERE, PUBEND, UPSTREAM

if TYPE_CHECKING:
    from gapless.core.identity import CellName

TABLE = """
      Q   D   D*  S   F   E
Q     Q   D   D*  S   F   E
D     D   D   D*  E   D*  E
D*    D*  D*  D*  E   D*  E
S     S   E   E   S   S   E
F     F   D*  D*  S   F   E
E     E   E   E   E   E   E
"""
beliefs = st.sampled_from(Belief)


def rows() -> list[tuple[Belief, Belief, Belief]]:
    header, *lines = (line.split() for line in TABLE.strip().splitlines())
    return [
        (Belief(left), Belief(right), Belief(joined))
        for left, *cells in lines
        for right, joined in zip(header, cells, strict=True)
    ]


@pytest.mark.parametrize(("left", "right", "joined"), rows())
def test_two_beliefs_join_as_the_table_says(left: Belief, right: Belief, joined: Belief) -> None:
    assert JOIN[left, right] is joined


def test_the_table_covers_every_pair() -> None:
    assert {(left, right) for left, right, _ in rows()} == set(product(Belief, Belief))


@given(beliefs, beliefs, beliefs)
def test_joining_is_commutative_associative_and_idempotent(
    one: Belief, two: Belief, three: Belief
) -> None:
    assert JOIN[one, two] is JOIN[two, one]
    assert JOIN[JOIN[one, two], three] is JOIN[one, JOIN[two, three]]
    assert JOIN[one, one] is one


def test_streams_keep_three_beliefs_that_never_meet_in_an_error() -> None:
    """What production keeps after lowering is totally ordered: unknown, data, final."""
    kept = {lower(belief) for belief in Belief} - {Belief.ERROR}
    assert kept == {Belief.UNKNOWN, Belief.DATA, Belief.FINAL}
    for left, right in product(kept, kept):
        assert lower(JOIN[left, right]) in kept
    assert lower(JOIN[Belief.DATA, Belief.FINAL]) is Belief.FINAL


def test_the_shadow_refuses_silence_where_data_was() -> None:
    shadow = Shadow()
    shadow.learn(Span(0, 5), [2], [b"x"])
    with pytest.raises(AssertionError, match="silence at 2"):
        shadow.learn(Span(1, 3), [], [])


def test_the_shadow_refuses_data_where_silence_was() -> None:
    shadow = Shadow()
    shadow.learn(Span(0, 5), [2], [b"x"])
    with pytest.raises(AssertionError, match="data at silent tick 3"):
        shadow.learn(Span(3, 4), [3], [b"x"])


def test_the_shadow_refuses_two_events_at_one_tick() -> None:
    shadow = Shadow()
    shadow.learn(Span(2, 3), [2], [b"x"])
    with pytest.raises(AssertionError, match="two events at tick 2"):
        shadow.learn(Span(2, 3), [2], [b"y"])


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 10)), max_size=8),
    st.sets(st.integers(0, 9)),
)
def test_the_shadow_takes_the_same_truth_in_any_pieces(
    pieces: list[tuple[int, int]], data: set[int]
) -> None:
    shadow = Shadow()
    for low, high in pieces:
        piece = Span(min(low, high - 1), max(low + 1, high))
        ticks = sorted(tick for tick in data if tick in piece)
        shadow.learn(piece, ticks, [b"%d" % tick for tick in ticks])


@pytest.mark.parametrize(
    ("upstream", "propagates", "is_strict"),
    [(SOURCE, True, True), (UPSTREAM, False, True), (UPSTREAM, True, False)],
)
def test_only_streams_that_nobody_has_filtered_are_held_to_the_lattice(
    upstream: CellName, propagates: bool, is_strict: bool
) -> None:
    parts, config = strict(), replace(CONFIG, propagates=propagates)
    place = RelayPlace(BROKER, HERE, upstream, ())
    relay = parts.relay(PUBEND, place, config, Edge())
    subend = parts.subend(PUBEND, 7, config)
    assert isinstance(relay.stream, StrictStream) == is_strict
    assert isinstance(subend.stream, StrictStream) == (not propagates)
    assert subend.stream.base == 7
