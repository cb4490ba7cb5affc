"""Syntax: the tree of a condition. Plain frozen values; they do nothing.

Theory of operation
    Two families: an `Expression` stands for a value, a `Condition` for TRUE, FALSE or UNKNOWN.
    Chains are flat: `a AND b AND c` is one `And` of three, `a + b - c` one `Arithmetic` of three,
    so that the depth of a tree is bounded by the nesting of its parentheses.
    The parser has one form for what means the same: `NOT NOT c` is `c`, `EXISTS a` and
    `a IS NOT NULL` are `Not(IsNull(a))`, a lone attribute `a` is `a = TRUE`, and `x IN (…)` over
    other than literals is the `Or` of its comparisons.

Invariants
    I1  `And` and `Or` have two or more operands, none of them of the same class
    I2  the operand of `Not` is no `Not` and no `Constant`
    I3  the signs within one `Arithmetic` have one precedence, and its first term has another
"""

from __future__ import annotations

import msgspec

from gapless.core.events import Value


class Attribute(msgspec.Struct, frozen=True, gc=False):
    """The value of an attribute; NULL where there is none."""

    name: str


class Literal(msgspec.Struct, frozen=True, gc=False, eq=False):
    """A constant. `1`, `1.0` and `TRUE` differ, though Python holds them equal."""

    value: Value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Literal):
            return NotImplemented
        return type(self.value) is type(other.value) and self.value == other.value

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


class Signed(msgspec.Struct, frozen=True, gc=False):
    """A sign, `+` or `-`, before a value. Signed literals are literals, not this."""

    sign: str
    operand: Expression


class Arithmetic(msgspec.Struct, frozen=True, gc=False):
    """`first`, then each of `rest` applied from left to right: all `+ -`, or all `* / %`."""

    first: Expression
    rest: tuple[tuple[str, Expression], ...]


Expression = Attribute | Literal | Signed | Arithmetic


class Constant(msgspec.Struct, frozen=True, gc=False):
    """TRUE or FALSE."""

    value: bool


class Compare(msgspec.Struct, frozen=True, gc=False):
    """`left sign right`, the sign being one of `= <> < <= > >=`."""

    sign: str
    left: Expression
    right: Expression


class Between(msgspec.Struct, frozen=True, gc=False):
    """`operand >= low AND operand <= high`."""

    operand: Expression
    low: Expression
    high: Expression


class In(msgspec.Struct, frozen=True, gc=False):
    """`operand` equals one of the literals (no two of them alike)."""

    operand: Expression
    values: tuple[Literal, ...]


class Like(msgspec.Struct, frozen=True, gc=False):
    """`operand` is a string like `pattern`, as written, with `escape` or without."""

    operand: Expression
    pattern: str
    escape: str | None = None


class IsNull(msgspec.Struct, frozen=True, gc=False):
    """The attribute is missing. Never UNKNOWN."""

    name: str


class Not(msgspec.Struct, frozen=True, gc=False):
    """TRUE and FALSE exchanged; UNKNOWN stays."""

    operand: Condition


class And(msgspec.Struct, frozen=True, gc=False):
    """FALSE if any operand is, else UNKNOWN if any is, else TRUE."""

    operands: tuple[Condition, ...]


class Or(msgspec.Struct, frozen=True, gc=False):
    """TRUE if any operand is, else UNKNOWN if any is, else FALSE."""

    operands: tuple[Condition, ...]


Condition = Constant | Compare | Between | In | Like | IsNull | Not | And | Or

PLACES_EACH = 8
"""For this many `%` in it, a pattern counts once more among the dear tests."""

EVERYTHING = Constant(True)
"""The empty condition."""


def names_in(root: Condition | Expression) -> set[str]:
    """The attributes that a condition or an expression reads."""
    names: set[str] = set()
    open_nodes: list[Condition | Expression] = [root]
    while open_nodes:
        match open_nodes.pop():
            case Attribute(name) | IsNull(name):
                names.add(name)
            case Signed(_, operand) | Not(operand) | In(operand) | Like(operand):
                open_nodes.append(operand)
            case Arithmetic(first, rest):
                open_nodes.extend([first, *(term for _, term in rest)])
            case Compare(_, left, right):
                open_nodes.extend([left, right])
            case Between(operand, low, high):
                open_nodes.extend([operand, low, high])
            case And(operands) | Or(operands):
                open_nodes.extend(operands)
            case Constant() | Literal():
                pass
    return names


def dear_in(root: Condition) -> int:
    """How many calculations, patterns, and comparisons that are not with a literal, it has.

    A pattern with many `%` counts several times.
    """
    count = 0
    open_nodes: list[Condition | Expression] = [root]
    while open_nodes:
        node = open_nodes.pop()
        if node.__class__ is Compare and node.right.__class__ is Literal:
            node = node.left  # nearly all there is
            if node.__class__ is Attribute:
                continue
        match node:
            case Arithmetic(first, rest):
                count += len(rest)
                open_nodes.extend([first, *(term for _, term in rest)])
            case Signed(_, operand):
                count += 1
                open_nodes.append(operand)
            case Like(operand, pattern):
                count += 1 + pattern.count("%") // PLACES_EACH
                open_nodes.append(operand)
            case Compare(_, left, right):
                count += not (isinstance(left, Literal) or isinstance(right, Literal))
                open_nodes.extend([left, right])
            case Between(operand, low, high):
                if not isinstance(operand, Literal):
                    count += (not isinstance(low, Literal)) + (not isinstance(high, Literal))
                open_nodes.extend([operand, low, high])
            case In(operand) | Not(operand):
                open_nodes.append(operand)
            case And(operands) | Or(operands):
                open_nodes.extend(operands)
            case Constant() | Literal() | Attribute() | IsNull():
                pass
    return count
