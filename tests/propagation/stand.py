"""What the tests of the machines stand on: their limits, and a disk that is never slow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapless.core.effects import Persist, Tell
from gapless.core.identity import BrokerName, CellName, Instant
from gapless.filters.filter import Filter
from gapless.propagation.leaf import ClockPersisted, Leaf
from gapless.propagation.stamp import Stamp, StampPersisted
from gapless.testing.memory_volume import MemoryVolume

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gapless.core.broker_messages import Propagated
    from gapless.propagation.actions import Action, Outgoing
    from gapless.propagation.timing import PropagationTiming

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


def carry_out(
    machine: Leaf | Stamp, volume: MemoryVolume, actions: Iterable[Action], now: int = 0
) -> list[Outgoing]:
    """Do all writes at once; what is to be sent then, in order."""
    out: list[Outgoing] = []
    for action in actions:
        if not isinstance(action, Persist):
            out.append(action)
            continue
        volume.commit(action.writes)
        for effect in action.then:
            assert isinstance(effect, Tell)
            match machine, effect.message:
                case Leaf(), ClockPersisted() as done:
                    out += carry_out(machine, volume, machine.persisted(done, Instant(now)), now)
                case Stamp(), StampPersisted() as done:
                    out += carry_out(machine, volume, machine.persisted(done), now)
                case _:
                    raise AssertionError(effect)
    return out


def messages(actions: Iterable[Action]) -> list[Propagated]:
    """What is sent, whoever gets it."""
    return [action.message for action in actions if not isinstance(action, Persist)]


class LeafStand:
    """A leaf on a disk that is never slow; crashes and comes back."""

    def __init__(
        self, name: str, cell: str, upstream: str, timing: PropagationTiming = TIMING
    ) -> None:
        self.volume = MemoryVolume()
        self._place = (BrokerName(name), CellName(cell), (CellName(upstream),))
        self._timing = timing
        self.begin({})

    def begin(self, survivors: dict[str, str]) -> list[Propagated]:
        """Start, or start again."""
        self.leaf = Leaf(*self._place, self.volume, self._timing)
        some = {key: Filter.parse(text) for key, text in survivors.items()}
        return messages(carry_out(self.leaf, self.volume, self.leaf.begin(some, Instant(0))))

    def update(
        self, *gone: str, now: int = 0, more: dict[str, str] | None = None, **fresh: str
    ) -> list[Propagated]:
        """One batch: keys to unsubscribe, and conditions to subscribe by key."""
        some = {key: Filter.parse(text) for key, text in {**fresh, **(more or {})}.items()}
        actions = self.leaf.update(some, gone, Instant(now))
        self.leaf.check()
        return messages(carry_out(self.leaf, self.volume, actions, now))
