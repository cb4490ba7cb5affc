"""The checker of transactions finds what is out of place, and nothing else."""

from __future__ import annotations

import pytest

from gapless.core.identity import ClientName, ProducerName, PubendName
from gapless.core.ticks import PUBEND_BITS
from gapless.core.transaction_messages import Committed
from gapless.node.config import Config
from gapless.node.network import parse_network
from gapless.testing.checkers.transactions import WholeTransactions
from gapless.testing.record import Record, Violation
from tests.node.town import ALONE
from tests.testing.named_facts import Host

PUBEND, KEY, STEP = PubendName("news/0"), (ProducerName("job"), 1), 1 << PUBEND_BITS
ANN = ClientName("ann")


def make(*parts: str) -> tuple[WholeTransactions, Record]:
    """A checker that knows parts a = [1, 2] and b = [3], and a commit of these."""
    record = Record(parse_network(ALONE))
    record.ledger.stage(KEY, "a", [b"1", b"2"])
    record.ledger.stage(KEY, "b", [b"3"])
    if parts:
        record.ledger.asked[KEY] = [parts]
    record.ledger.requests[ANN, 5] = KEY
    return WholeTransactions(record, Config()), record


def log(checker: WholeTransactions, *events: bytes, start: int = 10, step: int = STEP) -> None:
    for index, event in enumerate(events):
        checker.committed(PUBEND, start + index * step, event)


def test_a_whole_transaction_between_others_is_fine() -> None:
    checker, record = make("b", "a")
    log(checker, b"x", b"3", b"1", b"2", b"y")
    assert record.ledger.unfinished("job") == []


@pytest.mark.parametrize(
    "events",
    [(b"1", b"2"), (b"3", b"2"), (b"3", b"1", b"x"), (b"3", b"1", b"2", b"x", b"1")],
    ids=["another order", "one left out", "something between", "one twice"],
)
def test_what_was_not_asked_for_in_this_order_is_found(events: tuple[bytes, ...]) -> None:
    with pytest.raises(Violation):
        log(make("b", "a")[0], *events)


def test_what_is_seen_before_the_commit_is_found() -> None:
    with pytest.raises(Violation, match="0 commits"):
        log(make()[0], b"1")


def test_ticks_that_are_not_side_by_side_are_found() -> None:
    with pytest.raises(Violation, match="not beside"):
        log(make("a")[0], b"1", b"2", step=2 * STEP)


def test_half_a_transaction_is_unfinished() -> None:
    checker, record = make("a")
    log(checker, b"1")
    assert record.ledger.unfinished("job") == [1]


@pytest.mark.parametrize(
    "second",
    [
        Committed(5, PUBEND, 10, 2),
        Committed(5, PUBEND, 11, 2, repeated=True),
        Committed(5, PUBEND, 10, 3, repeated=True),
        Committed(6, PUBEND, 10, 2, repeated=True),
        Committed(5, PUBEND, -1, -1, repeated=True),
    ],
    ids=["committed again", "elsewhere", "more", "not asked", "taken for old"],
)
def test_a_second_answer_that_differs_is_found(second: Committed) -> None:
    checker, _ = make("a")
    process = Host()
    checker.sent(process, ANN, Committed(5, PUBEND, 10, 2))
    checker.sent(process, ANN, Committed(5, PUBEND, 10, 2, repeated=True))
    with pytest.raises(Violation):
        checker.sent(process, ANN, second)
