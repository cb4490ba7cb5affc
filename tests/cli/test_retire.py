"""A broker that never returns is retired from the command line."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

import gapless.sync
from gapless.client.errors import RefusedError
from tests.broker.stage import make_broker, run, wait_until
from tests.broker.test_far_links import RELIABLE, unreachable
from tests.broker.test_multicast import ROW
from tests.cli.test_serve import gapless as command

if TYPE_CHECKING:
    from pathlib import Path


def test_a_dead_broker_is_retired_and_one_that_is_up_or_unknown_is_not(tmp_path: Path) -> None:
    async def main() -> None:
        text = ROW + RELIABLE
        async with make_broker(tmp_path, text, "a") as a, make_broker(tmp_path, text, "b"):
            url = f"gapless://{a.address}"
            await wait_until(lambda: unreachable(a) == [["b", "c"]] or unreachable(a) == [])

            async def retire(name: str, *options: str) -> tuple[int, str, str]:
                done = await asyncio.to_thread(command, "retire", name, "--url", url, *options)
                return done.returncode, done.stdout, done.stderr

            code, _, told = await retire("nobody")
            assert (code, "there is no broker 'nobody'" in told) == (1, True)
            code, shown, _ = await retire("c", "--json")
            assert (code, json.loads(shown)) == (0, {"retired": "c"})
            assert (await retire("c"))[1] == "c is retired\n", "fine to repeat"

            def blocking() -> None:
                with gapless.sync.connect(url) as client:
                    client.retire("c")
                    with pytest.raises(RefusedError, match="a is up"):
                        client.retire("a")

            await asyncio.to_thread(blocking)

    run(main())
