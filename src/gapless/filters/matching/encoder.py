"""Encoder: attribute maps become rows of floats, by a function generated for the columns in use.

Theory of operation
    Looking up which columns an attribute has costs more than filling them. So for the columns in
    use, Python source is written that fetches each attribute once, branches on its class and
    packs all columns with one call. Writing it takes as long as some dozen events for each
    attribute: it pays where columns stay the same for longer than that, and where there are at
    most `INLINE_MAX` attributes. Else see `column_pairs`.

Invariants
    I1  a value of a subclass counts as its plain value; one of another class as present only
    I2  names and values of filters enter the source as literals made by `repr`, or as arguments
"""

from __future__ import annotations

import struct
from math import nan
from typing import TYPE_CHECKING, Any

from gapless.core.timestamps import Timestamp
from gapless.filters.matching.attribute_columns import Opaque, clamp, moment, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gapless.filters.matching.attribute_columns import AttributeColumns
    from gapless.filters.matching.columns import ColumnLayout

    Encode = Callable[[Mapping[str, Any], Any, int], list[int]]

INLINE_MAX = 64

Lines = list[str]


def plain_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: plain(value) for name, value in attributes.items()}


def make_encoder(columns: ColumnLayout) -> Encode:
    """A function (attributes, buffer, offset) that packs a row there and returns edge keys."""
    scope: dict[str, Any] = {
        "Opaque": Opaque,
        "clamp": clamp,
        "Timestamp": Timestamp,
        "moment": moment,
        "nan": nan,
        "pack_into": struct.Struct(f"={columns.width}d").pack_into,
        "plain_attributes": plain_attributes,
    }
    attributes = list(columns.attributes.values())
    for index, attribute in enumerate(attributes):
        scope |= _names_of(attribute, index)
    computed = [one.column for one in columns.expressions.values()]
    scope |= {f"compute{one.column}": one.of for one in columns.expressions.values()}
    exec("\n".join(_inline_source(attributes, computed, columns.width)), scope)
    encode: Encode = scope["encode"]
    return encode


def _names_of(attribute: AttributeColumns, index: int) -> dict[str, Any]:
    """What the source for an attribute refers to."""
    names = {
        f"codes{index}": attribute.codes.get,
        f"edges{index}": attribute.edges.get,
        f"lengths{index}": sorted(attribute.lengths),
    }
    for truth in attribute.truths.values():
        names[f"judge{truth.column}"] = truth.of
    return names


def _inline_source(attributes: list[AttributeColumns], computed: list[int], width: int) -> Lines:
    lines = ["def encode(attributes, buffer, offset):", " get = attributes.get", " extra = []"]
    row = ["nan"] * width
    for index, attribute in enumerate(attributes):
        for column in attribute.columns():
            row[column] = f"c{column}"
        lines.append(f" value = get({attribute.name!r})")
        lines += _branches(attribute, index)
        lines.append(" else: return encode(plain_attributes(attributes), buffer, offset)")
        if attribute.guard is not None:
            lines.append(f" if value is not None: extra.append({attribute.guard})")
    for column in computed:
        row[column] = f"compute{column}(attributes)"
    lines.append(f" pack_into(buffer, offset, {', '.join(row)})")
    lines.append(" return extra")
    return lines


def _branches(attribute: AttributeColumns, index: int) -> Lines:
    """Source that fills the columns of one attribute from `value`, by its class."""
    judged = [(t.judged, t.column) for t in attribute.truths.values()]

    def fill(
        kind: type | None,
        code: str,
        number: str = "nan",
        moment: str = "nan",
        presence: str = "1.0",
    ) -> Lines:
        filled = [(attribute.number, number), (attribute.moment, moment), (attribute.code, code)]
        filled += [(attribute.presence, presence)]
        filled += [(c, f"judge{c}(value)" if each is kind else "0.0") for each, c in judged]
        lines = [f"  c{column} = {text}" for column, text in filled if column is not None]
        return lines or ["  pass"]

    found = f"codes{index}(value, -1.0)"
    lines = [" kind = value.__class__", " if kind is str:"]
    lines += fill(str, f"codes{index}(value, 2.0)")
    if attribute.lengths:
        lines.append(f"  for length in lengths{index}:")
        lines.append("   if length > len(value): break")
        lines.append(f"   edge = edges{index}(value[:length])")
        lines.append("   if edge is not None: extra.append(edge)")
    lines.append(" elif kind is float:")
    lines += fill(float, found, "value")
    lines.append(" elif kind is int:")
    within = "value if -9007199254740992 < value < 9007199254740992 else clamp(value)"
    lines += fill(float, found, within)
    lines.append(" elif value is None:")
    lines += fill(None, "nan", presence="0.0")
    lines.append(" elif kind is bool:")
    lines += fill(None, "1.0 if value else 0.0")
    lines.append(" elif kind is Timestamp:")
    lines += fill(Timestamp, found, moment="moment(value)")
    lines.append(" elif kind is bytes:")
    lines += fill(bytes, found)
    lines.append(" elif kind is Opaque:")
    lines += fill(None, "-1.0")
    return lines
