"""What a broker does at once when a neighbour dies, or when its messages have a new vector.

Timers that would repair it later are so long here that only the mechanism itself can do it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gapless.core.broker_messages import Knowledge, Nack, Purpose, StartReply
from gapless.core.client_messages import Subscribed
from gapless.core.events import EventBatch
from gapless.core.identity import BrokerName, CellName, PubendName
from gapless.core.messages import Ping, Pong
from gapless.core.ticks import Span
from gapless.node.config import SECOND
from tests.node.country import Country
from tests.node.town import ANN, CONFIG, Town, event, subscribe

if TYPE_CHECKING:
    from gapless.core.messages import Message

PUBEND = PubendName("news/0")
NEVER = 3_600 * SECOND
PATIENT: dict[str, Any] = {"nack_repeat": NEVER, "nack_repeat_longest": NEVER}


def asking() -> tuple[Town, str, Nack]:
    """A broker below two relays, whom it asked, and what."""
    town = Town("l", **PATIENT)
    town.connect()
    town.receive(ANN, subscribe(1))
    town.receive("m1", StartReply(PUBEND, CellName("left"), 1, 0))
    some = Knowledge(PUBEND, Span(50, 60), (55,), EventBatch.join([event("red")]))
    town.receive("m1", some)
    [(asked, nack)] = nacks(town.wait(CONFIG.gap_patience))
    return town, asked, nack


def nacks(sent: list[tuple[str, Message]]) -> list[tuple[str, Nack]]:
    return [(to, each) for to, each in sent if isinstance(each, Nack)]


def wait(town: Town, duration: int, *live: str) -> list[tuple[str, Message]]:
    """Let time pass; these neighbours answer every ping."""
    sent: list[tuple[str, Message]] = []
    for _ in range(0, duration, CONFIG.heartbeat // 2):
        passed = town.wait(CONFIG.heartbeat // 2)
        for to, message in passed:
            if isinstance(message, Ping) and to in live:
                passed = passed + town.receive(to, Pong(message.number))
        sent += passed
    return sent


def test_a_question_is_put_to_another_member_when_the_one_that_was_asked_falls_silent() -> None:
    town, asked, nack = asking()
    [other] = {"m1", "m2"} - {asked}
    assert nacks(wait(town, CONFIG.dead_after + CONFIG.heartbeat, other)) == [(other, nack)]


def test_a_question_stays_where_it_is_while_that_one_lives() -> None:
    town, asked, _ = asking()
    assert nacks(wait(town, CONFIG.dead_after + CONFIG.heartbeat, asked)) == []


def test_a_question_is_put_to_another_member_at_once_when_the_link_breaks() -> None:
    town, asked, nack = asking()
    [other] = {"m1", "m2"} - {asked}
    town._do(town.node.link_down(BrokerName(asked), town.now))
    assert nacks(town.wait(1)) == [(other, nack)]


@pytest.mark.parametrize("purpose", Purpose)
def test_a_relay_puts_the_questions_of_those_below_again_whatever_they_are_for(
    purpose: Purpose,
) -> None:
    text = """
    cell = [
        {name = "top", brokers = [{name = "t"}], links = ["upper"]},
        {name = "upper", brokers = [{name = "u1"}, {name = "u2"}], links = ["lower"]},
        {name = "lower", brokers = [{name = "m"}], links = ["foot"]},
        {name = "foot", brokers = [{name = "f"}], subscribers = true},
    ]
    topic = [{name = "news", pubends = ["t"]}]
    """
    town = Town("m", text, **PATIENT)
    town.flush()
    nack = Nack(PUBEND, (Span(5, 9),), None, purpose)
    [(asked, _)] = nacks(town.receive("f", nack))
    [other] = {"u1", "u2"} - {asked}
    town._do(town.node.link_down(BrokerName(asked), town.now))
    assert nacks(town.wait(1)) == [(other, nack)]


def test_a_new_vector_is_spoken_at_once_so_that_a_subscription_starts_however_idle_its_topic() -> (
    None
):
    """No time passes, and nothing is published: only the host's word under the new vector can tell
    the subscriber's broker where the subscription starts."""
    country = Country(idle_silence=NEVER, change_wait=NEVER, change_wait_longest=NEVER)
    for number, colour in enumerate(("red", "green"), start=1):
        answer = country.ask("l", subscribe(number, f"colour = '{colour}'", topic="fixed"))
        assert isinstance(answer, Subscribed)
        assert answer.request == number
        country.wait(1)  # changes are gathered; no more than that
