"""What a relay reports upstream, and when."""

from __future__ import annotations

from gapless.core.broker_messages import Ack, ReleaseHold
from gapless.core.identity import BrokerName, CellName, Instant
from gapless.knowledge.reporter import Reporter
from tests.knowledge.notation import BROKER, HERE, PUBEND

DELAY = 200


def make_reporter(epoch: int = 2) -> Reporter:
    return Reporter(PUBEND, BROKER, HERE, epoch, DELAY)


def test_what_has_changed_is_reported_when_it_has_been_gathered() -> None:
    reporter = make_reporter()
    reporter.notice(5, 3, Instant(10))
    reporter.notice(7, 3, Instant(50))
    assert reporter.deadline == 10 + DELAY
    assert not reporter.is_due(Instant(9 + DELAY))
    assert reporter.is_due(Instant(10 + DELAY))
    assert reporter.report(7, 3) == Ack(PUBEND, HERE, 7, 3, BROKER, 2, 1)
    assert reporter.deadline is None


def test_what_was_reported_is_not_reported_again() -> None:
    reporter = make_reporter()
    reporter.report(7, 3)
    reporter.notice(7, 3, Instant(10))
    assert reporter.deadline is None
    reporter.notice(7, 2, Instant(10))  # what is released may move back
    assert reporter.deadline is not None


def test_before_everyone_below_was_heard_nothing_is_reported() -> None:
    reporter = make_reporter()
    reporter.notice(-1, 0, Instant(10))
    assert reporter.deadline is None


def test_while_its_epoch_is_not_durable_a_reporter_is_mute() -> None:
    reporter = make_reporter()
    reporter.is_mute = True
    reporter.notice(5, 3, Instant(10))
    assert reporter.deadline is None
    assert reporter.report(5, 3) is None
    reporter.is_mute = False
    assert reporter.deadline == 10 + DELAY


def test_holds_are_numbered_among_the_reports() -> None:
    reporter = make_reporter()
    reporter.report(7, 3)
    below = ReleaseHold(PUBEND, CellName("red"), 4, 9, BrokerName("red1"), 1, 70)
    ours = ReleaseHold(PUBEND, CellName("red"), 2, 9, BROKER, 2, 2)
    assert reporter.hold(below, 2) == ours
    assert reporter.report(7, 3) == Ack(PUBEND, HERE, 7, 3, BROKER, 2, 3)
