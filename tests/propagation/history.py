"""History: the vectors at which a broker had the same roots, so that empty changes stay below.

Theory of operation
    A change that changes no root changes nothing for the cell above but the vector. It need not
    be told: the broker remembers that its vectors before and after have the same roots, an *era*.
    Whatever silence is true for the one is true for the other, so the vector of anything that
    passes and is *in* an era may be raised to the last of that era. To lie between the first and
    the last is not enough: where one leaf adds y and then another drops its own y, both changes
    are empty, and yet with the second and without the first nobody asked for y.
    Earlier eras are remembered too: what was on its way when a change was told is still raised
    as what came before it was.
    What has been told above is the constraint of the next change, and after `history_max` vectors
    an empty change is told after all.

    This asks more of silence than the plain protocol does. There, a broker beyond the vector of a
    message may filter it: what it knows no more nobody wants any more. But just that may stand in
    for another leaf's condition, of which only the broker below knows. So here a broker filters
    only what has exactly its own vector, for the leaves behind the child (`knows_exactly`).

Invariants (checked by `check`)
    I1  at most `history_max` vectors are remembered, and fewer have come since one was told
    I2  every vector leads to the last of its era, which is at least as high

Cost: one look-up for each message; memory for `history_max` vectors of the leaves below.

Source: Middleware 2004, sec. 3.7. Deviations: eras, exactness.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.propagation.vector import is_at_least, restrict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gapless.core.broker_messages import Vector


class History:
    """What one broker remembers of its vectors."""

    def __init__(self, leaves: Iterable[str], history_max: int) -> None:
        self.leaves = sorted(leaves)
        self.history_max = history_max
        self.told: Vector = restrict({}, self.leaves)
        self._eras: dict[tuple[int, ...], int] = {}
        self._last: dict[int, Vector] = {}
        self._era = 0
        self._untold = 0
        self.forget({})

    def __len__(self) -> int:
        return len(self._eras)

    def forget(self, vector: Mapping[str, int]) -> None:
        """From here on nothing is known but the vector; or it is not exact, and stands alone."""
        self._eras, self._last, self._untold = {}, {}, 0
        self.advance(vector, same_roots=False)

    def advance(self, vector: Mapping[str, int], *, same_roots: bool) -> None:
        """The broker has come to this vector."""
        key = self._key(vector)
        if same_roots and key in self._eras:
            return
        if not same_roots:
            self._era += 1
        self._eras.pop(key, None)
        self._eras[key] = self._era
        self._last[self._era] = restrict(vector, self.leaves)
        self._untold += 1
        if len(self._eras) > self.history_max:
            del self._eras[next(iter(self._eras))]
        kept = set(self._eras.values())
        self._last = {era: last for era, last in self._last.items() if era in kept}

    @property
    def last(self) -> Vector:
        """Where the broker is."""
        return self._last[self._era]

    @property
    def must_tell(self) -> bool:
        """Would what was told be forgotten, were nothing told before the next?"""
        return self._untold >= self.history_max - 1

    def tell(self) -> None:
        """The cell above has been told where we are."""
        self.told = self.last
        self._untold = 0

    def raised(self, vector: Mapping[str, int]) -> Vector | None:
        """What the vector may be raised to, if it is in any era."""
        era = self._eras.get(self._key(vector))
        return None if era is None else self._last[era]

    def _key(self, vector: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(vector.get(leaf, 0) for leaf in self.leaves)

    def check(self) -> None:
        assert len(self._eras) <= self.history_max, "I1"
        assert self._untold < self.history_max, "I1"
        for key, era in self._eras.items():
            assert is_at_least(self._last[era], dict(zip(self.leaves, key, strict=True))), "I2"
