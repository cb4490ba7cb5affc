"""Source: where a worker reads a topic's log, as a value that travels to it."""

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
class Source:
    """A topic at a broker. `options` are those of `connect`; files must be at the workers."""

    url: str
    topic: str
    options: CredentialOptions = field(default_factory=CredentialOptions, repr=False)

    def connect(self) -> sync.Client:
        return sync.connect(self.url, **self.options)


def read_ticks(
    client: sync.Client,
    source: Source,
    pubend: str,
    start: int,
    end: int,
    condition: str = "",
    limit: int | None = None,
) -> Iterator[RangeBatch | Gap]:
    """The events of the ticks [start, end) of one pubend, with gaps where they were released."""
    return client.read(
        source.topic,
        condition,
        start=Token({pubend: start}),
        end=Token({pubend: end}),
        pubends=[pubend],
        limit=limit,
        gaps="yield",
    )
