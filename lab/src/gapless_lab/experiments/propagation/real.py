"""Propagation against flooding with real brokers: processor time, latency, relays that are killed.

Theory of operation
    Load: a host, two relays in one cell, two leaves. The subscriber at each leaf wants the same
    number of events a second whatever is published, as in the paper; processor time is counted
    over some seconds at each rate. Brokers are heard a little while first: what is done once, such
    as compiling a filter, is not counted. Events are sent one by one, as those of many publishers:
    the host still sends on together what one sync of its disk made durable, and a message costs
    far more than one event more in it, so the slower the disk, the less flooding costs.
    Latency: a chain, with a leaf behind its first relay and one behind its last. Steady
    subscribers hold half of the kinds; others come one after the other, to a kind that is held
    (covered) or to one that is not (the subscription must go to the host). A start is from the
    request to the answer that the subscription counts.
    Failure: three relays in one cell, of which two are killed one after the other under load. Then
    a new subscription comes; then the two come back.

Deviation: rates are those of Python on one machine; compared are shapes and ratios, never values.

Source: Middleware 2004, sec. 5.2.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from gapless.client.client import connect
from gapless.testing.processes.brokers import Processes, cell
from gapless_lab.experiments.real_clients import HOST, QUOTES, TOPIC, Account, feeding, reading

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.client.client import Client

    Job = tuple[str, Callable[[], None]]

SCHEMES = FLOODING, PROPAGATION = "flooding", "propagation"
LEAVES = ("s1", "s2")
RELAYS = ("r1", "r2", "r3")
WARM_S = 1.0
KIND_COUNT, HELD_COUNT = 16, 8
"""Kinds of events where latency is measured, and how many of them somebody always wants."""

PAUSE_S = 0.02
LATE = "late"


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is done."""

    leaves: int
    wanted_per_s: int
    rates_per_s: tuple[int, ...]
    load_s: float
    hop_counts: tuple[int, ...]
    latency_per_s: int
    starts: int
    failure_per_s: int
    step_s: float
    """Between one blow and the next."""


FULL = Size(
    leaves=2, wanted_per_s=100, rates_per_s=(200, 1_000), load_s=5.0, hop_counts=(1, 4),
    latency_per_s=200, starts=40, failure_per_s=200, step_s=1.5,
)  # fmt: skip
QUICK = Size(
    leaves=1, wanted_per_s=50, rates_per_s=(50, 200), load_s=0.5, hop_counts=(1, 2),
    latency_per_s=200, starts=3, failure_per_s=100, step_s=0.2,
)  # fmt: skip


class Load(NamedTuple):
    """Processor time over time, by broker, at one rate under one scheme."""

    scheme: str
    events_per_s: int
    busy: dict[str, float]
    account: Account


class Latency(NamedTuple):
    """Over a chain with so many relays between its ends."""

    hops: int
    delivery_ms: list[float]
    covered_start_ms: list[float]
    start_ms: list[float]

    def medians(self) -> tuple[float, float, float]:
        return median(self.delivery_ms), median(self.covered_start_ms), median(self.start_ms)


class Failure(NamedTuple):
    """Of all subscribers, and of the one that came while a single relay lived."""

    account: Account
    late_start_ms: float
    late_first_ms: float
    """From the request to the answer, and to the first event."""


@dataclass
class Results:
    """Everything that was measured."""

    size: Size
    loads: list[Load] = field(default_factory=list)
    latencies: list[Latency] = field(default_factory=list)
    failure: Failure | None = None

    def plain(self) -> dict[str, object]:
        return {
            "real": True,
            "size": asdict(self.size),
            "loads": [each._asdict() | {"account": each.account._asdict()} for each in self.loads],
            "latencies": [each._asdict() for each in self.latencies],
            "failure": self.failure
            and self.failure._asdict() | {"account": self.failure.account._asdict()},
        }

    def notes(self) -> list[str]:
        lines = [
            "Real processes on this machine; all clients in one more. Latency includes one sync of "
            "the host's disk."
        ]
        if self.loads and not self.loads[0].busy:
            lines.append("No processor times: this system has no /proc, so load is not judged.")
        return lines


def jobs(results: Results) -> list[Job]:
    size = results.size

    def load(scheme: str) -> None:
        results.loads += asyncio.run(measure_load(size, scheme))

    def latency() -> None:
        results.latencies = asyncio.run(measure_latency(size))

    def failure() -> None:
        results.failure = asyncio.run(measure_failure(size))

    return [
        ("load under flooding", lambda: load(FLOODING)),
        ("load under propagation", lambda: load(PROPAGATION)),
        ("latency", latency),
        ("relays killed", failure),
    ]


# --- load -----------------------------------------------------------------------------------------


async def measure_load(size: Size, scheme: str) -> list[Load]:
    relays, leaves = RELAYS[:2], LEAVES[: size.leaves]
    cells = [cell("host", [HOST], "relays"), cell("relays", relays)]
    cells += [cell(leaf, [leaf], "relays", subscribers=True) for leaf in leaves]
    config = {"propagates": scheme == PROPAGATION}
    async with Processes(*cells, QUOTES, config=config) as brokers, AsyncExitStack() as stack:
        names = (HOST, *relays, *leaves)
        await brokers.start(*names)
        clients = [await stack.enter_async_context(connect(brokers.url(leaf))) for leaf in leaves]
        return [await one_rate(size, brokers, clients, rate, scheme, names)
                for rate in size.rates_per_s]  # fmt: skip


async def one_rate(
    size: Size,
    brokers: Processes,
    clients: list[Client],
    events_per_s: int,
    scheme: str,
    names: tuple[str, ...],
) -> Load:
    account, kind_count = Account(), events_per_s // size.wanted_per_s
    async with AsyncExitStack() as stack:
        wanted = [client.subscribe(TOPIC, "kind = 0") for client in clients]
        readers = [await stack.enter_async_context(reading(each)) for each in wanted]
        feed_name = f"feed at {events_per_s}"
        async with feeding(brokers.url(HOST), events_per_s, kind_count, feed_name) as feed:
            await asyncio.sleep(min(WARM_S, size.load_s))
            before, begin_s = {name: brokers.cpu_s(name) for name in names}, time.monotonic()
            await asyncio.sleep(size.load_s)
            took_s = time.monotonic() - begin_s
            after = {name: brokers.cpu_s(name) for name in names}
        owed = feed.numbers(0)
        for reader in readers:
            await reader.wait_for(owed[-1])
            account = account.plus(owed, reader.numbers)
    busy = {
        name: (end - begin) / took_s
        for name, begin in before.items()
        if begin is not None and (end := after[name]) is not None
    }
    return Load(scheme, events_per_s, busy, account)


# --- latency --------------------------------------------------------------------------------------


async def measure_latency(size: Size) -> list[Latency]:
    chain = [HOST, *(f"i{number}" for number in range(1, max(size.hop_counts) + 1))]
    cells = [cell(name, [name], above) for name, above in zip(chain, ["", *chain], strict=False)]
    leaves = {hops: f"s{hops}" for hops in size.hop_counts}
    cells += [cell(leaf, [leaf], f"i{n}", subscribers=True) for n, leaf in leaves.items()]
    async with Processes(*cells, QUOTES) as brokers:
        await brokers.start(*chain, *leaves.values())
        return [await over_hops(size, brokers, hops, leaf) for hops, leaf in leaves.items()]


async def over_hops(size: Size, brokers: Processes, hops: int, leaf: str) -> Latency:
    covered, starts = list[float](), list[float]()
    feed_name = f"feed of {leaf}"
    async with (
        connect(brokers.url(leaf)) as client,
        reading(client.subscribe(TOPIC, f"kind < {HELD_COUNT}")) as reader,
        feeding(brokers.url(HOST), size.latency_per_s, KIND_COUNT, feed_name) as feed,
    ):
        await reader.wait_for(HELD_COUNT)
        for number in range(size.starts):
            held = number % HELD_COUNT
            covered.append(await start_ms(client, f"kind = {held}"))
            starts.append(await start_ms(client, f"kind = {held + HELD_COUNT}"))
        took_ms = [1000 * (came_s - feed.sent_s[number]) for number, came_s in reader.arrivals]
    return Latency(hops, took_ms[HELD_COUNT:], covered, starts)


async def start_ms(client: Client, condition: str) -> float:
    await asyncio.sleep(PAUSE_S)
    begin_s = time.monotonic()
    async with client.subscribe(TOPIC, condition):
        return 1000 * (time.monotonic() - begin_s)


# --- failure --------------------------------------------------------------------------------------


async def measure_failure(size: Size) -> Failure:
    cells = [cell("host", [HOST], "relays"), cell("relays", RELAYS)]
    leaves = LEAVES[: size.leaves]
    cells += [cell(leaf, [leaf], "relays", subscribers=True) for leaf in leaves]
    async with Processes(*cells, QUOTES) as brokers, AsyncExitStack() as stack:
        await brokers.start(HOST, *RELAYS, *leaves)
        clients = [await stack.enter_async_context(connect(brokers.url(leaf))) for leaf in leaves]
        wanted = [
            (kind, client.subscribe(TOPIC, f"kind = {kind}"))
            for client in clients
            for kind in (0, 1)
        ]
        readers = [(kind, await stack.enter_async_context(reading(one))) for kind, one in wanted]
        async with feeding(brokers.url(HOST), size.failure_per_s, 4) as feed:
            for victim in RELAYS[:2]:
                await asyncio.sleep(size.step_s)
                brokers.kill(victim)
            await asyncio.sleep(size.step_s)
            asked_s = time.monotonic()
            late = await stack.enter_async_context(reading(clients[0].subscribe(TOPIC, "kind = 2")))
            answered_s, begin = time.monotonic(), len(feed.sent_s)
            await late.wait_for(begin)
            for victim in RELAYS[:2]:
                await brokers.start(victim)
                await asyncio.sleep(size.step_s)
        account = Account()
        for kind, reader, first in [*((k, r, 0) for k, r in readers), (2, late, begin)]:
            owed = feed.numbers(kind, first)
            await reader.wait_for(owed[-1])
            account = account.plus(owed, reader.numbers)
        first_s = late.arrivals[0][1] if late.arrivals else float("inf")
    return Failure(account, 1000 * (answered_s - asked_s), 1000 * (first_s - asked_s))
