"""Filter edges: which events may pass to the cells below."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.events import EventBatch
from gapless.filters.matcher import Matcher
from gapless.knowledge.outgoing import Edge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gapless.core.events import Attributes
    from gapless.core.identity import CellName
    from gapless.filters.filter import Filter


class FilterEdge(Edge):
    """Passes what any of a cell's fixed conditions matches; everything to a cell with none set."""

    def __init__(
        self,
        filters: Mapping[CellName, Sequence[Filter]],
        attributes_of: Callable[[EventBatch], list[Attributes]],
    ) -> None:
        self._attributes_of = attributes_of
        self._matchers = {cell: Matcher(enumerate(some)) for cell, some in filters.items()}

    def select(self, cell: CellName, events: Sequence[bytes]) -> list[int]:
        matcher = self._matchers.get(cell)
        if matcher is None:
            return super().select(cell, events)
        attributes = self._attributes_of(EventBatch.join(events))
        return sorted({index for index, _ in matcher.match_batch(attributes)})
