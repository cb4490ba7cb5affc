"""Verification: tests that slots cannot say, carried out on the events themselves.

Theory of operation
    A row whose slots do not say all of its clause reports the number of a check in place of its
    handle, with `UNVERIFIED` set. A check is made only where everything else has held.

Invariants
    I1  an identity below UNVERIFIED is a handle; above, the number of a check
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gapless.filters.matching.checks import clause_check

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from gapless.core.events import Value
    from gapless.filters.constraint import Constraint
    from gapless.filters.matching.checks import ValueCheck
    from gapless.filters.syntax import Condition

    Identities = NDArray[np.uint32]

UNVERIFIED = 1 << 31


class Check:
    """The tests of one clause that its slots do not say."""

    __slots__ = ("_parts", "handle", "holds")

    def __init__(
        self,
        handle: int,
        tests: tuple[tuple[str, Constraint], ...],
        residuals: tuple[Condition, ...],
        known: dict[int, ValueCheck] | None = None,
    ) -> None:
        self.handle = handle
        self._parts = (tests, residuals)
        holds = clause_check(tests, residuals, {} if known is None else known)
        assert holds is not None
        self.holds = holds

    def __reduce__(self) -> tuple[object, ...]:
        return Check, (self.handle, *self._parts)


class Verification:
    """The checks of one index."""

    def __init__(self) -> None:
        self._checks: dict[int, Check] = {}  # by number
        self._numbers: dict[int, list[int]] = {}  # by handle
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._checks)

    def add(self, check: Check) -> int:
        """The identity that reports it."""
        number = self._free.pop() if self._free else len(self._checks)
        self._checks[number] = check
        self._numbers.setdefault(check.handle, []).append(number)
        return UNVERIFIED | number

    def remove(self, handle: int) -> None:
        for number in self._numbers.pop(handle, ()):
            del self._checks[number]
            self._free.append(number)

    def of_one(self, attributes: Mapping[str, Value], found: Identities) -> list[int]:
        """The handles that an event matches, ascending, among the identities that were found."""
        handles = {number for number in found.tolist() if number < UNVERIFIED}
        for number in found.tolist()[len(handles) :]:
            check = self._checks[number - UNVERIFIED]
            if check.handle not in handles and check.holds(attributes):
                handles.add(check.handle)
        return sorted(handles)

    def of_many(
        self,
        counts: NDArray[np.int64],
        found: Identities,
        attributes_of: Callable[[int], Mapping[str, Any]],
    ) -> tuple[NDArray[np.int64], Identities]:
        """By event how many handles match, and the handles of all events. `attributes_of` is called
        once for each event that has something to check."""
        loose = found >= UNVERIFIED
        if not self._checks or not loose.any():
            return counts, found
        indices = np.repeat(np.arange(len(counts), dtype=np.uint32), counts)
        sure = indices[~loose].astype(np.uint64) << np.uint64(32) | found[~loose]
        held = []
        last = -1
        attributes: Mapping[str, Any] = {}
        for index, number in zip(indices[loose].tolist(), found[loose].tolist(), strict=True):
            if index != last:
                last, attributes = index, attributes_of(index)
            check = self._checks[number - UNVERIFIED]
            if check.holds(attributes):
                held.append(index << 32 | check.handle)
        pairs = np.unique(np.concatenate([sure, np.array(held, np.uint64)]))
        indices = (pairs >> np.uint64(32)).astype(np.int64)
        return np.bincount(indices, minlength=len(counts)), pairs.astype(np.uint32)
