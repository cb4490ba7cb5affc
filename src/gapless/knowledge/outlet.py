"""Outlet: what one relay knows of one cell below it.

Theory of operation
    Two positions come up from below: what the cell has *delivered* to its subscribers, which
    never moves back; and what its durable subscriptions have *released*, which may, because a
    subscription that is behind may arrive there. So of reports on the latter the newest counts and
    not the highest; they are numbered by their reporter. Where a cell has several reporters they
    may know different things: the least of what each said last counts.

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
    """What one broker last said of one cell; later ones are greater."""

    epoch: int
    sequence: int
    released: int


@dataclass(slots=True)
class Outlet:
    """What we know of one cell below."""

    sent_spans: SpanSet = field(default_factory=SpanSet)  # sent to it, and it may have it
    silent_spans: SpanSet = field(default_factory=SpanSet)  # silence for it, not yet sent
    settled: int = -1  # it needs nothing below: delivered, or silence; -1: not heard yet
    digest: int = 0  # the highest that it was sent
    silent_digest: int = 0  # that of everything in `quiet`
    reports: dict[BrokerName, ReleaseReport] = field(default_factory=dict)

    @property
    def released(self) -> int:
        """What no durable subscription there needs; -1 if that was not heard yet."""
        return min([report.released for report in self.reports.values()], default=-1)

    def report(self, reporter: BrokerName, report: ReleaseReport) -> None:
        known = self.reports.get(reporter)
        if known is None or (report.epoch, report.sequence) >= (known.epoch, known.sequence):
            self.reports[reporter] = report

    def forget(self, reporter: BrokerName) -> None:
        """This broker is gone and others speak for its cell; the last one's word stays."""
        if len(self.reports) > 1:
            self.reports.pop(reporter, None)

    def tell(self, span: Span) -> Span:
        """It is told of this now, with the silence right beside it that has waited: of that."""
        if self.silent_spans:
            self.silent_spans.add(span)
            span = self.silent_spans.run_at(span.start) or span
            self.silent_spans.remove(span)
        self.sent_spans.add(span)
        return span

    def settle(self, delivered: int) -> None:
        """Move on past what was delivered and past silence that it need not be told."""
        if delivered >= 0:
            delivered = max(self.settled, delivered)
            self.settled = (
                self.silent_spans.first_missing(delivered) if self.silent_spans else delivered
            )
