"""Our conditions and Spark's mean the same, except where the reference says that they differ."""

from __future__ import annotations

import math
import re
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from gapless.filters.filter import Filter

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]

CONDITIONS, ROWS, AT_ONCE = 3_000, 40, 500
INTS = (-3, -1, 0, 1, 2, 7, 10**12)
FLOATS = (-1.5, 0.0, 0.5, 2.0, 7.0, 1e300)
TEXTS = ("", "a", "ab", "abc", "b", "B", "a%", "a_c", "ä")
SCHEMA = "i bigint, j bigint, f double, s string, t string, b boolean"


class Draw:
    """Random conditions over the columns of the table, and random rows."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)

    def row(self) -> dict[str, Any]:
        some = self.dice.choice
        every = {
            "i": some(INTS),
            "j": some(INTS),
            "f": some((*FLOATS, math.nan, math.inf)),
            "s": some(TEXTS),
            "t": some(TEXTS),
            "b": some((True, False)),
        }
        return {name: value for name, value in every.items() if self.dice.random() > 0.15}

    def number(self, depth: int = 0) -> str:
        some = self.dice.choice
        match self.dice.randrange(6 if depth < 2 else 3):
            case 0:
                return some(("i", "j", "f"))
            case 1:
                return str(abs(some(INTS[:-1])))
            case 2:
                return repr(abs(some(FLOATS[:-1])))
            case 3:
                return f"(-{self.number(depth + 1)})"
            case _:
                return f"({self.number(depth + 1)} {some('+-*/')} {self.number(depth + 1)})"

    def text(self) -> str:
        return self.dice.choice(("s", "t", *(f"'{each}'" for each in TEXTS)))

    def test(self) -> str:
        some, negation = self.dice.choice, self.dice.choice(("", "NOT "))
        operator = some(("=", "<>", "<", "<=", ">", ">="))
        match self.dice.randrange(9):
            case 0 | 1:
                return f"{self.number()} {operator} {self.number()}"
            case 2:
                return f"{self.text()} {operator} {self.text()}"
            case 3:
                return f"{self.number()} {negation}BETWEEN {self.number()} AND {self.number()}"
            case 4:
                numbers = ", ".join(str(abs(some(INTS))) for _ in range(3))
                return f"{some('ij')} {negation}IN ({numbers})"
            case 5:
                texts = ", ".join(f"'{some(TEXTS)}'" for _ in range(3))
                return f"{some('st')} {negation}IN ({texts})"
            case 6:
                pattern = "".join(some(("a", "b", "c", "%", "_")) for _ in range(3))
                return f"{some('st')} {negation}LIKE '{pattern}'"
            case 7:
                return f"{some('ijfstb')} IS {negation}NULL"
            case _:
                return f"b {some(('=', '<>'))} {some(('TRUE', 'FALSE'))}"

    def condition(self, depth: int = 0) -> str:
        match self.dice.randrange(4) if depth < 3 else 3:
            case 0:
                return f"({self.condition(depth + 1)} AND {self.condition(depth + 1)})"
            case 1:
                return f"({self.condition(depth + 1)} OR {self.condition(depth + 1)})"
            case 2:
                return f"(NOT {self.condition(depth + 1)})"
            case _:
                return f"({self.test()})"


def has_nan(condition: str, row: dict[str, Any]) -> bool:
    """Difference 1: a NaN is a value to Spark, equal to itself and above all others."""
    values = [row.get("f", 0.0)]
    may_arise = "f" in condition and any(not math.isfinite(value) for value in values)
    return may_arise or "1e+300" in condition


def has_large_number(condition: str, row: dict[str, Any]) -> bool:
    """Difference 2: whole numbers have 64 bits in Spark; ours never overflow."""
    large = any(abs(row.get(name, 0)) >= 10**12 for name in "ij")
    return large and any(sign in condition for sign in "*+-")


def has_decimal(condition: str, row: dict[str, Any]) -> bool:
    """Difference 3: to Spark a literal with a point is a decimal, whose quotients are rounded."""
    del row
    return "/" in condition and re.search(r"\d\.\d", condition) is not None


DOCUMENTED: dict[str, Callable[[str, dict[str, Any]], bool]] = {
    "nan": has_nan,
    "overflow": has_large_number,
    "decimal": has_decimal,
}


def test_3000_random_conditions_differ_from_sparks_where_documented_and_nowhere_else(
    spark: SparkSession,
) -> None:
    draw = Draw(26)
    rows = [draw.row() for _ in range(ROWS)]
    conditions = [draw.condition() for _ in range(CONDITIONS)]
    table = spark.createDataFrame(
        [tuple(row.get(name) for name in "ijfstb") for row in rows], SCHEMA
    ).coalesce(1)
    differences: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    total = 0
    spark.conf.set("spark.sql.ansi.enabled", "false")  # an error of one row would end all
    try:
        for first in range(0, CONDITIONS, AT_ONCE):
            some = conditions[first : first + AT_ONCE]
            ours = [Filter.parse(each) for each in some]
            theirs = table.selectExpr(*(f"({each}) AS c{n}" for n, each in enumerate(some)))
            for row, answers in zip(rows, theirs.collect(), strict=True):
                for condition, our, answer in zip(some, ours, answers, strict=True):
                    total += 1
                    if our.matches(row) != bool(answer):
                        names = [k for k, is_so in DOCUMENTED.items() if is_so(condition, row)]
                        differences.setdefault(names[0] if names else "", []).append(
                            (condition, row)
                        )
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    assert total == CONDITIONS * ROWS
    assert differences.get("", []) == []
    assert sum(map(len, differences.values())) < total / 20
