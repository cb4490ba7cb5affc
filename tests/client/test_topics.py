"""Topics are created and deleted through any broker, and there is no gap between told and true."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

import gapless
from gapless.client.errors import LinkError, RefusedError, SubscriptionInterruptedError
from gapless.client.requests import ask_until_answered
from gapless.client.topics import TopicDescription
from gapless.core.client_messages import Done, Refused
from gapless.core.errors import UsageError
from gapless.core.events import Event
from gapless.core.topic_messages import TopicsQuery
from tests.broker.stage import LINE, connected, make_broker, run
from tests.client.desk import Desk

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.core.errors import GaplessError
    from gapless.core.messages import Message

NETWORK = LINE.split("[[topic]]", maxsplit=1)[0]


def test_what_is_created_at_one_broker_works_at_all_others_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            found = {}
            for name in ("p", "r1", "r2", "s", "o"):
                found[name] = await stack.enter_async_context(make_broker(tmp_path, NETWORK, name))
            one = await stack.enter_async_context(connected(found["s"]))
            other = await stack.enter_async_context(connected(found["o"]))
            with pytest.raises(RefusedError, match=r"no topic 'x'.*gapless topic create x"):
                await one.publish("x", {})
            with pytest.raises(RefusedError, match="there is no topic 'x'"):
                async with one.subscribe("x"):
                    pass
            await one.create_topic("x", pubends=2, retention_seconds=60)
            subscription = await stack.enter_async_context(other.subscribe("x"))
            await one.create_topic("x", pubends=2, retention_seconds=60)
            with pytest.raises(RefusedError, match="exists, but otherwise"):
                await other.create_topic("x")
            async with other.publisher("x", name="feed") as publisher:
                await publisher.send({"i": 1})
            got = await anext(subscription)
            assert isinstance(got, Event)
            assert got.attributes == {"i": 1}
            assert await other.topics() == [TopicDescription("x", "durable", ("p", "p"), 60.0)]
            await other.delete_topic("x")
            with pytest.raises(SubscriptionInterruptedError, match="'x' was deleted"):
                await anext(subscription)
            with pytest.raises(RefusedError, match="there is no topic 'x'"):
                await one.delete_topic("x")

    run(main())


def test_the_blocking_client_has_the_same(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker:

            def work() -> list[str]:
                with gapless.sync.connect(f"gapless://{broker.address}") as client:
                    client.create_topic("mine")
                    client.create_topic("other")
                    client.delete_topic("other")
                    return [each.name for each in client.topics()]

            assert await asyncio.to_thread(work) == ["mine", "t", "two"]

    run(main())


def test_what_cannot_be_asked_for_is_an_error_at_once() -> None:
    async def main() -> None:
        client = gapless.connect("gapless://127.0.0.1:1")
        with pytest.raises(UsageError, match="no service 'best'"):
            await client.create_topic("x", "best")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="needs a host"):
            await client.create_topic("x", hosts=[])
        with pytest.raises(UsageError, match="pubends=3 and 2 hosts contradict each other"):
            await client.create_topic("x", pubends=3, hosts=["a", "b"])

    run(main())


class Answers(Desk):
    """Gives these answers, one after the other."""

    def __init__(self, *answers: Message | GaplessError) -> None:
        super().__init__()
        self.answers = list(answers)

    async def ask(self, make: object) -> Message | GaplessError:
        return self.answers.pop(0)


def test_a_request_is_repeated_when_its_answer_was_lost_or_later() -> None:
    async def main() -> None:
        desk = Answers(LinkError("broken"), Refused(1, "not now", "", retry=True), Done(1))
        assert await ask_until_answered(desk, TopicsQuery) == (Done(1), True)
        assert desk.answers == []

    run(main())
