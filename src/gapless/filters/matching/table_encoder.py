"""Table encoder: a table of attributes becomes rows of floats, and no attribute map is made.

Theory of operation
    An `AttributeTable` says where the values that filters ask for stand in encoded events. A kernel
    writes numbers, truths and presence into the rows; codes of texts are looked up by another, from
    the bytes; those of numbers by numpy, in a sorted table. What needs a value as Python has it
    (truths of patterns, prefixes, expressions; numbers beyond 2^53, timestamps and bytes that
    filters name) is left to `encoder`: there is no table encoder, or it gives no rows.

Invariants
    I1  a row that comes out is what `encoder` makes of the same attributes
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gapless.core.attribute_table import FLOAT, INT, MISSING
from gapless.filters.matching import kernels
from gapless.filters.matching.attribute_columns import EXACT_MAX
from gapless.filters.matching.edge_keys import EdgeKeys
from gapless.filters.matching.text_codes import TextCodes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gapless.core.attribute_table import AttributeTable
    from gapless.filters.matching.attribute_columns import AttributeColumns
    from gapless.filters.matching.columns import ColumnLayout

NUMBERS_NAMED_MAX = 1_000
"""Numbers that filters name of one attribute; beyond it, attributes are decoded."""


class TableEncoder:
    """For the columns there are now."""

    def __init__(self, columns: ColumnLayout) -> None:
        self._attributes = list(columns.attributes.values())
        self.names = tuple(attribute.name for attribute in self._attributes)
        self._width = columns.width
        places = [(a.number, a.code, a.presence, a.moment) for a in self._attributes]
        flat = [-1 if place is None else place for four in places for place in four]
        self._columns = np.array(flat, np.int64)
        self._named: dict[int, NamedNumbers] = {}

    def rows(self, table: AttributeTable) -> NDArray[np.float64] | None:
        """All rows; None if they cannot be made from the table."""
        count = table.kinds.shape[1]
        rows = np.empty(count * self._width)
        kernels.fill_rows(table.kinds, table.values, self._columns, rows, self._width)
        for index, attribute in enumerate(self._attributes):
            if attribute.code is None or not attribute.codes:
                continue
            if attribute.texts is None:
                attribute.texts = TextCodes()
            if not attribute.texts.learn(attribute.codes):
                return None
            if attribute.texts.count + len(attribute.numbers) < len(attribute.codes):
                return None
            attribute.texts.place(table, index, rows, self._width, attribute.code)
            if attribute.numbers:
                named = self._named_numbers(index, attribute)
                if named is None:
                    return None
                named.place(table, index, rows[attribute.code :: self._width])
        return rows

    def edges(self, table: AttributeTable) -> EdgeKeys:
        """The edge keys of the attributes that are there."""
        found = EdgeKeys()
        for index, attribute in enumerate(self._attributes):
            if attribute.guard is not None:
                rows = np.flatnonzero(table.kinds[index] != MISSING)
                found.add(rows, np.full(len(rows), attribute.guard))
        return found

    def _named_numbers(self, index: int, attribute: AttributeColumns) -> NamedNumbers | None:
        named, points = self._named.get(index), attribute.numbers
        if named is None or named.seen != len(points):
            if len(points) > NUMBERS_NAMED_MAX or max(map(abs, points)) >= EXACT_MAX:
                return None
            named = self._named[index] = NamedNumbers(points)
        return named


class NamedNumbers:
    """The numbers that filters name of one attribute, and their codes."""

    def __init__(self, points: dict[int | float, float]) -> None:
        ordered = sorted(points.items())
        self.seen = len(points)
        self._points = np.array([point for point, _ in ordered], np.float64)
        self._codes = np.array([code for _, code in ordered])

    def place(self, table: AttributeTable, attribute: int, column: NDArray[np.float64]) -> None:
        """Write the codes of those numbers that have one."""
        kinds, values = table.kinds[attribute], table.values[attribute]
        asked = np.flatnonzero((kinds == INT) | (kinds == FLOAT))
        places = np.searchsorted(self._points, values[asked])
        places[places == len(self._points)] = 0
        known = self._points[places] == values[asked]
        column[asked[known]] = self._codes[places[known]]


def make_table_encoder(columns: ColumnLayout) -> TableEncoder | None:
    """None where a column needs the values themselves."""
    if columns.expressions or any(a.truths or a.lengths for a in columns.attributes.values()):
        return None
    return TableEncoder(columns)


def rows_of(
    events: object, encoder: TableEncoder | None
) -> tuple[NDArray[np.float64], EdgeKeys] | None:
    """The rows of events that can locate attributes, and their edge keys; None where they are to be
    decoded."""
    locate = getattr(events, "locate", None)
    if encoder is None or locate is None:
        return None
    table: AttributeTable | None = locate(encoder.names)
    if table is None:
        return None
    rows = encoder.rows(table)
    return None if rows is None else (rows, encoder.edges(table))
