"""Lake schema: which column of a lake holds which attribute, and events in that form.

Theory of operation
    An event may have any attributes, and the same name may have another kind in the next event. In
    a lake each pair of a name and a kind has a column of its own, so that a column has one type for
    ever and nothing is converted. The column is called like the attribute. Where that name is taken
    (by a column that every event has, by another kind of the same name, or by a name that differs
    only in case, which SQL does not tell apart), the kind is added: `price`, then `price_int`.
    A schema only grows: new columns come behind the others. The manifest keeps it, and every file
    says for each column which attribute it holds, in the metadata of the field.
    Beyond `COLUMNS_MAX` columns, new attributes go into one map, `other_attributes`.
    Workers meet new attributes at the same time. Each adds them to the schema that it was given;
    `merge` says whether two results agree, and the driver has the work that disagrees done again.

Invariants
    I1  no column changes its name, attribute or type
    I2  columns differ in more than case
    I3  what `to_lake` makes of events, `attributes_of_rows` gives back
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as kinds

from gapless.client.columns import SCHEMA, VALUE, attributes_column, attributes_of
from gapless.pipelines.attribute_maps import match_dicts, match_maps, one_kind, split_maps

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gapless.filters.matcher import Matcher
    from gapless.pipelines.attribute_maps import MatchCounts

COLUMNS_MAX = 1_000
"""Columns of attributes in one lake; engines plan slowly beyond it."""

MAPS = "attributes"
EVENT_FIELDS = tuple(each for each in SCHEMA if each.name != MAPS)
"""The columns that every event has."""

OTHERS = "other_attributes"
DATE, HOUR = "published_date", "published_hour"
"""The partition columns: the names of folders."""

RESERVED = frozenset([*(each.name for each in EVENT_FIELDS), MAPS, OTHERS, DATE, HOUR])
ATTRIBUTE = b"gapless.attribute"
"""In the metadata of a field: the attribute that the column holds."""

TYPES: dict[str, pa.DataType] = {each.name: each.type for each in VALUE}
KINDS = {kind: name for name, kind in TYPES.items()}


@dataclass(frozen=True, slots=True)
class LakeSchema:
    """By column the attribute that it holds, and its kind: a field of `client.columns.VALUE`."""

    columns: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def extend(self, pairs: Iterable[tuple[str, str]]) -> LakeSchema:
        """With a column for each of these attributes and kinds, as far as there is room."""
        columns, pairs_before = dict(self.columns), set(self.columns.values())
        in_use = {*RESERVED, *(column.lower() for column in columns)}
        for attribute, kind in pairs:
            if (attribute, kind) not in pairs_before and len(columns) < COLUMNS_MAX:
                column = _free_name(attribute or "unnamed", kind, in_use)
                columns[column] = (attribute, kind)
                in_use.add(column.lower())
        return self if len(columns) == len(self.columns) else LakeSchema(columns)

    def merge(self, other: LakeSchema) -> LakeSchema | None:
        """A schema for files of both; None if a column means two things, or a pair has two."""
        columns = {**self.columns, **other.columns}
        sizes = (len(set(columns.values())), len({name.lower() for name in columns}))
        agrees = all(columns[name] == pair for name, pair in self.columns.items())
        if not agrees or min(sizes) < len(columns) or len(columns) > COLUMNS_MAX:
            return None
        return LakeSchema(columns)

    def to_arrow(self, *, has_others: bool = False) -> pa.Schema:
        attributes = [
            pa.field(column, TYPES[kind], metadata={ATTRIBUTE: attribute.encode()})
            for column, (attribute, kind) in self.columns.items()
        ]
        others = [pa.field(OTHERS, SCHEMA.field(MAPS).type)] if has_others else []
        return pa.schema([*EVENT_FIELDS, *attributes, *others])


def _free_name(attribute: str, kind: str, in_use: set[str]) -> str:
    name, number = attribute, 1
    while name.lower() in in_use:
        name = f"{attribute}_{kind}" if number == 1 else f"{attribute}_{kind}_{number}"
        number += 1
    return name


def to_lake(batches: list[Any], schema: LakeSchema, *, grow: bool) -> tuple[Any, LakeSchema]:
    """A table in the lake's form, of record batches that have attributes as maps.

    `grow`: attributes that the schema does not have get a column; else they are among the others.
    """
    table = pa.Table.from_batches(batches).combine_chunks()
    columns = split_maps(_whole(table.column(MAPS)))
    if grow:
        schema = schema.extend(columns)
    places = {pair: name for name, pair in schema.columns.items()}
    others = {pair: column for pair, column in columns.items() if pair not in places}
    by_name = {places[pair]: column for pair, column in columns.items() if pair in places}
    by_name |= {each.name: table.column(each.name) for each in EVENT_FIELDS}
    if others:
        by_name[OTHERS] = _others(others, len(table))
    arrow = schema.to_arrow(has_others=bool(others))
    return complete(by_name, len(table), arrow), schema


def _whole(column: Any) -> Any:
    """One array of a column that has been combined."""
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


def _others(columns: Mapping[tuple[str, str], Any], count: int) -> Any:
    """The attributes without a column as maps, null for an event that has none."""
    rows: list[dict[str, Any]] = [{} for _ in range(count)]
    for (name, _), column in columns.items():
        for row, value in zip(rows, column.to_pylist(), strict=True):
            if value is not None:
                row[name] = value
    maps = attributes_column(rows)
    empty = pa.array([not row for row in rows])
    return pa.MapArray.from_arrays(maps.offsets, maps.keys, maps.items, mask=empty)


def complete(columns: Mapping[str, Any], count: int, arrow: pa.Schema) -> Any:
    """A table of this schema; a column that is not there is null."""
    arrays = [
        columns[each.name] if each.name in columns else pa.nulls(count, each.type) for each in arrow
    ]
    return pa.table(arrays, schema=arrow)


def attribute_columns(schema: pa.Schema) -> dict[str, list[tuple[str, str]]]:
    """By attribute its columns in a file of a lake: the name and the kind of each."""
    found: dict[str, list[tuple[str, str]]] = {}
    for each in schema:
        if each.metadata and ATTRIBUTE in each.metadata:
            kind = each.type.value_type if kinds.is_dictionary(each.type) else each.type
            attribute = each.metadata[ATTRIBUTE].decode()
            found.setdefault(attribute, []).append((each.name, KINDS[kind]))
    return found


def attributes_of_rows(batch: Any) -> list[dict[str, Any]]:
    """The attributes of each event as they were published; of a batch in the lake's form, or with
    attributes as maps."""
    if MAPS in batch.schema.names:
        return [attributes_of(row or ()) for row in batch.column(MAPS).to_pylist()]
    rows: list[dict[str, Any]] = [{} for _ in range(batch.num_rows)]
    for attribute, columns in attribute_columns(batch.schema).items():
        for column, _ in columns:
            for row, value in zip(rows, batch.column(column).to_pylist(), strict=True):
                if value is not None:
                    row[attribute] = value
    if OTHERS in batch.schema.names:
        for row, others in zip(rows, batch.column(OTHERS).to_pylist(), strict=True):
            row |= attributes_of(others or ())
    return rows


def match_rows(matcher: Matcher[int], batch: Any) -> MatchCounts:
    """The matches of events in the lake's form, or with attributes as a map."""
    if MAPS in batch.schema.names:
        return match_maps(matcher, batch.column(MAPS))
    columns: dict[str, Any] = {}
    is_plain = OTHERS not in batch.schema.names or batch.column(OTHERS).null_count == len(batch)
    for attribute, some in attribute_columns(batch.schema).items():
        forms = {kind: batch.column(name) for name, kind in some}
        column = next(iter(forms.values())) if len(forms) == 1 else _one_of(forms)
        is_plain = is_plain and column is not None
        columns[attribute] = column
    if not is_plain or not columns:
        return match_dicts(matcher, attributes_of_rows(batch))
    found = matcher.match_batch(pa.record_batch(columns))
    return found.counts, found.handles


def _one_of(forms: dict[str, Any]) -> Any | None:
    """One column for the kinds of an attribute; None where several are there."""
    if all(form.null_count == len(form) for form in forms.values()):
        return next(iter(forms.values()))
    return one_kind(forms)
