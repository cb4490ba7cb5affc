"""An audit finds every planted loss, double, disorder and stranger, and nothing else."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from gapless.core.errors import FilterError, UsageError
from gapless.core.token import Token
from gapless.pipelines.audit import AuditedSubscription, Findings, audit
from gapless.pipelines.journals import read_published

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.slow]

PUBENDS = ("t/0", "t/1")
EVENTS = [(PUBENDS[tick % 2], tick, {"i": tick, "even": tick % 2 == 0}) for tick in range(100, 200)]


def line(pubend: str, tick: int, attributes: dict[str, Any]) -> str:
    return json.dumps({"attributes": attributes, "topic": "t", "pubend": pubend, "tick": tick})


def gap(pubend: str, start: int, end: int) -> str:
    return json.dumps({"gap": {"start": start, "end": end}, "topic": "t", "pubend": pubend})


def write(path: Path, lines: Iterable[str]) -> str:
    path.write_text("".join(f"{each}\n" for each in lines), encoding="utf-8")
    return str(path)


def after_tick(bound: int) -> list[str]:
    """What "i > bound" should get."""
    return [line(*event) for event in EVENTS if event[1] > bound]


def details(findings: Findings) -> Counter[tuple[str, str, int, str]]:
    return Counter(tuple(row) for row in findings.details.collect())


def test_every_planted_fault_is_found_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    right = after_tick(150)
    swapped = [*right[:10], right[12], right[11], right[10], *right[13:]]  # 161 … 163 are 1, 0, 1
    told = [*right[:5], gap("t/0", 150, 170), *[each for each in right[5:] if "t/1" in each]]
    told += [each for each in right[5:] if "t/0" in each and json.loads(each)["tick"] >= 170]
    journals = {
        "clean": right,
        "lossy": [each for each in right if json.loads(each)["tick"] not in (151, 180)],
        "doubled": [*right, right[3], right[3]],
        "swapped": swapped,
        "stranger": [*right, line("t/0", 120, {}), line("t/1", 999, {})],
        "told": told,
        "torn": [*right, '{"attributes": {"i": 1'],
        "silent": [],
    }
    subscriptions = [
        AuditedSubscription(name, "i > 150", (write(tmp_path / f"{name} 1.jsonl", lines),))
        for name, lines in journals.items()
    ]
    published = read_published(
        spark, [write(tmp_path / "published.jsonl", (line(*event) for event in EVENTS))]
    )
    findings = audit(spark, published, subscriptions, tmp_path / "work")
    verdicts = {each.subscription: each for each in findings.verdicts}
    assert list(verdicts) == list(journals)
    assert {name for name, each in verdicts.items() if each.is_clean} == {"clean", "told", "torn"}
    assert not findings.is_clean
    assert (verdicts["clean"].expected, verdicts["clean"].delivered) == (49, 49)
    assert (verdicts["told"].gaps, verdicts["told"].told) == (1, 7)  # 156, 158 … 168
    assert verdicts["torn"].unreadable == 1
    assert verdicts["silent"].lost == verdicts["silent"].expected == 49
    assert {key: n for key, n in details(findings).items() if key[0] != "silent"} == {
        ("lossy", "t/1", 151, "lost"): 1,
        ("lossy", "t/0", 180, "lost"): 1,
        ("doubled", "t/0", 154, "doubled"): 1,
        ("swapped", "t/1", 161, "reordered"): 1,
        ("stranger", "t/0", 120, "unwanted"): 1,
        ("stranger", "t/0", 120, "reordered"): 1,
        ("stranger", "t/1", 999, "unwanted"): 1,
    }


def test_bounds_total_order_and_what_is_known_are_minded(
    spark: SparkSession, tmp_path: Path
) -> None:
    part = [line(*event) for event in EVENTS if 120 <= event[1] < 160]
    whole = write(tmp_path / "part.jsonl", part)
    halves = (write(tmp_path / "1.jsonl", part[:20]), write(tmp_path / "2.jsonl", part[20:]))
    crossed = write(tmp_path / "crossed.jsonl", [part[1], part[0], *part[2:]])
    token = Token({"t/0": 120, "t/1": 120}), Token({"t/0": 160, "t/1": 160})
    subscriptions = [
        AuditedSubscription("by token", "", (whole,), *token),
        AuditedSubscription("by itself", "", halves, "first", "last"),
        AuditedSubscription("wrong turn", "", halves[::-1], "first", "last"),
        AuditedSubscription("tail cut", "", (whole,), token[0], "latest"),
        AuditedSubscription("crossed", "", (crossed,), *token),
        AuditedSubscription("crossed in total", "", (crossed,), *token, total=True),
    ]
    published = read_published(spark, [write(tmp_path / "p.jsonl", (line(*e) for e in EVENTS))])
    found = audit(spark, published, subscriptions, tmp_path / "work").verdicts
    assert [each.expected for each in found] == [40, 40, 40, 80, 40, 40]
    assert [each.lost for each in found] == [0, 0, 0, 40, 0, 0]
    assert [each.reordered for each in found] == [0, 0, 20, 0, 0, 1]
    recent = published.where("tick >= 130")
    known = dict.fromkeys(PUBENDS, (130, 200))
    [verdict] = audit(spark, recent, subscriptions[:1], tmp_path / "work", known).verdicts
    assert verdict.is_clean
    assert (verdict.expected, verdict.unjudged) == (30, 10)


def test_what_cannot_be_audited_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    published = read_published(spark, [write(tmp_path / "p.jsonl", [])])
    with pytest.raises(FilterError, match="'bad'"):
        audit(spark, published, [AuditedSubscription("bad", "i >", ("x",))], tmp_path / "work")
    with pytest.raises(UsageError, match="no journal"):
        audit(spark, published, [AuditedSubscription("none", "", ())], tmp_path / "work")
