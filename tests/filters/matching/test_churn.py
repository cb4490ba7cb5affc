"""Filters that come and go while events are matched: every way to match agrees with the scan, also
where each bound that the compiled engine has is reached at once."""

from __future__ import annotations

import pickle
import random
from typing import TYPE_CHECKING, Any

import pytest

from gapless.core.events import EventBatch
from gapless.filters.matcher import Matcher
from gapless.filters.matching import columns, compiled_index
from gapless.wire.attribute_rows import AttributeRows
from gapless.wire.events import encode_event
from tests.filters.matching.scan import LinearScan, assert_agree

if TYPE_CHECKING:
    from gapless.core.events import Attributes

BOUNDS = [
    *((columns, "COLUMNS_PLENTY", 3), (columns, "TRUTHS_MAX", 2), (columns, "EXPRESSIONS_MAX", 1)),
    (compiled_index, "SETS_PROBED_MAX", 1),
]
PLAIN = [  # none of them needs a value as Python has it: batches are matched by their bytes
    *("{0} = 'v{2}'", "{0} = {2}", "{0} <> 'v{2}'", "{0} = TRUE", "{0} > {2}", "{0} IS NULL"),
    *("{0} IS NOT NULL", "{0} = {2} AND {1} = 'v1'", "{0} = 'v{2}' AND {1} = 'v2'"),
    *("{0} > 9007199254740993", "{0} < {1}", "{0} IN (1, 'v{2}')", "{0} > {2} AND {1} <> 'v1'"),
]
ODD = [
    *("{0} LIKE 'v{2}%'", "{0} LIKE '%{2}'", "{0} LIKE 'v%' AND {1} > 1", "{0} + {2} > {1}"),
    *("{0} < 'v{2}'", "{0} IN (1, 2, 3, 'v{2}', 'v3')", "{0} NOT IN (1, {2}) OR {1} IS NULL"),
]
VALUES: list[Any] = [1, 2, 3, 2.5, 2**60, "v1", "v2", "v3", "v12", "x", True, False]


def event(dice: random.Random, names: list[str]) -> Attributes:
    return {name: dice.choice(VALUES) for name in dice.sample(names, dice.randrange(4))}


@pytest.mark.parametrize("seed", range(12))
def test_all_ways_agree_while_filters_come_and_go(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seed)
    monkeypatch.setattr(compiled_index, "GARBAGE_MIN", dice.choice([0, 5, 20]))
    if seed % 4 > 1:  # events are pairs, always
        monkeypatch.setattr(columns, "DENSE_MAX", 1)
    for module, name, value in dice.sample(BOUNDS, seed % 3):
        monkeypatch.setattr(module, name, value)
    names = ["a", "b", "c", "d"][: dice.choice([3, 4])]
    tests = PLAIN if seed % 2 else PLAIN + ODD
    scan, matcher, alive = LinearScan(), Matcher[int](engine="compiled"), list[int]()
    for number in range(300):
        if dice.random() < 0.5 or len(alive) < 3:
            text = dice.choice(tests).format(*dice.sample(names, 2), dice.randrange(1, 4))
            scan.add(number, text)
            matcher.add(number, text)
            alive.append(number)
        for _ in range(dice.choice([0, 0, 1, len(alive) // 2 if dice.random() < 0.1 else 1])):
            gone = alive.pop(dice.randrange(len(alive)))
            scan.remove(gone)
            matcher.remove(gone)
        if dice.random() < 0.02:
            matcher = pickle.loads(pickle.dumps(matcher))
        events = [event(dice, names) for _ in range(4)]
        pairs = [(index, key) for index, each in enumerate(events) for key in scan.match(each)]
        rows = AttributeRows(EventBatch.join(map(encode_event, events)))
        assert matcher.match_batch(rows) == pairs
        assert_agree(scan, [matcher], events)
        assert matcher.match_batch(rows) == pairs
