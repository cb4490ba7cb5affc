"""The matcher: both engines, every path, against the linear scan; and its manners as a set."""

from __future__ import annotations

import enum
import pickle
import random
import subprocess
import sys
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import workloads
from gapless.core.errors import FilterError
from gapless.filters.filter import Filter
from gapless.filters.matcher import SMALL_MAX, Matcher
from gapless.filters.matching import kernels
from tests.filters.matching.scan import LinearScan, assert_agree
from tests.filters.strategies import attribute_maps, conditions

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.filters.matcher import Engine

ENGINES: tuple[Engine, ...] = ("python", "compiled")
BOTH = pytest.mark.parametrize("engine", ENGINES)


def matched(matcher: Matcher[Any], **attributes: Any) -> list[Any]:
    return matcher.match(attributes)


def both() -> list[Matcher[Any]]:
    return [Matcher(engine=engine) for engine in ENGINES]


@pytest.mark.parametrize("shape", sorted(workloads.SHAPES))
def test_every_path_agrees_with_the_scan_while_filters_come_and_go(shape: str) -> None:
    load = workloads.make(shape, 600, event_count=120)
    dice = random.Random(shape)
    scan, matchers, alive, found = LinearScan(), both(), [], 0
    everyone: list[Any] = [scan, *matchers]
    for number, condition in enumerate(map(Filter.parse, load.conditions)):
        for one in everyone:
            one.add(number, condition)
        alive.append(number)
        if dice.random() < 0.3:
            gone = alive.pop(dice.randrange(len(alive)))
            for one in everyone:
                one.remove(gone)
        if number == 200:
            found += assert_agree(scan, matchers, load.events)
    found += assert_agree(scan, matchers, load.events)
    assert found > 0
    for gone in alive:
        for one in everyone:
            one.remove(gone)
    assert assert_agree(scan, matchers, load.events) == 0


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(conditions().map(Filter), st.integers(0, 9)), min_size=1, max_size=25),
    st.lists(attribute_maps(), min_size=1, max_size=12),
)
def test_any_filters_agree_with_the_scan_on_any_events(
    steps: list[tuple[Filter, int]], events: list[dict[str, Any]]
) -> None:
    scan, matchers, alive = LinearScan(), both(), []
    everyone: list[Any] = [scan, *matchers]
    for number, (condition, removal) in enumerate(steps):
        for one in everyone:
            one.add(number, condition)
        alive.append(number)
        if removal < 3:
            gone = alive.pop(removal % len(alive))
            for one in everyone:
                one.remove(gone)
    assert_agree(scan, matchers, events)


@BOTH
def test_a_large_bucket_rules_out_nothing_that_matches(engine: Engine) -> None:
    dice = random.Random(5)
    scan, matcher = LinearScan(), Matcher[int](engine=engine)
    for number in range(900):
        low = dice.choice([dice.uniform(0, 10), float(dice.randrange(10))])
        condition = dice.choice(
            [
                f"kind = 'k' AND x > {low}",
                f"kind = 'k' AND x BETWEEN {low} AND {low + 1} AND y <> {dice.randrange(5)}",
                f"kind = 'k' AND x <= {low} AND y IS NULL",
                f"kind = 'k' AND y = {dice.randrange(5)} AND z <> 'p'",
                "kind = 'k' AND z IS NOT NULL",
            ]
        )
        scan.add(number, condition)
        matcher.add(number, condition)
        if number % 3 == 0:
            scan.remove(number // 2 if number % 2 else number)
            matcher.remove(number // 2 if number % 2 else number)
    values = {
        "kind": ["k"],
        "x": [*range(-1, 12), 0.5, 3.75, float("nan"), float("inf"), "text", None],
        "y": [0, 1, 4, 7, None],
        "z": ["p", "q", 1, True, None],
    }
    events = [
        {n: v for n, some in values.items() if (v := dice.choice(some)) is not None}
        for _ in range(150)
    ]
    assert assert_agree(scan, [matcher], events) > 1_000


@BOTH
def test_more_conditions_than_a_row_has_slots_are_all_tested(engine: Engine) -> None:
    names = [f"n{index}" for index in range(60)]
    matcher = Matcher({"wide": " AND ".join(f"{name} > 1" for name in names)}, engine=engine)
    event: dict[str, Any] = dict.fromkeys(names, 2)
    assert matcher.match(event) == ["wide"]
    for name in (names[0], names[31], names[59]):
        assert matcher.match(event | {name: 1}) == []
        assert matcher.match({other: 2 for other in names if other != name}) == []


@BOTH
def test_more_attributes_than_are_written_inline(engine: Engine) -> None:
    scan, matchers = LinearScan(), [Matcher[int](engine=engine)]
    everyone: list[Any] = [scan, *matchers]
    for number in range(150):
        for one in everyone:
            one.add(number, f"n{number} = 'x' OR n{number} > 5 OR n{number} IS NULL AND m = 1")
    events: list[dict[str, Any]] = [{}, {"m": 1}, {"n3": "x", "n7": 6, "n9": True, "m": 1.0}]
    events.append({f"n{i}": Decimal(7) if i % 2 else np.float64(7) for i in range(150)})
    assert assert_agree(scan, matchers, events) > 0


@BOTH
def test_more_patterns_than_have_columns(engine: Engine) -> None:
    scan, matchers = LinearScan(), [Matcher[int](engine=engine)]
    everyone: list[Any] = [scan, *matchers]
    for number in range(300):
        for one in everyone:
            one.add(number, f"s LIKE '%{number}%' AND x IN (1, 2, {number})")
    events: list[dict[str, Any]] = [{"s": f"a{n}b", "x": n % 7} for n in range(0, 300, 9)]
    assert assert_agree(scan, matchers, events) > 10


@BOTH
def test_more_combinations_of_attributes_than_are_probed(engine: Engine) -> None:
    dice = random.Random(3)
    scan, matchers = LinearScan(), [Matcher[int](engine=engine)]
    everyone: list[Any] = [scan, *matchers]
    for number in range(250):
        names = sorted(dice.sample("abcdefghij", 3))
        condition = " AND ".join(f"{name} IN ('x', '{dice.choice('yz')}')" for name in names)
        for one in everyone:
            one.add(number, condition)
    events = [{name: dice.choice("xyz") for name in "abcdefghij"} for _ in range(20)]
    assert assert_agree(scan, matchers, events) > 50


@BOTH
def test_integers_beyond_floats_are_compared_exactly(engine: Engine) -> None:
    edge = 2**53
    matcher = Matcher(
        {
            "above": f"n > {edge}",
            "from": f"n >= {edge + 1}",
            "is": f"n = {edge + 1}",
            "not": f"n <> {edge + 1}",
            "small": "n > 5",
        },
        engine=engine,
    )
    assert matcher.match({"n": edge}) == ["not", "small"]
    assert matcher.match({"n": edge + 1}) == ["above", "from", "is", "small"]
    assert matcher.match({"n": float(edge)}) == ["not", "small"]
    assert matcher.match({"n": edge + 2}) == ["above", "from", "not", "small"]
    assert matcher.match({"n": 10**400}) == ["above", "from", "not", "small"]
    assert matcher.match({"n": -(10**400)}) == ["not"]


class Colour(enum.StrEnum):
    """A string that is of another class."""

    RED = "red"


class Amount(enum.IntEnum):
    """A number that is of another class."""

    TWO = 2


@BOTH
def test_values_of_subclasses_count_as_their_plain_values(engine: Engine) -> None:
    matcher = Matcher(
        {1: "c = 'red'", 2: "c LIKE 'r%'", 3: "n > 1", 4: "n = 2", 5: "o IS NOT NULL", 6: "o > 0"},
        engine=engine,
    )
    assert matcher.match({"c": Colour.RED, "n": np.float64(2)}) == [1, 2, 3, 4]
    assert matched(matcher, o=Decimal(1)) == [5]
    assert matched(matcher, c=None, n=None, o=None) == []


@BOTH
def test_what_is_no_value_equals_none(engine: Engine) -> None:
    matcher = Matcher({1: "o = 1", 2: "o = 1 AND n = 2", 3: "o IS NOT NULL"}, engine=engine)
    assert matched(matcher, o=Decimal(1), n=2) == [3]
    assert matched(matcher, o=1, n=Decimal(2)) == [1, 3]
    assert matched(matcher, o=[], n=2) == [3]  # which has no hash
    assert matched(matcher, o=np.float64(1), n=Amount.TWO) == [1, 2, 3]


@BOTH
def test_a_boolean_is_not_a_number(engine: Engine) -> None:
    matcher = Matcher({1: "x = 1", 2: "x = TRUE", 3: "x = 1 AND y = 1", 4: "x <> 0"}, engine=engine)
    assert matcher.match({"x": True, "y": 1}) == [2]
    assert matcher.match({"x": 1, "y": True}) == [1, 4]
    assert matcher.match({"x": 1.0, "y": 1}) == [1, 3, 4]


@BOTH
def test_a_filter_that_matches_in_several_ways_comes_once(engine: Engine) -> None:
    matcher = Matcher({1: "a > 1 OR b > 1 OR c = 'x'", 2: "a + b > 3 OR b > 1"}, engine=engine)
    event: dict[str, Any] = {"a": 2, "b": 2, "c": "x"}
    assert matcher.match(event) == [1, 2]
    events: list[dict[str, Any]] = [event, {}, event]
    assert matcher.match_batch(events) == [(0, 1), (0, 2), (2, 1), (2, 2)]


@BOTH
def test_the_empty_condition_matches_everything_and_a_contradiction_nothing(engine: Engine) -> None:
    matcher = Matcher({1: "", 2: "a > 1 AND a < 1"}, engine=engine)
    assert matcher.match({}) == [1]
    assert matcher.match({"a": 1}) == [1]
    matcher.remove(1)
    assert matcher.match({"a": 1}) == []
    matcher.remove(2)
    assert len(matcher) == 0


@BOTH
def test_filters_that_nothing_can_match_come_and_go(engine: Engine) -> None:
    matcher = Matcher[Any]({"kept": "a = 1"}, engine=engine)
    for number in range(300):
        matcher.add(number, "a > 1 AND a < 1")
    for number in range(300):
        matcher.remove(number)
    matcher.add("new", "a > 0")
    assert matcher.match({"a": 1}) == ["kept", "new"]
    assert len(matcher) == 2


@BOTH
def test_a_new_filter_takes_the_place_that_was_freed_last(engine: Engine) -> None:
    matcher = Matcher(dict.fromkeys("abcd", ""), engine=engine)
    matcher.remove("b")
    matcher.remove("d")
    matcher.add("e", "")
    assert matcher.match({}) == ["a", "c", "e"]
    matcher.add("f", "")
    assert matcher.match({}) == ["a", "f", "c", "e"]


@BOTH
def test_it_is_a_set_of_keys(engine: Engine) -> None:
    matcher = Matcher[Any]([((1, 2), "a = 1"), (None, Filter.parse("a = 2"))], engine=engine)
    assert len(matcher) == 2
    assert (1, 2) in matcher
    assert "x" not in matcher
    assert matcher.match({"a": 1}) == [(1, 2)]
    with pytest.raises(ValueError, match="Remove it first"):
        matcher.add(None, "a = 3")
    with pytest.raises(KeyError):
        matcher.remove("x")
    with pytest.raises(FilterError):
        matcher.add("new", "a = ")
    assert "new" not in matcher
    assert matcher.key_of(matcher.handle_of((1, 2))) == (1, 2)


@BOTH
def test_a_copy_made_by_pickling_lives_on_its_own(engine: Engine) -> None:
    scan, matcher = LinearScan(), Matcher[int](engine=engine)
    for number, condition in enumerate(workloads.make("mixed", 200, 0).conditions):
        scan.add(number, condition)
        matcher.add(number, condition)
    scan.remove(7)
    matcher.remove(7)
    twin = pickle.loads(pickle.dumps(matcher))
    events = workloads.make("mixed", 0, 40).events
    for number in range(300, 320):
        for one in (scan, twin):
            one.add(number, f"host = 'h{number}' OR level > {number - 250}")
    assert assert_agree(scan, [twin], events) > 0
    assert 300 not in matcher


def test_a_snapshot_is_mapped_and_never_written_to(tmp_path: Path) -> None:
    scan, matcher = LinearScan(), Matcher[int]()
    load = workloads.make("stock", 300, 60)
    for number, condition in enumerate(load.conditions):
        scan.add(number, condition)
        matcher.add(number, condition)
    path = tmp_path / "filters.matcher"
    matcher.save(path)
    before = path.read_bytes()
    opened = Matcher[int].open(path)
    again = Matcher[int].open(path)
    mapped = opened._index._memory.words  # type: ignore[union-attr]
    assert_agree(scan, [opened, again], load.events)
    assert opened._index._memory.words is mapped, "what is shared must not be copied"  # type: ignore[union-attr]
    scan.remove(3)
    opened.remove(3)
    for number in range(400, 900):
        scan.add(number, load.conditions[number % 300])
        opened.add(number, load.conditions[number % 300])
    assert_agree(scan, [opened], load.events)
    assert len(again) == 300
    assert path.read_bytes() == before


def test_a_file_that_is_no_snapshot_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_bytes(b"something else entirely, and long enough to be a header")
    with pytest.raises(ValueError, match="not a saved matcher"):
        Matcher.open(path)
    Matcher({1: "a = 1"}).save(path)
    whole = bytearray(path.read_bytes())
    whole[8] ^= 1
    path.write_bytes(whole)
    with pytest.raises(ValueError, match="another version"):
        Matcher.open(path)


def test_small_matchers_import_nothing_heavy() -> None:
    code = (
        "import sys; from gapless.filters.matcher import Matcher\n"
        "m = Matcher({1: \"a = 1 AND b LIKE 'x%'\"}); m.remove(1); m.add(2, 'a > 1')\n"
        "assert m.match({'a': 2}) == [2] and m.match_batch([{'a': 3}]) == [(0, 2)]\n"
        "assert not {'numpy', 'numba', 'pyarrow'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_many_filters_are_taken_over_by_the_compiled_engine_once_it_is_ready() -> None:
    kernels.prepare()
    scan, matcher = LinearScan(), Matcher[int]()
    for number in range(SMALL_MAX + 50):
        scan.add(number, f"a = {number % 10} AND b > {number}")
        matcher.add(number, f"a = {number % 10} AND b > {number}")
        if number == SMALL_MAX - 1:
            assert matcher.statistics()["engine"] == "python"
    assert matcher.statistics()["engine"] == "compiled"
    assert_agree(scan, [matcher], [{"a": a, "b": 200} for a in range(11)])


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(ValueError, match="none of"):
        Matcher(engine="fast")  # type: ignore[arg-type]


def test_what_was_removed_leaves_nothing_behind() -> None:
    matcher = Matcher[int](engine="compiled")
    matcher.add(-1, "keep = 'kept' AND x > 1")
    sizes = []
    for generation in range(3):
        numbers = range(generation * 1_200, (generation + 1) * 1_200)
        for n in numbers:
            matcher.add(n, f"a{n % 50} = 'v{n}' AND x > {n} OR s LIKE 'p{n}%' OR s LIKE '%{n}'")
        sizes.append(int(matcher.statistics()["bytes"]))
        for n in numbers:
            matcher.remove(n)
        assert matcher.match({"keep": "kept", "x": 2, "s": "p1", "a1": "v1"}) == [-1]
    assert max(sizes) < 2 * min(sizes), "garbage is bounded, however many came and went"
    assert int(matcher.statistics()["columns"]) < 200
    assert matcher.statistics()["rows"] == 1
