"""What a broker knows of durable subscriptions counts at once, durable or not."""

from __future__ import annotations

from gapless.core.identity import BrokerName, SubscriptionName
from gapless.node.config import Config
from gapless.node.durables import MOVING_MAX, Durables, Moved
from gapless.node.parts import Parts
from gapless.node.subscribers import Subscribers
from gapless.storage.memory import MemoryVolume
from gapless.wire.events import decode_attributes


def durables(volume: MemoryVolume) -> Durables:
    config = Config()
    return Durables(
        BrokerName("here"), config, volume, Subscribers(config, decode_attributes), Parts()
    )


def test_a_move_is_remembered_before_it_is_durable_and_after() -> None:
    volume = MemoryVolume()
    here, desk, there = durables(volume), SubscriptionName("desk"), BrokerName("there")
    assert here.moved(desk) is None
    [persist] = here.remember_move(desk, Moved(there, 3))
    assert here.moved(desk) == Moved(there, 3)
    volume.commit(persist.writes)  # type: ignore[union-attr]
    for number in range(MOVING_MAX):
        here.remember_move(SubscriptionName(str(number)), Moved(there, 1))
    assert here.moved(desk) == durables(volume).moved(desk) == Moved(there, 3)
