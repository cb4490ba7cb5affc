"""Topics on which nothing happens cost next to nothing, and wake at once when something does."""

from __future__ import annotations

from gapless.core.client_messages import Deliveries
from gapless.core.effects import Persist, Send
from gapless.node.deadlines import RIPE_MAX
from tests.node.town import ALONE, ANN, CONFIG, Town, publish, subscribe

SECOND = 1_000_000
MINUTE = 60 * SECOND
COUNT = 40
MANY = """
[[cell]]
name = "home"
brokers = [{ name = "h" }]
subscribers = true
""" + "".join(f'[[topic]]\nname = "t{number}"\npubends = ["h"]\n' for number in range(COUNT))


class Counted(Town):
    """A node whose work is counted: wake-ups, writes and messages."""

    wakes = effects = 0

    def _do(self, effects: object) -> None:
        some = list(effects)  # type: ignore[call-overload]
        self.wakes += 1
        self.effects += sum(isinstance(each, Persist | Send) for each in some)
        super()._do(some)


def test_idle_topics_write_and_wake_less_and_less() -> None:
    town = Counted("h", MANY)
    town.wait(10 * SECOND)
    assert town.effects > COUNT * 5, "at first each says often that it is idle"
    town.wait(5 * MINUTE)
    town.wakes = town.effects = 0
    town.wait(MINUTE)
    assert town.effects <= COUNT * 5, "four times a minute"
    assert town.wakes <= COUNT * 5 + MINUTE // CONFIG.heartbeat


def test_many_topics_that_are_due_together_take_several_steps() -> None:
    """So that others are served between them."""
    many = MANY + "".join(
        f'[[topic]]\nname = "m{number}"\npubends = ["h"]\n' for number in range(RIPE_MAX)
    )
    town = Counted("h", many)
    for _ in range(8):
        town.effects = 0
        assert town.node.deadline is not None
        town.now = max(town.now, town.node.deadline)
        town._do(town.node.fire(town.now))
        assert town.effects <= RIPE_MAX


def test_a_topic_that_was_idle_for_long_delivers_at_once_in_either_order() -> None:
    town = Town("h", ALONE)
    town.connect()
    town.receive(ANN, subscribe(1))
    town.receive(ANN, subscribe(2, order="total"))
    town.wait(30 * MINUTE)
    sent = town.receive(ANN, publish("red"))
    sent += town.wait(CONFIG.idle_silence)
    takers = [each.takers for _, each in sent if isinstance(each, Deliveries) and each.ticks]
    assert ((1,),) in takers
    assert ((2,),) in takers, "the other pubend was asked how far it is silent"
