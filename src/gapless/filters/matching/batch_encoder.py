"""Batch encoder: the columns of a record batch become rows of floats.

Theory of operation
    A column of numbers is the number column as it is, expressions are computed by numpy, and the
    codes of strings are looked up by a kernel, from Arrow's own bytes. For everything else the
    distinct values are looked at, once each, as Python values: what codes, truths and prefixes
    they have; then numpy spreads that over the rows. Strings are compared exactly, and a batch
    costs per row what an index into an array costs. Columns that no filter uses are never looked
    at, and of an index that knows very many attributes only what the batch has (`column_pairs`).

Invariants
    I1  a row encoded from Arrow is what `encoder` makes of the same attributes
"""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from gapless.filters.matching.attribute_columns import CODE_FIRST, clamp
from gapless.filters.matching.calculation import Calculation
from gapless.filters.matching.edge_keys import EdgeKeys
from gapless.filters.matching.record_batch import (
    column_of,
    is_moment,
    is_number,
    is_text,
    nulls_of,
    numbers_of,
)
from gapless.filters.matching.text_codes import TextCodes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gapless.core.events import Value
    from gapless.filters.matching.attribute_columns import AttributeColumns
    from gapless.filters.matching.columns import ColumnLayout


class Encoding:
    """The encoded rows of one batch, and the edge keys that they add."""

    def __init__(self, columns: ColumnLayout, batch: pa.RecordBatch) -> None:
        self.count = int(batch.num_rows)
        self._is_sparse = columns.is_sparse
        known = columns.attributes
        attributes = [known[name] for name in dict.fromkeys(batch.schema.names) if name in known]
        if self._is_sparse:
            used = [column for attribute in attributes for column in attribute.columns()]
            used += [computed.column for computed in columns.expressions.values()]
        else:
            used = list(range(columns.width))
        self._columns = np.array(used, np.int64)
        self._place = {column: place for place, column in enumerate(used)}
        self._table = np.empty((self.count, len(used)))
        self._table[:] = columns.blank[self._columns]
        self.edges = EdgeKeys()
        for attribute in attributes:
            column = column_of(batch, attribute.name)
            if column is not None and not kinds.is_null(column.type):
                self._encode(attribute, column)
        for computed in columns.expressions.values():
            self._put(computed.column, Calculation(batch).column(computed))

    def _put(self, column: int, values: Any) -> None:
        self._table[:, self._place[column]] = values

    @property
    def rows(self) -> NDArray[np.float64]:
        return self._table.reshape(-1)

    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
        """Columns and values, row after row, and where each row ends."""
        ends = len(self._columns) * np.arange(1, self.count + 1, dtype=np.int64)
        return np.tile(self._columns, self.count), self.rows, ends

    def _encode(self, attribute: AttributeColumns, column: pa.Array) -> None:
        if attribute.presence is not None or attribute.guard is not None:
            present = column.is_valid().to_numpy(zero_copy_only=False)
            if attribute.presence is not None:
                self._put(attribute.presence, present)
            if attribute.guard is not None:
                rows = np.flatnonzero(present)
                self.edges.add(rows, np.full(len(rows), attribute.guard))
        if kinds.is_string_view(column.type):
            column = column.cast(pa.large_string())
        by_value = bool(attribute.truths or attribute.lengths)
        numbers_done = is_number(column.type) or is_moment(column.type)
        if numbers_done:
            place = attribute.number if is_number(column.type) else attribute.moment
            if place is not None:
                self._put(place, numbers_of(column))
            if attribute.code is not None:
                self._put(attribute.code, np.where(nulls_of(column), np.nan, -1.0))
            if not by_value and not attribute.codes:
                return
        elif not by_value and _is_of_texts(column):
            if attribute.code is None and not attribute.codes:
                return
            codes = _text_codes(attribute, column)
            if codes is not None:
                self._put_codes(attribute, codes)
                return
        if not kinds.is_dictionary(column.type):
            column = column.dictionary_encode()
        values: list[Value | None] = column.dictionary.to_pylist()
        # One more value, missing, for the rows that are null; its place may need another byte.
        indices = column.indices.cast(pa.int64())
        places = indices.fill_null(len(values)).to_numpy(zero_copy_only=False)
        values.append(None)
        self._spread(attribute, values, places, numbers_done)

    def _put_codes(self, attribute: AttributeColumns, codes: NDArray[np.float64]) -> None:
        if attribute.code is not None:
            self._put(attribute.code, codes)
        if self._is_sparse:  # else the kernel looks at the column
            rows = np.flatnonzero(np.abs(codes) >= CODE_FIRST)
            self.edges.add(rows, np.abs(codes[rows]).astype(np.int64))

    def _spread(
        self,
        attribute: AttributeColumns,
        values: list[Value | None],
        places: NDArray[Any],
        numbers_done: bool,
    ) -> None:
        """Fill the columns of one attribute from its distinct values."""
        if attribute.code is not None or attribute.codes:
            codes = attribute.codes.get
            self._put_codes(attribute, np.array([_code(codes, v) for v in values])[places])
        if attribute.number is not None and not numbers_done:
            numbers = [clamp(v) if type(v) in (int, float) else nan for v in values]  # type: ignore[arg-type]
            self._put(attribute.number, np.array(numbers)[places])
        for truth in attribute.truths.values():
            classes = (int, float) if truth.judged is float else (truth.judged,)
            judged = [truth.of(v) if type(v) in classes else 0.0 for v in values]  # type: ignore[arg-type]
            self._put(truth.column, np.array(judged)[places])
        if attribute.lengths:
            self._spread_edges(attribute, values, places)

    def _spread_edges(
        self, attribute: AttributeColumns, values: list[Value | None], places: NDArray[Any]
    ) -> None:
        get, lengths = attribute.edges.get, sorted(attribute.lengths)
        found: list[int] = []
        starts = [0]
        for value in values:
            if type(value) is str:
                for length in lengths:
                    if length > len(value):
                        break
                    edge = get(value[:length])
                    if edge is not None:
                        found.append(edge)
            starts.append(len(found))
        bounds = np.array(starts)
        sizes = np.diff(bounds)[places]
        total = int(sizes.sum())
        # Row i takes the edges bounds[places[i]] and following, sizes[i] of them.
        within = np.arange(total) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        edges = np.array(found, np.int64)[np.repeat(bounds[places], sizes) + within]
        self.edges.add(np.repeat(np.arange(self.count), sizes), edges)


def _is_of_texts(column: pa.Array) -> bool:
    """Of a dictionary, its values: they may be views, which no kernel reads."""
    if not kinds.is_dictionary(column.type):
        return is_text(column.type)
    inner = column.type.value_type
    return bool(kinds.is_string(inner) or kinds.is_large_string(inner))


def _text_codes(attribute: AttributeColumns, column: pa.Array) -> NDArray[np.float64] | None:
    """By row; None if the values are to be looked at one by one."""
    if attribute.texts is None:
        attribute.texts = TextCodes()
    if not attribute.texts.learn(attribute.codes):
        return None
    if kinds.is_dictionary(column.type) and len(column.dictionary) > len(column):
        column = column.dictionary_decode()
    if kinds.is_dictionary(column.type):
        codes = attribute.texts.look_up(column.dictionary)
        places = column.indices.fill_null(0).to_numpy(zero_copy_only=False)
        codes = codes[places] if len(codes) else np.zeros(len(column))
    else:
        codes = attribute.texts.look_up(column)
    if column.null_count:
        codes[nulls_of(column)] = np.nan
    return codes


def _code(codes: Any, value: Value | None) -> float:
    if value is None:
        return float("nan")
    if type(value) is str:
        return codes(value, 2.0)  # type: ignore[no-any-return]
    if type(value) is bool:
        return float(value)
    return codes(value, -1.0)  # type: ignore[no-any-return]
