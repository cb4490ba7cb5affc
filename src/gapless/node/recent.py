"""The newest of many: dictionaries that forget what was not said again for longest."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable

    K = TypeVar("K", bound=Hashable)
    V = TypeVar("V")


def remember(some: dict[K, V], key: K, value: V, count_max: int) -> None:
    """As the newest; the oldest goes if there are more than so many."""
    some.pop(key, None)
    some[key] = value
    if len(some) > count_max:
        del some[next(iter(some))]
