"""The worked examples of the machines: one small class per machine, one file per example.

Times are milliseconds. Conditions are written with `_` for a blank: `p_>_1`. A vector is written
`a:1,b:2`, and `-` if it is empty. Each step ends with the whole state on one line.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gapless.core.broker_messages import SubscriptionChange, SubscriptionNack, SubscriptionState
from gapless.core.effects import Persist, Put
from gapless.core.identity import BrokerName, CellName, Instant
from gapless.core.outgoing import ToBroker, ToCell, ToSiblings
from gapless.filters.filter import Filter
from gapless.propagation.branch import Branch
from gapless.propagation.leaf import VIRTUAL_TIMES, ClockPersisted, Leaf
from gapless.testing.memory_volume import MemoryVolume
from tests.propagation.stand import MS, TIMING
from tests.scenario import play

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gapless.core.broker_messages import Propagated, Vector
    from gapless.propagation.actions import Action

SCENARIOS = Path(__file__).parent / "scenarios"


def read_vector(text: str) -> Vector:
    pairs = (element.split(":") for element in text.split(",")) if text != "-" else ()
    return {leaf: int(time) for leaf, time in pairs}


def show_vector(vector: Vector) -> str:
    return ",".join(f"{leaf}:{time}" for leaf, time in sorted(vector.items())) or "-"


def read_condition(word: str) -> str:
    return word.replace("_", " ")


def show_message(message: Propagated) -> str:
    match message:
        case SubscriptionChange():
            added = [f"+({text})" for text in message.added]
            removed = [f"-({text})" for text in message.removed]
            vectors = f"{show_vector(message.vector)} if {show_vector(message.constraint)}"
            return " ".join(["change", message.cell, vectors, *added, *removed])
        case SubscriptionState():
            roots = [f"({text})" for text in message.conditions]
            return " ".join(["state", message.cell, show_vector(message.vector), *roots])
        case SubscriptionNack():
            return f"nack {message.cell} {show_vector(message.wanted)}"


def show_actions(actions: Iterable[Action]) -> list[str]:
    lines = []
    for action in actions:
        match action:
            case Persist():
                lines.append("persist")
            case ToCell(cell, message):
                lines.append(f"to cell {cell}: {show_message(message)}")
            case ToBroker(broker, message):
                lines.append(f"to {broker}: {show_message(message)}")
            case ToSiblings(message):
                lines.append(f"to siblings: {show_message(message)}")
    return lines


def show_deadline(deadline: Instant | None) -> str:
    return "-" if deadline is None else str(deadline // MS)


class LeafScenario:
    """update <+key=condition or -key …>; disk; see <source> <time>; nack <broker>; wait <ms>."""

    def __init__(self) -> None:
        self.now, self.volume = Instant(0), MemoryVolume()
        self.leaf = self._make()

    def _make(self) -> Leaf:
        return Leaf(BrokerName("l"), CellName("L"), (CellName("M"),), self.volume, TIMING)

    def __call__(self, verb: str, words: list[str]) -> list[str]:
        leaf, now = self.leaf, self.now
        actions: list[Action]
        match verb, words:
            case "update", _:
                fresh = dict(word[1:].split("=", 1) for word in words if word[0] == "+")
                some = {key: Filter.parse(read_condition(text)) for key, text in fresh.items()}
                actions = leaf.update(some, [word[1:] for word in words if word[0] == "-"], now)
            case "disk", [bound]:
                write = Put(VIRTUAL_TIMES, "l", int(bound).to_bytes(8, "little"))
                self.volume.commit([write])
                actions = leaf.persisted(ClockPersisted("l", int(bound)), now)
            case "see", [source, time]:
                actions = leaf.see(source, int(time), now)
            case "nack", [broker]:
                actions = leaf.receive_nack(BrokerName(broker), now)
            case "wait", [time]:
                self.now = now = Instant(now + int(time) * MS)
                actions = leaf.fire(now)
            case "start" | "restart", _:
                self.leaf = leaf = self._make()
                survivors = dict(word.split("=", 1) for word in words)
                some = {k: Filter.parse(read_condition(text)) for k, text in survivors.items()}
                actions = leaf.begin(some, now)
            case _:
                raise ValueError(f"no such step: {verb} {words}")
        leaf.check()
        starts = show_vector(leaf.starts)
        wait = leaf.expectation.wait // MS
        state = f"clock={leaf.clock} bound={leaf.bound} starts={starts} wait={wait}"
        return [*show_actions(actions), state]


class BranchScenario:
    """change/sibling-change <cell> <vector> <constraint> <+c or -c …>; state/sibling-state <cell>
    <vector> <c …>; nack <broker> <vector>; notice <vector>; wait <ms>. Cells A and B (leaves a, b)
    and C (leaves x and y) are below."""

    def __init__(self) -> None:
        self.now = Instant(0)
        below = {CellName("A"): ["a"], CellName("B"): ["b"], CellName("C"): ["x", "y"]}
        self.branch = Branch(CellName("M"), CellName("P"), below, TIMING)

    def __call__(self, verb: str, words: list[str]) -> list[str]:
        branch, sibling = self.branch, verb.startswith("sibling-")
        actions: Iterable[Action] = []
        match verb.removeprefix("sibling-"), words:
            case "change", [cell, vector, constraint, *conditions]:
                added = tuple(read_condition(c[1:]) for c in conditions if c[0] == "+")
                removed = tuple(read_condition(c[1:]) for c in conditions if c[0] == "-")
                change = SubscriptionChange(
                    CellName(cell), read_vector(vector), read_vector(constraint), added, removed
                )
                actions = branch.receive_change(change, self.now, from_sibling=sibling)
            case "state", [cell, vector, *conditions]:
                texts = tuple(map(read_condition, conditions))
                state = SubscriptionState(CellName(cell), read_vector(vector), texts)
                actions = branch.receive_state(state, self.now, from_sibling=sibling)
            case "nack", [broker, vector]:
                nack = SubscriptionNack(branch.cell, read_vector(vector))
                actions = branch.receive_nack(BrokerName(broker), nack, self.now)
            case "notice", [vector]:
                branch.notice(read_vector(vector), self.now)
            case "wait", [time]:
                self.now = Instant(self.now + int(time) * MS)
                actions = branch.fire(self.now)
            case _:
                raise ValueError(f"no such step: {verb} {words}")
        branch.check()
        tables = [
            f"{cell}={{{'; '.join(sorted(child.conditions.values()))}}}"
            for cell, child in branch.children.items()
            if child.conditions
        ]
        pending = f"pending={len(branch.pending_changes)} deadline={show_deadline(branch.deadline)}"
        return [*show_actions(actions), " ".join([show_vector(branch.vector), *tables, pending])]


MACHINES: dict[str, Callable[[], Callable[[str, list[str]], list[str]]]] = {
    "leaf": LeafScenario,
    "branch": BranchScenario,
}


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.txt")), ids=lambda path: path.stem)
def test_a_scenario_leads_to_what_is_written(path: Path, rewrite: bool) -> None:
    play(path, MACHINES[path.stem.partition("_")[0]](), rewrite=rewrite)


def test_every_machine_has_a_scenario() -> None:
    assert {path.stem.partition("_")[0] for path in SCENARIOS.glob("*.txt")} == set(MACHINES)
