"""Random conjunctions for the tests of this package: few names and values, so that they cover."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

from gapless.filters.filter import Filter

if TYPE_CHECKING:
    from gapless.filters.normal import Conjunction

TESTS = (
    *("s = 'ibm'", "s = 't'", "s LIKE 'n%'", "s LIKE 'ny%'", "s IN ('ibm', 't')", "s <> 'ibm'"),
    *("p > 1", "p > 2", "p >= 2", "p < 9", "p = 3", "p BETWEEN 2 AND 5", "p IN (3, 4)"),
    *("q = 1", "q IS NULL", "q IS NOT NULL", "q", "s LIKE '%m%'", "p + q > 3", "r = 7"),
)


def conjunction(text: str) -> Conjunction:
    """The only conjunction of this condition."""
    [only] = Filter.parse(text).conjunctions
    return only


def conditions(tests: tuple[str, ...] = TESTS) -> st.SearchStrategy[str]:
    """One to three of the tests, all of which must hold; not impossible."""
    return (
        st.lists(st.sampled_from(tests), min_size=1, max_size=3, unique=True)
        .map(" AND ".join)
        .filter(lambda text: len(Filter.parse(text).conjunctions) == 1)
    )


def conjunctions() -> st.SearchStrategy[Conjunction]:
    """The same, read; sometimes the one that matches everything."""
    return st.one_of(conditions(), st.just("TRUE")).map(conjunction)
