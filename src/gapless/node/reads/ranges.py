"""Ranges: clients read the log of a pubend, filtered here, without subscribing.

Theory of operation
    Each step looks at a bounded part of the log (`node.log_search`), however little of it matches,
    so that no request holds the broker up; the answer says how far it came. It never passes what is
    settled, and what is settled never changes: the same range gives the same events as long as it
    is retained. A condition is compiled once and kept, for the steps that follow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.client_messages import Refused
from gapless.core.effects import Effect, Send
from gapless.core.errors import FilterError, quoted
from gapless.core.events import EventBatch
from gapless.core.range_messages import Positions, PositionsQuery, RangeRead, ReadRange
from gapless.core.ticks import Span
from gapless.node.reads.look_ahead import Outlook
from gapless.node.reads.search import LogSearch, Selection
from gapless.node.recent import remember
from gapless.node.redirect import refuse_elsewhere, refuse_unknown

if TYPE_CHECKING:
    from gapless.core.identity import ClientName, PubendName
    from gapless.core.range_messages import RangeRequest
    from gapless.knowledge.pubend import Pubend
    from gapless.node.context import Context
    from gapless.node.deadlines import Machines

BEGINNING = 1
"""Who reads from here or before was told no position: the read begins where the topic does."""

CONDITIONS_MAX = 256
"""Compiled conditions that are kept; beyond it the oldest goes."""


class Ranges:
    """What clients read at one broker."""

    def __init__(self, context: Context, pubends: Machines[PubendName, Pubend]) -> None:
        self.network = context.network
        self.pubends = pubends
        self._search = LogSearch(context.config, context.encoding)
        self.outlook = Outlook(self._search, pubends)
        self._conditions: dict[str, Selection] = {}

    def receive(self, client: ClientName, message: RangeRequest) -> list[Effect]:
        topic = self.network.topic.get(message.topic)
        if topic is None:
            return refuse_unknown(client, message, message.topic, self.network)
        hosts = {each.name: each.host for each in topic.pubends}
        pubends = self.pubends
        if isinstance(message, PositionsQuery) and message.pubend is None:
            here = {str(n): (pubends[n].released, pubends[n].end) for n in hosts if n in pubends}
            elsewhere = {str(n): str(host) for n, host in hosts.items() if n not in pubends}
            return [Send(client, Positions(message.request, here, elsewhere))]
        if message.pubend not in hosts:
            problem = f"topic {quoted(message.topic)} has no pubend {quoted(message.pubend)}"
            return refuse(client, message, problem, f"It has {', '.join(hosts)}.")
        if message.pubend not in pubends:
            problem = f"{quoted(message.pubend)} is not hosted at this broker"
            return refuse_elsewhere(client, message, problem, [hosts[message.pubend]])
        pubend = pubends[message.pubend]
        if isinstance(message, PositionsQuery):
            position = {str(pubend.name): (pubend.released, pubend.end)}
            return [Send(client, Positions(message.request, position))]
        try:
            wanted = self._compiled(message.condition)
        except FilterError as error:
            return refuse(client, message, error.problem, f"{error.remedy}\n{error.caret()}")
        return [Send(client, self._read(pubend, message, wanted))]

    def _compiled(self, text: str) -> Selection:
        wanted = self._conditions.get(text) or Selection(text)
        remember(self._conditions, text, wanted, CONDITIONS_MAX)
        return wanted

    def _read(self, pubend: Pubend, message: ReadRange, wanted: Selection) -> RangeRead | Refused:
        request, name = message.request, message.pubend
        start, end = message.span.start, min(message.span.end, pubend.end)
        if start >= end:
            return RangeRead(request, name)
        kept_from = min(max(start, pubend.released), end)
        lost_below = kept_from if kept_from > start else 0
        if start <= BEGINNING and kept_from <= pubend.past.silent_below:
            lost_below = 0
        if kept_from < min(pubend.release.next_chop_end, end):  # it will be lost in a moment
            if kept_from == start:
                return Refused(
                    request, f"{quoted(name)} is being chopped", "Read again.", retry=True
                )
            return RangeRead(
                request, name, Span(start, kept_from), lost_below=lost_below, more=True
            )
        if kept_from == end:
            return RangeRead(request, name, Span(start, end), lost_below=lost_below)
        span = Span(kept_from, end)
        if message.stride:
            places = slice(message.stride - message.phase - 1, None, message.stride)
            found = self._search.count(pubend, span, wanted, message.events_max, places)
            count, ticks, through, lost = found
            return RangeRead(
                request,
                name,
                Span(start, through),
                tuple(ticks),
                lost_below=max(lost_below, lost),
                more=through < end,
                count=count,
            )
        if message.whole and wanted.is_all and not message.events_max:
            run, through, lost = self._search.read_whole(pubend, span)
            covered, more, lost_below = Span(start, through), through < end, max(lost_below, lost)
            return RangeRead(request, name, covered, lost_below=lost_below, more=more, run=run)
        part = self._search.find(pubend, span, wanted, message.events_max)
        ticks, events, through, lost = part
        return RangeRead(
            request,
            name,
            Span(start, through),
            tuple(ticks),
            EventBatch.join(events),
            max(lost_below, lost),
            more=through < end,
        )


def refuse(client: ClientName, message: RangeRequest, problem: str, remedy: str) -> list[Effect]:
    return [Send(client, Refused(message.request, problem, remedy))]
