"""Who may do what: proofs, rights and access lists."""

from __future__ import annotations

import msgspec

from gapless.scribe.credentials import Guard
from gapless.scribe.identifiers import Space
from gapless.scribe.messages import TopicRecord

SPACE = Space()
TRADES, QUOTES = SPACE.topic_id("trades", "ann"), SPACE.topic_id("quotes", "ann")
GUARD = Guard(b"secret")


def test_a_credential_gives_its_rights_to_its_topic_and_no_more() -> None:
    credential = GUARD.issue("ann", TRADES, "publish")
    assert GUARD.problem(credential, TRADES, "publish") == ""
    assert "right to subscribe" in GUARD.problem(credential, TRADES, "subscribe")
    assert "not genuine" in GUARD.problem(credential, QUOTES, "publish")
    assert "none came" in GUARD.problem(None, TRADES, "publish")


def test_a_credential_of_another_network_or_with_rights_added_is_not_genuine() -> None:
    assert "not genuine" in GUARD.problem(
        Guard(b"other").issue("ann", TRADES, "publish"), TRADES, "publish"
    )
    forged = msgspec.structs.replace(
        GUARD.issue("ann", TRADES, "subscribe"), rights=("subscribe", "publish")
    )
    assert "not genuine" in GUARD.problem(forged, TRADES, "publish")


def test_the_access_list_of_a_topic_counts_for_publishing() -> None:
    record = TopicRecord(TRADES, "ann", publishers=("ann",))
    bob = GUARD.issue("bob", TRADES, "publish", "subscribe")
    assert "not on the topic's list" in GUARD.problem(bob, TRADES, "publish", record)
    assert GUARD.problem(bob, TRADES, "subscribe", record) == ""


def test_a_network_without_a_secret_is_open() -> None:
    assert Guard().problem(None, TRADES, "create") == ""
