"""The admin port tells health, readiness, figures and metrics."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.request import urlopen

from gapless.core.errors import StorageError
from tests.broker.stage import connected, make_broker, run

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.broker.broker import Broker


async def get(broker: Broker, path: str) -> tuple[int, str]:
    def fetch() -> tuple[int, str]:
        try:
            with urlopen(f"http://{broker.admin_address}{path}") as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()

    return await asyncio.to_thread(fetch)


def test_the_admin_port_answers(tmp_path: Path) -> None:
    async def main() -> None:
        broker = make_broker(tmp_path, admin="127.0.0.1:0")
        async with broker, connected(broker) as client, client.subscribe("t") as subscription:
            await client.publish("t", {"a": 1})
            await anext(subscription)
            assert await get(broker, "/health") == (200, "alive\n")
            assert await get(broker, "/ready") == (200, "ready\n")
            figures = json.loads((await get(broker, "/statistics"))[1])
            assert (figures["broker"], figures["delivered"]) == ("b", 1)
            assert figures["links"]["clients"] == 1
            assert figures["disk"]["syncs"] > 0
            metrics = (await get(broker, "/metrics"))[1].splitlines()
            assert "gapless_delivered_total 1.0" in metrics
            assert any(line.startswith('gapless_pubend_end{pubend="t/0"}') for line in metrics)
            assert any(line.startswith("gapless_disk_sync_seconds_bucket") for line in metrics)
            assert (await get(broker, "/nothing"))[0] == 404

    run(main())


def test_the_admin_port_lists_durable_subscriptions(tmp_path: Path) -> None:
    async def main() -> None:
        broker = make_broker(tmp_path, admin="127.0.0.1:0")
        async with broker, connected(broker) as client:
            async with client.subscribe("t", "a > 0", name="desk") as subscription:
                await client.publish("t", {"a": 1})
                await anext(subscription)
                await subscription.acknowledge()
                token = dict(subscription.token)
            async with client.subscribe("two", name="all", start="earliest", tokens="broker"):
                found = json.loads((await get(broker, "/subscriptions"))[1])
        assert [each["name"] for each in found] == ["all", "desk"]
        assert found[0]["attached"]
        assert found[0]["tokens"] == "broker"
        assert found[0]["behind_s"] is None, "it has acknowledged nothing: all is kept"
        desk = {key: found[1][key] for key in ("topic", "condition", "attached", "acknowledged")}
        assert desk == {
            "topic": "t", "condition": "a > 0", "attached": False, "acknowledged": token,
        }  # fmt: skip
        assert found[1]["behind_s"] >= 0

    run(main())


def test_a_broker_that_failed_is_alive_but_not_ready(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, admin="127.0.0.1:0") as broker:
            broker.fail(StorageError("the disk is gone"))
            assert (await get(broker, "/health"))[0] == 200
            assert (await get(broker, "/ready"))[0] == 503

    run(main())
