"""A member of a group as a process of its own: `python -m tests.processes.group_member URL FILE`.

It appends a line to the file when it takes an event, and another when the event is finished.
Lines of all members stand in one file, in the order in which things happened.
"""

from __future__ import annotations

import asyncio
import os
import sys

import gapless

HANDLING_S = 0.003


async def main(url: str, path: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def say(what: str, event: gapless.Event) -> None:
        key, number = event.attributes["key"], event.attributes["number"]
        os.write(file, f"{what} {key} {number} {os.getpid()}\n".encode())

    async with (
        gapless.connect(url, patience_s=60) as client,
        client.subscribe("t", name="group", share_by="key") as subscription,
    ):
        async for event in subscription:
            assert isinstance(event, gapless.Event), event
            say("take", event)
            await asyncio.sleep(HANDLING_S)
            try:
                await subscription.finish(event)
            except gapless.RefusedError:
                continue  # the connection was lost: it comes again
            say("done", event)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
