"""Steps of a broker while subscribers return after a backlog that is 15 times what is retained.

"nodes": the nodes that ship, in one process, with real disks; every message is encoded and decoded
on its way. The longest step is the longest single call of a node, in CPU time: nobody else is
served meanwhile. "process": `gapless serve`, its own measure of the longest step and the longest
turn of its loop, in CPU time too, and how long another client's requests took meanwhile, by the
clock. "inputs": the same for the largest requests that one client may send.
"""

from __future__ import annotations

import asyncio
import gc
import json
import multiprocessing
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.hops import BATCH, TRADES, WRITER, Row, chain
from benchmarks.report import Report
from gapless.client.client import connect
from gapless.client.errors import RefusedError
from gapless.core.client_messages import (
    CaughtUp,
    Consumed,
    Deliveries,
    Lost,
    Publish,
    Receipt,
    Subscribe,
    Subscribed,
)
from gapless.core.events import EventBatch
from gapless.core.identity import BrokerName, ClientName, SubscriptionName
from gapless.wire.events import encode_event

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator
    from multiprocessing.connection import Connection

    from gapless.core.effects import Effect
    from gapless.core.messages import Message

KEPT = 2_000
"""Events that are retained, about."""

BACKLOG = 15
BODY = bytes(1_000)
AGE_S = 10

SERVE = """
import time
from gapless.broker import pump
from gapless.cli import main
pump.perf_counter_ns = time.thread_time_ns
main()
"""
CPU = "steps and turns: CPU time of the loop's thread, in powers of two; others use the machine too"


class Backlog(Row):
    """Brokers in a row, some subscribers that were away, and the longest step of any broker."""

    def __init__(self, hops: int, folder: Path, count: int, retention: str) -> None:
        self.longest_s, self.is_watched = 0.0, False
        self.starts: dict[str, int] = {}
        self.taken: dict[str, int] = {}
        self.lost = self.caught_up = 0
        self.names = [f"reader-{number}" for number in range(count)]
        super().__init__(hops, folder, alone=False, text=chain(hops) + retention)

    def timed(self, name: BrokerName, what: str, *arguments: object) -> list[Effect]:
        began = time.thread_time()
        effects: list[Effect] = getattr(self.nodes[name], what)(*arguments, self.now)
        if self.is_watched:
            self.longest_s = max(self.longest_s, time.thread_time() - began)
        return effects

    def take_for(self, to: str, message: Message) -> None:
        self.told.append(message)
        if isinstance(message, Subscribed):
            self.starts.setdefault(to, message.start["trades/0"])
        if isinstance(message, Lost):
            self.lost += 1
        if isinstance(message, CaughtUp):
            self.caught_up += 1
        if isinstance(message, Deliveries) and message.ticks:
            self.taken[to] = self.taken.get(to, 0) + len(message.ticks)
            self.client(ClientName(to), self.last, Consumed(len(message.ticks)))

    def attach_all(self) -> None:
        for number, name in enumerate(self.names):
            client = ClientName(name)
            self.do(self.last, self.nodes[self.last].link_up(client, self.now))
            token = {"trades/0": self.starts[name]} if name in self.starts else None
            condition = f"n >= -{number}"  # each its own, so that nobody travels with another
            wish = Subscribe(TRADES, 1, 1, condition, name=SubscriptionName(name), token=token)
            self.client(client, self.last, wish)

    def leave_all(self) -> None:
        for name in self.names:
            self.do(self.last, self.nodes[self.last].link_down(ClientName(name), self.now))

    def fill(self, count: int) -> None:
        self.do(self.first, self.nodes[self.first].link_up(WRITER, self.now))
        for number in range(0, count, BATCH):
            events = [encode_event({"n": number + i}, BODY) for i in range(BATCH)]
            self.client(WRITER, self.first, Publish(TRADES, 1, EventBatch(tuple(events))))
            self.run(Receipt)

    def wait(self, seconds: float) -> None:
        """Let time pass, so that what is due is released."""
        end = self.now + int(seconds * 1e6)
        while self.now < end:
            self.run_on()


def play(hops: int, count: int, retention: str, kept: int) -> tuple[Backlog, float]:
    with tempfile.TemporaryDirectory() as folder:
        row = Backlog(hops, Path(folder), count, retention)
        row.attach_all()
        row.run_until(lambda: len(row.starts) == count)
        row.leave_all()
        row.fill((BACKLOG - 1) * kept)
        row.wait(2 * AGE_S)
        row.fill(kept)
        row.wait(1)
        gc.collect()
        gc.freeze()  # as a broker process does: what the rounds before left is not looked through
        row.is_watched = True
        began = time.process_time()
        row.attach_all()
        row.run_until(lambda: row.caught_up == count)
        spent = time.process_time() - began
        gc.unfreeze()
        row.close()
    assert row.lost == count, "one gap for each"
    assert set(row.taken) == set(row.names), "and some events"
    return row, spent


def nodes(quick: bool) -> Report:
    kept = KEPT // 4 if quick else KEPT
    report = Report(
        "steps-nodes",
        f"Subscribers return; {kept * BACKLOG:,} events of 1 kB were published, {kept:,} are kept",
        ("hops", "retention", "return", "longest step, CPU ms", "CPU s in all"),
    )
    by_size = f"retention_bytes = {kept * len(encode_event({'n': 1_000}, BODY))}\n"
    by_age = f"retention_seconds = {AGE_S}\n"
    play(0, 1, by_size, 500)  # what is loaded once is not counted
    for hops in (0, 2):
        for kind, retention in (("size", by_size), ("age", by_age)):
            for count in (1, 10, 100):
                row, spent = play(hops, count, retention, kept)
                report.add(hops, kind, count, f"{row.longest_s * 1e3:.1f}", f"{spent:.2f}")
    report.notes.append("each has a condition of its own, and wants everything")
    return report


# --- a broker process ---------------------------------------------------------------------------


@contextmanager
def serving() -> Iterator[tuple[str, str]]:
    """A broker process: its URL and the address of its admin port."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", SERVE, "serve"]
        command += ["--topic", "other", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
        process = subprocess.Popen([*command, "--data", folder], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            told = process.stdout.readline()
            [found] = Path(folder).glob("**/address.json")
            yield told.split("ready at ")[1].strip(), json.loads(found.read_text())["admin"]
        finally:
            process.terminate()
            process.communicate()


def ask_again_and_again(url: str, pipe: Connection) -> None:
    """In a process of its own: how long the longest of many requests took, until told to stop."""

    async def main() -> float:
        longest = 0.0
        async with connect(url) as client:
            await client.publish("other", {"n": 0})
            pipe.send(0.0)
            while not pipe.poll():
                began = time.perf_counter()
                await client.publish("other", {"n": 1})
                longest = max(longest, time.perf_counter() - began)
                await asyncio.sleep(0.002)
        return longest

    pipe.send(asyncio.run(main()))


def times(admin: str) -> dict[str, list[int]]:
    """How many steps and turns took how long, by powers of two of a microsecond."""
    with urllib.request.urlopen(f"http://{admin}/statistics") as answer:
        found = json.load(answer)
    return {kind: found[f"{kind}_times"]["buckets"] for kind in ("step", "turn")}


def longest_since(before: list[int], after: list[int]) -> str:
    """No step or turn that came since took as long as this, in milliseconds."""
    changed = [power for power, count in enumerate(after) if count > before[power]]
    return f"{(1 << max(changed)) / 1e3:.0f}"


async def come_back(url: str, admin: str, count: int, kept: int) -> tuple[str, ...]:
    """Seconds until all have what is kept, no step and no turn as long as this, and the longest
    request of another client."""
    async with connect(url) as client:
        topic = f"t{count}"
        await client.create_topic(topic, retention_bytes=kept * 1_000)
        tokens = []
        for number in range(count):
            async with client.subscribe(topic, name=f"{topic}-{number}") as subscription:
                tokens.append(subscription.token)
        total = BACKLOG * kept
        for start in range(0, total, 200):
            await client.publish_many(topic, [({"n": start + i}, BODY) for i in range(200)])
        await asyncio.sleep(1.0)  # until it is released
        ours, theirs = multiprocessing.Pipe()
        other = multiprocessing.get_context("spawn").Process(
            target=ask_again_and_again, args=(url, theirs)
        )
        other.start()
        await asyncio.to_thread(ours.recv)

        async def read(number: int) -> None:
            async with (
                connect(url) as mine,
                mine.subscribe(topic, name=f"{topic}-{number}", start=tokens[number]) as come,
            ):
                async for each in come:
                    if getattr(each, "attributes", {}).get("n") == total - 1:
                        return

        before, began = await asyncio.to_thread(times, admin), time.perf_counter()
        await asyncio.gather(*map(read, range(count)))
        spent = time.perf_counter() - began
        ours.send("stop")
        longest: float = await asyncio.to_thread(ours.recv)
        other.join()
        after = await asyncio.to_thread(times, admin)
        bounds = [longest_since(before[kind], after[kind]) for kind in ("step", "turn")]
        return f"{spent:.2f}", *bounds, f"{longest * 1e3:.0f}"


def process(quick: bool) -> Report:
    kept = 2_000 if quick else 10_000
    report = Report(
        "steps-process",
        f"The same at a broker process: {kept * BACKLOG:,} events, {kept:,} are kept",
        (
            "return",
            "seconds",
            "steps below CPU ms",
            "turns below CPU ms",
            "longest other request ms",
        ),
    )
    for count in (1, 10, 100):
        with serving() as (url, admin):
            report.add(count, *asyncio.run(come_back(url, admin, count, kept)))
    report.notes.append(f"{CPU}; seconds and requests by the clock")
    return report


# --- single large inputs ------------------------------------------------------------------------


async def large_inputs(url: str, admin: str) -> list[tuple[str, ...]]:
    """What one client may ask for at once: no step and no turn as long as this."""
    conditions = {
        "a condition of 64 KB: 5,000 names, OR": " OR ".join(f"a{i} = 1" for i in range(5_000)),
        "a condition of 64 KB: one list": "s IN ("
        + ", ".join(f"'v{i:06}'" for i in range(5_900))
        + ")",
        "a condition of 60 KB: 900 patterns": " OR ".join(
            f"s LIKE '%{i:055}%'" for i in range(900)
        ),
    }
    rows: list[tuple[str, ...]] = []

    async def measured(what: str, doing: Awaitable[object]) -> None:
        before = await asyncio.to_thread(times, admin)
        try:
            await doing
        except RefusedError as refused:
            what += f" (refused: {refused.problem[:40]})"
        after = await asyncio.to_thread(times, admin)
        rows.append((what, *(longest_since(before[k], after[k]) for k in ("step", "turn"))))

    async def subscribed(condition: str) -> None:
        async with client.subscribe("large", condition):
            await client.publish_many("large", [({"s": "x" * 1_000, "a7": 1}, b"")] * 100)

    async with connect(url) as client:
        await client.create_topic("large", keep_bytes=100_000_000)
        warm = [({"n": i}, b"") for i in range(200)]
        for _ in range(100):
            await client.publish_many("large", warm)  # until compiled code is loaded
        await asyncio.sleep(5)
        one = [({"n": i}, bytes(1_000_000)) for i in range(8)]
        await measured("8 events of 1 MB in one publication", client.publish_many("large", one))
        many = [({"n": i}, b"") for i in range(10_000)]
        await measured("10,000 small events in one call", client.publish_many("large", many))
        wide = [({f"a{j}": j for j in range(250)}, b"") for _ in range(1_000)]
        await measured("1,000 events of 250 attributes", client.publish_many("large", wide))
        for what, condition in conditions.items():
            await measured(what, subscribed(condition))
    return rows


def inputs() -> Report:
    report = Report(
        "steps-inputs",
        "Single large inputs of one client",
        ("input", "steps below CPU ms", "turns below CPU ms"),
    )
    with serving() as (url, admin):
        for row in asyncio.run(large_inputs(url, admin)):
            report.add(*row)
    report.notes.append(CPU)
    return report


def run(quick: bool) -> list[Report]:
    return [nodes(quick), process(quick), inputs()]
