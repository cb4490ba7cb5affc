"""The admin port tells health, readiness, figures and metrics."""

from __future__ import annotations

import asyncio
import json
import os
import re
import ssl
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest

from gapless.broker.addresses import read_addresses
from gapless.broker.admin.connections import CONNECTIONS_MAX, HEAD_BYTES_MAX
from gapless.broker.admin.metrics import Collector
from gapless.broker.admin.port import PATHS, Admin
from gapless.broker.configuration import Reloading
from gapless.core.errors import StorageError, UsageError
from gapless.testing.processes.brokers import Processes
from tests.broker.castle import TABLE, Castle
from tests.broker.stage import ONE, ByHand, connected, make_broker, run, wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.broker.admin.console import Console
    from gapless.broker.broker import Broker

ROOT = Path(__file__).parents[3]


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
            assert "gapless_published_total 1.0" in metrics
            assert 'gapless_batch_events_bucket{le="1"} 1.0' in metrics
            assert "gapless_catch_up_streams 0.0" in metrics
            matching = "gapless_matching_seconds_total "
            [matched] = [each for each in metrics if each.startswith(matching)]
            assert float(matched.split()[1]) > 0
            assert "gapless_ready 1.0" in metrics
            for kind in ("step", "turn"):
                [count] = [
                    each for each in metrics if each.startswith(f"gapless_{kind}_seconds_co")
                ]
                [longest] = [each for each in metrics if each.startswith(f"gapless_{kind}_longest")]
                assert float(count.split()[1]) > 0
                assert float(longest.split()[1]) > 0
            assert "gapless_neighbours_down 0.0" in metrics
            assert "gapless_disk_full_total 0.0" in metrics
            assert any(line.startswith("process_resident_memory_bytes ") for line in metrics)
            lag = 'gapless_pubend_horizon_lag_seconds{pubend="t/0"}'
            assert any(line.startswith(lag) for line in metrics)
            assert any(
                line.startswith('gapless_pubend_nacks_total{pubend="t/0"}') for line in metrics
            )
            assert any(line.startswith("gapless_disk_sync_seconds_bucket") for line in metrics)
            assert (await get(broker, "/nothing"))[0] == 404
            for path in PATHS:
                assert path in (await get(broker, "/"))[1]
                assert (await get(broker, path))[0] == 200

    run(main())


def test_the_page_on_metrics_names_each_with_what_it_means_and_no_other(tmp_path: Path) -> None:
    """With security, where there are most."""

    async def main() -> dict[str, str]:
        async with Castle(tmp_path).broker() as broker:
            families = list(Collector(broker.statistics()).collect())
        kinds = {"counter": "_total", "info": "_info"}
        return {each.name + kinds.get(each.type, ""): each.documentation for each in families}

    exist = run(main())
    page = (ROOT / "docs" / "operations" / "metrics.md").read_text(encoding="utf-8")
    assert dict(re.findall(r"^\| `(gapless_\w+)` \| (.*) \|$", page, flags=re.MULTILINE)) == exist
    for name in re.findall(r"\bgapless_\w+", page):
        assert name.removesuffix("_bucket") in exist, f"{name} is used in an alert"


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
        assert (found[0]["behind_s"] or 0) >= 0, "it begins where the topic does"
        desk = {key: found[1][key] for key in ("topic", "condition", "attached", "acknowledged")}
        assert desk == {
            "topic": "t", "condition": "a > 0", "attached": False, "acknowledged": token,
        }  # fmt: skip
        assert found[1]["behind_s"] >= 0

    run(main())


def test_who_opens_many_connections_to_the_admin_port_takes_no_files_from_the_log(
    tmp_path: Path,
) -> None:
    """Each has begun to ask, and does not go on."""

    async def main() -> None:
        async with make_broker(tmp_path, admin="127.0.0.1:0") as broker, AsyncExitStack() as stack:
            assert broker.admin_address is not None
            host, port = broker.admin_address.split(":")
            ended = []
            for _ in range(CONNECTIONS_MAX + 20):
                peer = ByHand(*await asyncio.open_connection(host, int(port)))
                stack.push_async_callback(peer.close)
                peer.writer.write(b"GET /he")
                ended.append(asyncio.create_task(peer.reader.read()))
            await wait_until(lambda: sum(task.done() for task in ended) == 20)
            for task in ended:
                task.cancel()
            await asyncio.gather(*ended, return_exceptions=True)

    run(main())


SILENT = {
    "say nothing": b"",
    "begin a request": b"GET /he",
    "send a body without an end": b"POST /health HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Length: 1000000\r\n\r\nx",
    "have asked and stay": b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "do not read the answer": b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20,
    "are no HTTP": b"\0" * 100,
}


@pytest.mark.parametrize("what", SILENT)
def test_a_probe_is_answered_whoever_else_is_connected(tmp_path: Path, what: str) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, admin="127.0.0.1:0") as broker, AsyncExitStack() as stack:
            assert broker.admin_address is not None
            await crowd(broker.admin_address, SILENT[what], stack)
            for _ in range(3):
                assert await get(broker, "/health") == (200, "alive\n")

    run(main())


async def crowd(address: str, said: bytes, stack: AsyncExitStack) -> None:
    """Very many connections that say this, and nothing more."""
    host, port = address.split(":")
    for _ in range(3 * CONNECTIONS_MAX):
        peer = ByHand(*await asyncio.open_connection(host, int(port)))
        stack.push_async_callback(peer.close)
        peer.writer.write(said)
        await asyncio.gather(peer.writer.drain(), return_exceptions=True)


def test_with_security_a_probe_is_answered_beside_many_that_never_shake_hands(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        castle = Castle(tmp_path, table=TABLE + "strangers_max = 5\n")
        async with castle.broker(admin="127.0.0.1:0") as broker, AsyncExitStack() as stack:
            assert broker.admin_address is not None
            await crowd(broker.admin_address, b"", stack)
            bearer = f"Bearer {castle.tokens['admin']}"
            assert await ask_safely(castle, broker, "/health", bearer) == 200
            async with castle.client(broker, "feed") as feed:
                await feed.publish("t", {})

    run(main())


@pytest.mark.parametrize("is_secure", [False, True])
def test_a_broker_process_bears_a_crowd_at_its_admin_port(
    tmp_path: Path, *, is_secure: bool
) -> None:
    """On the event loop of a process, which is another than that of the tests."""

    async def main() -> None:
        castle = Castle(tmp_path)
        text = castle.text if is_secure else ONE
        async with (
            Processes(text, folder=tmp_path, has_admin=True) as brokers,
            AsyncExitStack() as stack,
        ):
            await brokers.start("b")
            files = f"/proc/{brokers.running['b'].pid}/fd"
            before, address = len(os.listdir(files)), read_addresses(tmp_path / "b")["admin"]
            for said in SILENT.values():
                await crowd(address, said, stack)
            context = ssl.create_default_context(cafile=str(castle.ca)) if is_secure else None
            request = Request(f"http{'s' if is_secure else ''}://{address}/health")
            request.add_header("Authorization", f"Bearer {castle.tokens['admin']}")

            def fetch() -> int:
                with urlopen(request, context=context) as answer:
                    return int(answer.status)

            assert await asyncio.to_thread(fetch) == 200
            room = before + CONNECTIONS_MAX + 5
            await wait_until(lambda: len(os.listdir(files)) <= room)
            await brokers.stop("b")
            assert "broker stopped" in brokers.log("b")
            assert "Traceback" not in brokers.log("b")

    run(main())


HOSTS = {
    "localhost": 200,
    "LocalHost.:7118": 200,
    "127.0.0.1": 200,
    "127.0.0.2:80": 200,
    "[::1]:7118": 200,
    "10.1.2.3:7118": 200,  # through a tunnel; no name can be made to lead to an address's page
    "desk.example": 200,  # given as a setting
    "desk.example:7118": 200,
    "rebound.attacker.example": 421,
    "rebound.attacker.example:7118": 421,
    "localhost.attacker.example": 421,
    "127.0.0.1.attacker.example": 421,
    "": 421,
    ":7118": 421,
}


async def say(broker: Broker, text: str) -> tuple[bytes, bytes]:
    """Speak HTTP by hand, once: the first line of the answer, and all of it."""
    assert broker.admin_address is not None
    host, port = broker.admin_address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(text.encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer.partition(b"\r\n")[0], answer


def test_the_admin_port_answers_to_no_name_that_is_not_its_own(tmp_path: Path) -> None:
    async def main() -> None:
        broker = make_broker(tmp_path, admin="127.0.0.1:0", admin_hosts=("Desk.Example",))
        async with broker, connected(broker) as client, client.subscribe("t", name="secret"):
            for host, status in HOSTS.items():
                for path in PATHS:
                    request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
                    line, answer = await say(broker, request)
                    assert line.split()[1] == str(status).encode(), (host, path)
                    if status == 421:
                        assert b"--admin-host" in answer
                        assert b"secret" not in answer
            line, _ = await say(broker, "GET /health HTTP/1.0\r\n\r\n")
            assert line.endswith(b" 200 OK"), "a probe of the old kind names no host"

    run(main())


@pytest.mark.parametrize(
    ("method", "status"),
    [("GET", 200), ("HEAD", 200), ("OPTIONS", 405), ("POST", 405), ("BREW", 405)],
)
def test_the_admin_port_only_shows_and_no_page_of_another_origin_may_look(
    tmp_path: Path, method: str, status: int
) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, admin="127.0.0.1:0") as broker:
            for path in PATHS:
                line, answer = await say(
                    broker,
                    f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nOrigin: http://other\r\n"
                    "Access-Control-Request-Method: GET\r\nConnection: close\r\n\r\n",
                )
                assert line.split()[1] == str(status).encode()
                assert b"access-control" not in answer.lower()
                assert method != "HEAD" or answer.endswith(b"\r\n\r\n")

    run(main())


def test_a_head_that_is_too_long_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, admin="127.0.0.1:0") as broker:
            long = f"GET /health HTTP/1.1\r\nHost: localhost\r\nX: {'x' * HEAD_BYTES_MAX}"
            line, _ = await say(broker, long)
            assert line.startswith(b"HTTP/1.1 400")

    run(main())


class Talkative:
    """What is shown takes more than the sockets hold."""

    is_ready = True
    console: Console | None = None
    inquiry: Any = None

    def reload(self, *, only_look: bool) -> Reloading:
        return Reloading()

    def give_away(self) -> dict[str, Any]:
        return {}

    def back_up(self, number: int) -> tuple[int, bytes]:
        return number, b""

    def statistics(self) -> dict[str, Any]:
        return {"much": "x" * 50_000_000}

    def subscription_names(self) -> list[str]:
        return []

    measured_subscriptions = subscription_names

    def subscriptions(self, names: Sequence[str]) -> list[dict[str, Any]]:
        return []


def test_who_asks_and_does_not_read_the_answer_keeps_no_broker_from_stopping() -> None:
    async def main() -> None:
        admin = await Admin.open(Talkative(), ("127.0.0.1", 0))
        assert admin is not None
        host, port = admin.address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /statistics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        await admin.close()
        writer.transport.abort()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)

    run(main())


def test_a_broker_that_failed_is_alive_but_not_ready(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, admin="127.0.0.1:0") as broker:
            broker.fail(StorageError("the disk is gone"))
            assert (await get(broker, "/health"))[0] == 200
            assert (await get(broker, "/ready"))[0] == 503

    run(main())


async def ask_safely(castle: Castle, broker: Broker, path: str, authorization: str) -> int:
    context = ssl.create_default_context(cafile=str(castle.ca))
    headers = {"Authorization": authorization} if authorization else {}
    request = Request(f"https://{broker.admin_address}{path}", headers=headers)

    def fetch() -> int:
        try:
            with urlopen(request, context=context) as answer:
                return int(answer.status)
        except HTTPError as error:
            with error:
                return error.code

    return await asyncio.to_thread(fetch)


def test_with_security_the_admin_port_is_for_who_may_administer(tmp_path: Path) -> None:
    async def main() -> None:
        castle = Castle(tmp_path)
        async with castle.broker(admin="127.0.0.1:0") as broker:
            for path in ("/statistics", "/subscriptions", "/metrics"):
                for who, status in (("admin", 200), ("keeper", 200), ("feed", 403)):
                    assert (
                        await ask_safely(castle, broker, path, f"Bearer {castle.tokens[who]}")
                        == status
                    )
            for authorization in (
                "",
                "Bearer",
                "Bearer admin.x",
                f"Basic {castle.tokens['admin']}",
            ):
                assert await ask_safely(castle, broker, "/metrics", authorization) == 401
                for path in ("/health", "/ready"):
                    assert await ask_safely(castle, broker, path, authorization) == 200
            with pytest.raises((ConnectionError, URLError)):
                await get(broker, "/health")

    run(main())


def test_with_security_metrics_need_no_token_where_that_was_chosen(tmp_path: Path) -> None:
    async def main() -> None:
        castle = Castle(tmp_path)
        async with castle.broker(admin="127.0.0.1:0", metrics_open=True) as broker:
            assert await ask_safely(castle, broker, "/metrics", "") == 200
            assert await ask_safely(castle, broker, "/statistics", "") == 401

    run(main())


def test_a_broker_whose_admin_port_is_taken_takes_another_and_says_which(tmp_path: Path) -> None:
    async def main() -> None:
        first = make_broker(tmp_path / "1", admin="127.0.0.1:0")
        async with first:
            assert first.admin_address is not None
            second = make_broker(tmp_path / "2", admin=first.admin_address)
            async with second:
                assert second.admin_address != first.admin_address
                assert second.admin_problem == f"{first.admin_address} is in use"
                assert await get(second, "/ready") == (200, "ready\n")
                told = read_addresses(tmp_path / "2" / "b")
                assert told["admin"] == second.admin_address

    run(main())


def test_without_security_the_admin_port_is_on_loopback_only(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(UsageError, match="give --listen a loopback address"):
            await make_broker(tmp_path, listen="0.0.0.0:0").start()
        with pytest.raises(UsageError, match="give --admin a loopback address"):
            await make_broker(tmp_path, admin="0.0.0.0:0").start()
        async with make_broker(tmp_path, listen="0.0.0.0:0", insecure=True) as broker:
            assert broker.is_ready

    run(main())
