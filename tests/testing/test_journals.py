"""Journals of real clients: what is right passes, and every kind of wrong is found and named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gapless.client.delivery import Gap, Silence
from gapless.core.events import Event
from gapless.core.identity import PubendName, PublisherName, TopicName
from gapless.core.ticks import Span, Tick
from gapless.node.network import parse_network
from gapless.testing.journals import PublisherJournal, Session, SubscriberJournal, judge
from gapless.testing.record import Violation
from gapless.wire.events import encode_event

if TYPE_CHECKING:
    from gapless.core.events import Attributes

NETWORK = parse_network(
    """
    [[cell]]
    name = "all"
    subscribers = true
    brokers = [{ name = "b" }]
    [[topic]]
    name = "t"
    pubends = ["b"]
    """
)
TOPIC, PUBEND, FEED = TopicName("t"), PubendName("t/0"), PublisherName("feed")
SENT: list[tuple[Attributes, bytes]] = [({"price": number}, b"") for number in range(200)]
LOG = [(1_000 + n, encode_event(*SENT[n], FEED, n)) for n in range(200)]
WANTED = range(100, 200)
END = {PUBEND: 1_200}


def event(number: int, **unlike: Any) -> Event:
    fields = {"attributes": SENT[number][0], "tick": Tick(1_000 + number), **unlike}
    return Event(body=b"", topic=TOPIC, pubend=PUBEND, publisher=FEED, sequence=number, **fields)


def gap(start: int, end: int) -> Gap:
    return Gap(TOPIC, PUBEND, Span(1_000 + start, 1_000 + end))


def saw(*items: Event | Gap | Silence, start: int = 1_000, **fields: Any) -> Session:
    return Session({PUBEND: start}, items=list(items), **{"token": END, **fields})


def check(
    *sessions: Session,
    name: str | None = "desk",
    log: list[tuple[int, bytes]] = LOG,
    durable: int = 200,
) -> int:
    subscriber = SubscriberJournal("desk", TOPIC, "price >= 100", name, sessions=[*sessions])
    publisher = PublisherJournal(FEED, TOPIC, SENT, durable)
    return judge(NETWORK, {PUBEND: log}, [publisher], [subscriber])


ALL = [event(number) for number in WANTED]


@pytest.mark.parametrize("name", ["desk", None])
def test_each_once_and_in_order_is_right(name: str | None) -> None:
    assert check(saw(*ALL), name=name) == 100
    assert check(saw(*ALL[:7], Silence(TOPIC, PUBEND, Tick(1_107)), *ALL[7:]), name=name) == 100


@pytest.mark.parametrize("name", ["desk", None])
@pytest.mark.parametrize(
    ("items", "promise"),
    [
        ([*ALL[:50], *ALL[51:]], "no gap"),
        ([*ALL[:50], ALL[49], *ALL[50:]], "exactly once|in order"),
        ([*ALL[:50], ALL[51], ALL[50], *ALL[52:]], "in order|no gap"),
        ([event(99), *ALL], "only matching"),
        ([event(100, attributes={"price": 101}), *ALL[1:]], "only matching"),
        ([event(100, tick=Tick(1_099)), *ALL[1:]], "only matching"),
    ],
)
def test_what_is_missing_doubled_disordered_or_unwanted_is_found(
    name: str | None, items: list[Event], promise: str
) -> None:
    with pytest.raises(Violation, match=promise):
        check(saw(*items), name=name)


def test_who_ends_too_early_is_found() -> None:
    with pytest.raises(Violation, match="everything arrives"):
        check(saw(*ALL[:-1], token={PUBEND: 1_199}))


def test_a_gap_is_unjust_while_the_log_has_what_is_in_it() -> None:
    with pytest.raises(Violation, match="gap only where it must be"):
        check(saw(*ALL[:10], gap(110, 120), *ALL[20:]))


def test_an_anonymous_one_may_go_on_after_a_gap_and_misses_nothing_else() -> None:
    assert check(saw(*ALL[:10], gap(110, 120), *ALL[20:]), name=None) == 90
    with pytest.raises(Violation, match="no gap"):
        check(saw(*ALL[:10], gap(110, 120), *ALL[21:]), name=None)


def test_sessions_go_on_where_the_last_one_ended() -> None:
    token = {PUBEND: 1_150}
    first = saw(*ALL[:50], token=token)
    assert check(first, saw(*ALL[50:], start=1_150, shown=token)) == 100
    assert check(first, saw(*ALL[40:], start=1_140)) == 110, "without its token, from before"
    for second in (
        saw(*ALL[51:], start=1_151, shown=token),
        saw(*ALL[51:], start=1_151),
        saw(*ALL[49:], start=1_149, shown=token),
    ):
        with pytest.raises(Violation, match="it starts where it should"):
            check(first, second)


def test_what_a_publisher_was_told_to_be_durable_is_in_the_log_once() -> None:
    assert check(saw(*ALL[:-1]), log=LOG[:-1], durable=199) == 99
    with pytest.raises(Violation, match="durable before acknowledged"):
        check(saw(*ALL[:-1]), log=LOG[:-1])
    with pytest.raises(Violation, match="once published"):
        check(saw(*ALL), log=[*LOG, (1_300, LOG[-1][1])])
