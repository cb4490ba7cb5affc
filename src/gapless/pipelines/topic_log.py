"""Topic log: where a worker reads a topic's log, as a value that travels to the worker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gapless import sync
from gapless.client.credentials import CredentialOptions
from gapless.core.token import Token

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gapless.client.delivery import Gap
    from gapless.client.range_reads import RangeBatch


@dataclass(frozen=True, slots=True)
class TopicLog:
    """A topic at a broker. `options` are those of `connect`; files must be at the workers."""

    url: str
    topic: str
    options: CredentialOptions = field(default_factory=CredentialOptions, repr=False)

    def connect(self) -> sync.Client:
        return sync.connect(self.url, **self.options)

    def read(
        self,
        client: sync.Client,
        pubend: str,
        ticks: tuple[int, int],
        condition: str = "",
        limit: int | None = None,
    ) -> Iterator[RangeBatch | Gap]:
        """The events of one pubend from a tick up to another, with gaps for what was released."""
        return client.read(
            self.topic,
            condition,
            start=Token({pubend: ticks[0]}),
            end=Token({pubend: ticks[1]}),
            pubends=[pubend],
            limit=limit,
            gaps="yield",
        )
