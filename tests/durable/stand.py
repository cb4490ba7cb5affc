"""What the tests of durable subscriptions stand on: limits, a disk that answers when told to."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gapless.core.effects import Effect, Persist, Send, Tell
from gapless.core.errors import StorageFullError
from gapless.core.identity import PubendName
from gapless.node.config import MILLISECOND, SECOND, Config
from gapless.testing.memory_volume import MemoryVolume

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gapless.core.messages import Message

PUBEND = PubendName("news/0")


@dataclass(frozen=True, kw_only=True)
class Limits(Config):
    """The broker's configuration with what durable subscriptions need."""

    catch_up_window: int = 256
    filtered_read_max: int = 5_000
    filtered_walk_max: int = 5_000
    filtered_replay_max: int = 20_000
    filtered_pending_max: int = 10_000
    filtered_pending_bytes_max: int = 64 << 20
    delivered_flush: int = 250 * MILLISECOND
    released_flush: int = 250 * MILLISECOND
    storage_retry: int = 1 * SECOND
    hand_over_repeat: int = 1 * SECOND
    durable_subscriptions_max: int = 100_000


def limits(**changes: Any) -> Limits:
    return replace(Limits(), **changes)


class Disk:
    """Carries out `Persist` when the test says so; keeps what was to be sent."""

    def __init__(self, volume: MemoryVolume | None = None) -> None:
        self.volume = volume or MemoryVolume()
        self.waiting: deque[Persist] = deque()
        self.sent: list[Send] = []

    def take(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Persist():
                    self.waiting.append(effect)
                case Send():
                    self.sent.append(effect)
                case Tell():
                    raise AssertionError("a machine tells itself nothing before a write is durable")

    def sync(self) -> list[Message]:
        """The oldest write ends: what its machine is to be told."""
        persist = self.waiting.popleft()
        try:
            self.volume.commit(persist.writes)
            follow = persist.then
        except StorageFullError:
            follow = persist.otherwise
        self.sent += [effect for effect in follow if isinstance(effect, Send)]
        return [effect.message for effect in follow if isinstance(effect, Tell)]

    def crash(self) -> None:
        """What was not synced is gone."""
        self.waiting.clear()
        self.sent.clear()
        self.volume.reopen()
