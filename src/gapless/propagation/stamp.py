"""Stamp: the vector that a publisher's broker puts on its messages, and its digest.

Theory of operation
    The vector of a message says which subscriptions it must be matched against: all that the
    publisher's broker knew. It never goes back, or a subscription that was started would miss
    messages. So the highest vector in use is persisted before the first message that has it; after
    a crash, while little is known, it stays in use. A digest is a number that stands for the
    vector; a higher digest of the same stamp stands for a vector at least as high.
    While one write is under way, growth gathers and goes into the next.
    If the persisted vector lacks a leaf, the leaf was never heard of; or the disk is lost, and with
    it how far the leaf was known, which may be further than a broker below knows it. The two cases
    cannot be told apart. So the stamp begins with such leaves at the present time (`first`), beyond
    all times that they have used: messages pass towards a leaf unfiltered until it has told its
    state under that time, for which every broker that gets such a message asks. Nothing waits.

Invariants (checked by `check`)
    I1  neither the vector in use nor its digest ever goes back, crashes or not
    I2  what is in use is durable, and has every leaf that `begin` was told of; or nothing was
        ever known, and both are at their beginning

Source: Middleware 2004, sec. 3.5, 3.7, 5.1. Deviations: the paper uses the broker's vector only
once it is at least the highest one used; we use the join of the two, so that a leaf that stays away
after a crash of the publisher's broker keeps no other leaf's subscriptions from starting. The
digest is persisted with the vector. The paper's disks are not lost, and its vectors begin at zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.effects import Persist, Put, Tell
from gapless.core.messages import Message
from gapless.propagation.digest import KnownVector
from gapless.propagation.vector import is_at_least, join

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gapless.core.broker_messages import Vector
    from gapless.core.store import Store

STAMPS = "stamps"


class StampPersisted(Message, frozen=True):
    """To the stamp itself: the vector of this digest is durable (or, if not `ok`, had no room)."""

    source: str
    digest: int
    ok: bool = True


class Stamp:
    """The message vector of one publishers' broker. Sans-IO: see the module docstring."""

    def __init__(self, source: str, store: Store, *, first: int = 1) -> None:
        """`first` is where digests, and the times of unknown leaves, begin if none was persisted.
        It must be beyond everything used before."""
        self.source = source
        self._begins = first
        known = store.get(STAMPS, source)
        self.digest, self.vector = (first, dict[str, int]()) if known is None else _decode(known)
        self._first = first if known is None else 0
        self._next_vector: Vector = dict(self.vector)
        self._vector_in_write: Vector | None = None
        self.is_in_use = known is not None or first == 1

    @property
    def known(self) -> KnownVector:
        """The vector in use, as the dictionaries of other brokers will have it."""
        return KnownVector(self.digest, self.vector)

    @property
    def coming(self) -> Vector:
        """The vector that will be in use once it is durable."""
        return self._next_vector

    def begin(self, leaves: Iterable[str] = ()) -> list[Persist]:
        """Start, counting on all these leaves. A first digest that depends on the clock must be
        durable before it is used."""
        unheard = {leaf: self._begins for leaf in sorted(leaves) if leaf not in self.vector}
        if unheard:
            self.is_in_use = False
            return self.advance(unheard)
        return (
            []
            if self.is_in_use or self._vector_in_write is not None
            else self._put(self.digest, {})
        )

    def advance(self, known: Mapping[str, int]) -> list[Persist]:
        """Join what the broker knows now; it is used as soon as it is durable."""
        self._next_vector = join(self._next_vector, known)
        return self._write()

    def persisted(self, message: StampPersisted) -> list[Persist]:
        """Handle the end of a write. Without room it is tried again with the next advance."""
        written, self._vector_in_write = self._vector_in_write, None
        assert written is not None
        if not message.ok:
            return []
        self.digest, self.vector, self.is_in_use = message.digest, written, True
        return self._write()

    def _write(self) -> list[Persist]:
        if self._vector_in_write is not None or is_at_least(self.vector, self._next_vector):
            return []
        return self._put(self.digest + 1, self._next_vector)

    def _put(self, digest: int, vector: Vector) -> list[Persist]:
        self._vector_in_write = vector
        put = Put(STAMPS, self.source, _encode(digest, self._vector_in_write))
        done = Tell(StampPersisted(self.source, digest))
        failed = Tell(StampPersisted(self.source, digest, ok=False))
        return [Persist((put,), (done,), (failed,))]

    def check(self) -> None:
        assert is_at_least(self._next_vector, self.vector), "I1"
        assert self.digest > self._first or not self.vector, "I2"


def _encode(digest: int, vector: Vector) -> bytes:
    return "\n".join([str(digest), *(f"{time} {leaf}" for leaf, time in vector.items())]).encode()


def _decode(fact: bytes) -> tuple[int, Vector]:
    digest, *elements = fact.decode().split("\n")
    pairs = (element.split(" ", 1) for element in elements)
    return int(digest), {leaf: int(time) for time, leaf in pairs}
