"""What the tests of the machines stand on: their limits, and a store of facts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gapless.core.effects import Persist, Put, Tell
from gapless.core.identity import BrokerName, CellName, Instant
from gapless.core.store import SCAN_BYTES
from gapless.filters.filter import Filter
from gapless.propagation.leaf import ClockPersisted, Leaf
from gapless.propagation.stamp import Stamp, StampPersisted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gapless.propagation.outgoing import Action, Outgoing, Propagated
    from gapless.propagation.timing import Timing

MS = 1_000


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits and timers of `propagation.timing`, small where that makes tests sharper."""

    change_wait: int = 2_000 * MS
    change_wait_shortest: int = 200 * MS
    change_wait_longest: int = 60_000 * MS
    lag_patience: int = 50 * MS
    lag_repeat: int = 500 * MS
    changes_pending_max: int = 64
    virtual_time_step: int = 10


TIMING = Limits()


@dataclass
class Facts:
    """A store of facts; what was put is durable at once."""

    tables: dict[tuple[str, str], bytes] = field(default_factory=dict)

    def put(self, write: Put) -> None:
        self.tables[write.table, write.key] = write.value

    def get(self, table: str, key: str) -> bytes | None:
        return self.tables.get((table, key))

    def items(self, table: str) -> dict[str, bytes]:
        return {key: value for (each, key), value in sorted(self.tables.items()) if each == table}

    def scan(
        self, stream: str, start: int, end: int, *, bytes_max: int = SCAN_BYTES
    ) -> tuple[list[int], list[bytes]]:
        raise NotImplementedError("these machines keep facts only")

    def bounds(self, stream: str) -> tuple[int, int]:
        raise NotImplementedError("these machines keep facts only")


def carry_out(
    machine: Leaf | Stamp, facts: Facts, actions: Iterable[Action], now: int = 0
) -> list[Outgoing]:
    """Do all writes at once; what is to be sent then, in order."""
    out: list[Outgoing] = []
    for action in actions:
        if not isinstance(action, Persist):
            out.append(action)
            continue
        for write in action.writes:
            assert isinstance(write, Put)
            facts.put(write)
        for effect in action.then:
            assert isinstance(effect, Tell)
            match machine, effect.message:
                case Leaf(), ClockPersisted() as done:
                    out += carry_out(machine, facts, machine.persisted(done, Instant(now)), now)
                case Stamp(), StampPersisted() as done:
                    out += carry_out(machine, facts, machine.persisted(done), now)
                case _:
                    raise AssertionError(effect)
    return out


def messages(actions: Iterable[Action]) -> list[Propagated]:
    """What is sent, whoever gets it."""
    return [action.message for action in actions if not isinstance(action, Persist)]


class LeafStand:
    """A leaf on a disk that is never slow; crashes and comes back."""

    def __init__(self, name: str, cell: str, upstream: str, timing: Timing = TIMING) -> None:
        self.facts = Facts()
        self._place = (BrokerName(name), CellName(cell), (CellName(upstream),))
        self._timing = timing
        self.begin({})

    def begin(self, survivors: dict[str, str]) -> list[Propagated]:
        """Start, or start again."""
        self.leaf = Leaf(*self._place, self.facts, self._timing)
        some = {key: Filter.parse(text) for key, text in survivors.items()}
        return messages(carry_out(self.leaf, self.facts, self.leaf.begin(some, Instant(0))))

    def update(
        self, *gone: str, now: int = 0, more: dict[str, str] | None = None, **fresh: str
    ) -> list[Propagated]:
        """One batch: keys to unsubscribe, and conditions to subscribe by key."""
        some = {key: Filter.parse(text) for key, text in {**fresh, **(more or {})}.items()}
        actions = self.leaf.update(some, gone, Instant(now))
        self.leaf.check()
        return messages(carry_out(self.leaf, self.facts, actions, now))
