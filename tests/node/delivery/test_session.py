"""What a client is told is durable; what is said for it goes up under a durable epoch."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import pytest

from gapless.core.broker_messages import Knowledge, ReleaseHold, StartQuery, StartReply
from gapless.core.client_messages import Consumed, Deliveries, Lost, Refused, Subscribe, Subscribed
from gapless.core.effects import Effect, Persist, Send, Tell
from gapless.core.identity import BrokerName, SubscriptionName
from gapless.core.ticks import Span
from tests.bounds import so_long_as
from tests.node.town import ALONE, CHAIN, NEWS, Town, colours, publish

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gapless.core.messages import Message

HOME = ALONE.replace('["h", "h"]', '["h"]')
DESK, KEEPER = SubscriptionName("desk"), SubscriptionName("keeper")


class SlowDisk(Town):
    """A node whose writes become durable when the test says so."""

    def __init__(self, *arguments: Any, **limits: Any) -> None:
        self.writing: deque[Persist] = deque()
        super().__init__(*arguments, **limits)

    def _do(self, effects: Iterable[Effect]) -> None:
        rest = deque(effects)
        for _ in so_long_as(lambda: rest):
            match rest.popleft():
                case Send(to, message):
                    self.sent.append((to, message))
                case Persist() as write:
                    self.writing.append(write)
                case Tell(message):
                    rest.extend(self.node.receive(self.node.name, message, self.now))
            self.node.check()

    def write(self) -> list[tuple[str, Message]]:
        """The oldest write ends; what is sent because of it."""
        write = self.writing.popleft()
        self.volume.commit(write.writes)
        self._do(write.then)
        return self.flush()

    def write_all(self) -> list[tuple[str, Message]]:
        sent: list[tuple[str, Message]] = []
        for _ in so_long_as(lambda: self.writing):
            sent += self.write()
        return sent


def with_events(count: int, **limits: Any) -> SlowDisk:
    """A broker that keeps so many events, for one who is away."""
    town = SlowDisk("h", HOME, **limits)
    town.write_all()
    for name in ("pat", "keeper"):
        town.connect(name)
    town.receive("keeper", Subscribe(NEWS, 1, 1, name=KEEPER, tokens="broker"))
    town.write_all()
    town.leave("keeper")
    for _ in range(count):
        town.now += 1_000  # type: ignore[assignment]
        town.receive("pat", publish("red"))
        town.write_all()
    town.wait(1_000)
    town.write_all()
    return town


def test_where_one_starts_that_wants_the_earliest_event_is_durable_before_it_is_told() -> None:
    town = with_events(3)
    town.connect("ann")
    sent = town.receive("ann", Subscribe(NEWS, 1, 1, name=DESK, earliest=True))
    for _ in so_long_as(lambda: town.node.durable.named.table.session(DESK) is None):
        sent += town.write()
    assert town.writing, "where it starts is being written"
    told = [each for to, each in sent if to == "ann"]
    assert told == [], "a crash could still take it back"
    told = [each for to, each in town.write_all() if to == "ann"]
    assert isinstance(told[0], Subscribed)
    assert told[0].start["news/0"] > 0
    assert sum(len(each.ticks) for each in told if isinstance(each, Deliveries)) == 3
    assert not any(isinstance(each, Lost) for each in told)


def test_what_is_delivered_by_catch_up_counts_as_delivered_also_when_its_client_is_gone() -> None:
    town = with_events(3)
    town.connect("ann")
    town.receive("ann", Subscribe(NEWS, 1, 1, name=DESK, earliest=True))
    town.write_all()
    assert town.node.statistics()["delivered"] == 3
    town.receive("pat", publish("red"))
    town.write_all()
    assert town.node.statistics()["delivered"] == 4, "one as it came"
    town.leave("ann")
    assert town.node.statistics()["delivered"] == 4


def test_a_hold_on_release_waits_until_the_epoch_is_durable() -> None:
    town = SlowDisk("f", CHAIN)
    [query] = [each for _, each in town.wait(0) if isinstance(each, StartQuery)]
    town.connect("ann")
    town.receive("h", StartReply(query.pubend, query.cell, query.number, 1 << 20))
    [epoch] = [
        each
        for each in town.writing
        if any(getattr(w, "table", "") == "epochs" for w in each.writes)
    ]
    town.writing.remove(epoch)
    wish = Subscribe(
        NEWS, 1, 1, name=DESK, token={"news/0": 1 << 20}, previous=BrokerName("h"), moves=1
    )
    sent = town.receive("ann", wish)
    sent += town.write_all()
    for _ in range(20):
        sent += town.wait(100_000) + town.write_all()
    assert town.node.durable.named.table.arrivals, "it has come from another broker"
    assert not any(isinstance(each, ReleaseHold) for _, each in sent)
    town.writing.append(epoch)
    sent = town.write_all()
    for _ in range(20):
        sent += town.wait(100_000)
    assert any(isinstance(each, ReleaseHold) for _, each in sent)


def test_a_hold_for_one_that_arrives_releases_nothing_that_another_here_still_needs() -> None:
    """It counts as this broker's newest report, so it must speak for all of its subscriptions."""
    town, start = Town("f", CHAIN), 1 << 20
    [query] = [each for _, each in town.wait(0) if isinstance(each, StartQuery)]
    town.connect("ann")
    town.receive("h", StartReply(query.pubend, query.cell, query.number, start))
    keeper = SubscriptionName("k3")  # which this broker need ask nobody about
    [(_, answer)] = town.receive("ann", Subscribe(NEWS, 1, 1, name=keeper))
    assert isinstance(answer, Subscribed)
    town.receive("h", Knowledge(query.pubend, Span(start, 3 * start)))
    town.wait(1_000_000)
    here = {"news/0": 2 * start}
    wish = Subscribe(NEWS, 2, 2, name=DESK, token=here, previous=BrokerName("h"), moves=1)
    sent = town.receive("ann", wish)
    for _ in range(20):
        sent += town.wait(100_000)
    holds = {each.tick for _, each in sent if isinstance(each, ReleaseHold)}
    assert holds == {start}


def test_who_returns_is_level_only_when_its_client_has_room_for_what_is_not_logged_yet() -> None:
    town = SlowDisk("h", HOME, client_queue_max=2)
    town.write_all()
    town.connect("ann")
    town.receive("ann", Subscribe(NEWS, 1, 1, name=KEEPER))
    town.write_all()
    town.leave("ann")
    sent: list[tuple[str, Message]] = []

    def write_all_but_the_filtered_log() -> None:
        for _ in range(20):
            logged = [each for each in town.writing if "filtered/" not in repr(each.writes)]
            for each in logged[:1]:
                town.writing.remove(each)
                town.writing.appendleft(each)
                sent.extend(town.write())
            sent.extend(town.wait(100_000))

    town.connect("pub")
    town.receive("pub", publish("1", "2", "3", "4", "5"))
    write_all_but_the_filtered_log()
    assert town.writing, "delivered, and not in the filtered log yet"
    town.connect("bob")
    sent += town.receive("bob", Subscribe(NEWS, 1, 1, name=KEEPER))
    write_all_but_the_filtered_log()

    def got() -> list[str]:
        batches = [m.events for to, m in sent if to == "bob" and isinstance(m, Deliveries)]
        return [colour for each in batches for colour in colours(each)]

    assert len(got()) <= 2
    for _ in range(10):
        sent += town.receive("bob", Consumed(1))
        sent += town.write_all() + town.wait(100_000)
    assert got() == ["1", "2", "3", "4", "5"]


def test_who_loses_a_name_that_is_being_created_may_come_again_and_has_it() -> None:
    town = SlowDisk("h", HOME)
    town.write_all()
    for name in ("new", "old"):
        town.connect(name)
    wish = Subscribe(NEWS, 1, 1, name=DESK)
    assert town.receive("new", wish) == []
    [(to, refused)] = town.receive("old", wish)  # what the old connection said comes late
    assert isinstance(refused, Refused)
    assert (to, refused.retry) == ("new", True)
    town.leave("old")
    town.write_all()
    [(to, answer)] = town.receive("new", wish)
    assert (to, type(answer)) == ("new", Subscribed)


@pytest.mark.parametrize("tokens", [(None, 9), (9, 5), (5, 9), (5, None)])
def test_who_has_a_name_that_was_being_created_for_another_starts_at_its_own_token(
    tokens: tuple[int | None, int | None],
) -> None:
    town = SlowDisk("h", HOME)
    town.write_all()
    for name, tick in zip(("first", "second"), tokens, strict=True):
        town.connect(name)
        token = None if tick is None else {"news/0": tick << 20}
        town.receive(name, Subscribe(NEWS, 1, 1, name=DESK, token=token))
    [told] = [message for _, message in town.write_all() if isinstance(message, Subscribed)]
    shown = tokens[1] or tokens[0]  # without one: what is acknowledged
    assert shown is not None
    assert told.start == {"news/0": shown << 20}


def test_who_waits_for_its_start_when_another_connection_comes_is_told_to_come_again() -> None:
    town = with_events(3)
    wish = Subscribe(NEWS, 1, 1, name=DESK, earliest=True)
    for name in ("new", "old"):
        town.connect(name)
    town.receive("new", wish)
    for _ in so_long_as(lambda: town.node.durable.named.table.session(DESK) is None):
        town.write()
    sent = town.receive("old", wish)  # what the old connection said comes late
    assert [to for to, _ in sent] == ["new"], "where the old one starts is not durable yet"
    [(_, refused)] = sent
    assert isinstance(refused, Refused), "its request is not answered yet"
    assert (refused.request, refused.retry) == (1, True)
    sent = town.write_all()
    assert [type(each) for to, each in sent if to == "old"][:1] == [Subscribed]
    town.leave("old")
    told = town.receive("new", wish) + town.write_all()
    assert [type(each) for to, each in told if to == "new"][:1] == [Subscribed]
