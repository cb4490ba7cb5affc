"""Parser: from the text of a condition to its tree, without recursion.

Theory of operation
    Operator precedence with two stacks: `operands` holds finished trees, `pending` the operators
    that still wait for their right-hand side. A binary operator first finishes all pending ones
    that bind at least as tightly. Chains (`AND`, `OR`, `+ -`, `* / %`) collect their terms in one
    pending entry, so a chain of any length is one flat node, built in linear time. An `AND` belongs
    to a `BETWEEN` if a `BETWEEN` with one term is pending.
    Chains of `name sign literal` and lists of literals, which are nearly all of a long condition,
    are read without the stacks (`read_chain`, `read_literals`).

    Precedence, loosest first: OR, AND, NOT, comparisons (= <> < <= > >= BETWEEN IN LIKE IS),
    + -, * / %, signs. Comparisons do not chain.

Source: Jakarta Messaging 3.1, section 3.8.1. Extensions: docs/reference/filter-language.md.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, NoReturn, cast

import msgspec

from gapless.core.errors import FilterError
from gapless.core.timestamps import Timestamp
from gapless.filters.build import Node, calculated, chained, one_of, opposite
from gapless.filters.lexer import (
    BYTES,
    END,
    INTEGER_MAX,
    NAME,
    NUMBER,
    RESERVED,
    STRING,
    TIMESTAMP,
    position_of,
    tokenise,
)
from gapless.filters.like import parse_pattern
from gapless.filters.syntax import (
    EVERYTHING,
    And,
    Arithmetic,
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
    dear_in,
)

if TYPE_CHECKING:
    from gapless.core.events import Value

NESTING_MAX = 100
"""How deep parentheses may stand in one another; beyond it `FilterError`."""

DEAR_MAX = 1_000
"""Calculations, LIKE patterns and comparisons of attributes with each other; beyond it
`FilterError`. No index helps with them: a matcher tries them on every event with the attributes."""

OPEN, OR, AND, NOT, COMPARISON, SUM, PRODUCT, SIGN = range(8)  # how tightly each binds
BINARY = {
    "OR": OR,
    "AND": AND,
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">="), COMPARISON),
    **dict.fromkeys(("+", "-"), SUM),
    **dict.fromkeys(("*", "/", "%"), PRODUCT),
}
TESTS = frozenset(["BETWEEN", "IN", "LIKE", "IS"])
CHAINS = {"AND": AND, "OR": OR}
TRUE = Literal(True)
ORDERED = frozenset([STRING, NUMBER, TIMESTAMP, BYTES])
BOUNDS = frozenset(product(ORDERED, ("AND",), ORDERED))
LITERALS = ORDERED | {"TRUE", "FALSE"}
ENDINGS = frozenset(["AND", "OR", ")", END])
EXISTS = frozenset(map("".join, product(*zip("EXISTS", "exists", strict=True))))
VALUES = (Attribute, Literal, Arithmetic, Signed)


class OpenOperator(msgspec.Struct, gc=False):
    """An operator that waits for its right-hand side, and what it has collected so far."""

    power: int
    kind: str
    place: int  # the token it starts with, its first term included
    terms: list[Node]
    signs: list[str]
    negated: bool = False


def parse(text: str) -> Condition:
    """The tree of a condition. FilterError says where and why the text is refused."""
    parser = _Parser(text)
    condition = EVERYTHING if parser.kinds[0] == END else parser.run()
    if len(text) > DEAR_MAX and dear_in(condition) > DEAR_MAX:
        raise FilterError(
            f"the condition has more than {DEAR_MAX} calculations, patterns and comparisons of "
            "attributes with each other",
            "Publish what is calculated as an attribute, or split it into several subscriptions.",
        )
    return condition


class _Parser:
    __slots__ = ("depth", "index", "kinds", "operands", "pending", "places", "text", "values")

    def __init__(self, text: str) -> None:
        self.text = text
        self.kinds, self.values = tokenise(text)
        self.index = 0
        self.depth = 0
        self.operands: list[Node] = []
        self.places: list[int] = []  # the token each operand starts with, for errors
        self.pending: list[OpenOperator] = []

    def run(self) -> Condition:
        while True:
            self.read_chain()
            self.read_operand()
            while not self.read_operator():
                if self.kinds[self.index - 1] == END:
                    return self.condition()

    # Reading

    def read_chain(self) -> None:
        """Read terms of an AND or OR without the stacks, while they are simple tests."""
        kinds, values, pending, place = self.kinds, self.values, self.pending, self.index
        chain = pending[-1] if pending else None
        while kinds[place] == NAME:
            sign = kinds[place + 1]
            if sign in CHAINS:
                end = place + 1
            elif BINARY.get(sign) == COMPARISON and kinds[place + 2] in ORDERED:
                end = place + 3
            elif sign == "BETWEEN" and tuple(kinds[place + 2 : place + 5]) in BOUNDS:
                end = place + 5
            else:
                break
            power = CHAINS.get(kinds[end])
            if power is None:
                break
            if chain is None or chain.power < power:
                chain = OpenOperator(power, kinds[end], place, [], [])
                pending.append(chain)
            elif chain.power != power:
                break
            name = Attribute(values[place])  # type: ignore[arg-type]  # a NAME is a string
            if end == place + 1:
                chain.terms.append(Compare("=", name, TRUE))
            elif end == place + 5:
                bounds = self.literal(place + 2), self.literal(place + 4)
                chain.terms.append(Between(name, *bounds))
            else:
                chain.terms.append(Compare(sign, name, self.literal(place + 2)))
            place = end + 1
        self.index = place

    def read_operand(self) -> None:
        """Read up to and including the next value, leaving what stands before it pending."""
        pending = self.pending
        while True:
            place = self.index
            kind = self.kinds[place]
            self.index += 1
            if kind == NAME:
                return self.read_name(place)
            if kind in LITERALS:
                return self.push(self.literal(place), place)
            if kind == "(":
                self.open("(", place)
            elif kind == "NOT" and (not pending or pending[-1].power <= NOT):
                if pending and pending[-1].power == NOT:
                    pending.pop()  # NOT NOT is nothing
                else:
                    pending.append(OpenOperator(NOT, "NOT", place, [], []))
            elif kind == "+" or kind == "-":
                if self.read_signs(place):
                    return None
            else:
                self.expected("a value", place)

    def read_name(self, place: int) -> None:
        kinds, name = self.kinds, cast("str", self.values[place])
        follows = kinds[place + 1]
        if BINARY.get(follows) == COMPARISON and kinds[place + 2] in LITERALS:
            if kinds[place + 3] in ENDINGS and (
                not self.pending or self.pending[-1].power < COMPARISON
            ):
                right = self.literal(place + 2)
                if type(right.value) is not bool:
                    self.index += 2
                    return self.push(Compare(follows, Attribute(name), right), place)
        elif (follows == NAME or follows == "(") and name in EXISTS:
            return self.read_exists(place)
        return self.push(Attribute(name), place)

    def read_exists(self, place: int) -> None:
        """`EXISTS name` or `EXISTS (name)`; no attribute could be followed by either."""
        bracket = self.kinds[self.index] == "("
        self.index += bracket
        name = str(self.take(NAME, "the name of an attribute"))
        if bracket:
            self.take(")", ")")
        self.push(Not(IsNull(name)), place)

    def read_signs(self, place: int) -> bool:
        """A run of signs. True if a number followed and took them."""
        self.index = place
        while (kind := self.kinds[self.index]) == "+" or kind == "-":
            self.index += 1
        minuses = self.kinds[place : self.index].count("-")
        value = self.values[self.index]
        beyond = value == (-INTEGER_MAX - 1 if minuses % 2 else INTEGER_MAX + 1)
        if kind == NUMBER and (not beyond or type(value) is float):
            number = cast("int | float", value)
            self.push(Literal((-number if minuses % 2 else number) or number), place)
            self.index += 1
            return True
        for sign in "+" if not minuses else "-" if minuses % 2 else "--":
            self.pending.append(OpenOperator(SIGN, sign, place, [], []))
        return False

    def literal(self, place: int) -> Literal:
        kind, value = self.kinds[place], self.values[place]
        if kind not in ORDERED:
            return Literal(kind == "TRUE")
        if value == INTEGER_MAX + 1 and type(value) is int:
            self.refuse(f"{value} is beyond the range of 64-bit integers", place)
        return Literal(value)

    def read_operator(self) -> bool:
        """Read what follows a value. True if another value must come next."""
        place = self.index
        kind = self.kinds[place]
        self.index += 1
        power = BINARY.get(kind)
        if power is not None:
            self.binary(power, kind)
            return True
        if kind == END:
            self.finish(OR)
            if self.pending:
                self.refuse("this ( is never closed", self.pending[-1].place, "Add the missing ).")
            return False
        if kind == ")" or kind == ",":
            return self.close(kind, place)
        negated = kind == "NOT"
        if negated:
            kind = self.kinds[self.index]
            if kind not in TESTS or kind == "IS":
                self.expected("BETWEEN, IN or LIKE after NOT", self.index)
            self.index += 1
        if kind in TESTS:
            self.finish(COMPARISON)
            return self.read_test(kind, negated)
        if kind == "(" and self.kinds[place - 1] == NAME:
            self.refuse("there are no functions", place)
        return self.expected("an operator such as = or AND", place)

    def read_test(self, kind: str, negated: bool) -> bool:
        """A test after its operand. True if another value must come next."""
        place = self.places[-1]
        operand = self.value()
        if kind == "BETWEEN":
            self.pending.append(OpenOperator(COMPARISON, kind, place, [operand], [], negated))
            return True
        if kind == "IN":
            self.take("(", "( and a list of values")
            listed = self.read_literals()
            if listed is not None:
                self.push(one_of([operand, *listed], negated), place)
                return False
            self.open("IN", place)
            self.pending[-1].terms.append(operand)
            self.pending[-1].negated = negated
            return True
        test = self.read_like(operand) if kind == "LIKE" else self.read_null(operand, place)
        self.push(Not(test) if negated else test, place)
        return False

    def read_literals(self) -> list[Literal] | None:
        """Read the list of an IN and its `)`; None, and nothing is read, if not all are
        literals."""
        kinds, values, place = self.kinds, self.values, self.index
        listed: dict[tuple[type, Value], None] = {}  # without repeats; 1 and 1.0 are two
        while True:
            negative = kinds[place] == "-"
            place += negative
            value, kind = values[place], kinds[place]
            beyond = value == (-INTEGER_MAX - 1 if negative else INTEGER_MAX + 1)
            if kind == NUMBER and not beyond:
                value = (-value if negative else value) or value  # type: ignore[operator]
            elif kind == NUMBER or kind not in ORDERED or negative:
                return None
            listed[value.__class__, value] = None
            place += 2
            if kinds[place - 1] == ")":
                self.index = place
                return [Literal(value) for _, value in listed]
            if kinds[place - 1] != ",":
                return None

    def read_like(self, operand: Expression) -> Condition:
        place = self.index
        pattern, escape = str(self.take(STRING, "a pattern such as 'ab%'")), None
        if self.kinds[self.index] == "ESCAPE":
            self.index += 1
            escape = str(self.take(STRING, "the escape character, such as '!'"))
            if len(escape) != 1:
                self.refuse("ESCAPE takes a string of exactly one character", self.index - 1)
            try:
                parse_pattern(pattern, escape)
            except ValueError as error:
                self.refuse(str(error), place, f"Write {escape}{escape} for the character itself.")
        return Like(operand, pattern, escape)

    def read_null(self, operand: Expression, place: int) -> Condition:
        if not isinstance(operand, Attribute | Literal):
            self.refuse("IS NULL asks for an attribute only", place)
        negated = self.kinds[self.index] == "NOT"
        self.index += negated
        self.take("NULL", "NULL" if negated else "NULL or NOT NULL")
        if isinstance(operand, Literal):
            return Constant(negated)
        return Not(IsNull(operand.name)) if negated else IsNull(operand.name)

    # Building

    def push(self, node: Node, place: int) -> None:
        self.operands.append(node)
        self.places.append(place)

    def open(self, kind: str, place: int) -> None:
        self.depth += 1
        if self.depth > NESTING_MAX:
            self.refuse(f"parentheses are nested deeper than {NESTING_MAX}", self.index - 1)
        self.pending.append(OpenOperator(OPEN, kind, place, [], []))

    def close(self, kind: str, place: int) -> bool:
        """A `)`, or a `,` within the list of an IN. True if another value must come next."""
        self.finish(OR)
        opened = self.pending[-1] if self.pending else None
        if opened is None or (kind == "," and opened.kind != "IN"):
            self.refuse(f"this {kind} belongs to no (", place)
        if opened.kind == "IN":
            opened.terms.append(self.value())
            if kind == ",":
                return True
            terms = cast("list[Expression]", opened.terms)
            self.push(one_of(terms, opened.negated), opened.place)
        self.pending.pop()
        self.depth -= 1
        self.places[-1] = opened.place
        return False

    def binary(self, power: int, kind: str) -> None:
        """Take the finished left-hand side of an operator; a chain goes on where it waits."""
        pending = self.pending
        if power == AND:
            self.finish(SUM)
            if pending and pending[-1].kind == "BETWEEN" and len(pending[-1].terms) == 1:
                pending[-1].terms.append(self.value())
                return
        # Of the same power only comparisons are finished first: they do not chain.
        self.finish(power if power == COMPARISON else power + 1)
        place = self.places[-1]
        term = self.condition() if power <= AND else self.value(power >= SUM)
        if not pending or pending[-1].power != power:
            pending.append(OpenOperator(power, kind, place, [], []))
        pending[-1].terms.append(term)
        pending[-1].signs.append(kind)

    def finish(self, power: int) -> None:
        """Build all that is pending and binds at least as tightly."""
        pending = self.pending
        while pending and pending[-1].power >= power:
            waiting = pending.pop()
            self.push(self.build(waiting), waiting.place)

    def build(self, waiting: OpenOperator) -> Node:
        power, kind = waiting.power, waiting.kind
        if power <= AND:
            conditions = cast("list[Condition]", waiting.terms)
            return chained(And if power == AND else Or, [*conditions, self.condition()])
        if power == NOT:
            return opposite(self.condition())
        terms = cast("list[Expression]", waiting.terms)
        if power == SIGN:
            return Signed(kind, self.value(numeric=True))
        if kind == "BETWEEN":
            if len(terms) == 1:
                self.expected("the AND of BETWEEN", self.index - 1)
            place, high = self.places[-1], self.value()
            for side in terms:
                self.refuse_boolean(side, kind, waiting.place)
            self.refuse_boolean(high, kind, place)
            test = Between(terms[0], terms[1], high)
            return Not(test) if waiting.negated else test
        if power == COMPARISON:
            place, right = self.places[-1], self.value()
            if kind not in ("=", "<>"):
                self.refuse_boolean(terms[0], kind, waiting.place)
                self.refuse_boolean(right, kind, place)
            return Compare(kind, terms[0], right)
        return calculated([*terms, self.value(numeric=True)], waiting.signs)

    def value(self, numeric: bool = False) -> Expression:
        """The last operand, which must be a value."""
        node, place = self.operands.pop(), self.places.pop()
        if numeric and isinstance(node, Literal):
            if isinstance(node.value, Timestamp):
                remedy = "Timestamps can be compared only: at > TIMESTAMP '2026-11-17T09:00:00Z'."
                self.refuse("arithmetic takes numbers only, and no timestamps", place, remedy)
            if isinstance(node.value, str | bool | bytes):
                self.refuse("arithmetic takes numbers only", place)
        if not isinstance(node, VALUES):
            remedy = "Conditions are joined by AND, OR and NOT only."
            self.refuse("this is a condition, where a value is needed", place, remedy)
        return node

    def condition(self) -> Condition:
        """The last operand, which must be a condition. A lone attribute asks for TRUE."""
        node, place = self.operands.pop(), self.places.pop()
        if not isinstance(node, VALUES):
            return node
        if isinstance(node, Attribute):
            return Compare("=", node, TRUE)
        if isinstance(node, Literal) and isinstance(node.value, bool):
            return Constant(node.value)
        remedy = "Compare it with something, as in price > 5."
        return self.refuse("this is a value, where a condition is needed", place, remedy)

    # Refusing

    def take(self, kind: str, wanted: str) -> object:
        if self.kinds[self.index] != kind:
            self.expected(wanted, self.index)
        self.index += 1
        return self.values[self.index - 1]

    def refuse_boolean(self, side: Expression, sign: str, place: int) -> None:
        if isinstance(side, Literal) and isinstance(side.value, bool):
            remedy = "Use = or <>, or the attribute alone."
            self.refuse(f"booleans have no order, so {sign} means nothing", place, remedy)

    def expected(self, wanted: str, place: int) -> NoReturn:
        kind, value, before = self.kinds[place], self.values[place], self.kinds[max(0, place - 1)]
        found = {NAME: f"the name {value!s}", NUMBER: f"the number {value!s}", STRING: "a string"}
        remedy = ""
        if kind == STRING and before == NAME and self.values[place - 1] in ("x", "X"):
            remedy = "Bytes are written X'00FF', without a space."
        if kind == "=" and before == "=":
            remedy = "Write = once to compare."
        elif kind == "*" and before == "/":
            remedy = "A comment ends with */."
        elif kind == "NULL":
            remedy = "NULL equals nothing; ask for it with IS NULL or IS NOT NULL."
        elif kind in RESERVED:
            remedy = f'{kind} is a reserved word; an attribute of that name is written "{value!s}".'
        self.refuse(f"expected {wanted}, found {found.get(kind, kind)}", place, remedy)

    def refuse(self, problem: str, place: int, remedy: str = "") -> NoReturn:
        raise FilterError(problem, remedy, self.text, position_of(self.text, place))
