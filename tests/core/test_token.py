"""Tokens: a lattice, with one text for each."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.errors import UsageError
from gapless.core.ticks import TICK_MAX
from gapless.core.token import TOKEN_CHARACTERS_MAX, Token

ticks = st.one_of(st.integers(0, 5), st.integers(0, TICK_MAX))
tokens = st.dictionaries(st.sampled_from(["a/0", "a/1", "b ö", '"']), ticks).map(Token)


@given(tokens)
def test_a_token_survives_its_text_and_equal_tokens_have_equal_texts(token: Token) -> None:
    text = token.to_json()
    assert Token.from_json(text) == token
    assert Token.from_json(f" {json.dumps(dict(reversed(list(token))))} ").to_json() == text
    assert len(token) == len(json.loads(text))


@given(tokens, tokens, tokens)
def test_join_and_meet_are_the_least_upper_and_the_greatest_lower_bound(
    left: Token, right: Token, other: Token
) -> None:
    join, meet = left.join(right), left.meet(right)
    assert meet <= left <= join
    assert meet <= right <= join
    assert (left <= other and right <= other) == (join <= other)
    assert (other <= left and other <= right) == (other <= meet)
    assert join == right.join(left)
    assert meet == right.meet(left)


@given(tokens, tokens)
def test_the_order_is_partial_and_agrees_with_equality(left: Token, right: Token) -> None:
    assert (left == right) == (left <= right and right <= left)
    assert (left < right) == (right > left) == (left <= right and left != right)
    assert (left >= right) == (right <= left)
    assert left.is_comparable(right) == (left.meet(right) in (left, right))
    assert left != right or hash(left) == hash(right)


def test_tokens_that_are_each_ahead_somewhere_are_not_comparable() -> None:
    left, right = Token({"a": 5, "b": 1}), Token({"a": 1, "b": 5})
    assert not left.is_comparable(right)
    assert left.join(right) == Token({"a": 5, "b": 5})
    assert left.meet(right) == Token({"a": 1, "b": 1})


def test_a_pubend_that_is_not_named_is_at_its_beginning() -> None:
    assert Token().get("a") == 0
    assert Token({"a": 0}) == Token()
    assert Token({"a": 0}).to_json() == "{}"
    assert repr(Token({"a": 7})) == 'Token({"a":7})'
    assert Token() != {}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"a":NaN}', "no tick"),
        ("[]", "not a JSON object"),
        ("7", "not a JSON object"),
        ('{"a":1.0}', "no tick"),
        ('{"a":true}', "no tick"),
        ('{"a":"1"}', "no tick"),
        ('{"a":{"b":1}}', "no tick"),
        ('{"a":-1}', "no tick"),
        (f'{{"a":{TICK_MAX + 1}}}', "no tick"),
        ('{"a":1,"a":2}', "twice"),
        ('{"\\ud800":1}', "printed"),
        ('{"a\\n":1}', "printed"),
        (" " * (TOKEN_CHARACTERS_MAX + 1), "too long"),
    ],
)
def test_a_bad_token_is_refused_with_what_to_do(text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem) as caught:
        Token.from_json(text)
    assert "Give a token" in caught.value.remedy
