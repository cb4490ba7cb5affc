"""Lexer: every form of literal and name, and the place of what is refused."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from gapless.core.errors import FilterError
from gapless.filters import lexer
from gapless.filters.lexer import FILTER_BYTES_MAX, NAME, NUMBER, STRING, position_of, tokenise

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gapless.core.events import Value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("57", 57),
        ("1_000_000", 1_000_000),
        ("9223372036854775807", 2**63 - 1),
        ("57L", 57),
        ("57l", 57),
        ("0x1F", 31),
        ("0XcafeL", 0xCAFE),
        ("0xEF", 0xEF),
        ("0x0b1", 0xB1),
        ("017", 15),
        ("0_17", 15),
        ("00", 0),
        ("0b101", 5),
        ("0B1_0", 2),
        ("7.", 7.0),
        (".5", 0.5),
        ("0.5", 0.5),
        ("09.5", 9.5),
        ("7E3", 7000.0),
        ("57.9E2", 5790.0),
        ("57.9e-2", 0.579),
        ("1_0.2_5e1_0", 10.25e10),
        ("7f", 7.0),
        ("7D", 7.0),
        ("7.5F", 7.5),
        (".5d", 0.5),
        ("1e3f", 1000.0),
        ("0x1p3", 8.0),
        ("0x1.8P1", 3.0),
        ("0x.8p1d", 1.0),
        ("1" * 300 + ".", float("1" * 300)),
    ],
)
def test_numbers_have_all_forms_of_java(text: str, value: float) -> None:
    kinds, values = tokenise(text)
    assert kinds[0] == NUMBER
    assert len(kinds) == 2
    assert (values[0], type(values[0])) == (value, type(value))


@pytest.mark.parametrize(
    "text",
    [
        "9223372036854775809",
        "0x10000000000000001",
        "1" * 5000,
        "0" + "7" * 60000,
        "0b" + "1" * 65,
        "1e309",
        "0x1p1024",
        "9" * 400 + ".",
    ],
)
def test_numbers_beyond_their_range_are_refused(text: str) -> None:
    with pytest.raises(FilterError, match="beyond the range"):
        tokenise(text)


@pytest.mark.parametrize("text", ["08", "019", "0b12"])
def test_digits_that_a_base_does_not_have_are_refused(text: str) -> None:
    with pytest.raises(FilterError, match="is no number"):
        tokenise(text)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("'it''s'", STRING, "it's"),
        ("''", STRING, ""),
        ("''''", STRING, "'"),
        ("'a\n\0\"%'", STRING, 'a\n\0"%'),
        ("name", NAME, "name"),
        ("$a_1", NAME, "$a_1"),
        ("_", NAME, "_"),
        ("größe", NAME, "größe"),
        ("名前", NAME, "名前"),
        ("e\u0301", NAME, "e\u0301"),
        ("€uro", NAME, "€uro"),
        ("sys.label", NAME, "sys.label"),
        ('"two words"', NAME, "two words"),
        ('"say ""hi"""', NAME, 'say "hi"'),
        ('"NULL"', NAME, "NULL"),
        ("NULL", "NULL", "NULL"),
        ("BetWeen", "BETWEEN", "BetWeen"),
        ("!=", "<>", "!="),
    ],
)
def test_words(text: str, kind: str, value: Value) -> None:
    kinds, values = tokenise(text)
    assert kinds == [kind, "end of condition"]
    assert values[0] == value


def test_tokens_need_no_space_between_them() -> None:
    kinds, _ = tokenise("a>=5AND'x'<>b/*note*/OR 5LIKE'5'and.5<c")
    assert " ".join(kinds[:-1]) == (
        "name >= number AND string <> name OR number LIKE string AND number < name"
    )


def test_white_space_is_space_tab_form_feed_and_line_ends() -> None:
    assert tokenise(" \t\f\r\n a \t\f\r\n ")[0] == [NAME, "end of condition"]
    with pytest.raises(FilterError, match="no meaning"):
        tokenise("a\u00a0= 1")


@pytest.mark.parametrize(
    ("text", "position", "problem", "remedy"),
    [
        ("a = 'abc", 4, "string does not end", "Close the string"),
        ("a = 'it''s", 4, "string does not end", "''"),
        ('"a = 1', 0, "name does not end", "single quotes"),
        ("a = 1 && b", 6, "& has no meaning", "AND"),
        ("a || b", 2, "| has no meaning", "OR"),
        ("!a", 0, "! has no meaning", "NOT"),
        ("a = ‘x’", 4, "‘ has no meaning", "straight"),
        ("a = 1;", 5, "; has no meaning", "one expression"),
        ('a = ""', 4, "must not be empty", "''"),
        ("a.", 1, ". has no meaning", "grammar"),
        ("a = \0", 4, "U+0000 has no meaning", "grammar"),
        ("/* x */ a = #", 12, "# has no meaning", "grammar"),
        ("a = '\ud800'", 5, "surrogate", "grammar"),
    ],
)
def test_what_fits_nowhere_is_refused_with_its_place(
    text: str, position: int, problem: str, remedy: str
) -> None:
    with pytest.raises(FilterError) as caught:
        tokenise(text)
    assert caught.value.position == position
    assert problem in caught.value.problem
    assert remedy in caught.value.remedy


def test_the_size_limit_counts_bytes() -> None:
    assert tokenise("'" + "a" * (FILTER_BYTES_MAX - 2) + "'")[0][0] == STRING
    for text in (
        "'" + "a" * (FILTER_BYTES_MAX - 1) + "'",
        "'" + "é" * (FILTER_BYTES_MAX // 2) + "'",
    ):
        with pytest.raises(FilterError, match="bytes"):
            tokenise(text)


def test_positions_skip_white_space_and_comments() -> None:
    text = " a /* b */ =  'c' "
    assert [position_of(text, index) for index in range(4)] == [1, 11, 14, len(text)]


def repetitions(parsed: Any) -> Iterator[tuple[str, int]]:
    """Every repetition of a regular expression, and how often it may repeat."""
    for operation, arguments in parsed:
        if str(operation).endswith("REPEAT"):
            yield str(operation), int(arguments[1])
        for part in arguments if isinstance(arguments, tuple | list) else ():
            for inner in part if isinstance(part, list) else [part]:
                if isinstance(inner, re._parser.SubPattern):  # type: ignore[attr-defined]
                    yield from repetitions(inner)


def test_no_repetition_of_the_lexer_gives_anything_back() -> None:
    """Else a hostile text is read in quadratic time: 0xaaaa… took minutes once."""
    parsed = re._parser.parse(lexer._TOKEN.pattern, lexer._TOKEN.flags)  # type: ignore[attr-defined]
    found = list(repetitions(parsed))
    assert len(found) > 20
    assert [one for one in found if one[0] != "POSSESSIVE_REPEAT" and one[1] > 1] == []


def test_a_comment_that_never_ends_is_looked_through_once() -> None:
    assert tokenise("a /*b" * 12_000)[0] == [NAME, "/", "*", "end of condition"]
    assert tokenise("/*/")[0] == tokenise("/**")[0] == ["/", "*", "end of condition"]
    assert tokenise("/**/ /***/ /*/*/ a")[0] == [NAME, "end of condition"]


def test_positions_are_known_up_to_a_comment_that_never_ends() -> None:
    text = "/* b */ a /* c"
    assert [position_of(text, index) for index in range(4)] == [8, 10, 11, 12]
    assert position_of("a /*", 3) == 4


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("1_", [NUMBER, NAME]),
        ("1__0", [NUMBER]),
        ("0x_f", [NUMBER, NAME]),
        ("0xf_f_", [NUMBER, NAME]),
        ("0x1.p1", [NUMBER]),
        ("0x1.fp1", [NUMBER]),
        ("0x.fp1", [NUMBER]),
    ],
)
def test_underscores_stand_between_digits_only(text: str, kinds: list[str]) -> None:
    assert tokenise(text)[0][:-1] == kinds
