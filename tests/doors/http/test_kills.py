"""Streams over kill -9 of the broker: a reader that comes back gets everything once.

Once with a reader of our own, once with the EventSource of a real browser, where there is one.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from gapless.broker.addresses import read_addresses
from gapless.testing.processes.brokers import Processes
from tests.broker.stage import ONE, run
from tests.doors.http.caller import Caller

if TYPE_CHECKING:
    from pathlib import Path

WITH_DOOR = ONE.replace('listen = "127.0.0.1:0"', 'listen = "127.0.0.1:0", http = "127.0.0.1:0"')
BATCH, BATCHES = 20, 40
KILLED_AT = (5, 15, 30)
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


async def ask_until_answered(
    caller: Caller, method: str, path: str, body: str, **more: str
) -> None:
    """Repeat a request until the broker has done it; over kills, too."""
    headers = {"Content-Type": "application/json", **more}
    while True:
        with suppress(OSError, asyncio.IncompleteReadError):
            answer = await caller.ask(method, path, body, headers)
            if answer.status == 200:
                return
            assert answer.status == 503, answer
        await asyncio.sleep(0.02)


async def publish_all(caller: Caller, brokers: Processes) -> None:
    """Numbered batches, each repeated until it has a receipt; some are on their way in a kill."""
    for batch in range(BATCHES):
        first = batch * BATCH
        body = json.dumps([{"n": n} for n in range(first, first + BATCH)])
        number = {"Gapless-Publisher": "feed", "Gapless-Sequence": str(first)}
        publishing = asyncio.ensure_future(
            ask_until_answered(caller, "POST", "/topics/t/events", body, **number)
        )
        if batch in KILLED_AT:
            await asyncio.sleep(0)
            brokers.kill("b")
            await brokers.start("b")
        await publishing


async def door_of(brokers: Processes, folder: Path) -> Caller:
    await brokers.start("b")
    return Caller(read_addresses(folder / "b")["http"])


async def read_all(caller: Caller, seen: list[int]) -> None:
    """As an EventSource does: connect again with the last ID, whenever the stream breaks."""
    last = ""
    while len(seen) < BATCH * BATCHES:
        with suppress(OSError, EOFError, AssertionError):
            async with caller.stream("/topics/t/subscribe", last, name="reader") as reader:
                while len(seen) < BATCH * BATCHES:
                    event = await reader.next()
                    assert event.kind == "message", event
                    seen.append(event.json["attributes"]["n"])
                    last = reader.last
        await asyncio.sleep(0.01)


def test_a_reader_with_its_last_event_id_gets_everything_once_over_kills(tmp_path: Path) -> None:
    async def main() -> list[int]:
        seen: list[int] = []
        async with Processes(WITH_DOOR, folder=tmp_path) as brokers:
            caller = await door_of(brokers, tmp_path)
            await ask_until_answered(caller, "PUT", "/subscriptions/reader", '{"topic": "t"}')
            await asyncio.gather(publish_all(caller, brokers), read_all(caller, seen))
        return seen

    assert run(main()) == list(range(BATCH * BATCHES))


PAGE = """
seen = []; gaps = 0; opened = 0;
source = new EventSource("/topics/t/subscribe?name=page");
source.onopen = () => opened++;
source.onmessage = event => seen.push(JSON.parse(event.data).attributes.n);
source.addEventListener("gap", () => gaps++);
"""


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")
def test_the_event_source_of_a_browser_gets_everything_once_over_kills(tmp_path: Path) -> None:
    playwright = pytest.importorskip("playwright.async_api", reason="Playwright is not installed")

    async def main() -> None:
        async with (
            Processes(WITH_DOOR, folder=tmp_path) as brokers,
            playwright.async_playwright() as driver,
        ):
            caller = await door_of(brokers, tmp_path)
            await ask_until_answered(caller, "PUT", "/subscriptions/page", '{"topic": "t"}')
            browser = await driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            page = await browser.new_page(bypass_csp=True)
            await page.goto(f"http://{caller.address}/")
            await page.evaluate(PAGE)
            await page.wait_for_function("opened == 1")
            await publish_all(caller, brokers)
            await page.wait_for_function(f"seen.length >= {BATCH * BATCHES}")
            assert await page.evaluate("seen") == list(range(BATCH * BATCHES))
            assert await page.evaluate("gaps") == 0
            assert await page.evaluate("opened") > 1, "it has connected again"
            await browser.close()

    run(main())
