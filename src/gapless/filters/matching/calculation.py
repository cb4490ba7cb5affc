"""Calculation: the value of an expression for all rows of a record batch, by numpy.

Theory of operation
    Floats of numpy and of Python are the same, so `evaluate` is repeated operation by operation.
    Integers are calculated as floats too, which is exact below 2^53; a row where an integer
    reaches that, on the way or at the end, is *odd* and is evaluated by itself. NaN stands for
    "no value" and goes through every operation as such. The quotient of integers
    counts as an integer: some are.

Invariants
    I1  a column is what `ExpressionColumn.of` gives for each row
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow.types as kinds

from gapless.filters.matching.attribute_columns import EXACT_MAX
from gapless.filters.matching.record_batch import BatchRows, column_of, is_number, numbers_of
from gapless.filters.syntax import Arithmetic, Attribute, Literal, Signed

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from gapless.filters.matching.expression_column import ExpressionColumn
    from gapless.filters.syntax import Expression

    Vector = NDArray[np.float64]
    Typed = tuple[Vector, bool]  # the values, and whether some may stand for integers


class Calculation:
    """The values of one expression over one batch."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._odd = np.zeros(batch.num_rows, np.bool_)

    def column(self, computed: ExpressionColumn) -> Vector:
        with np.errstate(all="ignore"):
            values, _ = self._value(computed.expression)
        if self._odd.any():
            rows = BatchRows(self._batch)
            for index in np.flatnonzero(self._odd).tolist():
                values[index] = computed.of(rows[index])
        return values

    def _value(self, expression: Expression) -> Typed:
        match expression:
            case Attribute(name):
                return self._attribute(name)
            case Literal(value):
                assert isinstance(value, int | float), "the parser lets numbers through only"
                return self._typed(np.full(len(self._odd), float(value)), isinstance(value, int))
            case Signed(sign, operand):
                zero = np.zeros(len(self._odd)), True
                return self._apply(sign, zero, self._value(operand))
            case Arithmetic(first, rest):
                result = self._value(first)
                for sign, term in rest:
                    result = self._apply(sign, result, self._value(term))
                return result

    def _attribute(self, name: str) -> Typed:
        column = column_of(self._batch, name)
        if column is not None and kinds.is_dictionary(column.type):
            column = column.dictionary_decode()
        if column is None or not is_number(column.type):
            return np.full(len(self._odd), np.nan), False
        return self._typed(numbers_of(column), bool(kinds.is_integer(column.type)))

    def _typed(self, values: Vector, whole: bool) -> Typed:
        if whole:
            self._odd |= np.abs(values) >= EXACT_MAX
        return values, whole

    def _apply(self, sign: str, left: Typed, right: Typed) -> Typed:
        one, other = left[0], right[0]
        whole = left[1] and right[1]
        match sign:
            case "+":
                result = one + other
            case "-":
                result = one - other
            case "*":
                result = one * other
            case "/":
                result = np.where(other == 0, np.nan, one / other)
            case _:
                result = np.where(other == 0, np.nan, np.fmod(one, other))
        return self._typed(result, whole)
