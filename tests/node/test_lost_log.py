"""A host that has lost its disk: what its subscribers' brokers know of is told as a loss."""

from __future__ import annotations

from typing import Any

from gapless.core.client_messages import Deliveries, Lost, Subscribed
from gapless.core.effects import Append
from gapless.core.identity import PubendName
from gapless.core.ticks import Span
from gapless.testing.memory_volume import MemoryVolume
from gapless.testing.planted.losses import KEEPS_NO_PROMISE
from tests.node.subscriptions.test_homes import BEATS, Land
from tests.node.town import colours, publish

NAME = "desk"
PUBEND = "news/0"
ALL = ("p", "m1", "m2", "a", "b", "c")


class Coast(Land):
    """`desk` at a has left with its token; red, green and blue are published; it wants two."""

    def __init__(self, **limits: Any) -> None:
        super().__init__(**limits)
        first = self.subscribe("a", NAME, condition="colour <> 'green'")
        assert isinstance(first, Subscribed)
        self.token = first.start
        self.leave("a")
        self.ask("p", publish("red"), "pub")
        self.ask("p", publish("green", "blue"), "pub")
        self.wait(BEATS)
        log = self.towns["p"].volume.scan(f"log/{PUBEND}", 0, 1 << 62)
        self.ticks = dict(zip(colours(log[1]), log[0], strict=True))

    def flood(self, *names: str, left: MemoryVolume | None = None) -> None:
        """The host loses its disk, or has another one left; these restart."""
        self.towns["p"].volume = left or MemoryVolume()
        for name in names:
            self.restart(name)
        self.wait(BEATS)

    def returns(self, broker: str = "a") -> tuple[list[str], list[Span]]:
        """With its token: what it gets, and what it is told to be lost."""
        moved = self.subscribe(broker, NAME, condition="colour <> 'green'", token=self.token)
        assert isinstance(moved, Subscribed)
        self.wait(BEATS)
        heard = self.heard[f"ann@{broker}"]
        return self.delivered(broker), [each.span for each in heard if isinstance(each, Lost)]

    def delivered(self, broker: str) -> list[str]:
        heard = self.heard[f"ann@{broker}"]
        return colours(e for each in heard if isinstance(each, Deliveries) for e in each.events)


def born(coast: Coast) -> int:
    return coast.towns["p"].node.durable.streams.pubends[PubendName(PUBEND)].past.born


def test_who_returns_is_told_of_everything_up_to_the_new_life_of_the_host() -> None:
    coast = Coast()
    coast.flood(*ALL)
    assert coast.returns() == ([], [Span(coast.token[PUBEND], born(coast))])
    coast.ask("p", publish("white"), "pub")
    coast.wait(BEATS)
    assert coast.delivered("a") == ["white"], "it goes on"


def test_what_had_not_come_to_the_broker_of_the_subscriber_is_told_too() -> None:
    coast = Coast()
    coast.cut.add("p")
    coast.ask("p", publish("violet"), "pub")
    log = coast.towns["p"].volume.scan(f"log/{PUBEND}", 0, 1 << 62)
    coast.wait(1)
    coast.cut.clear()
    coast.flood(*ALL)
    colour, [gap] = coast.returns()
    assert not colour
    assert gap.start <= coast.ticks["red"]
    assert gap.end > log[0][-1]


def test_with_an_older_copy_of_the_disk_what_came_after_it_is_told() -> None:
    """Other brokers have kept more of its promises than the disk knows."""
    coast = Coast()
    red, old = coast.ticks["red"], MemoryVolume()
    ticks, events = coast.towns["p"].volume.scan(f"log/{PUBEND}", red, red + 1)
    old.commit([Append(f"log/{PUBEND}", tuple(ticks), tuple(events))])
    coast.flood(*ALL, left=old)
    colours, [gap] = coast.returns()
    assert colours == ["red"]
    assert gap.start <= coast.ticks["blue"] < gap.end
    [lost] = coast.towns["p"].node.durable.streams.pubends[PubendName(PUBEND)].past.lost_spans
    assert gap.end == lost.end


def test_an_older_copy_without_a_seal_is_not_noticed_if_no_broker_keeps_promises() -> None:
    """The fault that the test before would not survive."""
    coast = Coast(parts=KEEPS_NO_PROMISE)
    red, old = coast.ticks["red"], MemoryVolume()
    ticks, events = coast.towns["p"].volume.scan(f"log/{PUBEND}", red, red + 1)
    old.commit([Append(f"log/{PUBEND}", tuple(ticks), tuple(events))])
    coast.flood(*ALL, left=old)
    assert not coast.towns["p"].node.durable.streams.pubends[PubendName(PUBEND)].past.lost_spans


def test_it_is_told_at_another_broker_too_and_if_its_own_has_lost_its_disk_as_well() -> None:
    coast = Coast()
    coast.flood(*ALL)
    assert coast.returns("b") == ([], [Span(coast.token[PUBEND], born(coast))])
    coast = Coast()
    coast.towns["a"].volume = MemoryVolume()
    coast.flood(*ALL)
    assert coast.returns() == ([], [Span(coast.token[PUBEND], born(coast))])


def test_without_a_loss_nobody_is_told_of_one() -> None:
    coast = Coast()
    for name in ALL:
        coast.restart(name)
    coast.wait(BEATS)
    assert coast.returns() == (["red", "blue"], [])
