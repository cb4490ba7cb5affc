"""Typed: the values of one attribute as an Arrow array of the type that a column wants.

Twice: of decoded values, and of what compiled code has found in the encoded events. Both say which
rows have a value that does not fit, and have null there; nothing is converted, other than a whole
number for a column of floating point.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import BooleanType, DoubleType, FloatType, StringType

from gapless.core.attribute_table import BOOL, FLOAT, INT, MISSING, TEXT
from gapless.spark.schema import ATTRIBUTE_TYPES, WHOLE_TYPES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.types import DataType

    from gapless.client.flat import Found


def from_values(values: Sequence[Any], kind: DataType, arrow: Any) -> tuple[Any, Sequence[int]]:
    """The array, and the rows whose value does not fit."""
    fitting = ATTRIBUTE_TYPES[type(kind)]
    if set(map(type, values)) <= {*fitting, type(None)}:
        try:
            return pa.array(values, arrow), ()
        except pa.ArrowInvalid:  # a whole number that is too large
            pass
    bits = WHOLE_TYPES.get(type(kind), 64)
    low, high = -(1 << bits - 1), 1 << bits - 1
    is_real = isinstance(kind, FloatType | DoubleType)
    fitted: list[Any] = []
    unfit: list[int] = []
    for row, value in enumerate(values):
        fits = type(value) in fitting and (type(value) is not int or low <= value < high)
        if value is not None and not fits:
            unfit.append(row)
        fitted.append((float(value) if is_real else value) if fits else None)
    return pa.array(fitted, arrow), unfit


def from_flat(found: Found, kind: DataType, arrow: Any) -> tuple[Any, Sequence[int]]:
    """The same."""
    kinds, bits = found.kinds, WHOLE_TYPES.get(type(kind))
    if isinstance(kind, StringType):
        return found.texts(), _unfit(kinds, kinds == TEXT)
    if isinstance(kind, BooleanType):
        return found.numbers(BOOL, arrow), _unfit(kinds, kinds == BOOL)
    if bits is None:
        fits = (kinds == INT) | (kinds == FLOAT)
        real = np.where(kinds == FLOAT, found.values.view(np.float64), found.values)
        return pa.array(real.astype(arrow.to_pandas_dtype()), arrow, mask=~fits), _unfit(
            kinds, fits
        )
    fits = kinds == INT
    if bits < 64:
        fits &= (found.values >= -(1 << bits - 1)) & (found.values < 1 << bits - 1)
    array = pa.array(found.values.astype(arrow.to_pandas_dtype()), arrow, mask=~fits)
    return array, _unfit(kinds, fits)


def _unfit(kinds: Any, fits: Any) -> Sequence[int]:
    rows: list[int] = np.flatnonzero(~fits & (kinds != MISSING)).tolist()
    return rows
