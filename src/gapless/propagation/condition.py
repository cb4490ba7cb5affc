"""Conditions of single conjunctions: their text on the wire, and back.

Theory of operation
    Brokers send each other one condition for each conjunction. Its text is made from the
    constraints alone, so equal conjunctions have equal text, whoever wrote them and however. A
    bound that no literal can name is written as an expression that yields it: an infinity as a
    product that overflows, the first string after a prefix (which may be no text at all: `\\ud800`)
    by `LIKE`.

    A condition that a neighbour cannot read would cost the link, again and again. So a leaf tries
    each condition out. One that does not survive (too long when written out) is propagated as the
    condition that matches everything: too much is safe.

Invariants
    I1  read(show_conjunction(c)) == c, for every c that `propagated` gives
"""

from __future__ import annotations

from math import isinf
from typing import TYPE_CHECKING

from gapless.core.errors import FilterError, ProtocolError, quoted
from gapless.filters.constraint import (
    Booleans,
    ByteStrings,
    Missing,
    Numbers,
    Present,
    Strings,
    Timestamps,
    prefix_end,
    within,
)
from gapless.filters.matching.shapes import Shapes
from gapless.filters.normal import Conjunction
from gapless.filters.show import show, show_name, show_value

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from gapless.filters.constraint import Constraint, Number, Range
    from gapless.filters.like import Pattern

CONDITIONS_MAX = 1_000_000
"""Conditions in one message; a message with more is refused."""

CONDITIONS_BYTES_MAX = 4 << 20
"""Bytes of one list in a message, which must fit a frame. Beyond it added conditions are written as
`EVERYTHING`, and removed ones are left out: that matches too much, never too little, until a state
is asked for when all of it fits again."""

BYTES_A_CHARACTER_MAX = 4

ESCAPE = "!"
EVERYTHING = "TRUE"
ALL = Conjunction(())


class ConditionReader:
    """Reads conditions of one conjunction each; similar ones are read faster."""

    def __init__(self) -> None:
        self._shapes = Shapes()

    def propagated(self, conjunction: Conjunction) -> Conjunction:
        """The conjunction that stands for this one on the wire: itself, or `ALL`."""
        try:
            return conjunction if self.read(show_conjunction(conjunction)) == conjunction else ALL
        except ProtocolError:
            return ALL

    def read_all(self, *lists: Collection[str]) -> list[list[Conjunction]]:
        """Read the lists of a message; ProtocolError if anything in them is wrong."""
        count = sum(map(len, lists))
        if count > CONDITIONS_MAX:
            raise ProtocolError(
                f"a neighbour propagates {count} conditions, more than {CONDITIONS_MAX}, at once"
            )
        return [list(map(self.read, texts)) for texts in lists]

    def read(self, text: str) -> Conjunction:
        """The conjunction that `text` denotes; ProtocolError if it is not exactly one."""
        try:
            conjunctions = self._shapes.read(text)
        except FilterError as error:
            raise ProtocolError(f"a neighbour propagates what is no condition: {error}") from error
        if len(conjunctions) != 1:
            raise ProtocolError(f"{quoted(text)} is {len(conjunctions)} conjunctions and not one")
        return conjunctions[0]


def show_all(wanted: Iterable[Conjunction]) -> tuple[str, ...]:
    """The conditions of a message, sorted; or one that covers them all, if they are too long."""
    shown = tuple(sorted(map(show_conjunction, wanted)))
    return shown if fits(shown) else (EVERYTHING,)


def show_removed(unwanted: Iterable[Conjunction]) -> tuple[str, ...]:
    """The removed conditions of a message, sorted; none, if they are too long."""
    shown = tuple(sorted(map(show_conjunction, unwanted)))
    return shown if fits(shown) else ()


def fits(shown: Collection[str]) -> bool:
    if len(shown) > CONDITIONS_MAX // 2:
        return False
    return sum(map(len, shown)) * BYTES_A_CHARACTER_MAX <= CONDITIONS_BYTES_MAX or (
        sum(len(each.encode()) for each in shown) <= CONDITIONS_BYTES_MAX
    )


def show_conjunction(conjunction: Conjunction) -> str:
    """The text of a condition that is just this conjunction."""
    tests = [
        test for name, constraint in conjunction.constraints for test in _tests(name, constraint)
    ]
    tests += map(show, conjunction.residuals)
    return " AND ".join(tests) or EVERYTHING


def _tests(attribute: str, constraint: Constraint) -> list[str]:
    name = show_name(attribute)
    match constraint:
        case Missing():
            return [f"{name} IS NULL"]
        case Present():
            return [f"{name} IS NOT NULL"]
        case Booleans(values):
            return [_one_of(name, list(map(show_value, values)))]
        case Numbers():
            return _number_tests(name, constraint)
        case Strings():
            return _string_tests(name, constraint)
        case Timestamps() | ByteStrings():
            return _range_tests(name, constraint)


def _one_of(name: str, listed: list[str]) -> str:
    return f"{name} = {listed[0]}" if len(listed) == 1 else f"{name} IN ({', '.join(listed)})"


def _number_tests(name: str, numbers: Numbers) -> list[str]:
    if numbers.values is not None:
        if not any(map(isinf, numbers.values)):
            return [_one_of(name, list(map(show_value, numbers.values)))]
        alternatives = " OR ".join(f"{name} = {_number(value)}" for value in numbers.values)
        return [f"({alternatives})" if len(numbers.values) > 1 else alternatives]
    low, high = numbers.low, numbers.high
    if not (numbers.low_open or numbers.high_open or isinf(low) or isinf(high)):
        tests = [f"{name} BETWEEN {_number(low)} AND {_number(high)}"]
        return tests + [f"{name} <> {_number(hole)}" for hole in numbers.excluded]
    tests = []
    if not isinf(low) or numbers.low_open:
        tests.append(f"{name} {'>' if numbers.low_open else '>='} {_number(low)}")
    if not isinf(high) or numbers.high_open:
        tests.append(f"{name} {'<' if numbers.high_open else '<='} {_number(high)}")
    tests += [f"{name} <> {_number(hole)}" for hole in numbers.excluded]
    return tests or [f"{name} >= {_number(low)}"]


def _number(number: Number) -> str:
    if isinf(number):
        return "1e308 * 10" if number > 0 else "-1e308 * 10"
    return show_value(number)


def _string_tests(name: str, strings: Strings) -> list[str]:
    if strings.values is not None:
        return [_one_of(name, list(map(show_value, strings.values)))]
    prefix = within(strings.low, strings.high).prefix
    is_prefix = strings.high is not None and prefix_end(prefix) == strings.high
    tests = [f"{name} {_like(prefix)}"] if is_prefix else []
    if strings.low != (prefix if is_prefix else ""):
        tests += _low_tests(name, strings.low)
    if strings.high is not None and not is_prefix:
        tests.append(_high_test(name, strings.high))
    tests += [f"{name} <> {show_value(hole)}" for hole in strings.excluded]
    tests += [f"{name} {_pattern(pattern)}" for pattern in strings.like]
    tests += [f"{name} NOT {_pattern(pattern)}" for pattern in strings.unlike]
    return tests or [f"{name} >= ''"]


def _range_tests(name: str, given: Range) -> list[str]:
    if given.values is not None:
        return [_one_of(name, list(map(show_value, given.values)))]
    first = type(given)().low
    tests = [f"{name} >= {show_value(given.low)}"] if given.low != first else []
    if given.high is not None:
        tests.append(f"{name} < {show_value(given.high)}")
    tests += [f"{name} <> {show_value(hole)}" for hole in given.excluded]
    return tests or [f"{name} >= {show_value(first)}"]


def _low_tests(name: str, low: str) -> list[str]:
    if not _is_surrogate(low[-1]):
        return [f"{name} >= {show_value(low)}"]
    before = _before(low)
    return [f"{name} >= {show_value(before)}", f"{name} NOT {_like(before)}"]


def _high_test(name: str, high: str) -> str:
    if not _is_surrogate(high[-1]):
        return f"{name} < {show_value(high)}"
    before = _before(high)
    return f"({name} < {show_value(before)} OR {name} {_like(before)})"


def _is_surrogate(character: str) -> bool:
    """Is it half a character? It may bound a prefix, but cannot be sent as text."""
    return "\ud800" <= character <= "\udfff"


def _before(end: str) -> str:
    """The prefix whose end this is."""
    return end[:-1] + chr(ord(end[-1]) - 1)


def _like(prefix: str) -> str:
    return _show_like([prefix, None])


def _pattern(pattern: Pattern) -> str:
    return _show_like(pattern.parts)


def _show_like(parts: list[str | None] | tuple[str | None, ...]) -> str:
    pieces = []
    for part in parts:
        literal = part or ""
        for special in (ESCAPE, "%", "_"):
            literal = literal.replace(special, ESCAPE + special)
        pieces.append("%" if part is None else literal or "_")
    text = "".join(pieces)
    plain = all(character not in (part or "") for part in parts for character in ("%", "_"))
    if plain:
        return f"LIKE {show_value(text.replace(ESCAPE * 2, ESCAPE))}"
    return f"LIKE {show_value(text)} ESCAPE {show_value(ESCAPE)}"
