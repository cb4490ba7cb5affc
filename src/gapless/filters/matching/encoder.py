"""Encoder: attribute maps become rows of floats, by a function written for the columns there are.

Theory of operation
    Looking up which columns an attribute has costs more than filling them. So for the columns in
    use, Python source is written that fetches each attribute once, branches on its class and
    packs all columns with one call. It is written anew when the columns change, before the next
    match. With more than `INLINE_MAX` attributes there is one function per attribute, written when
    an event first has it: an event pays for the attributes that it has and not for those that
    filters know, of which a hostile subscriber may name hundreds of thousands.

Invariants
    I1  a value of a subclass counts as its plain value; one of another class as present only
    I2  names and values of filters enter the source as literals made by `repr`, or as arguments
"""

from __future__ import annotations

import struct
from math import inf, nan, nextafter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gapless.core.events import Value
    from gapless.filters.matching.columns import AttributeColumns, Columns

    Encode = Callable[[Mapping[str, Any], Any, int], list[int]]
    Fill = Callable[[Any, list[float], list[int]], None]

INLINE_MAX = 64
NUMBER_MAX = nextafter(inf, 0.0)

Lines = list[str]


class Opaque:
    """Stands for a value that is neither boolean nor number nor string: present, nothing else."""


def clamp(value: int) -> float:
    """An integer as a float, as near as can be."""
    try:
        return float(value)
    except OverflowError:
        return NUMBER_MAX if value > 0 else -NUMBER_MAX


def plain(value: object) -> Value | Opaque | None:
    """The value itself, as one of the classes that the encoder knows."""
    match value:
        case None | bool():
            return value
        case str():
            return str.__str__(value)  # not str(value): an enum would give its name
        case float():
            return float.__float__(value)
        case int():
            return int.__int__(value)
        case _:
            return Opaque()


def plain_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: plain(value) for name, value in attributes.items()}


def make_encoder(columns: Columns) -> Encode:
    """A function (attributes, buffer, offset) that packs a row there and returns edge keys."""
    scope: dict[str, Any] = {
        "Opaque": Opaque,
        "clamp": clamp,
        "nan": nan,
        "pack_into": struct.Struct(f"={columns.width}d").pack_into,
        "plain": plain,
        "plain_attributes": plain_attributes,
    }
    attributes = list(columns.attributes.values())
    if len(attributes) > INLINE_MAX:
        return _table_encoder(columns, scope)
    for index, attribute in enumerate(attributes):
        scope |= _names_of(attribute, index)
    computed = [one.column for one in columns.computed.values()]
    scope |= {f"compute{one.column}": one.of for one in columns.computed.values()}
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
        judge = truth.of_string if truth.of_strings else truth.of_number
        names[f"judge{truth.column}"] = judge
    return names


def _inline_source(attributes: list[AttributeColumns], computed: list[int], width: int) -> Lines:
    lines = ["def encode(attributes, buffer, offset):", " get = attributes.get", " extra = []"]
    row = ["nan"] * width
    for index, attribute in enumerate(attributes):
        for column in attribute.columns():
            row[column] = f"c{column}"
        lines.append(f" value = get({attribute.name!r})")
        lines += _branches(attribute, index, "c{}".format)
        lines.append(" else: return encode(plain_attributes(attributes), buffer, offset)")
    for column in computed:
        row[column] = f"compute{column}(attributes)"
    lines.append(f" pack_into(buffer, offset, {', '.join(row)})")
    lines.append(" return extra")
    return lines


def _table_encoder(columns: Columns, scope: dict[str, Any]) -> Encode:
    known, pack_into = columns.attributes, scope["pack_into"]
    computed = [(one.column, one.of) for one in columns.computed.values()]
    blank = [nan] * columns.width
    for attribute in known.values():
        if attribute.presence is not None:
            blank[attribute.presence] = 0.0
    fills: dict[str, Fill] = {}  # of known attributes, those that events had so far

    def encode(attributes: Mapping[str, Any], buffer: Any, offset: int) -> list[int]:
        row, extra = blank.copy(), list[int]()
        for name, value in attributes.items():
            fill = fills.get(name)
            if fill is None:
                if name not in known:
                    continue
                fill = fills[name] = _make_fill(known[name], scope)
            fill(value, row, extra)
        for column, compute in computed:
            row[column] = compute(attributes)
        pack_into(buffer, offset, *row)
        return extra

    return encode


def _make_fill(attribute: AttributeColumns, scope: dict[str, Any]) -> Fill:
    lines = ["def fill(value, row, extra):", *_branches(attribute, 0, "row[{}]".format)]
    lines.append(" else: fill(plain(value), row, extra)")
    scope = scope | _names_of(attribute, 0)
    exec("\n".join(lines), scope)
    fill: Fill = scope["fill"]
    return fill


def _branches(attribute: AttributeColumns, index: int, place: Callable[[int], str]) -> Lines:
    """Source that fills the columns of one attribute from `value`, by its class."""
    judged = [(t.of_strings, t.column) for t in attribute.truths.values()]

    def fill(number: str, code: str, presence: str, strings: str, numbers: str) -> Lines:
        filled = [(attribute.number, number), (attribute.code, code)]
        filled += [(attribute.presence, presence)]
        filled += [(c, (strings if s else numbers).format(c)) for s, c in judged]
        lines = [f"  {place(column)} = {text}" for column, text in filled if column is not None]
        return lines or ["  pass"]

    judge = "judge{}(value)"
    found = f"codes{index}(value, -1.0)"
    lines = [" kind = value.__class__", " if kind is str:"]
    lines += fill("nan", f"codes{index}(value, 2.0)", "1.0", judge, "0.0")
    if attribute.lengths:
        lines.append(f"  for length in lengths{index}:")
        lines.append("   if length > len(value): break")
        lines.append(f"   edge = edges{index}(value[:length])")
        lines.append("   if edge is not None: extra.append(edge)")
    lines.append(" elif kind is float:")
    lines += fill("value", found, "1.0", "0.0", judge)
    lines.append(" elif kind is int:")
    within = "value if -9007199254740992 < value < 9007199254740992 else clamp(value)"
    lines += fill(within, found, "1.0", "0.0", judge)
    lines.append(" elif value is None:")
    lines += fill("nan", "nan", "0.0", "0.0", "0.0")
    lines.append(" elif kind is bool:")
    lines += fill("nan", "1.0 if value else 0.0", "1.0", "0.0", "0.0")
    lines.append(" elif kind is Opaque:")
    lines += fill("nan", "-1.0", "1.0", "0.0", "0.0")
    return lines
