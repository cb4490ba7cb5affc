"""The worked examples of the machines: one small class per machine, one file per example.

Times are milliseconds. `D4` is an event at tick 4, `S` silence, `Q` unknown; a pubend's ticks are
written `millisecond#number`. Each step ends with the whole state on one line.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gapless.core.client_messages import Receipt, Refused
from gapless.core.effects import Append, Chop, Put
from gapless.core.identity import CellName, Instant, PubendName
from gapless.core.ticks import PUBEND_BITS, Span
from gapless.knowledge.merge import Merge
from tests.knowledge.host import Host
from tests.knowledge.notation import (
    CONFIG,
    ack,
    knowledge,
    make_relay,
    make_subend,
    ms,
    nack,
    show,
    show_out,
)
from tests.scenario import play

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.core.broker_messages import Knowledge, Nack
    from gapless.knowledge.subend import Settled

SCENARIOS = Path(__file__).parent / "scenarios"


def show_deadline(deadline: Instant | None) -> str:
    return "-" if deadline is None else str(deadline // ms(1))


def show_settled(settled: Settled) -> list[str]:
    lost = [f"lost {span}" for _, span in settled.lost]
    return lost + [f"deliver {each.decode().removeprefix('e')}" for each in settled.events]


class SubendScenario:
    """knowledge <span> <events>; expect <tick>; wait <ms>."""

    def __init__(self) -> None:
        self.now = Instant(0)
        self.subend = make_subend()

    def __call__(self, verb: str, words: list[str]) -> list[str]:
        nacks: list[Nack] = []
        match verb, words:
            case "knowledge", _:
                nacks = self.subend.receive_knowledge(knowledge(" ".join(words)), self.now)
            case "expect", [tick]:
                nacks = self.subend.expect(int(tick), self.now)
            case "wait", [time]:
                self.now = Instant(self.now + ms(int(time)))
                nacks = self.subend.fire(self.now)
            case _:
                raise ValueError(f"no such step: {verb} {words}")
        settled = self.subend.take(self.subend.horizon, self.now)
        self.subend.check()
        state = f"horizon={self.subend.horizon} deadline={show_deadline(self.subend.deadline)}"
        return [*map(show, nacks), *show_settled(settled), state]


class RelayScenario:
    """cells <names>; knowledge …; nack <cell> <spans>; ack <cell> <tick>; expect <tick>; wait."""

    def __init__(self) -> None:
        self.now = Instant(0)
        self.relay = make_relay()

    def __call__(self, verb: str, words: list[str]) -> list[str]:
        relay, now = self.relay, self.now
        match verb, words:
            case "cells", names:
                self.relay, out = make_relay(*names), []
            case "knowledge", _:
                out = relay.receive_knowledge(knowledge(" ".join(words)), now)
            case "nack", [cell, *spans]:
                out = relay.receive_nack(f"{cell}1", CellName(cell), nack(" ".join(spans)), now)
            case "ack", [cell, tick]:
                out = relay.receive_ack(ack(cell, int(tick)), now)
            case "expect", [tick]:
                out = relay.receive_ack_expected(int(tick), now)
            case "wait", [time]:
                self.now = Instant(now + ms(int(time)))
                out = relay.fire(self.now)
            case _:
                raise ValueError(f"no such step: {verb} {words}")
        self.relay.check()
        known = " ".join(map(str, self.relay.stream.known)) or "-"
        deadline = show_deadline(self.relay.deadline)
        return [*show_out(out), f"known={known} acked={self.relay.acked} deadline={deadline}"]


class MergeScenario:
    """knowledge <pubend number> <span> <events>; wait <ms>. There are two pubends."""

    def __init__(self) -> None:
        self.now = Instant(0)
        names = [PubendName("0"), PubendName("1")]
        self.merge = Merge({name: make_subend(0, name) for name in names}, CONFIG)

    def __call__(self, verb: str, words: list[str]) -> list[str]:
        match verb, words:
            case "knowledge", [name, *rest]:
                said = knowledge(" ".join(rest), PubendName(name))
                nacks = self.merge.receive_knowledge(said, self.now)
            case "wait", [time]:
                self.now = Instant(self.now + ms(int(time)))
                nacks = self.merge.fire(self.now)
            case _:
                raise ValueError(f"no such step: {verb} {words}")
        asked = [f"to {each.pubend}: {show(each)}" for each in nacks]
        settled = show_settled(self.merge.take(self.now))
        self.merge.check()
        horizons = ",".join(str(each.horizon) for each in self.merge.inputs.values())
        state = f"position={self.merge.position} horizons={horizons}"
        return [*asked, *settled, f"{state} deadline={show_deadline(self.merge.deadline)}"]


class PubendScenario:
    """publish <events>; disk; wait <ms>; ack <instant>; nack <instant> <instant>; restart."""

    def __init__(self) -> None:
        self.now = 0
        self.host = Host()

    def __call__(self, verb: str, words: list[str]) -> list[str]:
        host = self.host
        match verb, words:
            case "publish", _:
                host.publish(*words, now=self.now)
            case "named", [name, sequence, *rest]:
                host.publish(*rest, name=name, sequence=int(sequence), now=self.now)
            case "disk", []:
                host.sync(self.now)
            case "wait", [time]:
                self.now += ms(int(time))
                host.fire(self.now)
            case "ack", [time]:
                host.pubend.acknowledge(ms(int(time)) << PUBEND_BITS, Instant(self.now))
            case "nack", [start, end]:
                low, high = (ms(int(each)) << PUBEND_BITS for each in (start, end))
                host.ask(str(Span(low, high)), self.now)
            case "restart", []:
                self.host = host = host.restart(self.now)
            case _:
                raise ValueError(f"no such step: {verb} {words}")
        return [*self._came_out(), self._state()]

    def _came_out(self) -> list[str]:
        host, lines = self.host, list[str]()
        for _, message in host.sent:
            match message:
                case Receipt(ticks=ticks):
                    lines.append("receipt " + " ".join(map(show_tick, ticks)))
                case Refused(problem=problem):
                    lines.append(f"refused: {problem}")
                case _:
                    raise AssertionError(message)
        lines += [f"tell {show_said(each)}" for each in host.told()]
        lines += [f"expect ack {show_tick(tick)}" for tick in host.expected]
        host.sent.clear()
        host.expected.clear()
        return lines

    def _state(self) -> str:
        writes = [show_write(each) for persist in self.host.disk for each in persist.writes]
        pubend = self.host.pubend
        state = f"end={show_tick(pubend.end)} released={show_tick(pubend.released)}"
        return f"{state} writing={', '.join(writes) or '-'}"


def show_tick(tick: int) -> str:
    """`7` for the first tick of millisecond 7, `7#3` for that of pubend number 3."""
    if tick < 0:
        return "forgotten"
    instant, number = tick >> PUBEND_BITS, tick & ((1 << PUBEND_BITS) - 1)
    return f"{instant / ms(1):g}" + (f"#{number}" if number else "")


def show_said(said: Knowledge) -> str:
    events = zip(said.ticks, said.events, strict=True)
    words = [f"{each.decode()}@{show_tick(tick)}" for tick, each in events]
    words += [f"final<{show_tick(said.final_below)}"] if said.final_below else []
    words += ["asked"] if said.requested else []
    return " ".join([f"[{show_tick(said.span.start)},{show_tick(said.span.end)})", *words])


def show_write(write: object) -> str:
    match write:
        case Append(indices=indices):
            return "append " + " ".join(map(show_tick, indices))
        case Chop(index=index):
            return f"chop {show_tick(index)}"
        case Put(table="promises", value=value):
            return f"promise {show_tick(int.from_bytes(value, 'little'))}"
        case Put(table=table, key=key):
            return f"{table.partition('/')[0]} {key}"
        case _:
            raise AssertionError(write)


MACHINES: dict[str, Callable[[], Callable[[str, list[str]], list[str]]]] = {
    "subend": SubendScenario,
    "relay": RelayScenario,
    "merge": MergeScenario,
    "pubend": PubendScenario,
}


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.txt")), ids=lambda path: path.stem)
def test_a_scenario_leads_to_what_is_written(path: Path, rewrite: bool) -> None:
    machine = MACHINES[path.stem.partition("_")[0]]()
    play(path, machine, rewrite=rewrite)


def test_every_machine_has_a_scenario() -> None:
    assert {path.stem.partition("_")[0] for path in SCENARIOS.glob("*.txt")} == set(MACHINES)
