"""Selectors of the test suites of other brokers: what they expect, and where we differ on purpose.

In `peers/*.txt` a line `@ {…}` has the attributes of an event. Of the lines after it, `+` matches
and `-` does not, `!` is refused and `?` is not; `t`, `f` and `u` are true, false or unknown, which
shows in the line itself and in its opposite. Refused counts as not matching.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gapless.core.errors import FilterError
from gapless.filters import Filter
from gapless.filters.matcher import Matcher

FILES = sorted((Path(__file__).parent / "peers").glob("*.txt"))

DIFFERENT = {
    "+ name + '!' = 'James!'",
    "? -354",
    "? -(X or Y)",
    "? -687 or 567",
    "? (354.6)",
    "? A is null and 'hello out there'",
    "+ Not A=17 or B=5.6 {A: text}",
    "+ (A BETWEEN 40 and C) IS NULL",
    "+ (A BETWEEN C and 45) IS NULL",
    "+ 17/4=4",
    "+ (A IN ('hello', 'there', 1 , true, (1-17))) IS NULL",
    "+ ('hell' IN ('hello', 'there', 1 , true, (1-17), A)) IS NULL",
    "! id LIKE '\\n'",
    "! id LIKE '\\r'",
    "! id LIKE '_\\n'",
    "! id LIKE '%\\r'",
    "! id LIKE '!\\r' ESCAPE '!'",
}
"""What docs/reference/filter-language.md says that we do otherwise, and why."""


class PeerCase(NamedTuple):
    """One thing that a broker's own tests expect."""

    line: str
    text: str
    attributes: dict[str, Any]
    expected: str  # "match", "no match", "refused", "accepted"


def cases() -> list[PeerCase]:
    found: list[PeerCase] = []
    for path in FILES:
        attributes: dict[str, Any] = {}
        for line in path.read_text(encoding="utf-8").splitlines():
            kind, text = line[0], line[2:]
            if kind == "@":
                attributes = json.loads(text)
                continue
            if kind == "#":
                continue
            text = text.replace("\\n", "\n").replace("\\r", "\r")
            opposite = f"not({text})"
            known = f"{line} {{A: text}}" if is_text_against_number(line, attributes) else line
            expected = {
                "+": [(text, "match")],
                "-": [(text, "no match")],
                "!": [(text, "refused")],
                "?": [(text, "accepted")],
                "t": [(text, "match"), (opposite, "no match")],
                "f": [(text, "no match"), (opposite, "match")],
                "u": [(text, "no match"), (opposite, "no match")],
            }[kind]
            found += [PeerCase(known, each, attributes, outcome) for each, outcome in expected]
    return found


def is_text_against_number(line: str, attributes: dict[str, Any]) -> bool:
    return line == "+ Not A=17 or B=5.6" and isinstance(attributes["A"], str)


def agrees(case: PeerCase) -> bool:
    try:
        condition = Filter.parse(case.text)
    except FilterError:
        return case.expected in ("refused", "no match")
    match case.expected:
        case "refused":
            return False
        case "accepted":
            return True
        case outcome:
            return condition.matches(case.attributes) == (outcome == "match")


CASES = cases()


def test_all_agree_but_those_that_the_page_explains() -> None:
    wrong = {case.line for case in CASES if not agrees(case)}
    assert wrong == DIFFERENT
    count = sum(not agrees(case) for case in CASES)
    assert (len(CASES), count) == (893, 17)
    assert count <= 0.02 * len(CASES), "98 in 100 agree"


@pytest.mark.parametrize("engine", ["python", "compiled"])
def test_the_matcher_says_what_evaluation_says(engine: Any) -> None:
    """All selectors of a file in one matcher, against every event of the file."""
    matcher: Matcher[int] = Matcher(engine=engine)
    conditions: dict[int, Filter] = {}
    for number, case in enumerate(CASES):
        try:
            conditions[number] = Filter.parse(case.text)
        except FilterError:
            continue
        matcher.add(number, conditions[number])
    events = list({json.dumps(case.attributes): case.attributes for case in CASES}.values())
    expected = {
        (place, number)
        for place, event in enumerate(events)
        for number, condition in conditions.items()
        if condition.matches(event)
    }
    assert set(matcher.match_batch(events)) == expected
