"""What conditions cost an event at most: against a dumb sum over all that an event may meet."""

from __future__ import annotations

from itertools import product

import pytest

from gapless.filters.cost import (
    CALCULATION,
    FEW,
    FURTHER,
    LOOK,
    PATTERN,
    PLACE,
    Charge,
    MatchingLoad,
    charges_of,
)
from gapless.filters.filter import Filter


def load_of(*conditions: str) -> MatchingLoad:
    load = MatchingLoad()
    for each in conditions:
        load.add(charges_of(Filter.parse(each)))
    load.check()
    return load


@pytest.mark.parametrize(
    ("condition", "cost"),
    [
        ("", LOOK),
        ("price > 90", LOOK),
        ("symbol = 'IBM'", 0),
        ("symbol = 'IBM' AND price > 90", 0),
        ("symbol LIKE 'IB%'", 0),
        ("text LIKE '%merger%'", LOOK + PATTERN),
        ("text NOT LIKE '%merger%'", LOOK + PATTERN),
        ("text LIKE '%mer_er%'", LOOK + PATTERN + PLACE + 1),
        ("symbol = 'IBM' AND text LIKE '%merger%'", PATTERN),
        ("symbol IN ('IBM', 'SAP') AND text LIKE '%merger%'", PATTERN),
        ("symbol LIKE 'IB%' AND text LIKE '%merger%'", PATTERN),
        ("a + b > c", LOOK + 3 * CALCULATION),
        (" OR ".join(f"t LIKE '%{n}%'" for n in range(3)), 3 * (LOOK + PATTERN)),
        (" OR ".join(f"a{n} > 1" for n in range(FEW + 2)), FEW * LOOK + 2 * FURTHER),
    ],
)
def test_what_no_index_helps_with_is_counted(condition: str, cost: int) -> None:
    assert load_of(condition).worst == cost


def test_conditions_under_different_keys_are_never_paid_for_together() -> None:
    apart = [f"symbol = 'S{n}' AND text LIKE '%{n}%'" for n in range(1_000)]
    assert load_of(*apart).worst == PATTERN
    together = [f"symbol = 'IBM' AND text LIKE '%{n}%'" for n in range(1_000)]
    assert load_of(*together).worst == 1_000 * PATTERN
    tables = [f"a{n} = 1 AND text LIKE '%{n}%'" for n in range(1_000)]
    assert load_of(*tables).worst == 1_000 * PATTERN, "one event may have them all"


def test_what_was_removed_costs_nothing_once_it_is_counted_anew() -> None:
    load = load_of("s = 'a' AND t LIKE '%x%'", "t LIKE '%y%'")
    dear = charges_of(Filter.parse(" AND ".join(["s = 'b'", *(f"t LIKE '%{n}%'" for n in "1234")])))
    before = load.worst
    assert load.worst_with(dear) == before - PATTERN + 4 * PATTERN
    load.add(dear)
    assert load.worst == before + 3 * PATTERN
    load.remove(dear)
    load.check()
    load.recount()
    assert load.worst == before
    load.remove(charges_of(Filter.parse("s = 'a' AND t LIKE '%x%'")))
    load.remove(charges_of(Filter.parse("t LIKE '%y%'")))
    load.check()
    assert load.worst == 0


def test_the_worst_is_what_the_dearest_event_pays() -> None:
    """An event has one key in each table: try all of them."""
    charges = [
        Charge(5),
        *(Charge(cost, (("a",), 0), key) for cost, key in ((3, 1), (4, 2), (2, 1))),
        *(Charge(cost, (("b",), 2), key) for cost, key in ((7, "xx"), (1, "yy"))),
    ]
    load = MatchingLoad()
    load.add(charges)
    dearest = max(
        sum(cost for cost, table, key in charges if table is None or key in (of_a, of_b))
        for of_a, of_b in product((1, 2), ("xx", "yy"))
    )
    assert load.worst == dearest
