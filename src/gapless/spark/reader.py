"""The batch reader: a range of the log as a DataFrame, without a subscription.

Where it begins and ends is decided when Spark plans it, once for each `load()`: the same DataFrame
shows the same rows however often it is used (as long as they are retained). Options prune, at the
broker. There is no `pushFilters`: Spark would apply the filters of one scan to all scans of the
same `load()`, and rows would be missing without a word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from gapless.core.errors import UsageError
from gapless.core.token import Token
from gapless.spark.arrow_batches import ArrowBatches
from gapless.spark.options import parse_options
from gapless.spark.schema import check_schema
from gapless.spark.slices import (
    Slice,
    find_cuts,
    open_client,
    plan,
    read_slice,
    resolve_end,
    resolve_start,
)
from gapless.spark.topics import find_topics, positions_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

    from gapless.spark.topics import Positions


class BatchReader(DataSourceReader):
    """Reads from one place of a topic to another."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self.options = parse_options(options, is_stream=False)
        check_schema(schema, self.options)
        self.batches = ArrowBatches(schema, self.options)

    def partitions(self) -> Sequence[InputPartition]:
        options = self.options
        with open_client(options) as client:
            topics = find_topics(client, options)
            positions = positions_of(client, topics)
            start = resolve_start(options.start or "earliest", positions, gaps=options.gaps)
            end = resolve_end(options.end, positions)
            if options.pubends is not None:
                end = self._restricted(end, options.pubends, positions)
            cuts = None
            if options.partitions_min > 1:
                interval, parts = (start, end), options.partitions_min
                cuts = find_cuts(client, topics, options.condition, interval, parts)
        return plan(topics, start, end, cuts)

    def _restricted(self, end: Token, pubends: tuple[str, ...], positions: Positions) -> Token:
        """The others end before they begin."""
        if unknown := [name for name in pubends if name not in positions]:
            raise UsageError(
                f"topic {self.options.topic!r} has no pubend {unknown[0]!r}",
                f"It has {', '.join(positions)}.",
            )
        return Token({name: end.get(name) for name in pubends})

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if isinstance(partition, Slice):  # Spark makes up an empty one when there is none
            from_oldest = self.options.start in (None, "earliest")
            yield from read_slice(partition, self.batches, self.options, from_oldest=from_oldest)
