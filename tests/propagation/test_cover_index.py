"""The cover index answers what a test of every entry would, by buckets and by boxes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.filters.filter import Filter
from gapless.propagation.cover_index import CoverEntry, CoverIndex
from tests.filters.strategies import conditions as any_conditions
from tests.propagation.strategies import conjunctions

if TYPE_CHECKING:
    from gapless.filters.normal import Conjunction


def any_conjunctions() -> st.SearchStrategy[Conjunction]:
    """Of the whole language, with all that is nasty in it; and those of this package."""
    whole = any_conditions().map(lambda one: Filter(one).conjunctions).filter(bool)
    return st.one_of(whole.map(lambda some: some[0]), conjunctions())


@pytest.mark.parametrize("scanned_max", [-1, 256], ids=["boxes", "buckets"])
@given(
    some=st.lists(any_conjunctions(), max_size=12, unique=True),
    gone=st.sets(st.integers(0, 11)),
    asked=any_conjunctions(),
)
def test_the_answers_are_those_of_brute_force(
    scanned_max: int, some: list[Conjunction], gone: set[int], asked: Conjunction
) -> None:
    index: CoverIndex[CoverEntry] = CoverIndex(scanned_max=scanned_max)
    list(index.covering(asked))  # the boxes are there from the start
    entries = [CoverEntry(one) for one in some]
    for entry in entries:
        index.add(entry)
    for entry in entries[::2]:
        index.set_root(entry, True)
    left = [entry for number, entry in enumerate(entries) if number not in gone]
    for number in gone & set(range(len(entries))):
        index.remove(entries[number])
    index.check()
    for roots in (False, True):
        others = [e for e in left if e.conjunction != asked and (e.is_root or not roots)]
        above = {entry for entry in others if entry.conjunction.covers(asked)}
        below = {entry for entry in others if asked.covers(entry.conjunction)}
        assert set(index.covering(asked, roots=roots)) == above
        assert set(index.covered(asked, roots=roots)) == below


@given(any_conjunctions(), any_conjunctions(), any_conjunctions())
def test_covering_is_transitive(one: Conjunction, two: Conjunction, three: Conjunction) -> None:
    """Guards rest on it: the guard of what covers me covers me."""
    if one.covers(two) and two.covers(three):
        assert one.covers(three)
