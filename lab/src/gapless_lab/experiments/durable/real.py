"""Durable subscriptions with real brokers: an absence, a killed host, commits of tokens.

Theory of operation
    A host of the pubend, a relay, a host of subscribers. All is published at one rate. One
    subscriber, who wants everything, leaves for some seconds and comes back with its token; then
    the subscribers' broker is killed and, after a while, started again. A subscriber has caught up
    when it gets an event no later than `LEVEL_S` after it was published.
    Commits: some events wait for subscribers whose tokens the broker keeps, and who acknowledge
    each event and wait until that is durable before they take the next, as a JMS client in
    automatic mode does. Commits of the broker's volume are counted beside.

Deviation: rates are those of Python on one machine; compared are shapes and ratios, never values.

Source: DSN 2003, sec. 5.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from gapless.client.client import connect
from gapless.core.events import Event
from gapless.testing.processes.brokers import Processes, cell
from gapless_lab.experiments.real_clients import (
    BODY,
    HOST,
    LEVEL_S,
    QUOTES,
    TOPIC,
    Account,
    feeding,
    reading,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.client.client import Client
    from gapless_lab.experiments.real_clients import Feed

    Job = tuple[str, Callable[[], None]]

SUBSCRIBERS, RELAY = "s", "r"
NETWORK = (
    cell("host", [HOST], "relays"),
    cell("relays", [RELAY]),
    cell("subscribers", [SUBSCRIBERS], "relays", subscribers=True),
    QUOTES,
)
KIND_COUNT = 4
"""Each subscriber wants one kind, so that an event is wanted by a quarter, as in the paper."""

CONNECTION_COUNT = 2
PUBLISH_COUNT = 500


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is done."""

    events_per_s: int
    subscribers: int
    settle_s: float
    away_s: float
    down_s: float
    after_s: float
    """How long publishing goes on after a return."""
    commit_counts: tuple[int, ...]
    commit_s: float
    waiting_events: int


FULL = Size(
    events_per_s=200, subscribers=8, settle_s=2.0, away_s=4.0, down_s=3.0, after_s=6.0,
    commit_counts=(1, 8), commit_s=4.0, waiting_events=4_000,
)  # fmt: skip
QUICK = Size(
    events_per_s=100, subscribers=2, settle_s=0.3, away_s=0.3, down_s=0.1, after_s=1.0,
    commit_counts=(1, 2), commit_s=0.5, waiting_events=500,
)  # fmt: skip


class Absence(NamedTuple):
    """One subscriber that was away; `level_s` is None if it did not catch up."""

    account: Account
    away_s: float
    level_s: float | None
    caught_per_s: float
    live_per_s: float


class Crash(NamedTuple):
    """The subscribers' broker was killed: down for so long, then each caught up in so long."""

    account: Account
    down_s: float
    level_s: list[float | None]


class Commits(NamedTuple):
    """So many subscribers acknowledged each event; `writes` is None where it is not known."""

    subscribers: int
    acknowledged_per_s: float
    writes_per_s: float | None


@dataclass
class Results:
    """Everything that was measured."""

    size: Size
    absence: Absence | None = None
    crash: Crash | None = None
    commits: list[Commits] = field(default_factory=list)

    def plain(self) -> dict[str, object]:
        parts = {"absence": self.absence, "crash": self.crash}
        return {
            "real": True,
            "size": asdict(self.size),
            **{
                name: found and found._asdict() | {"account": found.account._asdict()}
                for name, found in parts.items()
            },
            "commits": [each._asdict() for each in self.commits],
        }

    def notes(self) -> list[str]:
        lines = [
            "Real processes on this machine; all clients in one more. Caught up is who gets an "
            f"event within {1000 * LEVEL_S:.0f} ms of its publication."
        ]
        if any(each.writes_per_s is None for each in self.commits):
            lines.append("Commits of the disk are not known: they need the extra 'console'.")
        return lines


def jobs(results: Results) -> list[Job]:
    size = results.size

    def shaken() -> None:
        results.absence, results.crash = asyncio.run(measure_returns(size))

    def commits() -> None:
        results.commits = asyncio.run(measure_commits(size))

    return [("an absence and a killed broker", shaken), ("commits", commits)]


# --- returns --------------------------------------------------------------------------------------


async def measure_returns(size: Size) -> tuple[Absence, Crash]:
    async with Processes(*NETWORK) as brokers, AsyncExitStack() as stack:
        await brokers.start(HOST, RELAY, SUBSCRIBERS)
        clients = [
            await stack.enter_async_context(connect(brokers.url(SUBSCRIBERS)))
            for _ in range(CONNECTION_COUNT)
        ]
        readers = []
        for number in range(size.subscribers):
            client, condition = clients[number % CONNECTION_COUNT], f"kind = {number % KIND_COUNT}"
            named = client.subscribe(TOPIC, condition, name=f"subscriber {number}")
            readers.append(await stack.enter_async_context(reading(named)))
        async with feeding(brokers.url(HOST), size.events_per_s, KIND_COUNT) as feed:
            absence = await leave_and_return(size, clients[0], feed)
            down_s, up_s = await kill_and_restart(size, brokers)
        account = Account()
        for number, reader in enumerate(readers):
            owed = feed.numbers(number % KIND_COUNT)
            await reader.wait_for(owed[-1])
            account = account.plus(owed, reader.numbers)
        level_s = [reader.level_s(feed.sent_s, up_s) for reader in readers]
    return absence, Crash(account, down_s, level_s)


async def kill_and_restart(size: Size, brokers: Processes) -> tuple[float, float]:
    """For how long it was down, and when it was up again."""
    brokers.kill(SUBSCRIBERS)
    killed_s = time.monotonic()
    await asyncio.sleep(size.down_s)
    await brokers.start(SUBSCRIBERS)
    up_s = time.monotonic()
    await asyncio.sleep(size.after_s)
    return up_s - killed_s, up_s


async def leave_and_return(size: Size, client: Client, feed: Feed) -> Absence:
    async with reading(client.subscribe(TOPIC, name="traveller")) as before:
        await asyncio.sleep(size.settle_s)
        await before.wait_for(0)
        token = before.subscription.token
    left_s = time.monotonic()
    await asyncio.sleep(size.away_s)
    back_s = time.monotonic()
    async with reading(client.subscribe(TOPIC, name="traveller", start=token)) as after:
        await asyncio.sleep(size.after_s)
        last = len(feed.sent_s) - 1
        await after.wait_for(last)
    await client.unsubscribe("traveller")
    got = before.numbers + after.numbers
    owed = list(range(got[0], last + 1)) if got else []
    level_s = after.level_s(feed.sent_s, back_s)
    caught = [n for n, came_s in after.arrivals if level_s and came_s <= back_s + level_s]
    return Absence(
        Account().plus(owed, got),
        back_s - left_s,
        level_s,
        len(caught) / level_s if level_s else 0.0,
        len(feed.sent_s) / (feed.sent_s[-1] - feed.sent_s[0]),
    )


# --- commits --------------------------------------------------------------------------------------


async def measure_commits(size: Size) -> list[Commits]:
    async with Processes(*NETWORK, has_admin=True) as brokers:
        await brokers.start(HOST, RELAY, SUBSCRIBERS)
        return [await with_subscribers(size, brokers, count) for count in size.commit_counts]


async def with_subscribers(size: Size, brokers: Processes, count: int) -> Commits:
    """They come, leave, and find what was published meanwhile."""
    names = [f"{number} of {count}" for number in range(count)]
    async with (
        connect(brokers.url(HOST)) as publishing,
        connect(brokers.url(SUBSCRIBERS)) as client,
    ):
        for name in names:
            async with client.subscribe(TOPIC, name=name, tokens="broker"):
                pass
        for _ in range(0, size.waiting_events, PUBLISH_COUNT):
            await publishing.publish_many(TOPIC, [({}, BODY)] * PUBLISH_COUNT)
        before, begin_s = await brokers.statistics(SUBSCRIBERS), time.monotonic()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(acknowledge_each(client, name, size)) for name in names]
        took_s, after = time.monotonic() - begin_s, await brokers.statistics(SUBSCRIBERS)
        for name in names:
            await client.unsubscribe(name)
    writes = after["disk"]["commits"] - before["disk"]["commits"] if before and after else None
    total = sum(task.result() for task in tasks)
    return Commits(count, total / took_s, None if writes is None else writes / took_s)


async def acknowledge_each(client: Client, name: str, size: Size) -> int:
    """Take and acknowledge one event after the other; how many in the time there is."""
    end_s, count = time.monotonic() + size.commit_s, 0
    async with client.subscribe(TOPIC, name=name, tokens="each") as subscription:
        async for item in subscription:
            count += isinstance(item, Event)
            if time.monotonic() >= end_s or count >= size.waiting_events:
                break
    return count
