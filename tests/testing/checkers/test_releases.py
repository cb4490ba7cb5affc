"""A release of what someone still needs is found."""

from __future__ import annotations

import pytest

from gapless.core.client_messages import Done
from gapless.core.effects import Delete
from gapless.testing.named import Birth, Named
from gapless.testing.record import Violation
from tests.testing.named_facts import CLIENT, NAME, PUBEND, Facts


@pytest.fixture
def facts() -> Facts:
    return Facts()


@pytest.fixture
def named() -> Named:
    return Named(name=NAME)


def test_a_release_of_what_some_disk_has_not_acknowledged_is_found(
    facts: Facts, named: Named
) -> None:
    facts.ask(named)
    facts.put("released", {PUBEND: 5})
    facts.log(10, 20)
    named.acknowledge({PUBEND: 11})
    facts.put("released", {PUBEND: 11})
    facts.chop(20)
    with pytest.raises(Violation, match=r"released only when.*has not acknowledged 20"):
        facts.chop(21)


def test_what_was_logged_before_a_name_or_after_its_end_may_be_released(
    facts: Facts, named: Named
) -> None:
    facts.ask(named)
    facts.log(10)
    facts.put("released", {PUBEND: 5})
    facts.chop(11)
    facts.log(20)
    facts.write(Delete("released", NAME))
    facts.chop(21)


@pytest.mark.parametrize(
    ("policy", "is_fine"),
    [
        ({"retention_us": 900}, True),
        ({"retention_us": 2_000}, False),
        ({"retention_bytes": 10}, True),
        ({"retention_bytes": 1_000}, False),
    ],
)
def test_a_policy_releases_what_is_too_old_or_too_much_and_nothing_else(
    policy: dict[str, int], is_fine: bool
) -> None:
    facts = Facts(**policy)
    facts.ask(Named(name=NAME))
    facts.put("released", {PUBEND: 5})
    facts.log(10, 20)
    if is_fine:
        facts.chop(11)
        assert facts.record.early_releases == 1
    else:
        with pytest.raises(Violation, match="released only when"):
            facts.chop(11)


def test_where_it_starts_may_be_found_anew_as_long_as_no_client_was_told(facts: Facts) -> None:
    """The oldest event may be released meanwhile; from the answer on, the start stands."""
    named = Named(name=NAME, birth=Birth(at="earliest"))
    facts.ask(named)
    facts.put("released", {PUBEND: 5})
    facts.put("released", {PUBEND: 9})
    named.begin({PUBEND: 9})
    with pytest.raises(Violation, match="which it never did"):
        facts.put("released", {PUBEND: 12})


def test_an_acknowledgement_that_nobody_made_is_found_on_the_disk(
    facts: Facts, named: Named
) -> None:
    facts.ask(named)
    facts.put("released", {PUBEND: 5})
    with pytest.raises(Violation, match="which it never did"):
        facts.put("released", {PUBEND: 6})


def test_what_all_have_acknowledged_is_releasable(facts: Facts, named: Named) -> None:
    facts.attach(named, 5)
    facts.log(10, 20)
    assert facts.record.releasable(PUBEND) == []
    named.acknowledge({PUBEND: 11})
    assert facts.record.releasable(PUBEND) == [], "it may have got lost on its way"
    named.assure({PUBEND: 11})
    assert facts.record.releasable(PUBEND) == [10]
    facts.watch.gone(CLIENT)
    assert facts.record.releasable(PUBEND) == [10, 20]


def test_an_answer_before_the_acknowledgement_is_durable_is_found(
    facts: Facts, named: Named
) -> None:
    facts.ask(named)
    facts.put("released", {PUBEND: 5})
    named.acknowledge({PUBEND: 9})
    facts.record.promised[CLIENT, 3] = named, {PUBEND: 9}
    with pytest.raises(Violation, match="assures desk"):
        facts.watch.sent(facts.host, CLIENT, Done(3))
    facts.put("released", {PUBEND: 9})
    facts.watch.sent(facts.host, CLIENT, Done(3))


def test_an_answer_may_come_after_the_subscription_was_ended_and_began_anew(
    facts: Facts, named: Named
) -> None:
    facts.ask(named)
    facts.put("released", {PUBEND: 5})
    facts.record.promised[CLIENT, 3] = named, {PUBEND: 9}
    facts.write(Delete("released", NAME))
    facts.put("released", {PUBEND: 0})
    facts.watch.sent(facts.host, CLIENT, Done(3))
    facts.record.promised[CLIENT, 4] = named, {PUBEND: 9}
    with pytest.raises(Violation, match="assures desk"):
        facts.watch.sent(facts.host, CLIENT, Done(4))
