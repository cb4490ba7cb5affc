"""A host that has lost its disk: what its subscribers' brokers know of is told as a loss."""

from __future__ import annotations

from gapless.core.client_messages import Deliveries, Lost, Subscribed
from gapless.core.effects import Append
from gapless.core.ticks import Span
from gapless.testing.memory_volume import MemoryVolume
from tests.node.subscriptions.test_homes import BEATS, Land
from tests.node.town import colours, publish

NAME = "desk"
PUBEND = "news/0"
ALL = ("p", "m1", "m2", "a", "b", "c")


class Coast(Land):
    """`desk` at a has left with its token; red, green and blue are published; it wants two."""

    def __init__(self, **limits: int) -> None:
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


def test_who_returns_is_told_exactly_from_the_first_to_the_last_event_that_was_wanted() -> None:
    coast = Coast()
    coast.flood(*ALL)
    assert coast.returns() == ([], [Span(coast.ticks["red"], coast.ticks["blue"] + 1)])
    coast.ask("p", publish("white"), "pub")
    coast.wait(BEATS)
    assert coast.delivered("a") == ["white"], "it goes on"


def test_with_an_older_copy_of_the_disk_what_came_after_it_is_told() -> None:
    coast = Coast()
    red, old = coast.ticks["red"], MemoryVolume()
    ticks, events = coast.towns["p"].volume.scan(f"log/{PUBEND}", red, red + 1)
    old.commit([Append(f"log/{PUBEND}", tuple(ticks), tuple(events))])
    coast.flood(*ALL, left=old)
    blue = coast.ticks["blue"]
    assert coast.returns() == (["red"], [Span(blue, blue + 1)])


def test_what_caches_still_have_is_delivered() -> None:
    for restarted in (("p",), ("p", "a")):
        coast = Coast(past_window=1 << 40)
        coast.flood(*restarted)
        assert coast.returns() == (["red", "blue"], []), restarted


def test_where_the_log_knows_of_no_event_no_loss_is_told() -> None:
    """It goes on at another broker, which never heard of it; or its disk is lost as well."""
    coast = Coast()
    coast.flood(*ALL)
    assert coast.returns("b") == ([], [])
    coast = Coast()
    coast.towns["a"].volume = MemoryVolume()
    coast.flood(*ALL)
    assert coast.returns() == ([], [])


def test_without_a_loss_nobody_is_told_of_one() -> None:
    coast = Coast()
    for name in ALL:
        coast.restart(name)
    coast.wait(BEATS)
    assert coast.returns() == (["red", "blue"], [])
