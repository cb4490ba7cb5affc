"""The console of a whole network: found from one broker, through kills, in a real browser."""

from __future__ import annotations

import asyncio
import json
import signal
import ssl
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from gapless import sync
from gapless.broker.admin.network_console import AdminClient, NetworkConsole, open_console
from gapless.client.event_loop import LoopThread
from gapless.core.errors import UsageError
from gapless.testing.processes.brokers import Processes, cell, topic
from tests.broker.admin.visit import Visit
from tests.broker.castle import Castle
from tests.broker.stage import connected, make_broker, run
from tests.children import child, told

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from gapless.broker.admin.port import Admin
    from gapless.broker.broker import Broker

NETWORK = (
    cell("host", ["host"], "relays"),
    cell("relays", ["relay-1", "relay-2"]),
    cell("west", ["west"], "relays", subscribers=True),
    topic("t", "host"),
)
NAMES = ("host", "relay-1", "relay-2", "west")
LOOK_S = 0.01


# --- without a browser ----------------------------------------------------------------------------


@asynccontextmanager
async def console_of(
    *brokers: Broker, client: AdminClient | None = None
) -> AsyncIterator[tuple[NetworkConsole, Admin]]:
    addresses = [str(each.admin_address) for each in brokers]
    async with NetworkConsole(addresses, client or AdminClient()) as network:
        opened = open_console(network, ("127.0.0.1", 0))
        try:
            yield network, opened
        finally:
            await opened.close()


async def until(network: NetworkConsole, name: str) -> None:
    """Wait until this broker answers."""
    while (found := network.find(name)) is None or found.figures is None:  # noqa: ASYNC110
        await asyncio.sleep(LOOK_S)


async def ask(opened: Admin, path: str, **options: Any) -> tuple[int, str]:
    def fetch() -> tuple[int, str]:
        try:
            with urlopen(Request(f"http://{opened.address}{path}", **options)) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()

    return await asyncio.to_thread(fetch)


def test_only_its_page_may_publish_and_only_to_a_broker_of_the_network(tmp_path: Path) -> None:
    async def main() -> None:
        broker = make_broker(tmp_path, admin="127.0.0.1:0")
        async with (
            broker,
            connected(broker) as client,
            client.subscribe("t") as subscription,
            console_of(broker) as (network, opened),
        ):
            await until(network, "b")
            session = json.loads((await ask(opened, "/console/session"))[1])
            body = json.dumps({"topic": "t", "attributes": {"n": 1}}).encode()
            for name, token, status in (
                ("b", "", 403), ("b", "x", 403), ("c", session["page_token"], 404),
                ("", session["page_token"], 404), ("b", session["page_token"], 200),
            ):  # fmt: skip
                options = {"data": body, "headers": {"X-Gapless-Page": token}, "method": "POST"}
                found = await ask(opened, f"/console/publish?broker={name}", **options)
                assert found[0] == status, found
            event = await anext(subscription)
            assert event.attributes == {"n": 1}  # type: ignore[union-attr]
            assert (await ask(opened, "/console/check?broker=b&topic=t&where=n+%3E"))[0] == 200
            assert (await ask(opened, "/", headers={"Host": "stranger.example"}))[0] == 421

    run(main())


def test_with_security_the_page_must_show_the_token_that_the_console_has(tmp_path: Path) -> None:
    async def main() -> None:
        castle = Castle(tmp_path)
        context = ssl.create_default_context(cafile=str(castle.ca))
        async with castle.broker(admin="127.0.0.1:0") as broker:
            admin = AdminClient(castle.tokens["admin"], context)
            async with console_of(broker, client=admin) as (network, opened):
                await until(network, broker.name)
                assert (await ask(opened, "/"))[0] == 200
                for token, status in (("", 401), ("wrong", 401), (castle.tokens["admin"], 200)):
                    headers = {"Authorization": f"Bearer {token}"}
                    assert (await ask(opened, "/console/session", headers=headers))[0] == status
            stranger = AdminClient("wrong", context)
            async with console_of(broker, client=stranger) as (network, _):
                while "does not admit" not in network.brokers[0].problem:  # noqa: ASYNC110
                    await asyncio.sleep(LOOK_S)

    run(main())


def test_the_console_listens_on_loopback_alone() -> None:
    async def main() -> None:
        with pytest.raises(UsageError, match="for this machine alone"):
            open_console(NetworkConsole([], AdminClient()), ("0.0.0.0", 0))

    run(main())


def test_a_broker_that_is_given_twice_is_one_and_a_far_loopback_is_not_asked(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        broker = make_broker(tmp_path, admin="127.0.0.1:0")
        async with broker, console_of(broker, broker) as (network, _):
            while len(network.brokers) > 1:  # noqa: ASYNC110
                await asyncio.sleep(LOOK_S)
            await until(network, "b")
            teller = network.brokers[0]
            teller.address = "10.0.0.7:7118"
            network._learn("c", "127.0.0.1:1", teller)
            network._learn("c", "0.0.0.0:1", teller)
            assert network.find("c") is None
            network._learn("c", "10.0.0.8:1", teller)
            assert network.find("c") is not None

    run(main())


# --- with one -------------------------------------------------------------------------------------


class Network:
    """Brokers as processes, and `gapless console` as one, told the admin port of one of them."""

    def __init__(self, folder: Path) -> None:
        self._thread = LoopThread()
        self._brokers = Processes(*NETWORK, folder=folder, has_admin=True)

    @contextmanager
    def running(self) -> Iterator[str]:
        """The address of the console."""
        self._thread.run(self._brokers.__aenter__())
        try:
            self.start(*NAMES)
            heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
            program = [sys.executable, "-c", f"{heed}; from gapless.cli import main; main()"]
            url = f"http://{self._brokers.admin('host')}/"
            command = [*program, "console", url, "--listen", "127.0.0.1:0"]
            with child(command, stderr=subprocess.STDOUT) as console:
                yield told(console).split("http://")[1].split("/")[0]
                console.send_signal(signal.SIGINT)
                assert console.wait() == 130
        finally:
            self._thread.run(self._brokers.__aexit__())
            self._thread.close()

    def start(self, *names: str) -> None:
        self._thread.run(self._brokers.start(*names))

    def kill(self, *names: str) -> None:
        self._brokers.kill(*names)

    def url(self, name: str) -> str:
        return self._brokers.url(name)


def test_one_page_shows_all_brokers_and_one_that_is_killed_as_down_until_it_is_back(
    tmp_path: Path, browser: Any
) -> None:
    network = Network(tmp_path)
    with network.running() as address:
        with sync.connect(network.url("west")) as client:
            with client.subscribe("t", "n > 5", name="desk"):
                pass
            client.publish_many("t", [({"n": n}, b"") for n in range(20)])
        seen = Visit(browser, address, viewport={"width": 1280, "height": 900})
        seen.text("#health.good", "4 of 4 brokers answer")
        for name in NAMES:
            seen.text("#broker-rows tr", f"{name}.*ready")
        seen.text("#broker-rows tr", "host.*2 of 2")
        seen.page.locator("#network-picture .edge.up").first.wait_for(state="attached")
        seen.shot("whole-light")
        network.kill("relay-2")
        seen.text("#health.bad", "3 of 4 brokers answer")
        seen.text("#broker-rows tr", "relay-2.*down.*no answer at 127")
        seen.text("#broker-rows tr", "host.*1 of 2, none to relay-2")
        seen.shot("whole-killed")
        network.start("relay-2")
        seen.text("#health.good", "4 of 4 brokers answer")
        network.kill("host")
        seen.text("#broker-rows tr", "host.*down")
        network.start("host")
        seen.text("#health.good", "4 of 4 brokers answer")
        seen.page.keyboard.press("3")
        seen.text("#subscription-rows tr", "desk.*away.*14.*west")
        seen.shot("whole-subscriptions")
        seen.page.keyboard.press("2")
        seen.text("#topic-rows tr", "t.*durable.*host")
        assert seen.problems == []


def test_a_person_publishes_watches_and_asks_why_in_the_network(
    tmp_path: Path, browser: Any
) -> None:
    network = Network(tmp_path)
    with network.running() as address:
        with (
            sync.connect(network.url("west")) as client,
            client.subscribe("t", "price > 90", name="desk"),
        ):
            pass
        size = {"width": 380, "height": 800}
        seen = Visit(browser, address, "#tail", viewport=size, color_scheme="dark")
        seen.text("#health.good", "4 of 4 brokers answer")
        seen.page.fill("#tail-where", "price > ")
        seen.text("#tail-check.bad", "found end of condition")
        seen.page.fill("#tail-where", "price > 10")
        seen.text("#tail-check", "matches 0 of the newest 0 events")
        seen.page.click("#tail-button")
        seen.text("#tail-count", "0 of 0 events")
        seen.page.click("#tab-topics")
        seen.page.fill("#publish-attributes", '{"price": 50}')
        seen.page.click("#publish button")
        seen.text("#publish-answer", "Durable as t/0:")
        seen.page.click("#tab-tail")
        seen.text("#tail-events li", '"price":50')
        seen.text("#tail-count", "1 of 1 events matched")
        seen.page.click("#tail-events li button")
        seen.page.click("#why-answer tr button")
        seen.text("#why-answer .verdict", "filtered: .*price > 90 is FALSE: price is 50")
        seen.shot("whole-why-narrow-dark")
        seen.page.click("#tab-knowledge")
        for name in NAMES:
            seen.text("#knowledge-picture text", f"^{name}$")
        seen.page.locator("#knowledge-picture .acknowledged").first.wait_for(state="attached")
        seen.shot("whole-knowledge-narrow-dark")
        seen.page.click("#tab-network")
        seen.shot("whole-narrow-dark")
        assert seen.problems == []


def test_the_picture_of_knowledge_moves_with_events_nacks_and_acknowledgements(
    tmp_path: Path, browser: Any
) -> None:
    """Events are published while the relays are down: the subscriber's broker asks for them when
    they are back, and acknowledges them."""
    network = Network(tmp_path)
    picture = "#knowledge-picture"
    with (
        network.running() as address,
        sync.connect(network.url("host")) as feed,
        sync.connect(network.url("west")) as client,
        client.subscribe("t", name="desk") as subscription,
    ):
        seen = Visit(browser, address, "#knowledge", viewport={"width": 1280, "height": 900})
        for name in NAMES:
            seen.text(f"{picture} text", f"^{name}$")
        seen.text(f"{picture} text", "^hosts the pubend$")
        feed.publish("t", {"n": 0})
        seen.page.locator(f"{picture} rect.D").first.wait_for(state="attached")
        network.kill("relay-1", "relay-2")
        seen.text(f"{picture} text.broken", "does not answer")
        feed.publish_many("t", [({"n": n}, b"") for n in range(1, 30)])
        seen.shot("knowledge-cut")
        network.start("relay-1", "relay-2")
        seen.page.locator(f"{picture} circle.message.asked").first.wait_for(state="attached")
        seen.text(f"{picture} text.travels.nack", "nack")
        seen.shot("knowledge-nack")
        taken = [event for _, event in zip(range(30), subscription, strict=False)]
        subscription.acknowledge()
        seen.page.locator(f"{picture} circle.message.acknowledged").first.wait_for(state="attached")
        seen.shot("knowledge-acknowledged")
        assert [event.attributes["n"] for event in taken] == list(range(30))  # type: ignore[union-attr]
        assert seen.problems == []
