"""Many that return at once: how much they ask for, and how much they are sent in one step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gapless.core.broker_messages import Knowledge, Nack, Purpose, StartQuery, StartReply
from gapless.core.client_messages import Consumed, Deliveries, Subscribe
from gapless.core.events import EventBatch
from gapless.core.identity import PubendName, SubscriptionName
from gapless.core.name_messages import NameEntry, NameQuestion
from gapless.core.ticks import Span
from gapless.node.directory.registry import answer_to
from tests.bounds import so_long_as
from tests.node.town import ALONE, CHAIN, NEWS, Town, event, publish, subscribe

if TYPE_CHECKING:
    from gapless.core.messages import Message

NAMES = ("ann", "bob", "eve")
COUNT = 10
FIRST = "news/0"


class Return:
    """One broker with the pubend; each of `NAMES` has missed as many events, and returns."""

    def __init__(self, *, alike: bool = False, **limits: Any) -> None:
        text = ALONE.replace('["h", "h"]', '["h"]')
        self.alike = alike  # do they all have the same condition?
        self.town = Town("h", text, catch_up_window=4, **limits)
        self.town.wait(1_000)
        self.got: dict[str, list[int]] = {name: [] for name in NAMES}
        self.messages: list[Deliveries] = []
        for name in NAMES:
            self.town.connect(name)
            self.attach(name)
            self.town.leave(name)
        self.town.connect("publisher")
        self.town.receive("publisher", publish(*["red"] * COUNT))
        self.town.wait(1_000)

    def attach(self, name: str) -> int:
        condition = "" if self.alike else f"colour <> '{name}'"
        wish = Subscribe(NEWS, 1, 1, condition, name=SubscriptionName(name), tokens="broker")
        return self.take(self.town.receive(name, wish))

    def take(self, sent: list[tuple[str, Message]]) -> int:
        """How many events were sent."""
        count = 0
        for name, message in sent:
            if isinstance(message, Deliveries):
                self.got[name] += message.ticks
                self.messages.append(message)
                count += len(message.ticks)
        return count

    def step(self) -> int:
        """The next step of those that are behind; how many events were sent in it."""
        town, due = self.town, self.town.node.durable.attachments.catch_ups.deadline
        assert due is not None
        town.now = due
        town._do(town.node.fire(due))
        return self.take(town.flush())


def test_many_that_return_are_sent_no_more_in_one_step_than_all_together_may_be() -> None:
    crowd = Return(catch_up_total_max=5)
    counts = []
    for name in NAMES:
        crowd.town.connect(name)
        counts.append(crowd.attach(name))
    while sum(map(len, crowd.got.values())) < COUNT * len(NAMES):
        counts.append(crowd.step())
        assert counts[-1], "there is no step in vain"
    assert max(counts) < 5 + 4
    assert all(len(ticks) == len(set(ticks)) == COUNT for ticks in crowd.got.values())
    assert all(ticks == sorted(ticks) for ticks in crowd.got.values())


def test_those_that_want_the_same_are_sent_the_same_messages_as_one_takes_them() -> None:
    crowd = Return(alike=True, catch_up_total_max=5)
    for name in NAMES:
        crowd.town.connect(name)
        crowd.attach(name)
    counts = []
    while sum(map(len, crowd.got.values())) < COUNT * len(NAMES):
        counts.append(crowd.step())
        assert counts[-1], "there is no step in vain"
    assert max(counts) > 5 + 4, "what is at hand costs less"
    assert all(len(ticks) == len(set(ticks)) == COUNT for ticks in crowd.got.values())
    full = [message for message in crowd.messages if message.ticks]
    assert len({id(message) for message in full}) < len(full), "some were made once for all"


def test_one_counts_as_behind_until_it_has_taken_most_of_what_it_missed() -> None:
    crowd = Return(catch_up_total_max=COUNT)
    behind = crowd.town.node.durable.attachments.catch_ups
    crowd.town.connect("ann")
    crowd.attach("ann")
    crowd.town.wait(1_000)
    session = crowd.town.node.durable.named.table.session(SubscriptionName("ann"))
    assert session is not None
    assert not session.behind
    assert behind, "its client has ten events to take, more than a window"
    crowd.town.receive("ann", Consumed(COUNT - 4))
    crowd.town.wait(1_000)
    assert behind.deadline is None
    assert not behind


def test_one_that_returns_alone_gets_all_that_may_be_sent_in_one_step() -> None:
    crowd = Return(catch_up_total_max=COUNT)
    crowd.town.connect("ann")
    assert crowd.attach("ann") == COUNT, "three windows"


def test_those_that_return_together_take_turns() -> None:
    crowd = Return(catch_up_total_max=4)
    for name in NAMES:
        crowd.town.connect(name)
        crowd.attach(name)
    for _ in so_long_as(lambda: sum(map(len, crowd.got.values())) < COUNT * len(NAMES)):
        crowd.step()
        ahead = [len(ticks) for ticks in crowd.got.values()]
        assert max(ahead) - min(ahead) <= 2 * 4, "nobody waits for two turns of another"


def test_what_is_published_meanwhile_is_not_held_up_by_those_that_are_behind() -> None:
    crowd = Return(catch_up_total_max=4)
    crowd.town.connect("level")
    crowd.got["level"] = []
    crowd.attach("level")
    for name in NAMES:
        crowd.town.connect(name)
        crowd.attach(name)
    behind = sum(len(crowd.got[name]) for name in NAMES)
    crowd.take(crowd.town.receive("publisher", publish("green")))
    assert len(crowd.got["level"]) == 1
    assert sum(len(crowd.got[name]) for name in NAMES) == behind


# --- where the pubend is elsewhere ----------------------------------------------------------------


class Remote:
    """A broker below the pubend's; each of `NAMES` wants ten events that it has forgotten."""

    def __init__(self, **limits: Any) -> None:
        self.town = town = Town("f", CHAIN, catch_up_window=4, past_window=1, **limits)
        [query] = [each for _, each in town.wait(0) if isinstance(each, StartQuery)]
        start = 1 << 20
        town.receive("h", StartReply(query.pubend, query.cell, query.number, start))
        for name in NAMES:
            town.connect(name)
            sent = town.receive(
                name, Subscribe(NEWS, 1, 1, name=SubscriptionName(name), tokens="broker")
            )
            for _, asked in sent:
                if isinstance(asked, NameQuestion):
                    entry = NameEntry(asked.sender, 0, "", asked.epoch, asked.number)
                    town.receive("h", answer_to(asked, entry))
            town.leave(name)
        self.ticks = tuple(start + 1_024 * n for n in range(COUNT))
        events = EventBatch.join([event("red")] * COUNT)
        span = Span(start, self.ticks[-1] + 1)
        town.receive("h", Knowledge(query.pubend, span, self.ticks, events))
        town.wait(1_000)

    def attach(self, name: str) -> list[int]:
        """The ticks that are asked for because this one returns."""
        self.town.connect(name)
        wish = Subscribe(NEWS, 1, 1, name=SubscriptionName(name), tokens="broker")
        return self.asked(self.town.receive(name, wish))

    def asked(self, sent: list[tuple[str, Message]]) -> list[int]:
        nacks = [each for to, each in sent if isinstance(each, Nack) and to == "h"]
        return [self.ticks.index(span.start) for nack in nacks for span in nack.spans]

    def answer(self, *places: int) -> list[tuple[str, Message]]:
        ticks = tuple(self.ticks[place] for place in places)
        events = EventBatch.join([event("red")] * len(ticks))
        span = Span(ticks[0], ticks[-1] + 1)
        pubend = PubendName("news/0")
        answer = Knowledge(
            pubend,
            span,
            ticks,
            events,
            requested=True,
            purpose=Purpose.CATCH_UP,
            scattered=True,
        )
        return self.town.receive("h", answer)


def test_no_more_is_asked_for_than_all_together_may_have_open() -> None:
    crowd = Remote(catch_up_total_max=6)
    assert crowd.attach("ann") == [0, 1, 2, 3]
    assert crowd.attach("bob") == []  # it has asked for two that are out already
    assert crowd.attach("eve") == []
    assert crowd.asked(crowd.answer(0, 1, 2, 3)) == []  # so much is enough for one step
    asked = crowd.asked(crowd.town.wait(1))
    assert min(asked) == 4, "what ann has got serves the others"
    assert len(asked) <= 6


def test_one_whose_client_has_no_room_does_not_keep_others_from_their_turn() -> None:
    crowd = Remote(catch_up_total_max=2, client_queue_max=2)
    crowd.town.connect("ann")
    crowd.town.receive("ann", subscribe(2))  # which gets what is published now
    crowd.town.receive("ann", Subscribe(NEWS, 1, 1, name=SubscriptionName("ann"), tokens="broker"))
    crowd.attach("bob")
    assert crowd.town.node.durable.attachments.catch_ups.turns.next() is None
    new = tuple(crowd.ticks[-1] + 1_024 * n for n in (1, 2))
    events = EventBatch.join([event("red")] * 2)
    span = Span(crowd.ticks[-1] + 1, new[-1] + 1)
    crowd.town.receive("h", Knowledge(PubendName("news/0"), span, new, events))
    crowd.town.wait(1)
    sent = crowd.answer(0, 1)
    assert [to for to, each in sent if isinstance(each, Deliveries) and each.only] == ["bob"]
    assert crowd.asked(crowd.town.receive("bob", Consumed(2)) + crowd.town.wait(1)) == [2, 3]
    assert crowd.asked(crowd.town.receive("ann", Consumed(2))) == []  # it is bob's turn
    crowd.answer(2, 3)
    sent = crowd.town.wait(1)
    assert [to for to, each in sent if isinstance(each, Deliveries) and each.only] == ["ann"]
    assert crowd.asked(sent) == [], "what bob has got serves ann"


def test_those_that_return_before_time_has_passed_share_one_budget() -> None:
    """As many messages as come in one turn of a driver's loop: a budget for each would be a turn
    without end."""
    crowd = Return(alike=True, catch_up_total_max=COUNT)
    counts = []
    for name in NAMES:
        crowd.town.connect(name)
        counts.append(crowd.attach(name))
    assert counts == [COUNT, 0, 0]
    assert crowd.step() == 2 * COUNT, "the same for both, which costs little"


def test_what_those_that_are_behind_look_at_and_ask_for_counts_too() -> None:
    """One event at a time is all that this budget allows, and each step ends."""
    crowd = Return(catch_up_work_max=1)
    crowd.town.connect("ann")
    crowd.attach("ann")
    for _ in so_long_as(lambda: len(crowd.got["ann"]) < COUNT):
        assert crowd.step() <= 4, "a window at most"
