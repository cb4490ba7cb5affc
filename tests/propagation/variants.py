"""The variants of Middleware 2004, section 3.7, as changes to the machines; no broker uses them.

Empty changes stay below: `FrugalBranch` does not tell a change that changes no root (`history`).
A broker then filters only what `knows_exactly` allows.

Vectors that go back: `SoftStamp` persists nothing. After a crash its vector starts from what the
broker knows again, so it may go back; digests begin beyond all that were used. Vectors grow only
within one life of the stamp. Nobody is told where a life begins, so a digest counts as of the same
life as another only if differences lead from the one to the other: `LifeKnown.since` is the first
of those. No difference is announced between digests of different lives. Leaves find out what was
filtered wrongly and ask for it again (`requirement`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gapless.propagation.branch import Branch
from gapless.propagation.delivery import DeliveryStart
from gapless.propagation.digest import Announcement, Announcer, Dictionary, KnownVector
from gapless.propagation.stamp import Stamp
from gapless.propagation.sufficiency import Sufficiency
from gapless.propagation.vector import agrees, is_at_least, join, restrict, without_zeros
from gapless.testing.memory_volume import MemoryVolume
from tests.propagation.history import History

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gapless.core.broker_messages import Vector
    from gapless.core.effects import Persist
    from gapless.core.identity import BrokerName, CellName
    from gapless.propagation.actions import Outgoing
    from gapless.propagation.graph import RootChange


def may_start(message: Mapping[str, int], leaf: str, start: int) -> bool:
    """May delivery start at a message with this vector?"""
    return message.get(leaf, 0) >= start


# --- empty changes stay below ---------------------------------------------------------------------


def knows_exactly(
    broker: Mapping[str, int], message: Mapping[str, int], leaves: Iterable[str]
) -> bool:
    """Does a broker with this vector know the subscriptions that count, and no others?"""
    return agrees(broker, restrict(message, leaves))


class FrugalBranch(Branch):
    """Up to `history_max` vectors of equal roots may go untold."""

    def __init__(self, *place: Any, history_max: int) -> None:
        super().__init__(*place)
        has_history = self.upstream is not None
        self.history = History(self.leaves, history_max) if has_history else None

    def raised(self, vector: Mapping[str, int]) -> Vector:
        """The vector of a message or silence as it passes here: higher, if nothing that counts
        only under the higher one could have been filtered away under this one."""
        higher = self.history.raised(vector) if self.history is not None else None
        return join(vector, higher or {})

    def _grown(
        self,
        roots: RootChange,
        vector: Vector,
        old: Vector,
        constraint: Vector | None = None,
        *,
        is_ours: bool,
        is_step: bool = True,
    ) -> list[Outgoing]:
        if self.history is not None:
            if self._stays_below(self.history, roots, is_step):
                return []
            if self.history.told != restrict(old, self.leaves):
                vector, constraint = without_zeros(self.vector), self.history.told
            self.history.tell()  # be it by us or by a sibling
        return super()._grown(roots, vector, old, constraint, is_ours=is_ours, is_step=is_step)

    def _stays_below(self, history: History, roots: RootChange, is_step: bool) -> bool:
        """Remember where we are. Is it nothing that the cell above must be told now?"""
        if not (self.is_exact and is_step):
            history.forget(self.vector)
            return False
        history.advance(self.vector, same_roots=not roots)
        return not roots and not history.must_tell

    def check(self) -> None:
        super().check()
        if self.history is not None:
            self.history.check()


# --- vectors that go back -------------------------------------------------------------------------


class LifeKnown(KnownVector):
    """With the digest since which vectors have only grown."""

    since: int

    def __new__(cls, digest: int, vector: Vector, since: int) -> LifeKnown:
        known = super().__new__(cls, digest, vector)
        known.since = since
        return known


class SoftStamp(Stamp):
    """Persists nothing."""

    def __init__(self, source: str, *, first: int) -> None:
        super().__init__(source, MemoryVolume(), first=first)
        self.is_in_use = True

    @property
    def known(self) -> LifeKnown:
        return LifeKnown(self.digest, self.vector, self._first)

    def advance(self, known: Mapping[str, int]) -> list[Persist]:
        self._next_vector = join(self._next_vector, known)
        if not is_at_least(self.vector, self._next_vector):
            self.digest, self.vector = self.digest + 1, self._next_vector
        return []


class LifeAnnouncer(Announcer):
    """Announces everything anew when a life has begun."""

    def announce(self, peer: BrokerName, source: str, known: KnownVector) -> Announcement:
        assert isinstance(known, LifeKnown)
        before = self._told.get(peer, {}).get(source)
        if before is not None and before.digest < known.since:
            self.receive_nack(peer, source)
        return super().announce(peer, source, known)


class LifeDictionary(Dictionary):
    """Joins vectors of one life only."""

    def learn(self, source: str, digest: int, vector: Vector | None, base: int = 0) -> bool:
        before = self.known.get(source)
        is_whole = vector is not None and not base
        if is_whole and before is not None and digest > before.digest:
            del self.known[source]
        is_known = super().learn(source, digest, vector, base)
        after = self.known.get(source)
        if after is not None and after is not before:
            since = before.since if isinstance(before, LifeKnown) and not is_whole else digest
            self.known[source] = LifeKnown(*after, since)
        return is_known


class LifeSufficiency(Sufficiency):
    """Of a digest from before a life nothing is known: the older vector may be the higher one."""

    def __init__(self, leaves: Mapping[CellName, Iterable[str]]) -> None:
        super().__init__(leaves)
        self.dictionary = LifeDictionary()

    def adopt(self, source: str, known: LifeKnown) -> None:
        """Take in the stamp of this very broker, which knows where its life began."""
        if self.dictionary.known.get(source) != known:
            self.dictionary.known[source] = known
            self._test_anew(source, known)

    def test(self, source: str, digest: int, cell: CellName) -> bool | None:
        known = self.dictionary.known.get(source)
        if isinstance(known, LifeKnown) and digest < known.since:
            return None
        return super().test(source, digest, cell)


class LifeStart(DeliveryStart):
    """Forgets what it knows of digests from before a life."""

    def learn_life(self, source: str, known: LifeKnown) -> bool:
        """Had vectors gone back, so that what was known of older digests is void?"""
        highest = self._highest.get(source, 0)
        is_new_life = 0 < highest < min(known.since, known.digest)
        if is_new_life:
            del self._digests[source]
        self.learn(source, known.digest, known.vector)
        return is_new_life
