"""JointMatcher: one matcher for all cells below, in which each condition has a list of cells.

Theory of operation
    Cells below want much of the same. Each condition is matched once, whichever cells want it, and
    what matches names the cells that an event goes to. A relay offers the same batch to one cell
    after the other, so the cells of each event are kept until another batch comes.

Invariants (checked by `check`)
    I1  a condition is in the matcher exactly while a cell wants it

Cost: a batch is matched once; each further cell costs one look-up for each event. Where a single
cell wants anything, no lists are looked at.

Source: Middleware 2004, sec. 3.4, 3.5.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from gapless.filters.matcher import Matcher

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gapless.core.events import Value
    from gapless.core.identity import CellName

    Cells = frozenset[CellName]

UNIONS_MAX = 1_000
"""Sets of conditions whose cells are remembered; at the bound all are forgotten, and made anew."""


NO_CELLS: Cells = frozenset()


class JointMatcher:
    """See the module docstring. Conditions are texts, each in one form."""

    def __init__(self) -> None:
        self._matcher: Matcher[str] = Matcher()
        self._cells: dict[str, Cells] = {}  # by condition
        self._counts: Counter[CellName] = Counter()  # conditions of each cell that has some
        self._unions: dict[tuple[str, ...], Cells] = {}
        self._last: tuple[object, list[Cells]] | None = None

    def add(self, cell: CellName, condition: str) -> None:
        """A cell wants what matches this, and did not before."""
        if condition not in self._cells:
            self._matcher.add(condition, condition)
        self._cells[condition] = self._cells.get(condition, frozenset()) | {cell}
        self._counts[cell] += 1
        self._change()

    def remove(self, cell: CellName, condition: str) -> None:
        left = self._cells[condition] - {cell}
        if left:
            self._cells[condition] = left
        else:
            del self._cells[condition]
            self._matcher.remove(condition)
        self._counts[cell] -= 1
        if not self._counts[cell]:
            del self._counts[cell]
        self._change()

    def _change(self) -> None:
        self._unions.clear()
        self._last = None

    def wants(self, cell: CellName) -> bool:
        """Does a cell want anything? If not, no event need be decoded for it."""
        return cell in self._counts

    def passing(self, cell: CellName, events: Sequence[Mapping[str, Value]]) -> list[int]:
        """The indices of the events that a cell wants, ascending."""
        if cell not in self._counts:
            return []
        if len(self._counts) == 1:
            return self._matcher.passing(events)
        if self._last is None or self._last[0] is not events:
            self._last = events, self._destinations(events)
        return [number for number, cells in enumerate(self._last[1]) if cell in cells]

    def _destinations(self, events: Sequence[Mapping[str, Value]]) -> list[Cells]:
        """The cells that want each event."""
        if (all_of_them := self._matcher.match_any()) is not None:
            return [self._union(tuple(all_of_them))] * len(events)
        matching: list[list[str]] = [[] for _ in events]
        for number, condition in self._matcher.match_batch(events):
            matching[number].append(condition)
        return [self._union(tuple(conditions)) for conditions in matching]

    def _union(self, conditions: tuple[str, ...]) -> Cells:
        found = self._unions.get(conditions)
        if found is None:
            if len(self._unions) >= UNIONS_MAX:
                self._unions.clear()
            found = NO_CELLS.union(*map(self._cells.__getitem__, conditions))
            self._unions[conditions] = found
        return found

    def check(self) -> None:
        assert len(self._matcher) == len(self._cells), "I1"
        assert all(self._cells.values()), "I1"
        assert self._counts == Counter(c for cells in self._cells.values() for c in cells), "I1"
