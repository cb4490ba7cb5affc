"""Fuzz the filter language: whatever comes in, only FilterError may come out.

    python fuzz/filters.py -runs=1000000 -max_len=24 fuzz/corpus/filters    guided by coverage
    python fuzz/filters.py --soup 10000000 --seed 1                          by chance, faster

Guided: the first byte chooses how the rest is read, as UTF-8 text or as numbers of words of the
language, which gets past the lexer far more often; options are libFuzzer's, `-help=1` lists them.
By chance: seven times out of eight one to seven words of the language in any order, else a
condition from a grammar, often with a few words changed.

A text that parses must show as text that parses to an equal filter with equal normal form;
matching and covering must not raise, and the normal form must agree with the condition.
"""

from __future__ import annotations

import random
import sys

import atheris

SOUP = "--soup" in sys.argv
with atheris.instrument_imports(include=["none"] if SOUP else ["gapless.filters"]):
    from gapless.core.errors import FilterError
    from gapless.filters.evaluate import compile_condition
    from gapless.filters.filter import Filter
    from gapless.filters.matching.checks import check_of

WORDS = (
    *("a", "b", "c", '"a b"', "EXISTS ", "exists", "$x", "ä.b", "NULL", "TRUE", "FALSE"),
    *("NOT ", " AND ", " OR ", " BETWEEN ", " LIKE ", " IN ", " IS ", " ESCAPE ", "!=", "<>"),
    *("=", "<", "<=", ">", ">=", "(", ")", ",", "+", "-", "*", "/", "%", " ", "\n", "/*", "*/"),
    *("0", "1", "2", "007", "0x1F", "0b1", "1.5", ".5", "7.", "1e3", "2f", "5L", "1_0"),
    *("9223372036854775807", "9223372036854775808", "1e309", "'", "''", "'a'", "'b'", "'ab%'"),
    *("'a_%b'", "'%a%a%'", "'!%'", "'!'", "'it''s'", "'\0'", "'😀'", '"', '""', "\0", "é", "'a!'"),
    *(" IS NULL", " IS NOT NULL", " NOT IN (", " NOT LIKE ", " NOT BETWEEN ", "a = 1", "b > 'a'"),
)
EVENTS: tuple[dict[str, bool | int | float | str], ...] = (
    {},
    {"a": 1, "b": "ab", "c": True, "a b": 1.5, "$x": "a", "exists": False, "ä.b": 2**63 - 1},
    {"a": "aab", "b": 2.5, "c": float("nan"), "a b": "!", "$x": float("-inf"), "exists": 0},
    {"a": False, "b": "a\0", "c": -1, "ä.b": "it's"},
)


def text_of(data: bytes) -> str:
    if not data or data[0] % 4 == 0:
        return data[1:].decode("utf-8", "surrogatepass" if data[:1] == b"\0" else "replace")
    return "".join(WORDS[byte % len(WORDS)] for byte in data[1:])


def check(text: str) -> None:
    refused = None
    try:
        found = Filter.parse(text)
    except FilterError as error:
        refused = error
    if refused is not None:
        assert 0 <= refused.position <= len(text), text
        assert refused.caret(), text
        return
    again = Filter.parse(str(found))
    assert again.condition == found.condition, text
    assert found.covers(found), text
    for event in EVENTS[len(text) % 2 :: 2]:
        meets = any(
            all(check_of(constraint)(event.get(name)) for name, constraint in one.constraints)
            and all(compile_condition(residual)(event) for residual in one.residuals)
            for one in found.conjunctions
        )
        assert found.matches(event) == meets, (text, event)


def test_one_input(data: bytes) -> None:
    try:
        text = text_of(data)
    except UnicodeDecodeError:
        return
    check(text)


NAMES = ("a", "b", "c", '"a b"', "$x", "exists")
CONSTANTS = ("1", "2", "1.5", "-1", "0", "'a'", "'ab'", "''", "'it''s'", "TRUE", "FALSE", "1e3")
PATTERNS = ("'a%'", "'%b'", "'a_%b'", "'%'", "'_'", "'ab'", "'%a%b%'", "'a!%' ESCAPE '!'", "''")


def make_leaf(dice: random.Random) -> list[str]:
    pick = dice.choice
    operand = [pick(NAMES)] if dice.random() < 0.8 else [pick(NAMES), pick("+-*/%"), pick(NAMES)]
    negation = pick(("", "", " NOT"))
    match dice.randrange(6):
        case 0:
            return [*operand, negation, " BETWEEN ", pick(CONSTANTS), " AND ", pick(CONSTANTS)]
        case 1:
            listed = ",".join(pick(CONSTANTS) for _ in range(dice.randint(1, 3)))
            return [*operand, negation, " IN ", "(", listed, ")"]
        case 2:
            return [*operand, negation, " LIKE ", pick(PATTERNS)]
        case 3:
            return [pick(NAMES), " IS", negation, " NULL"]
        case _:
            return [*operand, pick(("=", "<>", "<", "<=", ">", ">=")), pick(CONSTANTS + NAMES)]


def make_condition(dice: random.Random) -> str:
    words = make_leaf(dice)
    for _ in range(dice.choice((0, 0, 1, 1, 2, 3))):
        words += [dice.choice((" AND ", " OR ")), dice.choice(("", "", "NOT ")), *make_leaf(dice)]
        if dice.random() < 0.3:
            words = [dice.choice(("", "NOT ")), "(", *words, ")"]
    for _ in range(dice.choice((0, 0, 0, 1, 1, 2))):
        place = dice.randrange(len(words))
        words[place : place + dice.randrange(2)] = [dice.choice(WORDS)] * dice.randrange(2)
        words = words or ["a"]
    return "".join(words)


def stir(count: int, seed: int) -> None:
    dice = random.Random(seed)
    for number in range(1, count + 1):
        if number % 8:
            check("".join(dice.choices(WORDS, k=number % 8)))
        else:
            check(make_condition(dice))
        if number % 100_000 == 0:
            print(f"{number} executions, seed {seed}", flush=True)


if __name__ == "__main__":
    if SOUP:
        arguments = dict(zip(sys.argv[1::2], map(int, sys.argv[2::2]), strict=True))
        stir(arguments["--soup"], arguments.get("--seed", 0))
    else:
        atheris.Setup(sys.argv, test_one_input)
        atheris.Fuzz()
