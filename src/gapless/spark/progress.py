"""Progress: how far Spark's queries are behind, for people and for monitoring.

    spark.streams.addListener(gapless.spark.lag_listener(print))

Spark tells a listener after each batch where the batch ended and what was settled then; both are
tokens. The listener asks the brokers how many events lie between them.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from gapless import sync
from gapless.client.range_reads import RangeCount
from gapless.core.errors import GaplessError
from gapless.core.ticks import PUBEND_BITS
from gapless.core.token import Token
from gapless.spark.subscription_lease import QUERY, token_of
from gapless.spark.topics import topic_name

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class QueryLag:
    """Where a query stands after a batch. `events` is None if no broker was asked or answered."""

    query: str
    """The name of the query, or Spark's id of it."""
    run: str
    batch: int
    rows: int
    """In this batch."""
    seconds: float
    """Between the end of the batch and what was settled, of the pubend that is furthest behind."""
    events: int | None = None
    lease: str = ""
    """The name under which the query has its subscription."""


class LagListener(StreamingQueryListener):
    """Calls `tell` with a `QueryLag` after each batch of a query that reads gapless."""

    def __init__(
        self, tell: Callable[[QueryLag], None], url: str = "", condition: str = ""
    ) -> None:
        self._tell, self._url, self._condition = tell, url, condition

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's
        pass

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's
        for source in event.progress.sources:
            lag = lag_of(event.progress, source)
            if lag is None:
                continue
            end, latest = _offset(source.endOffset), _offset(source.latestOffset)
            if self._url:
                lag = _with_events(lag, self._url, self._condition, end, latest)
            self._tell(lag)


def lag_of(progress: Any, source: Any) -> QueryLag | None:
    """Of one source of a query; None if it is none of ours."""
    end, latest = _offset(source.endOffset), _offset(source.latestOffset)
    if not any("/" in name for name in end):
        return None
    stands, settled = token_of(end), token_of(latest)
    behind = [max(0, tick - stands.get(name)) >> PUBEND_BITS for name, tick in settled]
    return QueryLag(
        query=str(progress.name or progress.id),
        run=str(progress.runId),
        batch=progress.batchId,
        rows=source.numInputRows,
        seconds=max(behind, default=0) / 1e6,
        lease=str(end.get(QUERY, "")),
    )


def _offset(text: Any) -> dict[str, Any]:
    """An offset as Spark reports it: JSON, or a dict of it."""
    try:
        found = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}


def _with_events(
    lag: QueryLag, url: str, condition: str, end: dict[str, Any], latest: dict[str, Any]
) -> QueryLag:
    stands, total = token_of(end), 0
    try:
        with sync.connect(url, patience_s=5.0) as client:
            for name, tick in token_of(latest):
                if tick <= stands.get(name):
                    continue
                counts = client.count(
                    topic_name(name),
                    condition,
                    start=Token({name: stands.get(name)}),
                    end=Token({name: tick}),
                    pubends=[name],
                )
                total += sum(each.count for each in counts if isinstance(each, RangeCount))
    except GaplessError as error:
        log.warning("how many events %s is behind is not known: %s", lag.query, error)
        return lag
    return replace(lag, events=total)
