"""Parser: precedence and every construct, by the canonical text; refusals, by place and words."""

from __future__ import annotations

import pytest

from gapless.core.errors import FilterError
from gapless.filters.parse import DEAR_MAX, NESTING_MAX, parse
from gapless.filters.show import show
from gapless.filters.syntax import And, Arithmetic, Compare, In, Or


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("", "TRUE"),
        (" \n\t ", "TRUE"),
        ("a", "a = TRUE"),
        ("not a", "NOT a = TRUE"),
        ("NOT NOT a", "a = TRUE"),
        ("NOT (NOT (a = 1))", "a = 1"),
        ("NOT TRUE", "FALSE"),
        ("a = 1 OR b = 2 AND NOT c = 3", "a = 1 OR b = 2 AND NOT c = 3"),
        ("(a = 1 OR b = 2) AND c = 3", "(a = 1 OR b = 2) AND c = 3"),
        ("a = 1 AND (b = 2 AND (c = 3))", "a = 1 AND b = 2 AND c = 3"),
        ("NOT (a = 1 AND b = 2)", "NOT (a = 1 AND b = 2)"),
        ("((a)) = ((1))", "a = 1"),
        ("a+b*c-d > 1", "a + b * c - d > 1"),
        ("(a+b)*c > 1", "(a + b) * c > 1"),
        ("(a+b)+c > 1", "a + b + c > 1"),
        ("a-(b-c) > 1", "a - (b - c) > 1"),
        ("a*(b*c)/d%e > 1", "a * (b * c) / d % e > 1"),
        ("-a*b > -(a+b)", "- a * b > -(a + b)"),
        ("- - a > +b", "- - a > + b"),
        ("- - - - a > 1", "- - a > 1"),
        ("a > --5 - -5", "a > 5 - -5"),
        ("a > -0.0", "a > 0.0"),
        ("a >= -9223372036854775808", "a >= -9223372036854775808"),
        ("a BETWEEN 1 AND 2 AND b", "a BETWEEN 1 AND 2 AND b = TRUE"),
        ("a NOT BETWEEN b+1 AND c*2 OR d", "a NOT BETWEEN b + 1 AND c * 2 OR d = TRUE"),
        ("NOT a BETWEEN 1 AND 2", "a NOT BETWEEN 1 AND 2"),
        ("a BETWEEN (1) AND (2)", "a BETWEEN 1 AND 2"),
        ("a IN ('x')", "a IN ('x')"),
        ("a NOT IN ('x', 'it''s', 'x')", "a NOT IN ('x', 'it''s')"),
        ("a IN (1, -2, 3.5, TRUE, 'x', 1.0)", "a IN (1, -2, 3.5, TRUE, 'x', 1.0)"),
        ("a IN (b, c + 1)", "a = b OR a = c + 1"),
        ("a NOT IN (b)", "NOT a = b"),
        ("a IN (1, (2), (b))", "a = 1 OR a = 2 OR a = b"),
        ("a LIKE 'x%'", "a LIKE 'x%'"),
        ("a not like 'x!_' escape '!'", "a NOT LIKE 'x!_' ESCAPE '!'"),
        ("a IS NULL", "a IS NULL"),
        ("a is not null", "a IS NOT NULL"),
        ("NOT a IS NULL", "a IS NOT NULL"),
        ("EXISTS a AND exists(b)", "a IS NOT NULL AND b IS NOT NULL"),
        ("exists AND NOT exists", "exists = TRUE AND NOT exists = TRUE"),
        ("exists exists", "exists IS NOT NULL"),
        ("a != 1", "a <> 1"),
        ("5 < a", "5 < a"),
        ('"a b" = 1 AND "Null" = 2 AND "x" = 3', '"a b" = 1 AND "Null" = 2 AND x = 3'),
        ("1 = 1 /* always */", "1 = 1"),
        ("a = 1 AND TRUE", "a = 1 AND TRUE"),
        ("a = TRUE AND b <> FALSE", "a = TRUE AND b <> FALSE"),
        ("0x1F < a AND a < 017", "31 < a AND a < 15"),
        ("a = 'x' OR (b = 1 OR c = 2)", "a = 'x' OR b = 1 OR c = 2"),
    ],
)
def test_texts_and_their_canonical_form(text: str, canonical: str) -> None:
    condition = parse(text)
    assert show(condition) == canonical
    assert parse(canonical) == condition


@pytest.mark.parametrize(
    ("text", "position", "problem"),
    [
        ("a =", 3, "expected a value, found end of condition"),
        ("= TRUE", 0, "expected a value, found ="),
        ("a == 1", 3, "expected a value, found ="),
        ("a = 1 b", 6, "expected an operator such as = or AND, found the name b"),
        ("a = 1 5", 6, "found the number 5"),
        ("a 'x'", 2, "found a string"),
        ("a AND", 5, "expected a value, found end"),
        ("a = 1 AND OR b", 10, "expected a value, found OR"),
        ("(a = 1", 0, "this ( is never closed"),
        ("a = 1)", 5, "this ) belongs to no ("),
        ("a = (1, 2)", 6, "this , belongs to no ("),
        ("()", 1, "expected a value, found )"),
        ("a BETWEEN 1", 11, "expected the AND of BETWEEN, found end"),
        ("a BETWEEN 1 OR 2", 12, "expected the AND of BETWEEN, found OR"),
        ("a IN 1", 5, "expected ( and a list of values, found the number 1"),
        ("a IN ()", 6, "expected a value, found )"),
        ("a IN (1,)", 8, "expected a value, found )"),
        ("a IN (1", 0, "never closed"),
        ("a LIKE b", 7, "expected a pattern such as 'ab%', found the name b"),
        ("a LIKE 'x' ESCAPE 'ab'", 18, "exactly one character"),
        ("a LIKE 'x' ESCAPE ''", 18, "exactly one character"),
        ("a LIKE 'x!' ESCAPE '!'", 7, "must not end in its escape character"),
        ("a IS 5", 5, "expected NULL or NOT NULL"),
        ("a IS NOT 5", 9, "expected NULL, found"),
        ("a + 5 IS NULL", 0, "asks for an attribute only"),
        ("a NOT 5", 6, "expected BETWEEN, IN or LIKE after NOT"),
        ("a NOT IS NULL", 6, "expected BETWEEN, IN or LIKE after NOT"),
        ("a = NULL", 4, "expected a value, found NULL"),
        ("a = NOT b", 4, "expected a value, found NOT"),
        ("3 + 5", 0, "this is a value, where a condition is needed"),
        ("TRUE AND 3 + 5", 9, "this is a value"),
        ("a - 1 AND b", 0, "this is a value"),  # found by fuzzing
        ("'x'", 0, "this is a value"),
        ("NOT 5", 4, "this is a value"),
        ("a = 1 = 2", 0, "this is a condition, where a value is needed"),
        ("1 < a < 2", 0, "this is a condition"),
        ("b AND (a = 1) + 2 > 3", 6, "this is a condition"),
        ("(a = 1) IN (1)", 0, "this is a condition"),
        ("a > TRUE", 4, "booleans have no order"),
        ("FALSE <= a", 0, "booleans have no order"),
        ("x * 2 BETWEEN -1 AND FALSE", 21, "booleans have no order"),
        ("x NOT BETWEEN TRUE AND 5", 0, "booleans have no order"),
        ("a = 'x' + 1", 4, "arithmetic takes numbers only"),
        ("-'x' = a", 1, "arithmetic takes numbers only"),
        ("a * TRUE = 1", 4, "arithmetic takes numbers only"),
        ("a = 9223372036854775808", 4, "beyond the range of 64-bit"),
        ("a = +9223372036854775808", 5, "beyond the range of 64-bit"),
        ("a = - -9223372036854775808", 7, "beyond the range of 64-bit"),
        ("upper(a) = 'X'", 5, "no functions"),
        ("EXISTS 5", 7, "an operator"),
        ("EXISTS (5)", 8, "expected the name of an attribute"),
        ("EXISTS (a", 9, "expected ), found end"),
        ("a /* b", 3, "expected a value, found *"),
        ("and = 1", 0, "expected a value, found AND"),
    ],
)
def test_refusals_name_the_place_and_what_was_expected(
    text: str, position: int, problem: str
) -> None:
    with pytest.raises(FilterError) as caught:
        parse(text)
    assert problem in caught.value.problem
    assert caught.value.position == position
    assert str(caught.value).splitlines()[-1] == "  " + " " * position + "^"


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("a == 1", "= once"),
        ("a = NULL", "IS NULL"),
        ("a > TRUE", "= or <>"),
        ("and = 1", '"and"'),
        ("a /* b", "*/"),
        ("a LIKE 'x!' ESCAPE '!'", "!!"),
        ("5", "price > 5"),
    ],
)
def test_refusals_say_what_to_write_instead(text: str, remedy: str) -> None:
    with pytest.raises(FilterError) as caught:
        parse(text)
    assert remedy in caught.value.remedy


def test_parentheses_nest_up_to_the_limit() -> None:
    assert parse("(" * NESTING_MAX + "a = 1" + ")" * NESTING_MAX) == parse("a = 1")
    for text in ("(" * 101 + "a = 1" + ")" * 101, "(" * 60_000, "a IN (" * 5_000):
        with pytest.raises(FilterError, match="nested deeper than 100"):
            parse(text)


def test_nested_alternation_at_the_limit_can_be_shown_and_parsed_again() -> None:
    text = "x = 1"
    for _ in range(NESTING_MAX):
        text = f"a > 1 OR b > 2 AND NOT ({text})"
    condition = parse(text)
    assert parse(show(condition)) == condition


def test_long_chains_are_one_flat_node() -> None:
    conjunction = parse(" AND ".join(["a=1"] * 7_000))
    assert isinstance(conjunction, And)
    assert len(conjunction.operands) == 7_000
    alternation = parse(" OR ".join(["a=1"] * 7_000))
    assert isinstance(alternation, Or)
    comparison = parse("a" + "+a" * DEAR_MAX + " > 1")
    assert isinstance(comparison, Compare)
    assert isinstance(comparison.left, Arithmetic)
    assert len(comparison.left.rest) == DEAR_MAX
    members = parse("a IN (" + ",".join(map(str, range(10_000))) + ")")
    assert isinstance(members, In)
    assert len(members.values) == 10_000


@pytest.mark.parametrize(
    ("test", "each"),
    [
        ("a + b > 1", 1),
        ("a * b - c > d", 3),
        ("a > b", 1),
        ("-a > 1", 1),
        ("a LIKE 'x%'", 1),
        ("a NOT LIKE '%x%'", 1),
        ("a + 1 LIKE 'x'", 2),
        ("a BETWEEN b AND 5", 1),
        ("a BETWEEN b AND c", 2),
        ("NOT (a + 1 IN (1, 2))", 1),
        ("a IN (b, c)", 2),
    ],
)
def test_what_no_index_helps_with_has_a_limit(test: str, each: int) -> None:
    fits = DEAR_MAX // each
    for joint in (" AND ", " OR "):
        parse(joint.join([test] * fits))
        with pytest.raises(FilterError, match="calculations, patterns"):
            parse(joint.join([test] * (fits + 1)))


def test_what_an_index_helps_with_has_none() -> None:
    for test in (
        "a > 1",
        "5 > a",
        "a IN (1, 2)",
        "a BETWEEN 1 AND 2",
        "5 BETWEEN a AND b",
        "a IS NULL",
        "a",
        "EXISTS a",
    ):
        parse(" AND ".join([test] * (2 * DEAR_MAX)))


def test_long_runs_of_not_and_of_signs_collapse() -> None:
    assert parse("NOT " * 16_000 + "a = 1") == parse("a = 1")
    assert parse("a > " + "-" * 60_001 + "b") == parse("a > -b")
