"""A copy: brings a local volume up to what the store has.

Theory of operation
    Each commit of a volume that follows a store carries a *stamp*: which name in which store, and
    the position and term of the commit. By it the volume is compared with the store. Where the
    volume is older, `catch_up` reads what has changed since and writes it; the new stamp comes with
    the last piece, so that a process that ends in between begins again where it began. Records that
    are there already are skipped.

    A holder writes a commit to its volume while the store does (`mirror`), so a volume may have
    commits that never came to the store. Nobody was told of them: they are cut off before the
    volume is used. The stamp says how far the holder knew that the store has all (`told`). If the
    store has less than that it has lost commits. It is the truth nevertheless: the caller sets the
    folder aside.

Invariants
    I1  a volume whose stamp has position p has the outcome of all commits up to p
    I2  after `catch_up` no record of the volume is beyond what the store had when it was read

Source: docs/protocols/replicated-commits.md, 7.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from gapless.core.effects import Append, Chop, Delete, Put
from gapless.core.errors import StorageCorruptError, StorageError
from gapless.storage.replica.changes import decode_extent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gapless.core.effects import Write
    from gapless.storage.replica.changes import Changes
    from gapless.storage.replica.store import CommitStore, StoreState
    from gapless.storage.volume import Volume

TABLE = "store"
KEY = "stamp"


class CommitStamp(NamedTuple):
    """Up to which commit of which store a volume is."""

    identity: str
    term: int
    position: int
    told: int = 0
    """Up to here the store had confirmed when this was written."""

    @property
    def fact(self) -> Put:
        """As the volume keeps it."""
        return Put(TABLE, KEY, json.dumps(self._asdict()).encode())


def stamp_of(volume: Volume) -> CommitStamp | None:
    """The stamp of a volume's last commit."""
    value = volume.get(TABLE, KEY)
    return None if value is None else _decode(value)


def _decode(value: bytes) -> CommitStamp:
    try:
        return CommitStamp(**json.loads(value))
    except (ValueError, TypeError):
        raise StorageCorruptError("the stamp of the volume is damaged") from None


def is_ahead(volume: Volume, store: CommitStore, name: str, state: StoreState) -> bool:
    """Whether the volume has commits that the store has not; raises if it follows another one."""
    stamp = stamp_of(volume)
    if stamp is None:
        if any(volume.bounds(stream).end for stream in volume.streams()) or volume.items("epochs"):
            raise StorageError(
                "the folder belongs to a broker without a store",
                "Give an empty folder with --data, or start it without --store.",
            )
        return False
    if stamp.identity != state.identity:
        raise StorageError(
            f"the folder belongs to another store, or to another name than {name!r}",
            "Give the folder of this name and store, or an empty one, with --data.",
        )
    return not _agrees(stamp, stamp.position, store, name, state)


def _agrees(
    stamp: CommitStamp, position: int, store: CommitStore, name: str, state: StoreState
) -> bool:
    """Is the commit at `position` of a volume with this stamp the one that the store has there?"""
    return position <= state.position and not store.contradicts(name, stamp.term, position)


def agreed_position(
    stamp: CommitStamp, store: CommitStore, name: str, state: StoreState
) -> int | None:
    """Up to where a volume that is ahead has what the store has; None if the store has lost commits
    that it had confirmed."""
    for position in range(stamp.position, stamp.told - 1, -1):
        if _agrees(stamp, position, store, name, state):
            return position
    return None


def keeps_up_to(position: int) -> Callable[[Put], bool]:
    """Which commits a volume keeps that is cut back to a position, by the facts they put."""

    def keeps(fact: Put) -> bool:
        is_stamp = (fact.table, fact.key) == (TABLE, KEY)
        return not is_stamp or _decode(fact.value).position <= position

    return keeps


def catch_up(volume: Volume, store: CommitStore, name: str) -> CommitStamp:
    """Write what the store has and the volume lacks; the stamp that the volume has then."""
    stamp = stamp_of(volume)
    after = stamp.position if stamp else 0
    with store.read(name, after) as (state, pieces):
        if stamp is not None and state.position == stamp.position:
            return stamp
        if stamp is None:  # if this ends half-way, the volume is known as one of this store
            volume.commit([CommitStamp(state.identity, 0, 0).fact])
        compares_facts = after < state.floor
        facts: set[tuple[str, str]] = set()
        for changes in pieces:
            volume.commit(list(_writes(volume, changes)))
            facts.update(key for key, value in changes.facts.items() if value is not None)
        last: list[Write] = []
        if compares_facts:
            last += _surplus(volume, facts)
        stamp = CommitStamp(state.identity, state.position_term, state.position, state.position)
        volume.commit([*last, stamp.fact])
    return stamp


def _writes(volume: Volume, changes: Changes) -> Iterator[Write]:
    """What brings the volume to where the changes lead; chops first, so that records can follow."""
    ends = dict[str, int]()
    for stream, (start, _) in changes.bounds.items():
        own = volume.bounds(stream)
        if start > own.start:
            yield Chop(stream, start)
        ends[stream] = max(own.end, start)
    for extent in changes.extents:
        end = ends.get(extent.stream) or volume.bounds(extent.stream).end
        if extent.last < end:
            continue
        indices, records = decode_extent(extent.data)
        fresh = [number for number, index in enumerate(indices) if index >= end]
        yield Append(
            extent.stream,
            tuple(indices[number] for number in fresh),
            tuple(records[number] for number in fresh),
        )
        ends[extent.stream] = extent.last + 1
    for (table, key), value in changes.facts.items():
        yield Delete(table, key) if value is None else Put(table, key, value)


def _surplus(volume: Volume, facts: set[tuple[str, str]]) -> Iterator[Delete]:
    """Facts that the volume has and the store has not."""
    for table in volume.tables():
        for key in volume.items(table):
            if (table, key) not in facts and table != TABLE:
                yield Delete(table, key)
