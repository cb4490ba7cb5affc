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

import msgspec

from gapless.core.errors import FilterError
from gapless.filters.algebra import includes, intersect, unite
from gapless.filters.constraint import Constraint, Numbers, Strings
from gapless.filters.leaf import ALWAYS, NEVER, Draft, read_leaf
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

CONJUNCTIONS_MAX = 1_000
"""How many alternatives a condition may have on the way to its normal form."""

WORK_MAX = 200_000
"""How many constraints may be combined on the way, and values held against patterns; some tenths of
a second."""

DEAR_WEIGHT = 10
"""What a test counts for in that which no index helps with: an event may pay for it in each
alternative."""

TIDY_MAX = 64
"""Above this many conjunctions, those covered by others are kept: harmless, and quadratic."""

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
    """Does it surely have one alternative, soon found, so that nobody needs to try it out?"""
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
    return values * patterns <= WORK_MAX


def push_negation(condition: Condition, negated: bool = False) -> Condition:
    """The same with NOT only before IN, LIKE and IS NULL, and without BETWEEN."""
    match condition:
        case Compare(sign, left, right):
            return Compare(OPPOSITE[sign], left, right) if negated else condition
        case Constant(value):
            return Constant(value != negated)
        case Not(operand):
            return push_negation(operand, not negated)
        case Between(operand, low, high):
            both = And((Compare(">=", operand, low), Compare("<=", operand, high)))
            return push_negation(both, negated)
        case And(operands) | Or(operands):
            pushed: list[Condition] = []
            kind = And if isinstance(condition, And) != negated else Or
            for operand in operands:
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
    listed: dict[str, dict[Literal, None]] = {}
    for operand in operands:
        match operand:
            case Compare("=", Attribute(name), Literal() as value):
                listed.setdefault(name, {})[value] = None
            case Compare("=", Literal() as value, Attribute(name)):
                listed.setdefault(name, {})[value] = None
            case In(Attribute(name), values):
                listed.setdefault(name, {}).update(dict.fromkeys(values))
            case _:
                rest.append(operand)
    sets = [In(Attribute(name), tuple(values)) for name, values in listed.items()]
    return Or((*sets, *rest)) if len(sets) + len(rest) > 1 else [*sets, *rest][0]


class _Expansion:
    """One condition being multiplied out, with the work that took so far."""

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
        single: list[Draft] = []
        for operand in condition.operands:
            alternatives = self.expand(operand)
            if not alternatives:
                return NEVER
            if len(alternatives) == 1:
                single.append(alternatives[0])
            else:
                several.append(alternatives)
        result = self.meet(single)
        for alternatives in sorted(several, key=len):
            result = self.multiply(result, alternatives)
        return result

    def multiply(self, ones: list[Draft], others: list[Draft]) -> list[Draft]:
        product: list[Draft] = []
        for one in ones:
            for other in others:
                product.extend(self.meet([one, other]))
                self.spend(_weight(one) + _weight(other), len(product))
        return product

    def meet(self, drafts: list[Draft]) -> list[Draft]:
        """The one conjunction that demands all of these, or none if it is impossible."""
        if len(drafts) == 1:
            return drafts
        demands: dict[str, list[Constraint]] = {}
        residuals: list[Condition] = []
        for constraints, others in drafts:
            for name, constraint in constraints.items():
                demands.setdefault(name, []).append(constraint)
            residuals.extend(others)
        if not demands and not residuals:
            return ALWAYS
        result: dict[str, Constraint] = {}
        for name, wanted in demands.items():
            if len(wanted) > 1:
                self.spend(_trials(wanted))
            met = intersect(wanted)
            if met is None:
                return NEVER
            result[name] = met
        return [(result, tuple(residuals))]

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


def _weight(draft: Draft) -> int:
    weight = 1
    for constraint in draft[0].values():
        weight += 1
        if isinstance(constraint, Numbers | Strings):
            weight += len(constraint.values or constraint.excluded)
        if isinstance(constraint, Strings):
            patterns = (*constraint.like, *constraint.unlike)
            weight += sum(DEAR_WEIGHT + len(pattern.parts) for pattern in patterns)
    return weight + DEAR_WEIGHT * sum(map(dear_in, draft[1]))


def _trials(wanted: list[Constraint]) -> int:
    """How often a value is held against a pattern where these are intersected, at most."""
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
    return Conjunction(tuple(sorted(constraints.items(), key=lambda pair: pair[0])), residuals)


def _joined(conjunctions: list[Conjunction]) -> list[Conjunction]:
    """Those that differ in one attribute only, joined where their union is one constraint."""
    names = {name for one in conjunctions for name, _ in one.constraints}
    size = sum(len(one.constraints) for one in conjunctions)
    if size * len(names) > WORK_MAX // 10:
        return conjunctions
    for name in sorted(names):
        alike: dict[Conjunction, list[Constraint | None]] = {}
        for one in conjunctions:
            rest = tuple(pair for pair in one.constraints if pair[0] != name)
            constraint = next((found for other, found in one.constraints if other == name), None)
            alike.setdefault(Conjunction(rest, one.residuals), []).append(constraint)
        conjunctions = []
        for rest_of, found in alike.items():
            bound = [constraint for constraint in found if constraint is not None]
            if len(bound) < len(found):  # one of them leaves the attribute free
                conjunctions.append(rest_of)
                continue
            for constraint in unite(bound) if len(bound) > 1 else bound:
                pairs = sorted([*rest_of.constraints, (name, constraint)], key=lambda pair: pair[0])
                conjunctions.append(Conjunction(tuple(pairs), rest_of.residuals))
    return conjunctions


def _without_covered(conjunctions: list[Conjunction]) -> list[Conjunction]:
    if len(conjunctions) > TIDY_MAX:
        return conjunctions
    return [
        one
        for one in conjunctions
        if not any(other is not one and other.covers(one) for other in conjunctions)
    ]
