"""Clients that others wrote, unmodified: paho over TCP and WebSocket, both versions."""

from __future__ import annotations

import asyncio
import queue
from typing import TYPE_CHECKING, Any

import pytest

from tests.broker.stage import run
from tests.children import PATIENCE_S
from tests.doors.mqtt.stage import place

if TYPE_CHECKING:
    from pathlib import Path

mqtt = pytest.importorskip("paho.mqtt.client")


def talk(address: str, transport: str, version: int) -> list[tuple[str, bytes, int]]:
    """Subscribe, publish one message of each QoS, and return what comes back."""
    arrived: queue.Queue[tuple[str, bytes, int]] = queue.Queue()
    ready: queue.Queue[str] = queue.Queue()
    client = mqtt.Client(
        mqtt.CallbackAPIVersion.VERSION2, "paho", protocol=version, transport=transport
    )
    client.on_connect = lambda *_: ready.put("connected")
    client.on_subscribe = lambda *_: ready.put("subscribed")
    client.on_message = lambda _, __, got: arrived.put((got.topic, got.payload, got.qos))
    host, port = address.rsplit(":", 1)
    client.connect(host, int(port))
    client.loop_start()
    try:
        assert ready.get(timeout=PATIENCE_S) == "connected"
        client.subscribe("paho/#", 2)
        assert ready.get(timeout=PATIENCE_S) == "subscribed"
        sent: list[Any] = [client.publish(f"paho/{qos}", b"x" * 200, qos) for qos in range(3)]
        for each in sent:
            each.wait_for_publish(PATIENCE_S)
        return [arrived.get(timeout=PATIENCE_S) for _ in range(3)]
    finally:
        client.disconnect()
        client.loop_stop()


@pytest.mark.parametrize("transport", ["tcp", "websockets"])
@pytest.mark.parametrize("version", [4, 5])
def test_paho_publishes_and_subscribes(tmp_path: Path, transport: str, version: int) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            entrance = "mqtt_ws" if transport == "websockets" else "mqtt"
            address = stage.broker.doors.addresses[entrance]
            got = await asyncio.to_thread(talk, address, transport, version)
            assert sorted(got) == [(f"paho/{qos}", b"x" * 200, qos) for qos in range(3)]

    run(main())
