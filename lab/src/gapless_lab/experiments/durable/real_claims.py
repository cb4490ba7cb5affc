"""What the paper says of durable subscriptions, judged by what real processes did.

The bounds are in the text of the claims.

Source: DSN 2003, sec. 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless_lab.experiments.verdict import Verdict

if TYPE_CHECKING:
    from gapless_lab.experiments.durable.real import Absence, Commits, Crash, Results

LEVEL_MAX = 1.2
"""Of the time it was away: the paper's subscribers took 5 to 6 s after 5 s."""

PAPER_COMMITS = "4,000 events/s with 25, 7,600 with 200"


def judge(results: Results) -> list[Verdict]:
    """Every claim, in the order of the figures."""
    assert results.absence is not None
    assert results.crash is not None
    return [*absence(results.absence), *crash(results.crash), commits(results.commits)]


def absence(found: Absence) -> list[Verdict]:
    name = "5: catch-up"
    ratio = found.caught_per_s / found.live_per_s
    return [
        Verdict(
            name,
            "after an absence, level again soon "
            f"(at most {LEVEL_MAX} times as long as it was away)",
            "5 to 6 s after 5 s",
            f"{seconds(found.level_s)} after {found.away_s:.1f} s",
            found.level_s is not None and found.level_s <= LEVEL_MAX * found.away_s,
        ),
        Verdict(
            name,
            "while it catches up, it gets more than usual",
            "higher than 1,600 events/s a machine",
            f"{found.caught_per_s:,.0f} events/s, usually {found.live_per_s:,.0f}: "
            f"{ratio:.1f} times",
            ratio > 1,
        ),
        Verdict(
            name,
            "nothing lost, doubled or out of order",
            "exactly once",
            found.account.show(),
            found.account.is_right,
        ),
    ]


def crash(found: Crash) -> list[Verdict]:
    name = "7: crash"
    level = [each for each in found.level_s if each is not None]
    slowest = max(level) if len(level) == len(found.level_s) else None
    return [
        Verdict(
            name,
            "after kill -9 of the subscribers' broker, nothing lost, doubled or out of order",
            "exactly once",
            found.account.show(),
            found.account.is_right,
        ),
        Verdict(
            name,
            "all subscribers are level again soon after it is back "
            f"(at most {LEVEL_MAX} times as long as it was down)",
            "116 s after 25 s",
            f"the last of {len(found.level_s)} after {seconds(slowest)}; it was down for "
            f"{found.down_s:.1f} s",
            slowest is not None and slowest <= LEVEL_MAX * found.down_s,
        ),
    ]


def commits(rows: list[Commits]) -> Verdict:
    first, last = rows[0], rows[-1]
    more = last.acknowledged_per_s / first.acknowledged_per_s
    claim = "more subscribers share a commit (each acknowledgement awaited; their rate grows"
    value = (
        f"{' and '.join(f'{row.acknowledged_per_s:,.0f}' for row in rows)} acknowledgements/s "
        f"with {' and '.join(str(row.subscribers) for row in rows)}: {more:.1f} times"
    )
    if first.writes_per_s is None or last.writes_per_s is None:
        return Verdict("auto-acknowledge", f"{claim})", PAPER_COMMITS, value, more > 1)
    writes = last.writes_per_s / first.writes_per_s
    value += f"; {first.writes_per_s:,.0f} and {last.writes_per_s:,.0f} commits/s: {writes:.1f}"
    return Verdict(
        "auto-acknowledge",
        f"{claim}, and more than that of commits)",
        PAPER_COMMITS,
        value,
        more > max(1, writes),
    )


def seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.2f} s"
