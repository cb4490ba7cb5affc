"""Openings: which processes have opened the name of a publisher, and which of them publishes what.

Part of the record. A publication may be refused for good only if another process has asked about
its name: before that, whoever has it goes on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gapless.core.client_messages import Publish, PublisherQuery
    from gapless.core.identity import ClientName

Key = tuple[str, str | None]
"""Topic and publisher."""


@dataclass(slots=True)
class Openings:
    """All named publishers of one run."""

    askers: dict[Key, set[str]] = field(default_factory=dict)
    """By name: the processes that have opened it."""
    requests: dict[tuple[ClientName, int], tuple[Key, str]] = field(default_factory=dict)
    """Publications by connection and request: under which name, and whose."""

    def ask(self, process: str, query: PublisherQuery) -> None:
        self.askers.setdefault((query.topic, query.publisher), set()).add(process)

    def publish(self, process: str, client: ClientName, message: Publish) -> None:
        self.requests[client, message.request] = (message.topic, message.publisher), process

    def is_taken_over(self, client: ClientName, request: int) -> bool:
        """May a publication be refused, because its name is another's?"""
        if (client, request) not in self.requests:
            return False
        key, process = self.requests[client, request]
        return bool(self.askers.get(key, set()) - {process})
