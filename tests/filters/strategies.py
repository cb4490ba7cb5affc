"""Random conditions and events for the tests of this package, biased so that they do match.

Names and literals come from small pools, and the values of events from the same pools and their
neighbours: a random event meets a random condition often enough to test both outcomes. The nasty
ones are in the pools too: NaN, infinities, -0.0, 2^53 and its neighbour, the ends of 64 bits, the
empty string, NUL, the last code point, wildcards and quotes as plain text, the first and the last
moment, neighbouring microseconds, moments in other time zones, bytes that look like strings.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from gapless.core.timestamps import EPOCH, FIRST, LAST, MICROSECOND
from gapless.filters.build import calculated, chained, one_of, opposite
from gapless.filters.parse import parse
from gapless.filters.show import show
from gapless.filters.syntax import (
    And,
    Attribute,
    Between,
    Compare,
    Condition,
    Constant,
    Expression,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    Signed,
)

if TYPE_CHECKING:
    from gapless.core.events import Value

NAMES = ("a", "b", "c", "size", "$x", "two words", "and", "Ä.ö", "exists")
NUMBERS: tuple[int | float, ...] = (
    *(-1, 0, 1, 2, 3, 5, 0.5, 1.5, 2.0, -0.0, 7.0, 0.1, 1e300, -1e300),
    *(2**53, 2**53 + 1, float(2**53), 2**63 - 1, -(2**63), 2.0**63),
)
STRINGS = (
    *("", "a", "b", "ab", "abc", "abcab", "ac", "b%", "b_", "it's", "é", "😀x"),
    *("a\0", "a\0\0", "a\U0010ffff", "\U0010ffff", "\ud7ff", "1", "TRUE"),
)
MOMENTS = (
    *(EPOCH, EPOCH + MICROSECOND, EPOCH - MICROSECOND, EPOCH + 3 * MICROSECOND),
    *(FIRST, FIRST + MICROSECOND, LAST - MICROSECOND, LAST),
    *(datetime(2026, 11, 17, 9, tzinfo=UTC), datetime(2255, 6, 5, 23, 47, 34, 740992, UTC)),
    datetime(2255, 6, 5, 23, 47, 34, 740993, UTC),  # 2^53 microseconds, and one more
)
BYTES = (b"", b"\0", b"a", b"a\0", b"a\0\0", b"ab", b"b", b"\xff", b"\xff\xff", b"1")
PATTERNS = (
    "",
    "%",
    "a",
    "a%",
    "ab%",
    "%b",
    "%a%",
    "_",
    "a_",
    "_b%",
    "%a%b%",
    "a%_c",
    "a!%",
    "%_b_%",
)
SIGNS = ("=", "<>", "<", "<=", ">", ">=")


def names() -> st.SearchStrategy[str]:
    # Few names, so that constraints meet on the same attribute.
    return st.one_of(st.sampled_from(NAMES[:3]), st.sampled_from(NAMES))


def literal_numbers() -> st.SearchStrategy[int | float]:
    return st.one_of(
        st.sampled_from(NUMBERS),
        st.integers(-9, 9),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
    )


def texts() -> st.SearchStrategy[str]:
    return st.one_of(
        st.sampled_from(STRINGS),
        st.text(alphabet="ab%_", max_size=4),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    )


def moments() -> st.SearchStrategy[datetime]:
    return st.one_of(
        st.sampled_from(MOMENTS),
        st.integers(-4, 4).map(lambda some: EPOCH + some * MICROSECOND),
        st.datetimes(timezones=st.just(UTC)),
    )


def byte_strings() -> st.SearchStrategy[bytes]:
    return st.one_of(st.sampled_from(BYTES), st.binary(max_size=3))


def literals() -> st.SearchStrategy[Value]:
    known = st.one_of(literal_numbers(), texts(), st.booleans())
    return st.one_of(known, known, moments(), byte_strings())


def values() -> st.SearchStrategy[Value]:
    """What an attribute may hold, beyond what a literal can write."""
    odd = st.sampled_from([float("nan"), float("inf"), float("-inf"), 10**30, -(10**30)])
    east = st.sampled_from(MOMENTS[:2]).map(
        lambda one: one.astimezone(timezone(timedelta(hours=2)))
    )
    return st.one_of(literals(), literals(), literals(), odd, east)


def attribute_maps() -> st.SearchStrategy[dict[str, Value]]:
    """Attributes of an event: some names missing, kinds mixed."""
    return st.dictionaries(names(), values(), max_size=5)


def plain_literal(value: Value) -> Literal:
    return Literal(0.0 if value == 0 and type(value) is float else value)  # no -0.0


@st.composite
def _terms(draw: st.DrawFn) -> Expression:
    match draw(st.integers(0, 3)):
        case 0:
            return plain_literal(draw(literal_numbers()))
        case 1:
            return Signed(draw(st.sampled_from("+-")), Attribute(draw(names())))
        case _:
            return Attribute(draw(names()))


@st.composite
def _expressions(draw: st.DrawFn) -> Expression:
    """One value, or arithmetic of two levels."""
    if draw(st.booleans()):
        return plain_literal(draw(literals())) if draw(st.booleans()) else draw(_terms())
    inner, outer = draw(st.permutations(["+-", "*/%"]))
    tree = draw(_terms())
    for signs in (inner, outer):
        other = draw(_terms())
        pair = [tree, other] if draw(st.booleans()) else [other, tree]
        tree = calculated(pair, [draw(st.sampled_from(signs))])
    return tree


def _comparison(sign: str, left: Expression, right: Expression) -> Condition:
    sides = [side.value for side in (left, right) if isinstance(side, Literal)]
    ordered = sign if not any(isinstance(value, bool) for value in sides) else "="
    return Compare(ordered, left, right)


def _between(value: Expression, low: Expression, high: Expression) -> Condition:
    sides = [side.value for side in (value, low, high) if isinstance(side, Literal)]
    if any(isinstance(side, bool) for side in sides):
        return Compare("<>", value, low)
    return Between(value, low, high)


def _like(operand: Expression, pattern: str, escape: str | None) -> Condition:
    if escape is not None and pattern.endswith("!"):
        pattern += "!"
    return Like(operand, pattern, escape if pattern.count("!") % 2 == 0 or escape is None else None)


def leaves(simple: bool = False) -> st.SearchStrategy[Condition]:
    """Single tests; with `simple`, only those on one attribute against constants."""
    attribute: st.SearchStrategy[Expression] = names().map(Attribute)
    constant: st.SearchStrategy[Expression] = literals().map(plain_literal)
    operand = attribute if simple else st.one_of(attribute, attribute, attribute, _expressions())
    other = constant if simple else st.one_of(constant, constant, constant, _expressions())
    patterns = st.one_of(st.sampled_from(PATTERNS), st.text(alphabet="ab%_", max_size=5))
    return st.one_of(
        st.builds(_comparison, st.sampled_from(SIGNS), operand, other),
        st.builds(_comparison, st.sampled_from(SIGNS), other, operand),
        st.builds(_between, operand, other, other),
        st.builds(
            lambda first, rest, negated: one_of([first, *rest], negated),
            operand,
            st.lists(other, min_size=1, max_size=4),
            st.booleans(),
        ),
        st.builds(_like, operand, patterns, st.sampled_from([None, None, "!"])),
        names().map(IsNull),
        names().map(lambda name: Not(IsNull(name))),
    )


def conditions(simple: bool = False) -> st.SearchStrategy[Condition]:
    """Whole conditions as the parser builds them."""
    parts = leaves(simple)
    if not simple:
        parts = st.one_of(parts, parts, parts, st.booleans().map(Constant))
    return st.recursive(
        parts,
        lambda inner: st.one_of(
            st.lists(inner, min_size=2, max_size=3).map(lambda some: chained(And, some)),
            st.lists(inner, min_size=2, max_size=3).map(lambda some: chained(Or, some)),
            inner.map(opposite),
        ),
        max_leaves=6,
    ).map(lambda condition: parse(show(condition)))


def conjunctions(simple: bool = True) -> st.SearchStrategy[Condition]:
    """ANDs of single tests, none of them negated from outside."""
    return st.lists(leaves(simple), min_size=1, max_size=3).map(
        lambda some: some[0] if len(some) == 1 else chained(And, some)
    )


def filter_texts() -> st.SearchStrategy[str]:
    """The text of a condition."""
    return conditions().map(show)
