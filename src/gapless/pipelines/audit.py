"""Audit: did every subscription get exactly what it should, once, in order, without a silent gap?

Theory of operation
    What should have come is what the conditions match of what was published, between the start and
    the end of each subscription: one pass of the matcher. What came is in the journals. Both are
    brought together by (subscription, pubend, tick); how often each side has a tick says whether
    it was delivered, lost, doubled or never wanted. The order is judged over the first delivery of
    each tick, in the order of the lines: within a pubend, or within the topic for a total order.
    A loss that was told as a gap is no violation. All of it is Spark's own aggregates and joins;
    nothing is collected but one row for each subscription.

What is judged
    `whole` says of which ticks of each pubend everything that was published is there. A delivery of
    another tick cannot be judged and is counted as such; doubles and order are judged everywhere.

Cost: one match of all published events, one shuffle of all pairs and deliveries, one sort of the
deliveries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pyspark.sql import Window
from pyspark.sql import functions as sql

from gapless.core.errors import FilterError, UsageError
from gapless.core.ticks import TICK_MAX
from gapless.core.token import Token
from gapless.pipelines.journals import read_journals
from gapless.pipelines.match import match, match_replay
from gapless.pipelines.subscription_table import write_subscriptions
from gapless.pipelines.verdict import PROBLEMS, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession

    from gapless.pipelines.replay import Replay, ReplayPlan

KEY = ("subscription", "pubend", "tick")
BOUNDS = (
    "subscription string, start string, starts map<string, long>, "
    "end string, ends map<string, long>, scope string"
)
KNOWN = "map<string, struct<low: long, high: long>>"


@dataclass(frozen=True, slots=True)
class AuditedSubscription:
    """One subscription: what it asked for, and where it wrote down what came.

    `start`: a token, "earliest" (all that was published) or "first" (its first delivery of a
    pubend). `end`: a token, "latest" (all that was published) or "last" (its last delivery).
    """

    name: str
    condition: str
    journals: tuple[str, ...]
    start: Token | Literal["earliest", "first"] = "earliest"
    end: Token | Literal["latest", "last"] = "latest"
    total: bool = False


@dataclass(frozen=True, slots=True)
class Findings:
    """The verdict on each subscription, and every violation as a row (…, tick, problem).

    Spark keeps the frames behind them until `close`.
    """

    verdicts: list[Verdict]
    details: DataFrame
    _frames: tuple[DataFrame, ...]

    def close(self) -> None:
        for each in self._frames:
            each.unpersist()

    @property
    def is_clean(self) -> bool:
        return all(verdict.is_clean for verdict in self.verdicts)


def audit(
    spark: SparkSession,
    published: DataFrame | tuple[Replay, ReplayPlan],
    subscriptions: Sequence[AuditedSubscription],
    work: str | Path,
    whole: Mapping[str, tuple[int, int]] | None = None,
) -> Findings:
    """Judge all subscriptions of one topic by what was published: what a lake and a log have, or a
    DataFrame with pubend, tick and attributes.

    `work` is a folder that workers see too. `whole`: by pubend, the ticks of which everything that
    was published is in the DataFrame; all ticks if left out.
    """
    _, refusals = write_subscriptions(((each.name, each.condition) for each in subscriptions), work)
    if refusals:
        first = refusals[0]
        raise FilterError(f"subscription {first.name!r}: {first.reason}")
    journals = [
        (each.name, number, path)
        for each in subscriptions
        for number, path in enumerate(each.journals)
    ]
    if not journals:
        raise UsageError("there is no journal to audit", "Give each subscription its journals.")
    lines = read_journals(spark, journals)
    if isinstance(published, tuple):
        replay, planned = published
        wanted, whole = match_replay(spark, replay, planned, str(work)), planned.whole()
    else:
        wanted = match(published, str(work))
    return _judge(spark, wanted, lines, subscriptions, whole)


def _judge(
    spark: SparkSession,
    wanted: DataFrame,
    lines: DataFrame,
    subscriptions: Sequence[AuditedSubscription],
    whole: Mapping[str, tuple[int, int]] | None,
) -> Findings:
    lines = lines.persist()
    came = lines.where("tick IS NOT NULL")
    both = _both(wanted, came).persist()  # it is looked at twice, and matching costs most
    scope = _scope(spark, came, subscriptions, whole)
    pairs = _classified(both, scope, lines.where("gap IS NOT NULL"))
    ordered = _reordered(came, spark.createDataFrame(_bounds(subscriptions), BOUNDS))
    details = pairs.select(*KEY, sql.explode("problems").alias("problem")).unionByName(
        ordered.select(*KEY, sql.lit("reordered").alias("problem"))
    )
    figures = pairs.groupBy("subscription").agg(
        sql.sum("expected").alias("expected"),
        sql.sum("told").alias("told"),
        sql.sum("unjudged").alias("unjudged"),
        sql.sum("count").alias("delivered"),
        *(
            sql.count_if(sql.array_contains("problems", problem)).alias(problem)
            for problem in PROBLEMS
            if problem != "reordered"
        ),
    )
    disorder = ordered.groupBy("subscription").agg(sql.count("*").alias("reordered"))
    others = lines.groupBy("subscription").agg(
        sql.count("gap").alias("gaps"),
        sql.count_if(sql.expr("coalesce(tick, gap.start, silence) IS NULL")).alias("unreadable"),
    )
    rows = figures.join(disorder, "subscription", "full").join(others, "subscription", "full")
    found = {row["subscription"]: row.asDict() for row in rows.collect()}
    verdicts = [Verdict.of(each.name, found.get(each.name, {})) for each in subscriptions]
    return Findings(verdicts, details, (lines, both))


def _bounds(subscriptions: Sequence[AuditedSubscription]) -> list[tuple[object, ...]]:
    return [
        (
            each.name,
            "token" if isinstance(each.start, Token) else each.start,
            dict(each.start) if isinstance(each.start, Token) else {},
            "token" if isinstance(each.end, Token) else each.end,
            dict(each.end) if isinstance(each.end, Token) else {},
            "topic" if each.total else "pubend",
        )
        for each in subscriptions
    ]


def _scope(
    spark: SparkSession,
    came: DataFrame,
    subscriptions: Sequence[AuditedSubscription],
    whole: Mapping[str, tuple[int, int]] | None,
) -> DataFrame:
    """By subscription: its bounds, and by pubend its first and last tick and what is known."""
    extents = came.groupBy("subscription", "pubend").agg(
        sql.min("tick").alias("first"), (sql.max("tick") + 1).alias("last")
    )
    by_name = extents.groupBy("subscription").agg(
        _as_map("pubend", "first").alias("firsts"), _as_map("pubend", "last").alias("lasts")
    )
    bounds = spark.createDataFrame(_bounds(subscriptions), BOUNDS)
    spans = [(name, low, high) for name, (low, high) in (whole or {}).items()]
    table = spark.createDataFrame(spans, "pubend string, low long, high long")
    judged = _as_map("pubend", sql.struct("low", "high"))
    if whole is None:
        judged = sql.first(sql.lit(None))
    bounds = bounds.crossJoin(table.agg(judged.cast(KNOWN).alias("known")))
    return sql.broadcast(bounds.join(by_name, "subscription", "left"))


def _as_map(key: str, value: str | Column) -> Column:
    return sql.map_from_entries(sql.collect_list(sql.struct(key, value)))


def _both(wanted: DataFrame, came: DataFrame) -> DataFrame:
    """By subscription, pubend and tick: is it wanted, and how often did it come."""
    one, none = sql.lit(1), sql.lit(0)
    rows = wanted.select(*KEY, one.alias("wanted"), none.alias("count")).unionByName(
        came.select(*KEY, none.alias("wanted"), one.alias("count"))
    )
    return rows.groupBy(*KEY).agg(
        (sql.max("wanted") > 0).alias("wanted"), sql.sum("count").alias("count")
    )


def _classified(both: DataFrame, scope: DataFrame, gaps: DataFrame) -> DataFrame:
    """With what is wrong about each tick, if anything."""
    end = sql.lit(TICK_MAX)
    low = sql.expr(
        "CASE start WHEN 'token' THEN coalesce(starts[pubend], 0)"
        " WHEN 'first' THEN coalesce(firsts[pubend], 9223372036854775807) ELSE 0 END"
    )
    high = sql.when(sql.col("end") == "latest", end).otherwise(
        sql.expr("coalesce(IF(end = 'token', ends[pubend], lasts[pubend]), 0)")
    )
    judged = sql.expr(
        "known IS NULL OR coalesce(tick >= known[pubend].low AND tick < known[pubend].high, FALSE)"
    )
    tick = sql.col("tick")
    within = both.join(scope, "subscription").select(
        *KEY,
        "wanted",
        "count",
        judged.alias("judged"),
        ((tick >= low) & (tick < high)).alias("inside"),
    )
    missing = within.where("wanted AND inside AND judged AND count = 0")
    spans = gaps.select("subscription", "pubend", "gap.start", "gap.end")
    told = missing.join(
        spans,
        (missing["subscription"] == spans["subscription"])
        & (missing["pubend"] == spans["pubend"])
        & (missing["tick"] >= spans["start"])
        & (missing["tick"] < spans["end"]),
        "left_semi",
    ).select(*KEY, sql.lit(True).alias("is_told"))
    is_told = sql.coalesce("is_told", sql.lit(False))
    expected = sql.expr("wanted AND inside AND judged")
    problems = sql.array_compact(
        sql.array(
            sql.when(expected & (sql.col("count") == 0) & ~is_told, "lost"),
            sql.when(sql.col("count") > 1, "doubled"),
            sql.when(sql.expr("judged AND NOT wanted"), "unwanted"),
        )
    )
    return within.join(told, list(KEY), "left").select(
        *KEY,
        "count",
        expected.cast("int").alias("expected"),
        is_told.cast("int").alias("told"),
        sql.expr("IF(judged, 0, count)").alias("unjudged"),
        problems.alias("problems"),
    )


def _reordered(came: DataFrame, bounds: DataFrame) -> DataFrame:
    """Ticks that first came after a later one."""
    first = came.groupBy(*KEY).agg(sql.min("position").alias("position"))
    scoped = first.join(sql.broadcast(bounds.select("subscription", "scope")), "subscription")
    stream = sql.when(sql.col("scope") == "topic", "").otherwise(sql.col("pubend"))
    before = (
        Window.partitionBy("subscription", stream)
        .orderBy("position")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    return scoped.withColumn("highest", sql.max("tick").over(before)).where("tick < highest")
