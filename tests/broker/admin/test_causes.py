"""A newcomer at the console finds out why an event did not come, in at most three clicks.

Each cause is planted in a network of processes; the test knows it from outside: what it published,
who consumed it, which broker it killed. Clicks are counted; what is typed is not.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from gapless import sync
from tests.broker.admin.test_network_console import Network
from tests.broker.admin.visit import Visit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CLICKS_MAX = 3
CONDITION = "price > 90 AND side = 'buy'"
GOOD = {"price": 95, "side": "buy"}


class Newcomer:
    """A person before a page that was just opened."""

    def __init__(self, browser: Any, address: str, shot: str) -> None:
        size = {"width": 1280, "height": 900}
        self.seen = Visit(browser, address, viewport=size)
        self.seen.text("#health", "brokers answer")
        self.clicks = 0
        self._shot = shot

    def click(self, selector: str, text: str = "") -> None:
        self.clicks += 1
        found = self.seen.page.locator(selector)
        (found.filter(has_text=text) if text else found).first.click()

    def click_event(self, number: int) -> None:
        """The `why?` of the event that has this number."""
        self.clicks += 1
        line = self.seen.page.locator("#why-answer .events li").filter(has_text=f'"n":{number},')
        line.locator("button").click()

    def ask(self, name: str, number: int) -> None:
        """By the list of subscriptions, and that of the newest events."""
        self.click("#tab-subscriptions")
        self.click("#subscription-rows button.link", name)
        self.click_event(number)

    def type(self, selector: str, text: str) -> None:
        self.seen.page.fill(selector, text)

    def finds(self, *texts: str) -> None:
        for text in texts:
            self.seen.text("#why-answer .verdict", text)
        self.ends()

    def ends(self) -> None:
        assert self.clicks <= CLICKS_MAX
        assert self.seen.problems == []
        self.seen.shot(f"cause-{self._shot}")
        self.seen.page.context.close()


class Desks:
    """A network in which twelve things went wrong, and its clients, which stay."""

    def __init__(self, network: Network, stack: ExitStack) -> None:
        self.network = network
        self.feed = stack.enter_context(sync.connect(network.url("host")))
        self.west = stack.enter_context(sync.connect(network.url("west")))
        self._slow = stack.enter_context(sync.connect(network.url("west")))
        self._stack = stack

    def publish(self, number: int, **attributes: Any) -> Any:
        return self.feed.publish("t", {"n": number, **attributes})

    def plant(self) -> None:
        self.feed.create_topic("other", hosts=["host"])
        self.feed.create_topic("short", hosts=["host"], retention_bytes=20_000)
        for name, topic, condition in (
            ("desk", "t", CONDITION), ("changed", "t", "price > 100"), ("done", "t", ""),
            ("elsewhere", "other", ""), ("forgetful", "short", ""),
        ):  # fmt: skip
            with self.west.subscribe(topic, condition, name=name):
                pass
        self._stack.enter_context(self._slow.subscribe("t", name="slow"))
        self.publish(1, price=50, side="buy")
        self.publish(2, side="buy")
        self.publish(3, price="95", side="buy")
        self.publish(4, **GOOD)
        self.consume("done", 4)
        self.west.alter_subscription("changed", condition="price > 10")
        with self.west.subscribe("t", name="late"):
            pass
        self.lost = self.feed.publish("short", {"n": 0}, b"x" * 1_000)
        for _ in range(30):
            self.feed.publish_many("short", [({"n": 0}, b"x" * 1_000)] * 5)
        with self.west.subscribe("t", name="crew", share_by="n") as member:
            self.publish(5, **GOOD)
            event: Any = next(iter(member))
            member.reject(event, reason="no ink", delay_s=600)

    def consume(self, name: str, count: int) -> None:
        with self.west.subscribe("t", name=name) as subscription:
            for _ in zip(range(count), subscription, strict=False):
                pass
            subscription.acknowledge()


def by_event(name: str, number: int, *texts: str) -> Callable[[Newcomer, Desks], None]:
    def act(person: Newcomer, _: Desks) -> None:
        person.ask(name, number)
        person.finds(*texts)

    return act


def misspelt(person: Newcomer, _: Desks) -> None:
    person.click("#tab-why")
    person.type("#why-subscription", "dask")
    person.click_event(4)
    person.finds("no such subscription: No broker has a subscription 'dask'")


def of_another_topic(person: Newcomer, _: Desks) -> None:
    person.click("#tab-why")
    person.type("#why-subscription", "elsewhere")
    person.click_event(4)
    person.finds("another topic: 'elsewhere' subscribes to 'other'")


def never_published(person: Newcomer, _: Desks) -> None:
    person.click("#tab-why")
    person.type("#why-subscription", "desk")
    person.type("#why-where", "n = 77")
    person.click("#why-form button")
    person.finds("not published: No event of 't' that is kept matches n = 77")


def released(person: Newcomer, desks: Desks) -> None:
    person.click("#tab-subscriptions")
    person.click("#subscription-rows button.link", "forgetful")
    person.type("#why-event", f"{desks.lost.pubend}:{desks.lost.tick}")
    person.click("#why-form button")
    person.finds("released: .* its limits are reached, and the client gets a gap")


def for_all(person: Newcomer, _: Desks) -> None:
    """One event, and what became of it for each subscription of the topic."""
    person.click("#tab-why")
    person.click_event(4)
    for name, verdict in (("desk", "waiting"), ("late", "began later"), ("done", "acknowledged")):
        person.seen.text("#why-answer tr", f"{name}.*{verdict}")
    person.ends()


CAUSES: dict[str, Callable[[Newcomer, Desks], None]] = {
    "a value": by_event("desk", 1, "filtered: .*price > 90 is FALSE: price is 50"),
    "a missing attribute": by_event(
        "desk", 2, "filtered: .*price > 90 is UNKNOWN: price is missing"
    ),
    "a value of another type": by_event("desk", 3, "filtered: .*is UNKNOWN: price is '95'"),
    "nobody is there": by_event("desk", 4, "waiting: No client is attached to it at west"),
    "it began later": by_event("late", 4, "began later: late takes events from"),
    "it was consumed": by_event("done", 4, "acknowledged: A client has acknowledged it"),
    "a slow client": by_event("slow", 4, "sent: .*events wait there to be consumed"),
    "a group gave it back": by_event("crew", 5, "waiting: .*The last reason: no ink"),
    "another condition then": by_event("changed", 4, "filtered: The condition that it had then"),
    "a misspelt name": misspelt,
    "another topic": of_another_topic,
    "never published": never_published,
    "released": released,
    "one event, all subscriptions": for_all,
}


@pytest.fixture
def desks(tmp_path: Path) -> Iterator[tuple[str, Desks]]:
    network = Network(tmp_path)
    with network.running() as address, ExitStack() as stack:
        found = Desks(network, stack)
        found.plant()
        yield address, found


def test_each_planted_cause_is_found_in_three_clicks(
    desks: tuple[str, Desks], browser: Any
) -> None:
    address, planted = desks
    for name, find in CAUSES.items():
        find(Newcomer(browser, address, name.replace(" ", "-")), planted)
    planted.network.kill("relay-1", "relay-2")
    planted.publish(6, **GOOD)
    person = Newcomer(browser, address, "brokers-down")
    for name in ("relay-1", "relay-2"):
        person.seen.text("#broker-rows tr", f"{name}.*down")
    person.ask("desk", 6)
    person.finds("on its way: .*These brokers do not answer: .*relay-1.*relay-2")
