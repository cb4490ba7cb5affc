"""`gapless status --watch`: rates, disk use, topics and the subscriptions that lag most.

Each refresh asks the brokers for their figures and their subscriptions; a rate is the difference
from the refresh before.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from gapless.cli.terminal import BOUNDS, make_table, show_size, show_span

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.table import Table

LAGGING_SHOWN = 10
"""Subscriptions that are shown, those with the most pending events first."""

COUNTS = {"published": "in", "delivered": "out"}
"""Figures of a broker that become rates."""


class Watch:
    """The figures of brokers over time. `ask(what)` gives, by broker, what it answers."""

    def __init__(self, ask: Callable[[str], dict[str, Any]]) -> None:
        self._ask = ask
        self._before: dict[str, dict[str, float]] = {}

    def look(self) -> dict[str, Any]:
        """By broker: its figures, with `rates`, `by_topic` and `lagging`; None if it is silent."""
        found = self._ask("statistics")
        subscriptions = self._ask("subscriptions")
        for name, figures in found.items():
            if isinstance(figures, dict):
                some = subscriptions.get(name)
                self._add(name, figures, some if isinstance(some, list) else [])
        return found

    def _add(self, name: str, figures: dict[str, Any], subscriptions: list[dict[str, Any]]) -> None:
        topics = by_topic(figures, subscriptions)
        counts = {short: float(figures[figure]) for figure, short in COUNTS.items()}
        counts |= {f"topic {topic}": float(each["published"]) for topic, each in topics.items()}
        counts["at"] = time.monotonic()
        before = self._before.get(name, counts)
        self._before[name] = counts
        took_s = counts["at"] - before["at"]

        def rate(key: str) -> float | None:
            fell = key not in before or counts[key] < before[key]  # it was started again
            return None if not took_s or fell else round((counts[key] - before[key]) / took_s, 1)

        figures["rates"] = {short: rate(short) for short in COUNTS.values()}
        for topic, each in topics.items():
            each["rate"] = rate(f"topic {topic}")
        figures["by_topic"] = topics
        figures["lagging"] = sorted(subscriptions, key=lambda each: -each["pending"])[
            :LAGGING_SHOWN
        ]


def by_topic(
    figures: dict[str, Any], subscriptions: list[dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """The figures of each topic at one broker, from those of its pubends and subscriptions."""
    topics: dict[str, dict[str, Any]] = {}

    def entry(topic: str) -> dict[str, Any]:
        empty = {"pubends": 0, "published": 0, "named": 0, "pending": 0}
        return topics.setdefault(topic, empty)

    for pubend, each in figures["pubends"].items():
        topic = entry(pubend.rpartition("/")[0])
        topic["pubends"] += 1
        topic["published"] += each.get("published", 0)
    for each in subscriptions:
        topic = entry(each["topic"])
        topic["named"] += 1
        topic["pending"] += each["pending"]
    return dict(sorted(topics.items()))


def state_of(subscription: dict[str, Any]) -> str:
    """Its state, and since when there was no contact."""
    if (group := subscription.get("group")) and group["members"]:
        return f"group of {group['members']}"
    state, contact_s = str(subscription["state"]), subscription["last_contact_s"]
    if state not in ("away", "reading") or contact_s is None:
        return state
    return f"{state} ({show_span(contact_s)})"


def show_rate(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:,.0f}/s"


def topics_table(found: dict[str, Any]) -> Table:
    rows = [
        (topic, broker, each["pubends"], f"{each['published']:,}", show_rate(each["rate"]),
         each["named"], f"{each['pending']:,}")
        for broker, figures in found.items() if isinstance(figures, dict)
        for topic, each in figures["by_topic"].items()
    ]  # fmt: skip
    headings = ("topic", "broker", "pubends", "published", "rate", "named", "pending")
    return make_table(*headings, rows=rows, box=None, pad_edge=False)


def lagging_table(found: dict[str, Any]) -> Table:
    every = [
        (broker, each)
        for broker, figures in found.items()
        if isinstance(figures, dict)
        for each in figures["lagging"]
    ]
    every.sort(key=lambda pair: -pair[1]["pending"])
    rows = [
        (each["name"], broker, state_of(each), f"{BOUNDS[each['pending_is']]}{each['pending']:,}",
         show_size(each["pending_bytes"], each["pending_bytes_is"]),
         show_span(each["oldest_pending_s"]), show_rate(each["rate"]))
        for broker, each in every[:LAGGING_SHOWN]
    ]  # fmt: skip
    headings = ("subscription", "broker", "state", "pending", "bytes", "oldest", "rate")
    return make_table(*headings, rows=rows, box=None, pad_edge=False)
