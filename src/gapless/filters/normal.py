"""Normal form: a condition as alternatives, each a conjunction of constraints on one attribute.

Theory of operation
    NOT goes down to the leaves, which is exact in three-valued logic: the opposite of a
    comparison is UNKNOWN wherever the comparison is. From there on only "is it TRUE" counts.
    AND intersects constraints per attribute and multiplies alternatives, OR collects them.
    Impossible alternatives are dropped as soon as they arise, so what multiplies on paper often
    does not in fact: ten `a NOT LIKE 'x%'` leave eleven intervals, not a thousand.
    Last, alternatives that differ in one attribute only are joined where the union is again one
    constraint (`a = 1 OR a = 2`), and those that another one covers are dropped.
    What is no constraint on one attribute (`a + b > c`) is a residual, kept beside them.

Invariants
    I1  a conjunction has at most one constraint per attribute, sorted by name; residuals are
        sorted by their text, without repeats
    I2  conjunctions that cover each other are equal, and none is there twice

Cost
    One pass over a plain conjunction. Else bounded by CONJUNCTIONS_MAX and WORK_MAX; a condition
    that goes beyond is refused. The tidying up at the end is quadratic, so it has its own bounds.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

import msgspec

from gapless.core.errors import FilterError
from gapless.filters.algebra import includes, intersect, unite
from gapless.filters.constraint import Constraint, Numbers, Range, Strings
from gapless.filters.leaf import NEVER, Draft, read_leaf
from gapless.filters.show import show
from gapless.filters.syntax import (
    And,
    Attribute,
    Between,
    Compare,
    Condition,
    Constant,
    In,
    Like,
    Literal,
    Not,
    Or,
    dear_in,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gapless.core.events import Value

CONJUNCTIONS_MAX = 1_000
"""How many alternatives a condition may have on the way to its normal form."""

WORK_MAX = 60_000
"""How many constraints may be combined on the way. The normal form may hold as many, and a matcher
needs about a microsecond for each when the filter is added."""

TRIALS_EACH = 4
"""How many values are held against a pattern in the time that it takes to combine constraints."""

DEAR_WEIGHT = 4
"""The weight of a test that no index helps with: an event may pay for it in each alternative."""

JOIN_MAX = 20_000
"""Constraints times attributes up to which conjunctions that differ in one attribute are joined."""

COVER_MAX = 10_000
"""Conjunctions times their weight up to which those that others cover are dropped. Above it they
stay: that is harmless, and the search is quadratic."""

NAME = itemgetter(0)  # of a pair of attribute and constraint

OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


class Conjunction(msgspec.Struct, frozen=True, gc=False):
    """All of `constraints` and all of `residuals`. With neither, it matches everything."""

    constraints: tuple[tuple[str, Constraint], ...]
    residuals: tuple[Condition, ...] = ()

    def covers(self, other: Conjunction) -> bool:
        """Does this surely match all that `other` matches?"""
        theirs = dict(other.constraints)
        for name, constraint in self.constraints:
            narrow = theirs.get(name)
            if narrow is None or not includes(constraint, narrow):
                return False
        return not self.residuals or set(self.residuals) <= set(other.residuals)


def normalise(condition: Condition) -> tuple[Conjunction, ...]:
    """The alternatives: () matches nothing, one empty conjunction everything.

    FilterError if there are too many.
    """
    drafts = _Expansion().expand(push_negation(condition))
    if len(drafts) <= 1:
        return tuple(map(_finished, drafts))
    return tuple(_without_covered(_joined(list(dict.fromkeys(map(_finished, drafts))))))


def is_plain(condition: Condition) -> bool:
    """Does the condition surely have one alternative that is found quickly?"""
    values = patterns = 0
    for operand in condition.operands if isinstance(condition, And) else (condition,):
        if isinstance(operand, And | Or | Not):
            return False
        if isinstance(operand, In):
            if len({type(one.value) for one in operand.values}) > 1:
                return False
            values += len(operand.values)
        elif isinstance(operand, Like):
            patterns += 1
        else:
            values += 1
    return values * patterns // TRIALS_EACH <= WORK_MAX


def push_negation(condition: Condition, negated: bool = False) -> Condition:
    """The condition with NOT only before IN, LIKE and IS NULL, and BETWEEN only with literals."""
    match condition:
        case Compare():
            if not negated:
                return condition
            return Compare(OPPOSITE[condition.sign], condition.left, condition.right)
        case Constant(value):
            return Constant(value != negated)
        case Not(operand):
            return push_negation(operand, not negated)
        case Between(Attribute(), Literal(), Literal()) if not negated:
            return condition
        case Between(operand, low, high):
            both = And((Compare(">=", operand, low), Compare("<=", operand, high)))
            return push_negation(both, negated)
        case And(operands) | Or(operands):
            pushed: list[Condition] = []
            kind = And if isinstance(condition, And) != negated else Or
            for operand in operands:
                if operand.__class__ is Compare and not negated:  # nearly all
                    pushed.append(operand)
                    continue
                one = push_negation(operand, negated)
                if isinstance(one, kind):
                    pushed.extend(one.operands)
                else:
                    pushed.append(one)
            return And(tuple(pushed)) if kind is And else _or_of(pushed)
        case _:
            return Not(condition) if negated else condition


def _or_of(operands: list[Condition]) -> Condition:
    """An OR in which the equalities of one attribute are one IN: a long list stays one test."""
    rest: list[Condition] = []
    listed: dict[str, dict[tuple[type, Value], None]] = {}  # without repeats; 1 and 1.0 are two
    for operand in operands:
        match operand:
            case Compare("=", Attribute(name), Literal(value)):
                listed.setdefault(name, {})[value.__class__, value] = None
            case Compare("=", Literal(value), Attribute(name)):
                listed.setdefault(name, {})[value.__class__, value] = None
            case In(Attribute(name), values):
                of_name = listed.setdefault(name, {})
                of_name.update(((one.value.__class__, one.value), None) for one in values)
            case _:
                rest.append(operand)
    sets = [
        In(Attribute(name), tuple([Literal(value) for _, value in values]))
        for name, values in listed.items()
    ]
    return Or((*sets, *rest)) if len(sets) + len(rest) > 1 else [*sets, *rest][0]


class _Expansion:
    """The expansion of one condition, and the work that it has taken so far."""

    def __init__(self) -> None:
        self.work = 0

    def expand(self, condition: Condition) -> list[Draft]:
        if isinstance(condition, Or):
            drafts: list[Draft] = []
            for operand in condition.operands:
                drafts.extend(self.expand(operand))
                self.spend(1, len(drafts))
            return drafts
        if not isinstance(condition, And):
            return read_leaf(condition)
        several: list[list[Draft]] = []
        demands: dict[str, list[Constraint]] = {}
        residuals: list[Condition] = []
        for operand in condition.operands:
            alternatives = self.expand(operand)
            if not alternatives:
                return NEVER
            if len(alternatives) > 1:
                several.append(alternatives)
                continue
            [(constraints, others)] = alternatives
            for name, constraint in constraints.items():
                demands.setdefault(name, []).append(constraint)
            residuals.extend(others)
        result = self.meet_all(demands, residuals)
        for alternatives in sorted(several, key=len):
            result = self.multiply(result, alternatives)
        return result

    def meet_all(
        self, demands: dict[str, list[Constraint]], residuals: list[Condition]
    ) -> list[Draft]:
        """The one conjunction that demands all of this, or none if it is impossible."""
        result: dict[str, Constraint] = {}
        for name, wanted in demands.items():
            met = self.meet(wanted)
            if met is None:
                return NEVER
            result[name] = met
        return [(result, tuple(residuals))]

    def meet(self, wanted: Sequence[Constraint]) -> Constraint | None:
        """What meets all of these; None if nothing does."""
        if len(wanted) == 1:
            return wanted[0]
        self.spend(_trials(wanted) // TRIALS_EACH)
        return intersect(wanted)

    def multiply(self, ones: list[Draft], others: list[Draft]) -> list[Draft]:
        product: list[Draft] = []
        weights = [_weight(constraints.values(), residuals) for constraints, residuals in others]
        for one in ones:
            weight = _weight(one[0].values(), one[1])
            for other, more in zip(others, weights, strict=True):
                both = self.join(one, other)
                if both is not None:
                    product.append(both)
                self.spend(weight + more, len(product))
        return product

    def join(self, one: Draft, other: Draft) -> Draft | None:
        """The conjunction of both, made from a copy of the longer one; None if it is impossible."""
        few, many = (one[0], other[0]) if len(one[0]) < len(other[0]) else (other[0], one[0])
        result = many.copy()
        for name, constraint in few.items():
            met = self.meet((constraint, many[name])) if name in many else constraint
            if met is None:
                return None
            result[name] = met
        return result, one[1] + other[1]

    def spend(self, work: int, count: int = 0) -> None:
        self.work += work
        if count > CONJUNCTIONS_MAX or self.work > WORK_MAX:
            raise FilterError(
                f"this multiplies out to too many alternatives; {CONJUNCTIONS_MAX} at most"
                if count > CONJUNCTIONS_MAX
                else "this multiplies out to too much work",
                "Simplify it: fewer ORs that are joined by AND, fewer patterns beside long lists, "
                "or several subscriptions.",
            )


def _weight(constraints: Iterable[Constraint], residuals: Sequence[Condition]) -> int:
    """What it costs to go through a conjunction: its values, patterns and calculations."""
    weight = 1
    for constraint in constraints:
        weight += 1
        if isinstance(constraint, Numbers | Strings | Range):
            weight += len(constraint.values or constraint.excluded)
        if isinstance(constraint, Strings):
            for pattern in (*constraint.like, *constraint.unlike):
                weight += DEAR_WEIGHT + sum(len(part or "_") for part in pattern.parts) // 8
    return weight + DEAR_WEIGHT * sum(map(dear_in, residuals))


def _trials(wanted: Sequence[Constraint]) -> int:
    """How often, at most, the intersection of these tests a value against a pattern."""
    patterns = holes = 0
    values: int | None = None
    for one in wanted:
        if isinstance(one, Strings):
            patterns += len(one.like) + len(one.unlike)
            holes += len(one.excluded)
            if one.values is not None:
                values = len(one.values) if values is None else min(values, len(one.values))
    return patterns * (holes if values is None else values)


def _finished(draft: Draft) -> Conjunction:
    constraints, residuals = draft
    if len(residuals) > 1:
        texts = {show(residual): residual for residual in residuals}
        residuals = tuple(texts[text] for text in sorted(texts))
    return Conjunction(tuple(sorted(constraints.items(), key=NAME)), residuals)


def _joined(conjunctions: list[Conjunction]) -> list[Conjunction]:
    """Join conjunctions that differ in one attribute only, where the union is one constraint."""
    names = {name for one in conjunctions for name, _ in one.constraints}
    size = sum(len(one.constraints) for one in conjunctions)
    if size * len(names) > JOIN_MAX:
        return conjunctions
    for name in sorted(names):
        alike: dict[Conjunction, list[tuple[Conjunction, Constraint | None]]] = {}
        for one in conjunctions:
            rest = tuple([pair for pair in one.constraints if pair[0] != name])
            constraint = dict(one.constraints).get(name)
            alike.setdefault(Conjunction(rest, one.residuals), []).append((one, constraint))
        conjunctions = []
        for rest_of, found in alike.items():
            bound = [constraint for _, constraint in found if constraint is not None]
            if len(bound) < len(found):  # one of them leaves the attribute free
                conjunctions.append(rest_of)
            elif len(found) == 1:
                conjunctions.append(found[0][0])
            else:
                for union in unite(bound):
                    pairs = sorted([*rest_of.constraints, (name, union)], key=NAME)
                    conjunctions.append(Conjunction(tuple(pairs), rest_of.residuals))
    return conjunctions


def _without_covered(conjunctions: list[Conjunction]) -> list[Conjunction]:
    if len(conjunctions) ** 2 > COVER_MAX:
        return conjunctions
    weights = (_weight(dict(one.constraints).values(), one.residuals) for one in conjunctions)
    if sum(weights) * len(conjunctions) > COVER_MAX:
        return conjunctions
    return [
        one
        for one in conjunctions
        if not any(other is not one and other.covers(one) for other in conjunctions)
    ]
