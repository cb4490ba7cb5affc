"""The ledger: what producers staged, what they asked to be committed, and what came of it.

Part of the record. Producers write into it what they do; the watch's checker compares.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gapless.core.identity import ClientName, ProducerName, PubendName

Key = tuple["ProducerName", int]


@dataclass(slots=True)
class Ledger:
    """All transactions of one run, by producer and number."""

    owner: dict[bytes, Key] = field(default_factory=dict)
    parts: dict[tuple[Key, str], list[bytes]] = field(default_factory=dict)
    asked: dict[Key, list[tuple[str, ...]]] = field(default_factory=dict)
    """The parts of each commit that was sent."""
    requests: dict[tuple[ClientName, int], Key] = field(default_factory=dict)
    """Commits by connection and request."""
    logged: dict[Key, list[tuple[PubendName, int, bytes]]] = field(default_factory=dict)
    answers: dict[Key, tuple[PubendName, int, int]] = field(default_factory=dict)

    def stage(self, key: Key, part: str, events: list[bytes]) -> None:
        self.parts.setdefault((key, part), []).extend(events)
        self.owner.update(dict.fromkeys(events, key))

    def candidates(self, key: Key) -> list[list[bytes]]:
        """What may be published under this number: the events of each commit that was sent."""
        return [
            [event for part in parts for event in self.parts.get((key, part), [])]
            for parts in self.asked.get(key, [])
        ]

    def is_whole(self, key: Key) -> bool:
        """Is all of one commit in the log, or nothing if it had nothing?"""
        events = [event for _, _, event in self.logged.get(key, [])]
        return events in self.candidates(key)

    def unfinished(self, producer: str) -> list[int]:
        """Transactions that are in the log in part, or should be and are not."""
        begun = dict.fromkeys([*self.logged, *self.answers])
        return [key[1] for key in begun if key[0] == producer and not self.is_whole(key)]
