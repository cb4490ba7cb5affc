"""Record batches: Arrow columns become rows of floats, and rows of Arrow become attribute maps.

Theory of operation
    A column of numbers is the number column as it is. For everything else the distinct values
    are looked at, once each, as Python values: what codes, truths and prefixes they have; then
    numpy spreads that over the rows. So strings are compared exactly, and a batch costs per row
    what an index into an array costs. Columns that no filter uses are never looked at.

Invariants
    I1  a row encoded from Arrow is what `encoder` makes of the same attributes
    I2  null is missing
"""

from __future__ import annotations

from collections.abc import Mapping
from math import nan
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from gapless.filters.matching.encoder import clamp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from gapless.core.events import Value
    from gapless.filters.matching.columns import AttributeColumns, Columns


def check_kind(name: str, kind: pa.DataType) -> None:
    """TypeError if a column of this type cannot be an attribute."""
    inner = kind.value_type if kinds.is_dictionary(kind) else kind
    if not (is_text(inner) or is_number(inner) or kinds.is_boolean(inner) or kinds.is_null(inner)):
        raise TypeError(
            f"column {name!r} is of type {kind}, and an attribute is a boolean, a number or a "
            "string. Cast the column, or drop it if no filter should see it."
        )


def is_text(kind: pa.DataType) -> bool:
    return bool(kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind))


def is_number(kind: pa.DataType) -> bool:
    return bool(kinds.is_integer(kind) or kinds.is_floating(kind))


class BatchRow(Mapping[str, "Value"]):
    """One row of a batch as an attribute map."""

    def __init__(self, rows: BatchRows, index: int) -> None:
        self._rows, self._index = rows, index

    def __getitem__(self, name: str) -> Value:
        value: Value | None = self._rows.values(name)[self._index]
        if value is None:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        names = self._rows.batch.schema.names
        return (name for name in names if self._rows.values(name)[self._index] is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class BatchRows:
    """The rows of a batch as attribute maps; a column is read when it is first asked for."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self._values: dict[str, list[Value | None]] = {}

    def values(self, name: str) -> list[Value | None]:
        found = self._values.get(name)
        if found is None:
            column = column_of(self.batch, name)
            found = [None] * self.batch.num_rows if column is None else column.to_pylist()
            self._values[name] = found
        return found

    def __getitem__(self, index: int) -> BatchRow:
        return BatchRow(self, index)

    def __len__(self) -> int:
        return int(self.batch.num_rows)


def column_of(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    """The column of an attribute; None if the batch has none."""
    places = batch.schema.get_all_field_indices(name)
    if not places:
        return None
    if len(places) > 1:
        raise TypeError(f"the batch has {len(places)} columns {name!r}. Rename all but one.")
    column = batch.column(places[0])
    check_kind(name, column.type)
    if kinds.is_dictionary(column.type) and column.dictionary.null_count:
        return column.dictionary_decode()  # so that null is null in one way only
    return column


class Encoding:
    """The encoded rows of one batch, and the edge keys that its prefixes add."""

    def __init__(self, columns: Columns, batch: pa.RecordBatch) -> None:
        self.count = int(batch.num_rows)
        self._table = np.full((self.count, columns.width), np.nan)
        self._edge_rows: list[NDArray[np.int64]] = []
        self._edges: list[NDArray[np.int64]] = []
        for attribute in columns.attributes.values():
            column = column_of(batch, attribute.name)
            if column is None or kinds.is_null(column.type):
                if attribute.presence is not None:
                    self._table[:, attribute.presence] = 0.0
            else:
                self._encode(attribute, column)

    @property
    def rows(self) -> NDArray[np.float64]:
        return self._table.reshape(-1)

    def extra(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The edge keys of all rows, and where those of each row end."""
        if not self._edges:
            return np.empty(0, np.int64), np.zeros(self.count, np.int64)
        rows, edges = np.concatenate(self._edge_rows), np.concatenate(self._edges)
        ends = np.cumsum(np.bincount(rows, minlength=self.count))
        return edges[np.argsort(rows, kind="stable")], ends

    def _encode(self, attribute: AttributeColumns, column: pa.Array) -> None:
        if attribute.presence is not None:
            present = column.is_valid().to_numpy(zero_copy_only=False)
            self._table[:, attribute.presence] = present
        distinct_needed = bool(attribute.codes or attribute.truths or attribute.lengths)
        numbers_done = is_number(column.type)
        if numbers_done:
            if attribute.number is not None:
                self._table[:, attribute.number] = _numbers(column)
            if attribute.code is not None:
                self._table[:, attribute.code] = np.where(_nulls(column), np.nan, -1.0)
            if not distinct_needed:
                return
        if not kinds.is_dictionary(column.type):
            if kinds.is_string_view(column.type):
                column = column.cast(pa.large_string())
            column = column.dictionary_encode()
        values: list[Value | None] = column.dictionary.to_pylist()
        # One more value, missing, for the rows that are null.
        places = column.indices.fill_null(len(values)).to_numpy(zero_copy_only=False)
        values.append(None)
        self._spread(attribute, values, places, numbers_done)

    def _spread(
        self,
        attribute: AttributeColumns,
        values: list[Value | None],
        places: NDArray[Any],
        numbers_done: bool,
    ) -> None:
        """Fill the columns of one attribute from its distinct values."""
        if attribute.code is not None:
            codes = attribute.codes.get
            self._table[:, attribute.code] = np.array([_code(codes, v) for v in values])[places]
        if attribute.number is not None and not numbers_done:
            numbers = [clamp(v) if type(v) in (int, float) else nan for v in values]  # type: ignore[arg-type]
            self._table[:, attribute.number] = np.array(numbers)[places]
        for truth in attribute.truths.values():
            if truth.of_strings:
                judged = [truth.of_string(v) if type(v) is str else 0.0 for v in values]
            else:
                judged = [truth.of_number(v) if type(v) in (int, float) else 0.0 for v in values]  # type: ignore[arg-type]
            self._table[:, truth.column] = np.array(judged)[places]
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
        self._edge_rows.append(np.repeat(np.arange(self.count), sizes))
        self._edges.append(np.array(found, np.int64)[np.repeat(bounds[places], sizes) + within])


def _code(codes: Any, value: Value | None) -> float:
    if value is None:
        return float("nan")
    if type(value) is str:
        return codes(value, 2.0)  # type: ignore[no-any-return]
    if type(value) is bool:
        return float(value)
    return codes(value, -1.0)  # type: ignore[no-any-return]


def _nulls(column: pa.Array) -> NDArray[np.bool_]:
    nulls: NDArray[np.bool_] = column.is_null().to_numpy(zero_copy_only=False)
    return nulls


def _numbers(column: pa.Array) -> NDArray[np.float64]:
    if not column.null_count:
        return column.to_numpy(zero_copy_only=False).astype(np.float64)  # type: ignore[no-any-return]
    numbers = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64)
    numbers[_nulls(column)] = np.nan
    return numbers  # type: ignore[no-any-return]
