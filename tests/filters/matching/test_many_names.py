"""Filters that name very many attributes: every path agrees with the scan, and events cost what
they have."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from gapless.core.events import EventBatch
from gapless.filters.filter import Filter
from gapless.filters.matcher import Matcher
from gapless.filters.matching import columns as columns_module
from gapless.filters.matching.column_pairs import encode_pairs
from gapless.filters.matching.columns import DENSE_MAX
from gapless.filters.matching.compiled_index import GARBAGE_MIN
from gapless.filters.matching.plan import plan_all
from gapless.filters.matching.python_index import PythonIndex
from gapless.wire.attribute_rows import AttributeRows
from gapless.wire.events import encode_event
from tests.filters.matching.scan import LinearScan, assert_agree

if TYPE_CHECKING:
    from gapless.core.events import Attributes
    from gapless.filters.matcher import Engine

BOTH = pytest.mark.parametrize("engine", ["python", "compiled"])
TESTS = [
    *("{0} = 1", "{0} = 'ab'", "{0} IN (1, 2, 'x')", "{0} = 1 AND {1} = 'ab'", "{0} > 1"),
    *("{0} <> 'ab'", "{0} <> 2", "{0} = TRUE", "{0} IS NULL AND {1} = 1", "{0} IS NOT NULL"),
    *("{0} LIKE 'a%'", "{0} LIKE '%b'", "{0} LIKE 'a%' AND {1} LIKE 'ab%'", "{0} + {1} > 2"),
    *("{0} > {1}", "{0} > 1 AND {1} < 5", "{0} > 9007199254740992", "{0} IS NULL AND {1} IS NULL"),
    *("{0} = 1 AND {1} = 1 AND {2} = 1", "{0} IS NULL", "{0} NOT IN (1, 2) OR {1} = 'ab'"),
    *("-{0} < -1", "{0} BETWEEN {1} AND {2}", "{0} < 'b' AND {0} > 'a'", "{0} IN (1, 3, 5, 7)"),
]
VALUES: list[Any] = [1, 2, 2.5, 7, 2**53 + 2, "ab", "x", "a", "zb", True, False, None]
NAMES = [f"n{number}" for number in range(3 * DENSE_MAX)]


def conditions(count: int, seed: int) -> list[str]:
    dice = random.Random(seed)
    return [dice.choice(TESTS).format(*dice.sample(NAMES, 3)) for _ in range(count)]


def events(count: int, names: list[str] = NAMES) -> list[Attributes]:
    dice = random.Random(7)
    some = [
        {name: dice.choice(VALUES) for name in dice.sample(names, dice.randrange(1, 12))}
        for _ in range(count)
    ]
    return [{n: value for n, value in each.items() if value is not None} for each in some]


@BOTH
def test_all_kinds_of_clauses_agree_with_the_scan_while_they_come_and_go(engine: Engine) -> None:
    scan, matcher = LinearScan(), Matcher[int](engine=engine)
    dice, alive = random.Random(1), list[int]()
    rows = [{}, *events(25)]
    for number, condition in enumerate(conditions(1_500, 1)):
        for one in (scan, matcher):
            one.add(number, condition)
        alive.append(number)
        if dice.random() < 0.4:
            gone = alive.pop(dice.randrange(len(alive)))
            scan.remove(gone)
            matcher.remove(gone)
        if number % 300 == 299:
            assert assert_agree(scan, [matcher], rows) > 100
    for gone in alive[:-50]:  # the compiled engine lets go of names, and is dense again
        scan.remove(gone)
        matcher.remove(gone)
    assert_agree(scan, [matcher], rows)
    for number, condition in enumerate(conditions(600, 2), 5_000):
        for one in (scan, matcher):
            one.add(number, condition)
    assert_agree(scan, [matcher], rows)


@BOTH
@pytest.mark.parametrize("count", [150, 1_200])
def test_batches_match_as_maps_do(engine: Engine, count: int) -> None:
    matcher = Matcher(dict(enumerate(conditions(count, 3))), engine=engine)
    some = events(60)
    located = AttributeRows(EventBatch.join(map(encode_event, some)))
    expected = matcher.match_batch(some)
    assert matcher.match_batch(located) == expected
    names = NAMES[:12]
    rows = events(60, names)
    for number, kind in enumerate((int, float, str, bool)):
        kept = names[number::4]
        rows = [{n: v for n, v in e.items() if n not in kept or type(v) is kind} for e in rows]
    batch = pa.RecordBatch.from_pylist(
        [{name: row.get(name) for name in names} for row in rows]
    ).append_column("other", pa.array(["x"] * 60))
    assert list(matcher.match_batch(batch)) == matcher.match_batch(rows)
    assert len(expected) > 60


def test_columns_that_run_out_leave_tests_to_be_made_on_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(columns_module, "COLUMNS_PLENTY", 40)
    monkeypatch.setattr(columns_module, "COLUMNS_MAX", 400)
    monkeypatch.setattr(columns_module, "COLUMNS_SPARE", 300)
    monkeypatch.setattr(columns_module, "RARE_MAX", 3)
    scan, matcher = LinearScan(), Matcher[int](engine="compiled")
    for number, condition in enumerate(conditions(900, 4)):
        scan.add(number, condition)
        matcher.add(number, condition)
    assert assert_agree(scan, [matcher], events(40)) > 100
    assert int(matcher.statistics()["columns"]) <= 400


def test_who_names_very_many_attributes_leaves_columns_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(columns_module, "COLUMNS_PLENTY", 500)
    matcher = Matcher[Any]({n: f"n{n} > 1" for n in range(2_000)}, engine="compiled")
    assert matcher.statistics()["columns"] == 500
    for number in range(100):
        matcher.add(("other", number), f"price > {number}")
    assert matcher.statistics()["columns"] == 501
    assert len(matcher.match({"price": 50, "n1999": 2})) == 51


def test_columns_and_names_are_given_back() -> None:
    """Names that are found by value take no column: once they did, without a bound, and a column
    beyond 65,535 that was used again was taken for another, so that filters matched nothing."""
    matcher = Matcher[Any](engine="compiled")
    for number in range(3_000):
        matcher.add(number, f"x{number} = 1")
        matcher.match({"x1": 1})
    assert int(matcher.statistics()["columns"]) <= DENSE_MAX
    for number in range(3_000, 6_000):
        matcher.add(number, f"x{number} = 1 AND y{number} > 1")
    assert int(matcher.statistics()["columns"]) >= 3_000
    for number in reversed(range(5, 6_000)):
        matcher.remove(number)
    assert int(matcher.statistics()["columns"]) <= GARBAGE_MIN
    for number in range(50):
        matcher.add(("new", number), f"z{number} > 5")
    assert matcher.match({"z7": 9, "x4": 1, "y5000": 2}) == [4, ("new", 7)]


def test_an_event_is_encoded_by_what_it_has() -> None:
    event = {"n5": 2, "n77": "ab", "other": 1}
    sizes = []
    for count in (1_000, 4_000):
        matcher = Matcher[int](engine="compiled")
        for number in range(count):
            matcher.add(number, f"n{number} > 1 OR n{number} = 'ab' OR n{number} IS NULL AND m = 1")
        pairs = encode_pairs(matcher._index._columns, [event])  # type: ignore[union-attr]
        sizes.append((len(pairs.columns), len(pairs.edges)))
    assert sizes[0] == sizes[1]
    assert max(sizes[0]) < 10


class Asked(dict[str, Any]):
    """Counts how often it is asked for an attribute."""

    count = 0

    def get(self, *arguments: Any) -> Any:
        Asked.count += 1
        return super().get(*arguments)


@pytest.mark.parametrize(
    "test", ["n{0} + a > 1", "n{0} > a", "a > 0 AND n{0} > 9007199254740992", "n{0} LIKE '%b{0}%'"]
)
def test_what_must_be_checked_is_checked_where_its_attributes_are(test: str) -> None:
    matcher = Matcher({n: test.format(n) for n in range(1_000)}, engine="compiled")
    Asked.count = 0
    assert matcher.match(Asked({"a": 1, "n5": 2**60, "n7": "xb7x"})) != []
    assert Asked.count < 50  # expressions that have columns ask too, at most 16 of them


def test_few_values_of_one_attribute_do_not_hide_the_names_beside_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`a = 1 AND n5 = 2` is found by n5, which leads to fewer, whatever came first."""
    monkeypatch.setattr(columns_module, "COLUMNS_PLENTY", 0)
    matcher = Matcher({n: f"a = 1 AND n{n} = 2" for n in range(800)}, engine="compiled")
    Asked.count = 0
    assert matcher.match(Asked({"a": 1, "n5": 2, "n700": 2})) == [5, 700]
    assert Asked.count < 50


def test_the_python_engine_looks_into_the_tables_of_the_attributes_that_are_there() -> None:
    index = PythonIndex()
    tests = ["n{0} = 1", "n{0} > 1", "n{0} LIKE 'a%'", "a = 1 AND n{0} = 2", "n{0} + a > 1"]
    for number in range(500):
        clauses = plan_all(Filter.parse(tests[number % 5].format(number // 5)).conjunctions)
        index.add(number, clauses)
    found = index._led_to({"a": 1, "n7": 2, "other": 5})
    assert 0 < sum(map(len, found)) < 10
    assert index.match({"a": 1, "n7": 2, "other": 5}) == [36, 38, 39]
    for number in range(500):
        index.remove(number)
    assert index.asks_for_nothing
    assert index.statistics()["rows"] == 0
