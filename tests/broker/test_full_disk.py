"""A broker on a disk that is full to the last byte: it starts, serves, refuses, and can be helped.

For real, on a small file system of its own, which a process of its own mounts. What is tried stands
in `TRIAL`; it runs there with the folder as its argument.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.children import PATIENCE_S, child, rest

MOUNT = 'mount -t tmpfs -o size=40m tmpfs "$1" && exec "$2" -c "$3" "$1"'

TRIAL = """
import asyncio, os, signal, subprocess, sys
from contextlib import suppress
from gapless.client.client import connect
from gapless.client.errors import RefusedError

SERVE = "from gapless.cli import main; main()"
folder = sys.argv[1]

def serve():
    command = [sys.executable, "-c", SERVE, "serve", "--data", folder + "/data"]
    command += ["--listen", "127.0.0.1:0", "--admin", "none"]
    broker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    told = broker.stdout.readline()
    assert "is ready at" in told, told
    return broker, told.split("ready at ")[1].strip()

def fill():
    with open(folder + "/filler", "ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    assert os.statvfs(folder).f_bavail == 0

async def publish(client, size, count=100):
    sent = 0
    try:
        while True:
            await client.publish_many("t", [({"i": sent}, bytes(size))] * count)
            sent += count
    except RefusedError as error:
        assert "disk is full" in str(error), error
    return sent

async def read(client):
    count = 0
    async for batch in client.read("t"):
        count += len(batch)
    return count

async def main():
    broker, url = serve()
    async with connect(url, patience_s=2) as client:
        await client.create_topic("t")
        async with client.subscribe("t", name="away"):
            pass
        published = 0
        for size, count in ((10_000, 100), (100, 100), (100, 1), (0, 1)):
            published += await publish(client, size, count)
            fill()  # until nothing finds room any more
        assert published > 1_000
    for blow in (signal.SIGKILL, signal.SIGTERM):
        broker.send_signal(blow)
        code = broker.wait()
        assert code == -blow or (blow, code) == (signal.SIGTERM, 0), (blow, code)
        broker, url = serve()
        async with connect(url, patience_s=2) as client:
            assert await read(client) == published, "what is there is served"
            assert await publish(client, 100) == 0
    async with connect(url, patience_s=60) as client:
        await client.unsubscribe("away")
        await client.publish("t", {"i": -1}, bytes(100_000))  # waits until there is room
    broker.send_signal(signal.SIGTERM)
    assert broker.wait() == 0
    print("helped", flush=True)

asyncio.run(main())
"""


@pytest.mark.slow
def test_a_broker_starts_on_a_full_disk_and_unsubscribing_makes_room(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    where = str(tmp_path_factory.mktemp("disk"))
    alone = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork"]
    alone += ["--kill-child", "sh", "-c"]
    tried = [*alone, 'mount -t tmpfs -o size=1m tmpfs "$1"', "sh", where]
    try:
        mounts = subprocess.run(tried, capture_output=True, check=False, timeout=PATIENCE_S)
    except FileNotFoundError:
        pytest.skip("there is no unshare on this machine")
    if mounts.returncode:
        pytest.skip("nobody may mount a file system here")
    with child([*alone, MOUNT, "sh", where, sys.executable, TRIAL]) as trial:
        told = rest(trial)
        assert trial.stderr is not None
        assert told == "helped\n", trial.stderr.read()
