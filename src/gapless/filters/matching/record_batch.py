"""Record batches: Arrow columns as what attributes may be, and rows as attribute maps.

Invariants
    I1  a column that can be no attribute is refused, by name, once a filter uses it
    I2  null is missing
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from gapless.core.events import Value


def check_kind(name: str, kind: pa.DataType) -> None:
    """TypeError if a column of this type cannot be an attribute."""
    inner = kind.value_type if kinds.is_dictionary(kind) else kind
    if not (
        is_text(inner)
        or is_number(inner)
        or kinds.is_boolean(inner)
        or kinds.is_null(inner)
        or is_moment(inner)
        or is_binary(inner)
    ):
        raise TypeError(
            f"column {name!r} is of type {kind}, and an attribute is a boolean, a number, a "
            "string, a timestamp with a time zone, or bytes. Cast the column, or drop it if no "
            "filter should see it."
        )


def is_text(kind: pa.DataType) -> bool:
    return bool(kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind))


def is_number(kind: pa.DataType) -> bool:
    return bool(kinds.is_integer(kind) or kinds.is_floating(kind))


def is_moment(kind: pa.DataType) -> bool:
    return bool(kinds.is_timestamp(kind) and kind.tz is not None)


def is_binary(kind: pa.DataType) -> bool:
    return bool(
        kinds.is_binary(kind)
        or kinds.is_large_binary(kind)
        or kinds.is_binary_view(kind)
        or kinds.is_fixed_size_binary(kind)
    )


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
    inner = column.type.value_type if kinds.is_dictionary(column.type) else column.type
    if is_moment(inner) or is_binary(inner):
        return _plain(name, column, pa.timestamp("us", "UTC") if is_moment(inner) else pa.binary())
    if kinds.is_dictionary(column.type) and column.dictionary.null_count:
        return column.dictionary_decode()  # so that null is null in one way only
    return column


def _plain(name: str, column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column of timestamps or bytes in the one form that attributes have."""
    if kinds.is_dictionary(column.type):
        column = column.dictionary_decode()
    try:
        return column.cast(kind)
    except pa.ArrowInvalid as error:
        raise TypeError(f"column {name!r}: {error}. Round it to microseconds.") from None


def nulls_of(column: pa.Array) -> NDArray[np.bool_]:
    """Which rows have no value."""
    nulls: NDArray[np.bool_] = column.is_null().to_numpy(zero_copy_only=False)
    return nulls


def numbers_of(column: pa.Array) -> NDArray[np.float64]:
    """A column of numbers, or timestamps' microseconds, as floats; NaN where it is null."""
    if kinds.is_timestamp(column.type):
        column = column.cast(pa.int64())
    if not column.null_count:
        return column.to_numpy(zero_copy_only=False).astype(np.float64)  # type: ignore[no-any-return]
    numbers = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64)
    numbers[nulls_of(column)] = np.nan
    return numbers  # type: ignore[no-any-return]
