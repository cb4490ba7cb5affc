"""Sufficiency: may a broker filter a message for a child, or must it let the message pass?

Theory of operation
    If for every leaf behind the child the broker's vector is at least the message's, the broker
    knows every subscription that the message must be matched against, so its own match decides.
    Otherwise it lets the message pass. The test costs a comparison of vectors, so its result is
    kept for the highest digest of each source. An older digest stands for a smaller vector: if the
    highest passes the test, so does the older one. A digest higher than any known has an unknown
    vector: the message passes.

Invariants (checked by `check`)
    I1  a result that is kept is that of the test with the present vectors

Source: Middleware 2004, sec. 3.5, 3.7, 5.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.propagation.digest import Dictionary

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gapless.core.broker_messages import Vector
    from gapless.core.identity import CellName
    from gapless.propagation.digest import KnownVector


def is_sufficient(
    broker: Mapping[str, int], message: Mapping[str, int], leaves: Iterable[str]
) -> bool:
    """Does a broker with this vector know all subscriptions of these leaves that count?"""
    return all(broker.get(leaf, 0) >= message.get(leaf, 0) for leaf in leaves)


class Sufficiency:
    """The kept results of one broker, by source and child."""

    def __init__(self, leaves: Mapping[CellName, Iterable[str]]) -> None:
        self.dictionary = Dictionary()
        self._leaves = {cell: frozenset(some) for cell, some in leaves.items()}
        self._vector: Vector = {}
        self._results: dict[str, dict[CellName, bool]] = {}

    def learn(self, source: str, digest: int, vector: Vector | None, base: int = 0) -> bool:
        """Learn the vector of a message. False: send a `DigestNack`."""
        before = self.dictionary.known.get(source)
        is_known = self.dictionary.learn(source, digest, vector, base)
        after = self.dictionary.known.get(source)
        if after is not None and after is not before:
            if vector is None or before is None or not base:
                self._test_anew(source, after)
            else:
                self._test_growth(source, vector)
        return is_known

    def _test_anew(self, source: str, known: KnownVector) -> None:
        self._results[source] = {
            cell: is_sufficient(self._vector, known.vector, leaves)
            for cell, leaves in self._leaves.items()
        }

    def _test_growth(self, source: str, grown: Vector) -> None:
        """Test again after the message's vector has grown: only a positive result may change."""
        results = self._results[source]
        lacking = {leaf for leaf, time in grown.items() if self._vector.get(leaf, 0) < time}
        for cell in self._leaves if lacking else ():
            if results[cell] and not lacking.isdisjoint(self._leaves[cell]):
                results[cell] = False

    def advance(self, vector: Mapping[str, int]) -> None:
        """Test again after the broker's vector has grown: only a negative result may change."""
        self._vector = dict(vector)
        for source, results in self._results.items():
            message = self.dictionary.known[source].vector
            for cell, result in results.items():
                if not result:
                    results[cell] = is_sufficient(vector, message, self._leaves[cell])

    def test(self, source: str, digest: int, cell: CellName) -> bool | None:
        """The kept result for a message of this digest; None if its vector is unknown."""
        known = self.dictionary.known.get(source)
        if known is None or not 1 <= digest <= known.digest:
            return None
        return self._results[source][cell]

    def check(self) -> None:
        for source, results in self._results.items():
            message = self.dictionary.known[source].vector
            for cell, result in results.items():
                test = is_sufficient(self._vector, message, self._leaves[cell])
                assert result == test, "I1"
