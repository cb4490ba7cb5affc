"""A subscription over two topics of real processes: both brokers and its reader are killed."""

from __future__ import annotations

import asyncio
import json
import signal
from subprocess import DEVNULL
from typing import TYPE_CHECKING, Any

import pytest

from gapless.client.client import connect
from gapless.testing.processes.brokers import Processes, cell, topic
from tests.broker.stage import run, wait_until
from tests.children import PROGRAM

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.core.client_messages import Order

TWO = "\n".join(
    (
        cell("hub", ["a"], subscribers=True),
        cell("leaf", ["b"], "hub", subscribers=True),
        topic("trades", "a", "b"),
        topic("orders", "b"),
    )
)
EVENTS = 300


def found(journal: Path) -> list[dict[str, Any]]:
    text = journal.read_text(encoding="utf-8") if journal.exists() else ""
    return [json.loads(line) for line in text.splitlines() if line.endswith("}")]


@pytest.mark.parametrize("order", ["publisher", "total"])
def test_each_event_is_in_the_journal_once_and_in_order_whoever_is_killed(
    tmp_path: Path, order: Order
) -> None:
    journal, token = tmp_path / "journal.jsonl", tmp_path / "token"
    options = ["--name", "desk", "--token-file", str(token), "--journal", str(journal)]
    options += ["--total"] if order == "total" else []

    async def main() -> None:
        async with Processes(TWO, folder=tmp_path / "brokers") as brokers:
            await brokers.start("a", "b")
            command = [*PROGRAM, "subscribe", "trades,orders", *options]
            command += ["--url", brokers.url("a", "b")]

            async def start() -> asyncio.subprocess.Process:
                return await asyncio.create_subprocess_exec(*command, stdout=DEVNULL)

            async with connect(brokers.url("a", "b"), patience_s=60) as client:
                async with client.subscribe(
                    ["trades", "orders"],
                    name="desk",
                    order=order,
                ) as beginning:
                    token.write_text(beginning.token.to_json(), encoding="utf-8")
                reader = await start()
                async with (
                    client.publisher("trades", name="trades") as trades,
                    client.publisher("orders", name="orders") as orders,
                ):
                    for number in range(EVENTS):
                        await (trades if number % 2 else orders).send({"n": number})
                        if number in (60, 180):
                            reader.send_signal(signal.SIGKILL)
                            await reader.wait()
                            reader = await start()
                        if number in (100, 240):
                            await wait_until(lambda: len(found(journal)) > 20)
                            name = "a" if number == 100 else "b"
                            brokers.kill(name)
                            await brokers.start(name)
                    await trades.flush()
                    await orders.flush()
                await wait_until(lambda: len(found(journal)) >= EVENTS)
                reader.send_signal(signal.SIGKILL)
                await reader.wait()
                await client.unsubscribe("desk")

    run(main())
    events = found(journal)
    assert all("gap" not in each for each in events)
    numbers = [each["attributes"]["n"] for each in events]
    assert sorted(numbers) == list(range(EVENTS)), "none is lost, none is doubled"
    for kind in (0, 1):
        assert [n for n in numbers if n % 2 == kind] == list(range(kind, EVENTS, 2))
    if order == "total":
        places = [(each["tick"], each["pubend"]) for each in events]
        assert places == sorted(places)
