"""Seal: whether a broker's disk is the one that it had last, or a copy of it.

The driver knows what tells a disk from copies of it (`identity`), and renews it at each start. The
identity is written on the disk as well. A copy has the words of its original, and another identity.
So a broker that finds an identity which its disk never had was given a copy: whatever was written
after the copy was made is lost. It notes what that means for each of its parts, and in the same
commit the identity of the disk that it has now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.effects import Put
from gapless.core.store import NO_IDENTITY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gapless.core.effects import Write
    from gapless.core.store import DiskIdentity, Store

SEALS, DISK = "seals", "disk"


class ForgottenFacts:
    """A store that has its streams, and no facts."""

    def __init__(self, store: Store) -> None:
        self.read, self.read_near, self.bounds = store.read, store.read_near, store.bounds
        self.scan, self.scan_runs = store.scan, store.scan_runs

    def get(self, table: str, key: str) -> bytes | None:
        return None

    def items(self, table: str) -> Mapping[str, bytes]:
        return {}


class Seal:
    """The disk of one broker as it starts."""

    def __init__(self, store: Store) -> None:
        identity: DiskIdentity = getattr(store, "identity", NO_IDENTITY)
        self.written = store.get(SEALS, DISK)
        self.identity = identity.current
        self.is_copy = (
            bool(self.identity)
            and self.written is not None
            and self.written not in identity.earlier
        )

    def current(self, store: Store) -> Store:
        """The store, for facts that must be the last that were written: a copy has none."""
        return ForgottenFacts(store) if self.is_copy else store

    def write(self) -> tuple[Write, ...]:
        """What seals the disk, in one commit with all that follows from a copy."""
        if not self.identity or self.written == self.identity:
            return ()
        return (Put(SEALS, DISK, self.identity),)
