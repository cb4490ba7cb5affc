"""Lexer: the text of a condition, cut into tokens by one regular expression.

Theory of operation
    Every character matches some alternative, so the cut is one pass from left to right. Repetitions
    are possessive, so it never backtracks; an unclosed comment is one token, so its end is looked
    for once. A token has a kind and a value. The kind of a keyword is its upper-case word, that of
    a sign the sign itself; the others are NAME, NUMBER, STRING, TIMESTAMP, BYTES and END. Each
    distinct word of a text is read once. Only errors need positions, so `position_of` cuts the text
    again to find one.
    Literals follow Java's rules for integers (decimal, 0x, 0…, 0b, underscores, L) and floats
    (`7.`, `.5`, `7E3`, hexadecimal, f and d), names Java's rules for identifiers, with dots.
    `TIMESTAMP '…'` and `X'…'` are one token each: without the string behind them, both are names.

Invariants
    I1  the last token is END, and no other is
    I2  an integer is at most 2^63; only the parser knows whether a minus makes that valid
"""

from __future__ import annotations

import re
import sys
import unicodedata
from math import inf
from typing import TYPE_CHECKING, NoReturn

from gapless.core.errors import FilterError
from gapless.core.lengths import CONDITION_BYTES_MAX
from gapless.core.timestamps import EXAMPLE, NO_ZONE, parse_timestamp

if TYPE_CHECKING:
    from gapless.core.events import Value

FILTER_BYTES_MAX = CONDITION_BYTES_MAX
"""The longest condition, in UTF-8; beyond it `FilterError`."""

INTEGER_MAX = (1 << 63) - 1

NAME, NUMBER, STRING, END = "name", "number", "string", "end of condition"
TIMESTAMP, BYTES = "a timestamp", "bytes"
RESERVED = frozenset(
    ["NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE"]
)
SIGNS = ("=", "<>", "<", "<=", ">", ">=", "(", ")", ",", "+", "-", "*", "/", "%")

# Letters, `_`, `$` and all beyond ASCII, as what they are not: that compiles quickly.
_START = r"[^\x00-\x23\x25-\x40\x5b-\x5e\x60\x7b-\x7f]"
_PART = r"[^\x00-\x23\x25-\x2f\x3a-\x40\x5b-\x5e\x60\x7b-\x7f]"
_NAME = rf"{_START}{_PART}*+(?:\.{_START}{_PART}*+)*+"
# Underscores stand between digits only.
_DIGITS, _HEX = "[0-9]++(?:_++[0-9]++)*+", "[0-9a-fA-F]++(?:_++[0-9a-fA-F]++)*+"
_LONG, _DOUBLE = rf"(?:[lL](?!{_PART}))?", rf"[fFdD](?!{_PART})"
_EXPONENT = rf"[eE][+-]?{_DIGITS}"
_MARKED = r"(?:[xX]|(?i:TIMESTAMP)[\ \t\f\r\n]*+)'[^']*+'"
_TOKEN = re.compile(
    rf"""[ \t\f\r\n]*+(
      {_MARKED}
    | {_NAME}
    | /\*(?:[^*]++|\*(?!/))*+(?:\*/)?
    | <>|<=|>=|!=|[=<>(),+\-*/%]
    | '[^']*+(?:''[^']*+)*+'
    | "[^"]*+(?:""[^"]*+)*+"
    | 0[xX](?:{_HEX}(?:\.(?:{_HEX})?)?|\.{_HEX})[pP][+-]?{_DIGITS}(?:{_DOUBLE})?
    | (?:{_DIGITS}\.(?:{_DIGITS})?|\.{_DIGITS})(?:{_EXPONENT})?(?:{_DOUBLE})?
    | {_DIGITS}(?:{_EXPONENT}(?:{_DOUBLE})?|{_DOUBLE})
    | 0[xX]{_HEX}{_LONG}
    | 0[bB]{_DIGITS}{_LONG}
    | {_DIGITS}{_LONG}
    | \Z
    | .)""",
    re.VERBOSE | re.DOTALL,
)
_PLAIN = re.compile(_NAME)
MARKED = re.compile(_MARKED)
"""The literals of timestamps and bytes."""

_HEXADECIMAL = re.compile("(?:[0-9a-fA-F]{2})*+")
# Words of a known kind, in their usual spellings.
_WORDS = {
    "!=": "<>",
    "": END,
    **{sign: sign for sign in SIGNS},
    **{word: word for word in RESERVED},
    **{word.lower(): word for word in RESERVED},
}

_HINTS = {
    "!": "Write NOT for negation, and <> or != for `not equal`.",
    "&": "Write AND for the logical and.",
    "|": "Write OR for the logical or.",
    "'": "Close the string with another '; write '' for a ' inside it.",
    '"': "Close the name with another \"; strings stand in single quotes, as in 'abc'.",
    "/": "Close the comment with */.",
    "`": 'Names with other signs stand in double quotes, as in "a b".',
    "[": 'Names with other signs stand in double quotes, as in "a b".',
    ";": "A condition is one expression without a `;`.",
    "?": "Conditions have no parameters; write the value itself.",
    ":": "Conditions have no parameters; write the value itself.",
    "‘": "Strings stand in straight single quotes, as in 'abc'.",
    "’": "Strings stand in straight single quotes, as in 'abc'.",
    "“": "Strings stand in straight single quotes, as in 'abc'.",
    "”": "Strings stand in straight single quotes, as in 'abc'.",
}
_UNCLOSED = {"'": "this string does not end", '"': "this quoted name does not end"}


def tokenise(text: str) -> tuple[list[str], list[Value]]:
    """The kinds and the values of all tokens. FilterError if a character fits nowhere."""
    _check_size(text)
    words = _TOKEN.findall(text)
    del words[words.index("") + 1 :]
    if "/*" in text:
        words = _without_comments(words)
    kind_of = dict(_WORDS)
    value_of: dict[str, Value] = {word: word for word in _WORDS}
    for word in dict.fromkeys(words):  # each is read once
        if word in kind_of:
            continue
        first = word[0]
        if first in "0123456789" or (first == "." and len(word) > 1):
            kind_of[word], value_of[word] = NUMBER, _number(word, text)
        elif first == "'" and len(word) > 1:
            kind_of[word], value_of[word] = STRING, word[1:-1].replace("''", "'")
        elif word[-1] == "'" and len(word) > 1:
            kind_of[word], value_of[word] = _marked(word, text)
        else:
            kind_of[word], value_of[word] = _name(word, text)
    return list(map(kind_of.__getitem__, words)), list(map(value_of.__getitem__, words))


def _without_comments(words: list[str]) -> list[str]:
    """An unclosed comment becomes `/ *`: no value starts with `*`, so the parser refuses it."""
    kept: list[str] = []
    for word in words:
        if not word.startswith("/*"):
            kept.append(word)
        elif not _is_closed(word):
            kept += ["/", "*"]
    return kept


def position_of(text: str, index: int) -> int:
    """Where in the text the token of this index starts."""
    for match in _TOKEN.finditer(text):
        word = match[1]
        if word.startswith("/*") and not _is_closed(word):
            return min(match.start(1) + index, len(text))
        if not word.startswith("/*"):
            if index == 0:
                return match.start(1)
            index -= 1
    return len(text)


def _first_place(text: str, word: str) -> int:
    """The position of the first token that is this word."""
    return next(match.start(1) for match in _TOKEN.finditer(text) if match[1] == word)


def _is_closed(comment: str) -> bool:
    return len(comment) > 3 and comment.endswith("*/")


def _check_size(text: str) -> None:
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError as error:
        problem = "half of a surrogate pair is no character"
        raise FilterError(problem, "", text, error.start) from None
    if size > FILTER_BYTES_MAX:
        raise FilterError(
            f"the condition has {size} bytes, more than the {FILTER_BYTES_MAX} allowed",
            "Shorten it, or split it into several subscriptions.",
        )


def _marked(word: str, text: str) -> tuple[str, Value]:
    """A timestamp or bytes: a string behind the word that says which."""
    inner = word[word.index("'") + 1 : -1]
    if word[0] in "xX":
        if _HEXADECIMAL.fullmatch(inner):
            return BYTES, bytes.fromhex(inner)
        problem = f"'{inner:.80}' is not bytes: it needs an even number of hexadecimal digits"
        raise FilterError(
            problem, "Write two for each byte: X'00FF'.", text, _first_place(text, word)
        )
    try:
        return TIMESTAMP, parse_timestamp(inner)
    except ValueError as error:
        problem = f"'{inner:.80}' is no timestamp: {error}"
        remedy = f"Write it with Z or an offset, as in TIMESTAMP '{EXAMPLE}'."
        if str(error) != NO_ZONE:
            remedy = f"Write it as in TIMESTAMP '{EXAMPLE}'."
        raise FilterError(problem, remedy, text, _first_place(text, word)) from None


def _name(word: str, text: str) -> tuple[str, str]:
    """A plain or quoted name, or a keyword in unusual spelling."""
    if word.isascii():  # or dotless ı would make a keyword
        keyword = word.upper()
        if keyword in RESERVED:
            return keyword, word
        if word.isidentifier():
            return NAME, sys.intern(word)
    if word[0] == '"' and len(word) > 1:
        if word == '""':
            problem, remedy = "a name must not be empty", "Write '' for the empty string."
            raise FilterError(problem, remedy, text, _first_place(text, word))
        return NAME, sys.intern(word[1:-1].replace('""', '"'))
    for offset, character in enumerate(word):
        if not _may_be_in_name(character, offset):
            _refuse(text, character, _first_place(text, word) + offset)
    return NAME, sys.intern(word)


def is_plain(name: str) -> bool:
    """May it be written without quotes?"""
    if name.isascii() and name.isidentifier():  # nearly all
        return name.upper() not in RESERVED
    return (
        _PLAIN.fullmatch(name) is not None
        and name.upper() not in RESERVED
        and all(_may_be_in_name(character, offset) for offset, character in enumerate(name))
    )


def _may_be_in_name(character: str, offset: int) -> bool:
    """Java's rule for the characters of an identifier; and dots between names."""
    if character == ".":
        return offset > 0
    if character == "$" or character.isalnum():
        return True
    category = unicodedata.category(character)
    return category in ("Sc", "Pc") or (offset > 0 and category in ("Mn", "Mc", "Cf"))


def _refuse(text: str, character: str, position: int) -> NoReturn:
    shown = character if character.isprintable() else f"U+{ord(character):04X}"
    problem = _UNCLOSED.get(character, f"{shown} has no meaning here")
    raise FilterError(problem, _HINTS.get(character, ""), text, position)


def _number(word: str, text: str) -> int | float:
    if word.isdigit() and len(word) < 19 and (word[0] != "0" or len(word) == 1):
        return int(word)  # nearly all
    digits = word.replace("_", "").lower()
    try:
        value = _float(digits) if _FLOAT.search(digits) else _integer(digits)
    except ValueError:
        remedy = "A number that starts with 0 is octal: drop the 0 for a decimal."
        raise FilterError(f"{word} is no number", remedy, text, _first_place(text, word)) from None
    except OverflowError:
        value = inf
    if value > INTEGER_MAX + 1 and (isinstance(value, int) or value == inf):
        raise FilterError(
            f"{word if len(word) < 40 else word[:36] + '…'} is beyond the range of numbers",
            "Integers have 64 bits, from -9223372036854775808 to 9223372036854775807; "
            "floats end at 1.7976931348623157E308.",
            text,
            _first_place(text, word),
        )
    return value


_FLOAT = re.compile(r"\.|p|^[0-9]+[efd]")


def _float(digits: str) -> float:
    if digits.startswith("0x"):
        return float.fromhex(digits.rstrip("fd"))
    return float(digits.rstrip("fd"))


def _integer(digits: str) -> int:
    digits = digits.rstrip("l")
    base = 10
    if len(digits) > 1 and digits[0] == "0":
        base = {"x": 16, "b": 2}.get(digits[1], 8)
        digits = digits[1 if base == 8 else 2 :].lstrip("0") or "0"
    if len(digits) > 64:  # more than 64 bits in any base; also below the limit of `int` itself
        raise OverflowError
    value = int(digits, base)
    # Java's other bases write the 64 bits themselves: 0xFFFFFFFFFFFFFFFF is -1.
    return value - (1 << 64) if base != 10 and INTEGER_MAX < value < 1 << 64 else value
