"""The door in a simulated network: its promises hold, and planted faults are found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gapless.doors.mqtt import door, sources
from gapless.doors.mqtt.host import Host
from gapless.doors.mqtt.packets import Kind
from gapless.doors.mqtt.session import MqttSession, SendBytes
from gapless.doors.mqtt.sources import Tracker
from gapless.testing.record import Violation
from tests.doors.mqtt.simulated import SimulatedRun

if TYPE_CHECKING:
    from gapless.doors.mqtt.packets import AnswerPacket, PublishPacket
    from gapless.doors.mqtt.session import (
        Action,
        Key,
        Outgoing,
        SessionConnection,
        StoreMessage,
    )

SEEDS = 6
SEEDS_OF_A_FAULT = 25


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_nothing_answered_is_lost_and_nothing_of_qos_2_comes_twice(seed: int) -> None:
    assert SimulatedRun(seed).play() >= 300  # 100 messages for three receivers


# --- planted faults ------------------------------------------------------------------------------


class AnswersBeforeItIsStored(MqttSession):
    """PUBACK and PUBREC leave at once."""

    def _on_publish(
        self, packet: PublishPacket, own: SessionConnection, now_s: float
    ) -> list[Action]:
        kind = Kind.PUBACK if packet.qos == 1 else Kind.PUBREC
        actions = super()._on_publish(packet, own, now_s)
        return [*actions, self._answer(kind, packet.packet)]

    def stored(self, item: StoreMessage, code: int = 0, problem: str = "") -> list[Action]:
        actions = super().stored(item, code, problem)
        return [each for each in actions if not isinstance(each, SendBytes)]


class WritesNoIdentifiers(MqttSession):
    """The packet identifiers of QoS 2 are forgotten by a crash."""

    def _is_kept(self, item: Outgoing) -> bool:
        return False


class WritesNoRelease(MqttSession):
    """PUBREL leaves, and a crash forgets that it did."""

    def _on_pubrec(self, packet: AnswerPacket, now_s: float) -> list[Action]:
        actions = super()._on_pubrec(packet, now_s)
        return [each for action in actions for each in getattr(action, "then", (action,))]


class TakesUnsureForMissing(Host):
    """After a crash, a repeat of QoS 2 always counts as new."""

    async def _settle(self) -> set[int]:
        unsure = self._door.unsure(self.session.client)
        self.session.settle((), list(unsure))
        unsure.clear()
        return set()


class TakesUnsureForStored(Host):
    """After a crash, a repeat of QoS 2 is answered, whatever the broker has."""

    async def _settle(self) -> set[int]:
        unsure = self._door.unsure(self.session.client)
        stored = set(unsure)
        self.session.settle(stored, ())
        unsure.clear()
        return stored


class AcknowledgesTooEarly(Tracker):
    """What is handed to the session counts as finished."""

    def begin(self, key: Key) -> bool:
        is_fresh = super().begin(key)
        self.finish(key)
        return is_fresh


@pytest.mark.parametrize(
    ("place", "fault", "invariant"),
    [
        ("MqttSession", AnswersBeforeItIsStored, "I1"),
        ("MqttSession", WritesNoIdentifiers, "I2"),
        ("MqttSession", WritesNoRelease, "I2"),
        ("Host", TakesUnsureForMissing, "I2"),
        ("Host", TakesUnsureForStored, "I1"),
        ("Tracker", AcknowledgesTooEarly, "I1"),
    ],
)
def test_a_planted_fault_is_found(
    monkeypatch: pytest.MonkeyPatch, place: str, fault: type[object], invariant: str
) -> None:
    monkeypatch.setattr(sources if place == "Tracker" else door, place, fault)
    with pytest.raises(Violation, match=invariant):
        play(SEEDS_OF_A_FAULT)


def play(seeds: int) -> None:
    for seed in range(1, seeds + 1):
        SimulatedRun(seed).play()
