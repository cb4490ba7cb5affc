"""What was promised of each workload, and whether it is reached.

Every figure is the middle one of its repeats. A rival is a peer with one of its clients. Ratios are
of figures of the same run; above 1 means that gapless is ahead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.peers.adapter import load_peer
from benchmarks.peers.brokers.gapless import BEST_EFFORT
from benchmarks.peers.workloads import DURABLE_SUBSCRIBERS, middle
from benchmarks.report import Report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from benchmarks.peers.workloads import Figures

EVENT_BYTES = 330
"""An encoded event of the workloads, within a few bytes."""

MATCHING = DURABLE_SUBSCRIBERS // 4
DISK_BYTES = EVENT_BYTES + 8 + 16 * MATCHING


class Contestant(NamedTuple):
    """A broker, used through one of its clients."""

    peer: str
    client: str

    def __str__(self) -> str:
        return self.peer if self == OURS else f"{self.peer} {self.client}"


OURS = Contestant("gapless", "lib")


@dataclass
class Results:
    """All figures: by workload, contestant and name, one for each repeat."""

    figures: dict[tuple[str, Contestant], list[Figures]]
    limits: dict[str, list[Figures]]

    def of(self, workload: str, contestant: Contestant, name: str) -> float | None:
        found = [
            each[name] for each in self.figures.get((workload, contestant), ()) if name in each
        ]
        return middle(found) if found else None

    def limit(self, workload: str, name: str) -> float | None:
        found = [each[name] for each in self.limits.get(workload, ()) if name in each]
        return middle(found) if found else None

    def rivals(self, workload: str) -> list[Contestant]:
        return [who for each, who in self.figures if each == workload and who.peer != "gapless"]


class Line(NamedTuple):
    """One row of the table; None: not measured."""

    promise: str
    ours: str
    against: str
    must: bool | None
    aim: bool | None


def lines(results: Results) -> list[Line]:
    return [
        _ahead(results, "W1-10", "deliveries/s", _with_library, _all),
        _ahead(results, "W1-100", "deliveries/s", _with_library, _all),
        _filtering(results),
        _ahead(results, "W3", "deliveries/s", _syncing, _all),
        _disk(results),
        _ahead(results, "W3", "catch-up/s", _with_library, _all),
        _publishing(results),
        _kill(results),
        *_exactly_once(results),
        *_latency(results),
    ]


def report(results: Results) -> Report:
    table = Report(
        "peers",
        "gapless and its peers",
        ("workload", "gapless", "best of the others", "must", "aim"),
        notes=["ratios are of one run; must and aim: what the benchmark's README says"],
    )
    for line in lines(results):
        table.add(line.promise, line.ours, line.against, _said(line.must), _said(line.aim))
    return table


def _said(is_reached: bool | None) -> str:
    return "-" if is_reached is None else "yes" if is_reached else "no"


# --- rows ----------------------------------------------------------------------------------------


def _all(_: Contestant) -> bool:
    return True


def _with_library(who: Contestant) -> bool:
    return who.client == "lib"


def _syncing(who: Contestant) -> bool:
    return load_peer(who.peer).fsyncs


def _best(
    results: Results, workload: str, name: str, among: Callable[[Contestant], bool]
) -> tuple[float, Contestant] | None:
    found = [
        (value, who)
        for who in results.rivals(workload)
        if among(who) and (value := results.of(workload, who, name)) is not None
    ]
    return max(found, default=None)


def _ahead(
    results: Results,
    workload: str,
    name: str,
    must: Callable[[Contestant], bool],
    aim: Callable[[Contestant], bool],
) -> Line:
    ours = results.of(workload, OURS, name)
    rivals = [_best(results, workload, name, among) for among in (must, aim)]
    if ours is None:
        return Line(f"{workload} {name}", "-", "-", None, None)
    told = "; ".join(dict.fromkeys(_ratio(ours, each) for each in rivals if each))
    is_must, is_aim = (None if each is None else ours > each[0] for each in rivals)
    if is_aim and not any(who.client == "lean" for who in results.rivals(workload)):
        is_aim = None  # the fastest were not in the race
    return Line(f"{workload} {name}", f"{ours:,.0f}", told, is_must, is_aim)


def _ratio(ours: float, rival: tuple[float, Contestant]) -> str:
    value, who = rival
    return f"{ours / max(value, 1e-9):.2f} × {who} ({value:,.0f})"


def _filtering(results: Results) -> Line:
    line = _ahead(results, "W2", "published/s", _with_library, lambda who: who.client == "lean")
    ours = results.of("W2", OURS, "published/s")
    usual = _best(results, "W2", "published/s", _with_library)
    selectors = results.of("W2", Contestant("activemq", "lib"), "published/s")
    if ours is None or usual is None:
        return line
    must = ours >= 3 * usual[0]
    told = line.against
    if selectors is not None:
        must = must and ours >= 20 * selectors
        told += f"; {_ratio(ours, (selectors, Contestant('activemq', 'lib')))}"
    return line._replace(against=told, must=must)


def _disk(results: Results) -> Line:
    ours = results.of("W3", OURS, "disk bytes/event")
    if ours is None:
        return Line("W3 bytes on disk per event", "-", "-", None, None)
    rivals = [
        (value, who)
        for who in results.rivals("W3")
        if (value := results.of("W3", who, "disk bytes/event"))
    ]
    told = ", ".join(f"{who} {value:,.0f}" for value, who in sorted(rivals)[:2])
    against = f"event + 8 + 16 n: {DISK_BYTES}; {told}"
    is_near = ours <= 1.1 * DISK_BYTES
    return Line("W3 bytes on disk per event", f"{ours:,.0f}", against, ours < 800, is_near)


def _publishing(results: Results) -> Line:
    name = "confirmed/s, 1"
    line = _ahead(results, "W4", name, _syncing, _syncing)
    ours, bare = results.of("W4", OURS, name), results.limit("W4", name)
    if ours is None or bare is None:
        return line
    told = f"{line.against}; {ours / bare:.2f} × bare group commit ({bare:,.0f})"
    return line._replace(against=told, aim=ours >= bare / 2)


def _kill(results: Results) -> Line:
    def told(who: Contestant) -> str:
        lost, doubled = (results.of("W5", who, name) for name in ("lost", "doubled"))
        return f"{lost:.0f} lost, {doubled:.0f} doubled"

    runs = results.figures.get(("W5", OURS))
    if not runs:
        return Line("W5 kill -9", "-", "-", None, None)
    worst = max(each["lost"] + each["doubled"] for each in runs)
    rivals = "; ".join(f"{who}: {told(who)}" for who in results.rivals("W5"))
    return Line("W5 kill -9", told(OURS), rivals or "-", worst == 0, None)


def _exactly_once(results: Results) -> Iterable[Line]:
    """Of all processes, for clients have their part in it: receipts, positions, consumption; and of
    the broker alone, whose part is the largest."""
    for subscribers in (1, 10, 100):
        for who, name in (("all CPU", "CPU µs/delivery"), ("broker", "broker µs/delivery")):
            ours, plain = (
                results.of(f"W1-{subscribers}", Contestant("gapless", client), name)
                for client in ("lib", BEST_EFFORT)
            )
            promise = f"exactly once over best effort, {who} to {subscribers}"
            if ours is None or plain is None:
                yield Line(promise, "-", "-", None, None)
                continue
            more = ours / plain - 1
            told = f"{ours:.2f} µs, {more:+.0%}"
            yield Line(promise, told, f"best effort {plain:.2f} µs", more <= 0.3, more <= 0.1)


def _latency(results: Results) -> Iterable[Line]:
    receipt = results.of("latency", OURS, "receipt ms")
    delivery = results.of("latency", OURS, "delivery ms")
    sync = results.limit("latency", "sync ms")
    if receipt is None or delivery is None or sync is None:
        return
    beyond, after = receipt - sync, delivery - receipt
    against = f"one sync {sync:.2f} ms"
    yield Line("latency p50, receipt", f"{receipt:.2f} ms", against, beyond <= 2, beyond <= 1)
    yield Line(
        "latency p50, delivery after receipt", f"{after:.2f} ms", "-", after <= 2, after <= 1
    )
