"""A client tells, by callback and log, what happens between it and its brokers."""

from __future__ import annotations

import logging
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

import gapless
from gapless import sync
from gapless.client.client import connect
from gapless.client.requests import ask_with_retries
from gapless.core.client_messages import PublisherQuery, Refused
from gapless.core.identity import PublisherName, TopicName
from gapless.core.messages import Goodbye, Hello
from gapless.testing.processes.brokers import Processes, cell, topic
from tests.broker.stage import run, wait_until
from tests.client.desk import Desk, receipt
from tests.client.test_connection import frames, played
from tests.test_sync import broker_in_a_thread

if TYPE_CHECKING:
    from pathlib import Path

    from gapless import ConnectionChange

PAIR = (
    cell("x", ["x"], subscribers=True),
    cell("y", ["y"], "x", subscribers=True),
    topic("t", "x"),
)
LATER = Refused(1, "the disk is full", "Wait.", retry=True)


def test_a_killed_broker_is_lost_and_the_next_one_connected(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gapless.client")
    changes: list[ConnectionChange] = []

    def last(kind: str, broker: str) -> bool:
        return (changes[-1].kind, changes[-1].broker) == (kind, broker)

    async def main() -> None:
        async with Processes(*PAIR, folder=tmp_path) as brokers:
            await brokers.start("x", "y")
            urls = f"{brokers.url('x')},{brokers.url('y').removeprefix('gapless://')}"
            async with connect(urls, on_change=changes.append):
                brokers.kill("x")
                await wait_until(lambda: last("connected", "y"))
                await brokers.start("x")
                brokers.kill("y")
                await wait_until(lambda: last("connected", "x"))
            assert [(each.kind, each.broker) for each in changes] == [
                ("connected", "x"),
                ("lost", "x"),
                ("failed", None),  # the first address comes first again
                ("connected", "y"),
                ("lost", "y"),
                ("connected", "x"),
            ]
            assert changes[0].address == changes[2].address == brokers.url("x")[10:]
            assert "Connection refused" in changes[2].reason

    run(main())
    logged = [each for each in caplog.records if each.name == "gapless.client"]
    assert [each.levelname for each in logged[:3]] == ["INFO", "WARNING", "WARNING"]
    assert logged[1].getMessage().startswith(f"lost (x at {changes[0].address}): the connection")


def test_a_failure_is_told_once_until_its_reason_changes() -> None:
    changes: list[ConnectionChange] = []

    async def main() -> str:
        async with played(lambda _: frames(Goodbye("no room", "Later."))) as url:
            try:
                async with connect(url, patience_s=0.5, on_change=changes.append):
                    pass
            except gapless.LinkError:
                return url
        raise AssertionError

    url = run(main())
    assert changes == [gapless.ConnectionChange("failed", url[10:], None, "no room")]


def test_a_client_that_every_broker_refuses_tells_its_end() -> None:
    changes: list[ConnectionChange] = []

    async def main() -> None:
        async with played(lambda _: frames(Goodbye("unknown token", "Ask.", final=True))) as url:
            with pytest.raises(gapless.RefusedError, match="unknown token"):
                async with connect(url, on_change=changes.append):
                    pass

    run(main())
    assert [(each.kind, each.reason) for each in changes] == [
        ("failed", "unknown token"),
        ("ended", "unknown token"),
    ]


def test_a_callback_that_fails_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def fail(change: ConnectionChange) -> None:
        raise ValueError(change.kind)

    async def main() -> None:
        async with played(lambda _: frames(Hello())) as url, connect(url, on_change=fail) as client:
            assert client.channel.is_up

    run(main())
    assert "on_change failed" in caplog.text


def test_a_request_that_is_refused_for_now_is_told_once() -> None:
    async def main() -> None:
        desk = Desk()
        desk.refusals = [LATER] * 3
        question = TopicName("t"), PublisherName("feed")
        await ask_with_retries(desk, lambda request: PublisherQuery(request, *question))
        assert desk.reports == [("retrying", "the disk is full")]

    run(main())


def test_a_publication_that_is_refused_for_now_is_told_once() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.publisher() as publisher:
            await publisher.send({"i": 1})
            for count in (1, 2):
                await wait_until(lambda count=count: len(desk.published) == count)  # type: ignore[misc]
                desk.answer(Refused(desk.published[-1].request, "full", "Wait.", retry=True))
            assert desk.reports == [("retrying", "full")]
            await wait_until(lambda: len(desk.published) == 3)
            desk.answer(receipt(desk.published[-1]))

    run(main())


def test_a_script_is_told_in_the_client_s_own_thread(tmp_path: Path) -> None:
    changes: list[tuple[str, str]] = []
    is_lost = threading.Event()

    def note(change: ConnectionChange) -> None:
        changes.append((change.kind, threading.current_thread().name))
        if change.kind == "lost":
            is_lost.set()

    with ExitStack() as stack:
        with broker_in_a_thread(tmp_path) as url:
            stack.enter_context(sync.connect(url, on_change=note))
        assert is_lost.wait(60)
    assert changes[:2] == [("connected", "gapless-client"), ("lost", "gapless-client")]


def test_nothing_is_printed_where_nobody_set_logging_up() -> None:
    assert any(
        isinstance(each, logging.NullHandler)
        for each in logging.getLogger("gapless.client").handlers
    )
