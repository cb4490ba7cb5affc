"""A broker that is told to stop finishes what is under way, and begins nothing new."""

from __future__ import annotations

import asyncio
import gc
import socket
from typing import TYPE_CHECKING

import pytest

from gapless.node.config import Config
from tests.broker.stage import ONE, connected, make_broker, run, wait_until

if TYPE_CHECKING:
    from pathlib import Path

PUBENDS = 64
ROUNDS = 10
"""Commits in which idle pubends write their promises, nearly all of them in each."""

MANY = (
    ONE
    + f"""
[[topic]]
name = "many"
pubends = [{", ".join(['"b"'] * PUBENDS)}]
"""
)


def test_idle_pubends_that_always_have_something_to_write_do_not_hold_up_a_stop(
    tmp_path: Path,
) -> None:
    """Each writes down again and again how far it promises silence. With many thousands of them
    there is never a moment without a write; here none of their promises reaches far, however long
    they are idle."""

    async def main() -> None:
        config = Config(promise_step=1, idle_silence=1_000, idle_silence_longest=1_000)
        async with make_broker(tmp_path, MANY, config=config) as broker:
            async with connected(broker) as client:
                await client.publish("many", {"i": 1})
            begun = broker._volume.statistics().commits
            await wait_until(lambda: broker._volume.statistics().commits > begun + ROUNDS)
            before = broker._volume.statistics().commits
            await broker.drain()
            assert broker._volume.statistics().commits - before <= 2 * PUBENDS

    run(main())


@pytest.mark.parametrize("turns", range(6))
def test_a_connection_that_was_just_accepted_is_closed_whichever_turn_of_the_loop_it_came_in(
    tmp_path: Path, turns: int
) -> None:
    """A transport that stays open is a warning, which is an error here."""

    async def main() -> None:
        async with make_broker(tmp_path) as broker:
            host, port = broker.address.split(":")
            with socket.create_connection((host, int(port))) as peer:
                for _ in range(turns):
                    await asyncio.sleep(0)
                await broker.drain()
                assert not broker._links.all
                peer.setblocking(False)
                assert peer.recv(1 << 16)  # goodbye
                assert peer.recv(1) == b""

    run(main())
    gc.collect()
