"""A short soak with clients that others wrote; `python -m tests.doors.mqtt.soak` is longer."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("paho.mqtt.client")

from tests.doors.mqtt.soak import soak

KILLS = int(os.environ.get("MQTT_KILLS", "2"))


def test_no_message_of_qos_1_is_lost_and_none_of_qos_2_comes_twice_through_kills() -> None:
    outcome = soak(KILLS)
    assert outcome["answered"]
    assert not outcome["missing"]
    assert not outcome["twice"]
    assert outcome["published"] > 0
