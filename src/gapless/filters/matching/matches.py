"""Matches: the result of matching a record batch, as two arrays of equal length."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

KeyT = TypeVar("KeyT")


@dataclass(frozen=True)
class Matches(Generic[KeyT]):
    """Pairs of an event and a filter, by event, then by the handle of the filter.

    `event_indices` says which row of the batch, `handles` which filter: a small whole number that
    is its until it is removed (`Matcher.handle_of`, `Matcher.key_of`). A fan-out that keeps its
    own array by handle needs no keys at all; looking them up costs more than matching. `counts`
    says the same as `event_indices` in less room: by row of the batch, how many pairs it has.
    """

    counts: NDArray[np.int64]
    handles: NDArray[np.uint32]
    keys_of: Callable[[NDArray[np.uint32]], list[KeyT]]

    @cached_property
    def event_indices(self) -> NDArray[np.uint32]:
        return np.repeat(np.arange(len(self.counts), dtype=np.uint32), self.counts)

    def keys(self) -> list[KeyT]:
        """The key of each pair. RuntimeError once the matcher has changed."""
        return self.keys_of(self.handles)

    def __len__(self) -> int:
        return len(self.handles)

    def __iter__(self) -> Iterator[tuple[int, KeyT]]:
        return zip(self.event_indices.tolist(), self.keys(), strict=True)
