"""A principal has its share, all together have the whole, and nothing is lost in counting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.ledger import Account


def test_a_principal_is_refused_at_its_share_while_others_have_room() -> None:
    account = Account("publishers", 8)
    account.take("ann", 2)
    refused = "'ann' has 2 publishers, and one principal may have 2"
    assert account.refusal("ann", 1) == refused
    assert account.refusal("bob", 2) == ""
    account.give_back("ann")
    assert account.refusal("ann", 1) == ""


def test_the_bound_of_all_counts_for_everybody() -> None:
    account = Account("topics", 4)
    for who in ("", "", "", "ann"):
        account.take(who)
    assert account.refusal("bob", 1) == "there are 4 topics, and the limit is 4"
    assert account.refusal("", 1) == "there are 4 topics, and the limit is 4"


def test_who_holds_nothing_may_take_one_thing_that_is_larger_than_a_share() -> None:
    account = Account("bytes", 100)
    assert account.refusal("ann", 90) == ""
    account.take("ann", 90)
    assert "may have 25" in account.refusal("ann", 1)
    assert "the limit is 100" in account.refusal("bob", 90)


def test_nobody_gives_back_what_it_does_not_hold() -> None:
    account = Account("bytes", 100)
    account.take("ann", 1)
    with pytest.raises(AssertionError, match="I1"):
        account.give_back("bob", 1)


@given(st.lists(st.tuples(st.sampled_from(["", "ann", "bob"]), st.integers(1, 9)), max_size=40))
def test_what_is_given_back_is_free_again(steps: list[tuple[str, int]]) -> None:
    account, held = Account("bytes", 40, 50), list[tuple[str, int]]()
    for who, amount in steps:
        if not account.refusal(who, amount):
            account.take(who, amount)
            held.append((who, amount))
        elif held:
            account.give_back(*held.pop(0))
        account.check()
        assert account.total == sum(amount for _, amount in held) <= 40
    for each in held:
        account.give_back(*each)
    assert account.total == 0
