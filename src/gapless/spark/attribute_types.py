"""Attribute types: which of Spark's types is which attribute, both ways.

Theory of operation
    An attribute is a bool, an int, a float, a text, a timestamp or bytes. The sink writes every
    other type as one of these, so that the source can read it back into a column of the same type:

        timestamp_ntz               int: microseconds since 1970, as if it were of UTC
        date                        text: 2026-01-31
        decimal                     int, up to 18 digits without a fraction; else text: 12.50
        array, map, struct          text: JSON, which begins with a bracket or a brace

    The source converts nothing else, other than an int for a column of floating point, and what the
    sink of version 0.1 wrote: for a timestamp, an int as above; for binary, `base64:` and text. A
    value that does not fit its column is null there, and its row is told. The values come in two
    forms: decoded, and as compiled code has found them in the encoded events (`client.columns`).

Invariants
    I1  what the sink makes of a value, the source reads back as the same value, except that floats
        in JSON that are no numbers (NaN, infinities) come back as null
    I2  both forms give the same column and the same misfits
"""

from __future__ import annotations

from base64 import b64decode
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from gapless.client.columns import MOMENT
from gapless.core.attribute_table import BOOL, BYTES, FLOAT, INT, MISSING, TEXT, TIMESTAMP
from gapless.core.timestamps import to_microseconds
from gapless.wire.columnar import from_json_text, to_json_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gapless.client.columns import ParsedValues

WHOLE_TYPES: dict[type[DataType], int] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
"""Types of whole numbers, and their bits."""

BITS: dict[type[DataType], int] = {**WHOLE_TYPES, TimestampType: 64, TimestampNTZType: 64}
"""Types that an int is read as."""

PLAIN: dict[type[DataType], tuple[type, ...]] = {
    BooleanType: (bool,),
    **dict.fromkeys(BITS, (int,)),
    TimestampType: (datetime, int),
    FloatType: (int, float),
    DoubleType: (int, float),
    StringType: (str,),
}
"""What an attribute has to be for a column of a type that is not read from text."""

INTEGER_DIGITS_MAX = 18
BASE64 = "base64:"


# --- what the sink writes -------------------------------------------------------------------------


def attribute_type(kind: DataType) -> pa.DataType | None:
    """What a column of this type is written as; None: it cannot be an attribute."""
    match kind:
        case BooleanType():
            return pa.bool_()
        case ByteType() | ShortType() | IntegerType() | LongType():
            return pa.int64()
        case TimestampType():
            return MOMENT
        case TimestampNTZType():
            return pa.int64()
        case BinaryType():
            return pa.binary()
        case DecimalType() if kind.scale == 0 and kind.precision <= INTEGER_DIGITS_MAX:
            return pa.int64()
        case FloatType() | DoubleType():
            return pa.float64()
        case _:
            return pa.string() if is_readable(kind) else None


def to_attribute(column: Any, kind: DataType) -> Any:
    """A column of Spark's as attributes."""
    if isinstance(kind, ArrayType | MapType | StructType):
        return to_json_texts(column.to_pylist(maps_as_pydicts="strict"))
    return column.cast(attribute_type(kind))


# --- what the source reads ------------------------------------------------------------------------


def is_readable(kind: DataType) -> bool:
    """Can an attribute be read as this type?"""
    match kind:
        case ArrayType():
            return is_readable(kind.elementType)
        case MapType():
            return isinstance(kind.keyType, StringType) and is_readable(kind.valueType)
        case StructType():
            return all(is_readable(field.dataType) for field in kind)
        case DateType() | DecimalType() | BinaryType():
            return True
        case _:
            return type(kind) in PLAIN


def from_values(values: Sequence[Any], kind: DataType, arrow: Any) -> tuple[Any, Sequence[int]]:
    """The array, and the rows whose value does not fit."""
    if type(kind) not in PLAIN:
        return _from_texts(values, kind, arrow)
    fitting = PLAIN[type(kind)]
    if set(map(type, values)) <= {*fitting, type(None)}:
        try:
            return _make(values, arrow), ()
        except pa.ArrowInvalid:  # a whole number that is too large
            pass
    bits = BITS.get(type(kind), 64)
    low, high = -(1 << bits - 1), 1 << bits - 1
    is_real = isinstance(kind, FloatType | DoubleType)
    fitted: list[Any] = []
    unfit: list[int] = []
    for row, value in enumerate(values):
        fits = type(value) in fitting and (type(value) is not int or low <= value < high)
        if value is not None and not fits:
            unfit.append(row)
        fitted.append((float(value) if is_real else value) if fits else None)
    return _make(fitted, arrow), unfit


def _make(values: Sequence[Any], arrow: Any) -> Any:
    if pa.types.is_timestamp(arrow):
        ints = [to_microseconds(each) if type(each) is datetime else each for each in values]
        return pa.array(ints, pa.int64()).cast(arrow)
    return pa.array(values, arrow)


def from_flat(found: ParsedValues, kind: DataType, arrow: Any) -> tuple[Any, Sequence[int]]:
    """As `from_values`, of values that compiled code has found."""
    kinds, bits = found.kinds, BITS.get(type(kind))
    if isinstance(kind, StringType):
        return found.texts(), _unfit(kinds, kinds == TEXT)
    if isinstance(kind, BooleanType):
        return found.numbers(BOOL, arrow), _unfit(kinds, kinds == BOOL)
    if isinstance(kind, FloatType | DoubleType):
        fits = (kinds == INT) | (kinds == FLOAT)
        real = np.where(kinds == FLOAT, found.values.view(np.float64), found.values)
        array = pa.array(real.astype(arrow.to_pandas_dtype()), arrow, mask=~fits)
        return array, _unfit(kinds, fits)
    if isinstance(kind, BinaryType) and not len(_unfit(kinds, kinds == BYTES)):
        return found.byte_strings().cast(arrow), ()
    if bits is None:
        values = _values(found)
        return _from_texts(values, kind, arrow)
    fits = kinds == INT
    if isinstance(kind, TimestampType):
        fits |= kinds == TIMESTAMP
    if bits < 64:
        fits &= (found.values >= -(1 << bits - 1)) & (found.values < 1 << bits - 1)
    if pa.types.is_timestamp(arrow):
        array = pa.array(found.values, pa.int64(), mask=~fits).cast(arrow)
    else:
        array = pa.array(found.values.astype(arrow.to_pandas_dtype()), arrow, mask=~fits)
    return array, _unfit(kinds, fits)


def _unfit(kinds: Any, fits: Any) -> Sequence[int]:
    rows: list[int] = np.flatnonzero(~fits & (kinds != MISSING)).tolist()
    return rows


def _values(found: ParsedValues) -> list[Any]:
    """Python objects of all values; of a kind that no text is read from, a misfit."""
    texts, ints = found.texts().to_pylist(), found.values.tolist()
    pieces = found.byte_strings().to_pylist()
    rows = zip(found.kinds.tolist(), texts, ints, pieces, strict=True)
    return [
        {TEXT: text, INT: number, BYTES: piece, MISSING: None}.get(kind, False)
        for kind, text, number, piece in rows
    ]


def _from_texts(values: Sequence[Any], kind: DataType, arrow: Any) -> tuple[Any, Sequence[int]]:
    """Of a type that is read from text."""
    fitted: list[Any] = []
    unfit: list[int] = []
    for row, value in enumerate(values):
        try:
            fitted.append(None if value is None else _parse(value, kind))
        except (ValueError, ArithmeticError, TypeError):
            fitted.append(None)
            unfit.append(row)
    return pa.array(fitted, arrow), unfit


def _parse(value: Any, kind: DataType) -> Any:
    """`ValueError` if the attribute is not what the sink makes of this type."""
    if isinstance(kind, DecimalType) and type(value) is int:
        return _decimal(value, kind)
    if isinstance(kind, BinaryType) and type(value) is bytes:
        return value
    if type(value) is not str:
        raise ValueError(value)
    if isinstance(kind, BinaryType):
        if not value.startswith(BASE64):
            raise ValueError(value)
        return b64decode(value.removeprefix(BASE64), validate=True)
    if isinstance(kind, ArrayType | MapType | StructType):
        return from_json(from_json_text(value), kind)
    return from_json(value, kind)


def _decimal(value: Any, kind: DecimalType) -> Decimal:
    number = Decimal(value)
    exact = number.quantize(Decimal(1).scaleb(-kind.scale))
    if exact != number or len(exact.as_tuple().digits) > kind.precision:
        raise ValueError(value)
    return exact


def from_json(value: Any, kind: DataType) -> Any:
    """What stands in JSON as a value of this type; `ValueError` if it is none."""
    if value is None:
        return None
    match kind:
        case ArrayType() if isinstance(value, list):
            return [from_json(each, kind.elementType) for each in value]
        case MapType() if isinstance(value, dict):
            return [(key, from_json(each, kind.valueType)) for key, each in value.items()]
        case StructType() if isinstance(value, dict):
            return {each.name: from_json(value.get(each.name), each.dataType) for each in kind}
        case _ if type(kind) in READ_JSON:
            return READ_JSON[type(kind)](value)
        case DecimalType() if isinstance(value, int | str):
            return _decimal(value, kind)
        case _ if type(value) in PLAIN.get(type(kind), ()):
            bits = BITS.get(type(kind), 64)
            if type(value) is int and not -(1 << bits - 1) <= value < 1 << bits - 1:
                raise ValueError(value)
            return float(value) if isinstance(kind, FloatType | DoubleType) else value
    raise ValueError(value)


READ_JSON: dict[type[DataType], Callable[[Any], Any]] = {
    DateType: date.fromisoformat,
    TimestampType: lambda text: datetime.fromisoformat(text).astimezone(UTC),
    TimestampNTZType: datetime.fromisoformat,
    BinaryType: lambda text: b64decode(text, validate=True),
}
"""Types whose JSON is text, as msgspec writes it."""
