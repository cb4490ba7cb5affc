"""Facts and drafts: what a volume knows of itself, and the check that a commit may change it.

Theory of operation
    `Facts` are the bounds of every stream and the content of every table, in memory. A `Draft`
    collects the writes of one commit: `add` takes a group of writes whole or refuses it whole,
    looking at the facts as earlier groups of the same draft would leave them. Nothing changes
    until the volume has made the draft durable and calls `Facts.apply`.

Cost: a few C-speed passes over the indices of an append, no Python step per record.
"""

from __future__ import annotations

from operator import lt
from typing import TYPE_CHECKING

from gapless.core.effects import Append, Chop, Delete, Put
from gapless.core.errors import StorageError, StorageFullError, StorageRefusedError
from gapless.core.ticks import TICK_MAX
from gapless.storage.volume import NO_BOUNDS, Bounds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gapless.core.effects import Write
    from gapless.storage.volume import VolumeLimits

FRAME_OVERHEAD_BYTES = 1024
WRITE_OVERHEAD_BYTES = 64
RECORD_OVERHEAD_BYTES = 24
"""On the disk, beside what is written itself; not less than what `frame` takes."""


class Facts:
    """Bounds of streams and content of tables."""

    __slots__ = ("bounds", "table_bytes", "tables")

    def __init__(self) -> None:
        self.bounds: dict[str, Bounds] = {}
        self.tables: dict[str, dict[str, bytes]] = {}
        self.table_bytes = 0

    def copy(self) -> Facts:
        copy = Facts()
        copy.bounds = dict(self.bounds)
        copy.tables = {name: dict(table) for name, table in self.tables.items()}
        copy.table_bytes = self.table_bytes
        return copy

    def extend(self, stream: str, end: int) -> None:
        start, old_end = self.bounds.get(stream, NO_BOUNDS)
        self.bounds[stream] = Bounds(start, max(old_end, end))

    def chop(self, stream: str, index: int) -> None:
        self.bounds[stream] = chopped(self.bounds.get(stream, NO_BOUNDS), index)

    def put(self, table: str, key: str, value: bytes) -> None:
        facts = self.tables.setdefault(table, {})
        old = facts.get(key)
        self.table_bytes += len(value) + len(key) if old is None else len(value) - len(old)
        facts[key] = value

    def delete(self, table: str, key: str) -> None:
        value = self.tables.get(table, {}).pop(key, None)
        if value is not None:
            self.table_bytes -= len(key) + len(value)

    def apply(self, write: Write) -> None:
        match write:
            case Append(stream, indices, _):
                if indices:
                    self.extend(stream, indices[-1] + 1)
            case Chop(stream, index):
                self.chop(stream, index)
            case Put(table, key, value):
                self.put(table, key, value)
            case Delete(table, key):
                self.delete(table, key)


def chopped(bounds: Bounds, index: int) -> Bounds:
    start = max(bounds.start, index)
    return Bounds(start, max(bounds.end, start))


class Draft:
    """The writes of one commit, each checked against what will be there before it."""

    __slots__ = (
        "_ahead", "_bounds", "_facts", "_limits", "_table_bytes", "bytes", "fact_bytes", "grows",
        "writes",
    )  # fmt: skip

    def __init__(
        self,
        facts: Facts,
        limits: VolumeLimits,
        ahead: Mapping[str, Bounds] | None = None,
        fact_bytes: int = 0,
    ) -> None:
        """`ahead`, `fact_bytes`: what earlier drafts change that are not in `facts` yet."""
        self._facts = facts
        self._limits = limits
        self._ahead = ahead or {}
        self._bounds: dict[str, Bounds] = {}
        self._table_bytes = facts.table_bytes + fact_bytes
        self.fact_bytes = 0
        self.writes: list[Write] = []
        self.bytes = 0
        self.grows = False  # does it hold anything but chops and deletes?

    def add_each(self, commits: Sequence[Sequence[Write]]) -> list[StorageError | None]:
        """Take every commit that the rules allow; for each its error, or None."""
        verdicts: list[StorageError | None] = []
        for writes in commits:
            try:
                self.add(writes)
                verdicts.append(None)
            except StorageError as error:
                verdicts.append(error)
        return verdicts

    def add(self, writes: Sequence[Write]) -> None:
        """Take all of `writes`, or raise and take none."""
        bounds = dict[str, Bounds]()
        size = fact_bytes = 0
        grows = False
        for write in writes:
            match write:
                case Append(stream, indices, _):
                    if stream not in self._facts.bounds:  # or else it was looked at before
                        self._check_name(stream, "stream")
                    old = bounds.get(stream) or self._bounds_of(stream)
                    size += self._check_records(write, old)
                    if indices:
                        bounds[stream] = Bounds(old.start, indices[-1] + 1)
                        grows = True
                case Chop(stream, index):
                    self._check_name(stream, "stream")
                    if not 0 <= index <= TICK_MAX:
                        raise StorageRefusedError(f"cannot chop {stream!r} at {index}: not 63 bits")
                    bounds[stream] = chopped(bounds.get(stream) or self._bounds_of(stream), index)
                case Put(table, key, value):
                    if key not in self._facts.tables.get(table, ()):
                        self._check_name(table, "table")
                        self._check_name(key, "key")
                    fact_bytes += len(key) + len(value)
                    grows = True
                case Delete(table, key):
                    self._check_name(table, "table")
                    self._check_name(key, "key")
        self._check_room(size + fact_bytes, fact_bytes)
        self._bounds.update(bounds)
        self._table_bytes += fact_bytes
        self.fact_bytes += fact_bytes
        self.bytes += size + fact_bytes
        self.grows = self.grows or grows
        self.writes.extend(writes)

    def _bounds_of(self, stream: str) -> Bounds:
        found = self._bounds.get(stream) or self._ahead.get(stream)
        return found or self._facts.bounds.get(stream, NO_BOUNDS)

    @property
    def frame_bytes(self) -> int:
        """At most so much it takes on the disk."""
        size = self.bytes + FRAME_OVERHEAD_BYTES + WRITE_OVERHEAD_BYTES * len(self.writes)
        for write in self.writes:
            match write:
                case Append(stream, indices, _):
                    size += 4 * len(stream) + RECORD_OVERHEAD_BYTES * len(indices)
                case Chop(name, _) | Put(name, _, _) | Delete(name, _):
                    size += 4 * len(name)
                    size += 0 if isinstance(write, Chop) else 4 * len(write.key)
        return size

    def _check_name(self, name: str, what: str) -> None:
        try:
            size = len(name.encode())
        except UnicodeEncodeError:
            size = 0
        if not 0 < size <= self._limits.name_bytes_max:
            raise StorageRefusedError(
                f"{name[:40]!r} cannot name a {what}",
                f"Use 1 to {self._limits.name_bytes_max} bytes of UTF-8 text.",
            )

    def _check_records(self, append: Append, bounds: Bounds) -> int:
        """The size of the records, if their indices may follow what is there."""
        stream, indices, records = append.stream, append.indices, append.records
        if len(indices) != len(records):
            raise StorageRefusedError(
                f"{len(indices)} indices for {len(records)} records of {stream!r}"
            )
        if not indices:
            return 0
        if indices[0] < bounds.end:
            raise StorageRefusedError(
                f"index {indices[0]} of {stream!r} is taken or chopped: it ends at {bounds.end}",
                f"Append at {bounds.end} or above.",
            )
        ascend = isinstance(indices, range) or all(map(lt, indices, indices[1:]))
        if indices[-1] > TICK_MAX or indices[-1] < indices[0] or not ascend:
            raise StorageRefusedError(
                f"the indices of {stream!r} must strictly increase, up to 2^63 - 1"
            )
        size = sum(map(len, records))
        if size > self._limits.record_bytes_max:  # or else none of them can be
            longest = max(map(len, records))
            if longest > self._limits.record_bytes_max:
                raise StorageRefusedError(
                    f"a record of {longest} bytes for {stream!r} is over the limit",
                    f"Keep records within {self._limits.record_bytes_max} bytes.",
                )
        return size

    def _check_room(self, size: int, fact_bytes: int) -> None:
        if size > self._limits.commit_bytes_max:
            raise StorageRefusedError(
                f"a commit of {size} bytes is over the limit",
                f"Split it: at most {self._limits.commit_bytes_max} bytes.",
            )
        if fact_bytes and self._table_bytes + fact_bytes > self._limits.table_bytes_max:
            raise StorageFullError(
                f"the tables hold {self._table_bytes} bytes and have no room for {fact_bytes} more",
                "Delete what is not needed, such as old subscriptions and topics.",
            )
