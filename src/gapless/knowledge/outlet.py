"""Outlet: what one relay knows of one cell below it.

Theory of operation
    Two positions come up from below. What the cell has *delivered* to its subscribers never moves
    back. What its durable subscriptions have *released* may move back, because a subscription that
    is behind may arrive there. So of the reports on the latter the newest counts, not the highest;
    their reporter numbers them. If a cell has several reporters, they may know different things:
    the least of their last reports counts.

Source: DSN 2002, sec. 2.1.1; DSN 2003, sec. 3; docs/protocols/exactly-once.md, 4.3;
docs/protocols/durable-subscriptions.md, 3.4.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from gapless.core.spans import SpanSet

if TYPE_CHECKING:
    from gapless.core.identity import BrokerName
    from gapless.core.ticks import Span


class ReleaseReport(NamedTuple):
    """The last report of one broker on one cell; a later report is greater."""

    epoch: int
    sequence: int
    released: int


@dataclass(slots=True)
class Outlet:
    """One cell below a relay."""

    sent_spans: SpanSet = field(default_factory=SpanSet)  # sent to the cell, which may have it
    silent_spans: SpanSet = field(default_factory=SpanSet)  # silence for the cell, not yet sent
    settled: int = -1  # the cell needs nothing below it; -1: not heard yet
    digest: int = 0  # the highest that was sent to the cell
    silent_digest: int = 0  # of everything in `silent_spans`
    reports: dict[BrokerName, ReleaseReport] = field(default_factory=dict)

    @property
    def released(self) -> int:
        """The tick before which no durable subscription there needs anything; -1 if not heard
        yet."""
        return min([report.released for report in self.reports.values()], default=-1)

    def report(self, reporter: BrokerName, report: ReleaseReport) -> None:
        known = self.reports.get(reporter)
        if known is None or (report.epoch, report.sequence) >= (known.epoch, known.sequence):
            self.reports[reporter] = report

    def forget(self, reporter: BrokerName) -> None:
        """Forget a broker that is gone, unless it is the only reporter of its cell."""
        if len(self.reports) > 1:
            self.reports.pop(reporter, None)

    def tell(self, span: Span) -> Span:
        """Mark a span as sent, with the adjacent silence that has waited; return the whole span."""
        if self.silent_spans:
            self.silent_spans.add(span)
            span = self.silent_spans.run_at(span.start) or span
            self.silent_spans.remove(span)
        self.sent_spans.add(span)
        return span

    def settle(self, delivered: int) -> None:
        """Move `settled` past what was delivered and past silence that need not be sent."""
        if delivered >= 0:
            delivered = max(self.settled, delivered)
            self.settled = (
                self.silent_spans.first_missing(delivered) if self.silent_spans else delivered
            )
