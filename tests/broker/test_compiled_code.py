"""The loop never waits for compiled code: it does without until that is there."""

from __future__ import annotations

import asyncio
import logging
import subprocess
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from gapless.broker.compiled_code import Compiled
from gapless.broker.event_reader import EventReader
from gapless.client.client import connect
from gapless.core.errors import WireError
from gapless.core.events import Event, EventBatch
from gapless.wire.attribute_rows import AttributeRows
from gapless.wire.events import encode_event
from tests import strangers
from tests.broker.stage import run
from tests.children import PROGRAM, child, told

if TYPE_CHECKING:
    from threading import Thread


def test_what_cannot_be_loaded_is_done_without_and_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def load() -> int:
        raise ImportError("no numba")

    with caplog.at_level(logging.WARNING):
        compiled = Compiled(load, "a broker without")
        assert compiled.get() is None
        assert compiled.loading is not None
        compiled.loading.join()
        assert compiled.get() is None
    assert [record.message for record in caplog.records] == ["a broker without"]


def test_a_reader_decodes_until_it_has_seen_enough_and_reads_the_same_after() -> None:
    reader, batch = EventReader(decoded_max=3), EventBatch((encode_event({"a": 1}),) * 2)
    reader.check(batch)
    assert reader.attributes_of(batch) == [{"a": 1}, {"a": 1}]
    assert not reader.compiled.loading
    reader.check(batch)
    loading: Thread | None = reader.compiled.loading
    assert loading is not None
    loading.join()
    reader.check(batch)
    rows = reader.attributes_of(batch)
    assert isinstance(rows, AttributeRows)
    assert list(rows) == [{"a": 1}, {"a": 1}]
    with pytest.raises(WireError):
        reader.check(EventBatch((b"\x93",)))


def test_a_broker_of_a_user_without_a_home_takes_5000_subscriptions() -> None:
    async def main(url: str) -> list[str]:
        async with connect(url) as client:
            await client.create_topic("t")
            async with AsyncExitStack() as stack:
                made = [client.subscribe("t", f"a = {number}") for number in range(5_000)]
                await asyncio.gather(*map(stack.enter_async_context, made))
                await client.publish_many("t", [({"a": 4_711}, b"x"), ({"a": 17}, b"y")])
                found = [await anext(aiter(made[number])) for number in (4_711, 17)]
        return [item.body.decode() for item in found if isinstance(item, Event)]

    with strangers.installation() as sources, strangers.belongings() as own:
        words = ["serve", "--data", str(own / "data"), "--listen", "127.0.0.1:0", "--admin", "none"]
        with child(
            [*strangers.prefix(), *PROGRAM, *words],
            env=strangers.environment(sources),
            stderr=subprocess.DEVNULL,
        ) as broker:
            ready = told(broker)
            assert "is ready at" in ready
            assert run(main(ready.split(" is ready at ")[1].split(",")[0])) == ["x", "y"]
            assert broker.poll() is None
