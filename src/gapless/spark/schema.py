"""The schema of a read: which columns there are, and where the values of each come from.

Theory of operation
    Eight columns say all there is to say of an event; their names are reserved (`PLACES`). Any
    other column of a user's own schema is the attribute of that name, as that type. Two more may be
    asked for: with `gaps=rows`, `lost_until`; and the column of Spark's convention for what does
    not fit its type, `_corrupt_record`.
    What a column may be is checked here, when the query is made, and not row by row.

Invariants
    I1  a schema that is accepted can hold every event: nothing is NOT NULL that may be missing
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from gapless.spark.options import Gaps, ReadOptions

VALUE = StructType(
    [
        StructField("bool", BooleanType()),
        StructField("int", LongType()),
        StructField("float", DoubleType()),
        StructField("text", StringType()),
    ]
)
"""An attribute of any type: exactly one of the four is set."""

PLACES: dict[str, DataType] = {
    "topic": StringType(),
    "pubend": StringType(),
    "tick": LongType(),
    "published": TimestampType(),
    "publisher": StringType(),
    "sequence": LongType(),
    "attributes": MapType(StringType(), VALUE),
    "body": BinaryType(),
}
LOST_UNTIL = "lost_until"

WHOLE_TYPES: dict[type[DataType], int] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
"""Types of whole numbers, and their bits."""

ATTRIBUTE_TYPES: dict[type[DataType], tuple[type, ...]] = {
    BooleanType: (bool,),
    **dict.fromkeys(WHOLE_TYPES, (int,)),
    FloatType: (int, float),
    DoubleType: (int, float),
    StringType: (str,),
}
"""What an attribute has to be to fit a column of that type."""


def default_schema(columns: tuple[str, ...] | None, gaps: Gaps) -> StructType:
    """All columns, or those that are asked for."""
    wanted = PLACES if columns is None else columns
    if unknown := [name for name in wanted if name not in PLACES]:
        raise UsageError(
            f"columns names {unknown[0]!r}, which there is not",
            f"There are {', '.join(PLACES)}; for attributes as columns, give a schema.",
        )
    fields = [StructField(name, PLACES[name]) for name in wanted]
    if gaps == "rows":
        fields.append(StructField(LOST_UNTIL, LongType()))
    return StructType(fields)


def check_schema(schema: StructType, options: ReadOptions) -> None:
    """`UsageError` names the column that cannot be."""
    if options.columns is not None and schema != default_schema(options.columns, options.gaps):
        raise UsageError("columns and a schema contradict each other", "Give one of them.")
    if len(set(schema.names)) < len(schema.names):
        raise UsageError("the schema has a column twice", "Name each once.")
    reserved = {**PLACES, options.corrupt_column: StringType()}
    if options.gaps == "rows":
        reserved[LOST_UNTIL] = LongType()
        if missing := {LOST_UNTIL, "tick"} - set(schema.names):
            raise UsageError(
                f"gaps=rows needs the column {min(missing)}", f"Add {min(missing)} bigint."
            )
    for column in schema:
        kind, wanted = column.dataType, reserved.get(column.name)
        if wanted is not None and kind != wanted:
            raise UsageError(
                f"column {column.name} is {kind.simpleString()}, and not {wanted.simpleString()}",
                "That name is not an attribute's; see docs/reference/spark.md.",
            )
        if wanted is None and type(kind) not in ATTRIBUTE_TYPES:
            raise UsageError(
                f"an attribute cannot be read as {kind.simpleString()}: {column.name}",
                "Read it as string, bigint, double or boolean, and cast it.",
            )
        if not column.nullable and (wanted is None or column.name not in ("topic", "pubend")):
            raise UsageError(
                f"column {column.name} is NOT NULL, and may be missing in an event",
                "Leave NOT NULL out.",
            )
