"""The schema of a read: which columns there are, and where the values of each come from.

Theory of operation
    Eight columns say all there is to say of an event; their names are reserved (`PLACES`). The
    option `attributesAs` says what the column `attributes` is: JSON, a map of texts, a map that
    keeps every type, or one column for each attribute that a sample of the log has. Any other
    column of a user's own schema is the attribute of that name (`rename` says which where names
    differ), as that type (`attribute_types`). Two more may be asked for: with `gaps=rows`,
    `lost_until`; and the column of Spark's convention for what does not fit its type,
    `_corrupt_record`.
    What a column may be is checked here, when the query is made, and not row by row.

Invariants
    I1  a schema that is accepted can hold every event: nothing is NOT NULL that may be missing
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from gapless import sync
from gapless.client.errors import LinkError
from gapless.client.range_reads import RangeBatch
from gapless.core.errors import UsageError
from gapless.spark.attribute_types import is_readable
from gapless.spark.options import PATIENCE_S
from gapless.spark.topics import find_topics, positions_of, topic_of

if TYPE_CHECKING:
    from gapless.spark.options import ReadOptions, ShapeOptions

VALUE = StructType(
    [
        StructField("bool", BooleanType()),
        StructField("int", LongType()),
        StructField("float", DoubleType()),
        StructField("text", StringType()),
        StructField("timestamp", TimestampType()),
        StructField("bytes", BinaryType()),
    ]
)
"""An attribute of any type: exactly one of these is set."""

ATTRIBUTES = "attributes"
ATTRIBUTE_FORMS: dict[str, DataType] = {
    "json": StringType(),
    "map": MapType(StringType(), StringType()),
    "typed": MapType(StringType(), VALUE),
}
"""What the column `attributes` is, by the option `attributesAs`. JSON and typed lose no type."""

PLACES: dict[str, DataType] = {
    "topic": StringType(),
    "pubend": StringType(),
    "tick": LongType(),
    "published": TimestampType(),
    "publisher": StringType(),
    "sequence": LongType(),
    ATTRIBUTES: StringType(),
    "body": BinaryType(),
}
LOST_UNTIL = "lost_until"

CHECK_S = 5.0
SAMPLE_EVENTS = 1_000
"""Of each pubend, the events that are looked at to find out which attributes there are."""


def default_schema(options: ShapeOptions) -> StructType:
    """The columns of a read without a schema of the user's own."""
    columns = options.columns
    wanted = PLACES if columns is None else columns
    if unknown := [name for name in wanted if name not in PLACES]:
        raise UsageError(
            f"columns names {unknown[0]!r}, which there is not",
            f"There are {', '.join(PLACES)}; for attributes as columns, give a schema.",
        )
    kinds = {**PLACES, ATTRIBUTES: ATTRIBUTE_FORMS.get(options.attributes_as, StringType())}
    fields = [StructField(name, kinds[name]) for name in wanted]
    if options.attributes_as == "columns" and ATTRIBUTES in wanted:
        place = list(wanted).index(ATTRIBUTES)
        fields[place : place + 1] = infer_attributes(options)
    if options.gaps == "rows":
        fields.append(StructField(LOST_UNTIL, LongType()))
    return StructType(fields)


def check_topic(options: ShapeOptions) -> None:
    """An error if a broker says that there is no such topic. If none answers, the read tells."""
    try:
        with sync.connect(options.url, patience_s=CHECK_S, **options.credentials) as client:
            for topic in find_topics(client, options):
                client.positions(topic)
    except LinkError:
        pass


def infer_attributes(options: ShapeOptions) -> list[StructField]:
    """A column for each attribute of a sample: the oldest events of each pubend.

    An attribute that has several types there has the most frequent one; ints and floats are double.
    """
    counts: dict[str, Counter[type]] = {}
    with sync.connect(options.url, patience_s=PATIENCE_S, **options.credentials) as client:
        topics = find_topics(client, options)
        for pubend in positions_of(client, topics):
            for batch in client.read(
                topic_of(pubend, topics),
                options.condition,
                pubends=[pubend],
                limit=SAMPLE_EVENTS,
                gaps="yield",
            ):
                for event in batch.events() if isinstance(batch, RangeBatch) else ():
                    for name, value in event.attributes.items():
                        counts.setdefault(name, Counter())[type(value)] += 1
    if not counts:
        raise UsageError(
            f"topic {options.topic!r} has no events to infer columns from",
            "Give a schema, or attributesAs=json.",
        )
    columns = {column: name for name, column in options.rename.items()}
    fields = [
        StructField(options.rename.get(name, name), _inferred(each))
        for name, each in counts.items()
    ]
    seen = {name.lower() for name in (*PLACES, LOST_UNTIL, options.corrupt_column)}
    for each in fields:
        if each.name.lower() in seen:
            name = columns.get(each.name, each.name)
            raise UsageError(
                f"the attribute {name!r} has the name of another column",
                f"Rename it: rename={name}=NAME.",
            )
        seen.add(each.name.lower())
    return fields


def _inferred(counts: Counter[type]) -> DataType:
    numbers = counts[int] + counts[float]
    kind = max(INFERRED, key=counts.__getitem__)
    if numbers >= counts[kind]:
        return DoubleType() if counts[float] else LongType()
    return INFERRED[kind]


INFERRED: dict[type, DataType] = {
    bool: BooleanType(),
    str: StringType(),
    datetime: TimestampType(),
    bytes: BinaryType(),
}
"""The column of an attribute that is no number."""


def check_schema(schema: StructType, options: ReadOptions) -> None:
    """`UsageError` names the column that cannot be."""
    if options.columns is not None and not {*schema.names} <= {*options.columns, LOST_UNTIL}:
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
    if unknown := [name for name in options.rename.values() if name not in schema.names]:
        problem = f"rename gives a name to the column {unknown[0]!r}, which the schema has not"
        raise UsageError(problem, "Correct it, or leave it out.")
    for column in schema:
        kind, wanted = column.dataType, reserved.get(column.name)
        if column.name == ATTRIBUTES and kind in ATTRIBUTE_FORMS.values():
            wanted = kind
        if wanted is not None and kind != wanted:
            raise UsageError(
                f"column {column.name} is {kind.simpleString()}, and not {wanted.simpleString()}",
                f"The name is not an attribute's. For the attribute: rename={column.name}=NAME.",
            )
        if wanted is None and not is_readable(kind):
            raise UsageError(
                f"an attribute cannot be read as {kind.simpleString()}: {column.name}",
                "Read it as string, bigint, double or boolean, and cast it.",
            )
        if not column.nullable and (wanted is None or column.name not in ("topic", "pubend")):
            raise UsageError(
                f"column {column.name} is NOT NULL, and may be missing in an event",
                "Leave NOT NULL out.",
            )
