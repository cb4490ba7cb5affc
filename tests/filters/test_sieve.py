"""A sieve holds back only what surely does not match, and most of what does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.filters import sieve as sieve_module
from gapless.filters.filter import Filter
from gapless.filters.sieve import Coded, Sieve, digest, shrink
from tests.filters.strategies import attribute_maps, conditions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gapless.core.events import Value
    from gapless.filters.syntax import Condition


def candidates(condition: Filter, rows: Sequence[Mapping[str, Value]]) -> list[int]:
    sieve = Sieve(condition)
    digests = {name: digest([row.get(name) for row in rows]) for name in sieve.names}
    mask = sieve.candidates(digests, len(rows))
    assert mask.shape == (len(rows),)
    return [number for number, passes in enumerate(mask.tolist()) if passes]


@given(condition=conditions(), rows=st.lists(attribute_maps(), max_size=8))
def test_whatever_matches_is_a_candidate(
    condition: Condition, rows: list[dict[str, Value]]
) -> None:
    wanted = Filter(condition)
    matching = {number for number, row in enumerate(rows) if wanted.matches(row)}
    assert matching <= set(candidates(wanted, rows))


@given(condition=conditions(), rows=st.lists(attribute_maps(), min_size=1, max_size=8))
def test_a_digest_that_was_shrunk_says_the_same(
    condition: Condition, rows: list[dict[str, Value]]
) -> None:
    sieve, rows = Sieve(Filter(condition)), rows * 50
    digests = {name: digest([row.get(name) for row in rows]) for name in sieve.names}
    small = {name: shrink(each) for name, each in digests.items()}
    assert all(isinstance(each, Coded) for each in small.values())
    assert all(each.nbytes < digests[name].nbytes for name, each in small.items())
    for low, high in ((0, len(rows)), (3, len(rows) - 5)):
        whole, less = (
            sieve.candidates(
                {name: each.cut(low, high) for name, each in given.items()}, high - low
            )
            for given in (digests, small)
        )
        assert whole.tolist() == less.tolist()


def test_what_does_not_get_smaller_stays_as_it_is() -> None:
    given = digest([float(number) for number in range(300)])
    assert shrink(given) is given


@pytest.mark.parametrize(
    "text",
    [
        "n = 7",
        "n >= 90",
        "n BETWEEN 3 AND 5",
        "n IN (1, 2, 50)",
        "s = 'S7'",
        "s IN ('S1', 'S2')",
        "s = 'S7' AND n >= 50",
        "n = 3 OR s = 'S4'",
        "b",
        "NOT b AND n <= 10",
        "n IS NULL",
        "n IS NOT NULL AND s = 'S1'",
        "FALSE",
    ],
)
def test_of_such_conditions_only_what_matches_is_a_candidate(text: str) -> None:
    rows: list[dict[str, Value]] = [
        {"n": number % 97, "s": f"S{number % 10}", "b": number % 3 == 0} for number in range(300)
    ]
    rows += [{"s": "S7"}, {"n": "7", "s": 7, "b": 1}, {"n": True, "s": False}, {}]
    wanted = Filter.parse(text)
    assert candidates(wanted, rows) == [i for i, row in enumerate(rows) if wanted.matches(row)]


def test_a_sieve_that_holds_nothing_back_says_so() -> None:
    for text, is_tight in (("a = 1", True), ("a = 1 OR b + c > 2", False), ("FALSE", True)):
        assert Sieve(Filter.parse(text)).is_tight is is_tight
    assert Sieve(Filter.parse("a = 1 AND b + c > 2")).names == ("a",)


def test_a_large_set_is_sieved_as_what_it_lies_in() -> None:
    numbers = Filter.parse(f"a IN ({', '.join(map(str, range(0, 100, 2)))})")
    rows: list[dict[str, Value]] = [{"a": -1}, {"a": 1}, {"a": 4}, {"a": 99}, {"a": "4"}]
    assert candidates(numbers, rows) == [1, 2]
    texts = Filter.parse("a IN (" + ", ".join(f"'{number}'" for number in range(50)) + ")")
    assert candidates(texts, rows) == [4]


def test_a_digest_is_small_where_nothing_is_lost_by_it() -> None:
    for values, size in (
        ([1, 2, 3.5], 12),
        (["x", "y", "z"], 12),
        ([True, False, True], 12),
        ([0.1, 1, 2], 24),
        ([1, "x", None], 27),
    ):
        assert digest(values).nbytes == size  # type: ignore[arg-type]
    wanted = Filter.parse("a = 0.1")
    assert candidates(wanted, [{"a": 0.1}, {"a": 0.5}]) == [0]
    assert candidates(wanted, [{"a": 0.5}, {"a": 0.10000000149011612}]) == []


@given(condition=conditions(), rows=st.lists(attribute_maps(), max_size=8))
def test_whatever_matches_one_of_many_alternatives_is_a_candidate(
    condition: Condition, rows: list[dict[str, Value]]
) -> None:
    wanted = Filter(condition)
    matching = {number for number, row in enumerate(rows) if wanted.matches(row)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sieve_module, "ALTERNATIVES_MAX", 0)
        assert matching <= set(candidates(wanted, rows))


@pytest.mark.parametrize(
    ("test", "passing"),
    [
        ("n = {0} AND s = 'S{0}'", [*range(0, 100, 2)]),
        ("n BETWEEN {0} AND {0}.5", [*range(0, 100, 2)]),
        ("n > {0} + 49 AND s LIKE '%{0}'", [*range(49, 100)]),
    ],
)
def test_many_alternatives_are_sieved_at_once(test: str, passing: list[int]) -> None:
    rows: list[dict[str, Value]] = [{"n": n, "s": f"S{n}"} for n in range(100)]
    condition = Filter.parse(" OR ".join(test.format(n) for n in range(0, 100, 2)))
    found = candidates(condition, rows)
    assert {n for n, row in enumerate(rows) if condition.matches(row)} <= set(found)
    assert found == passing


def test_alternatives_that_have_no_attribute_in_common_let_everything_pass() -> None:
    condition = Filter.parse(" OR ".join(f"a{n} > 1" for n in range(50)))
    assert not Sieve(condition).is_tight
    assert candidates(condition, [{"a7": 2}, {}]) == [0, 1]
