"""Recovery: from the files of a folder to the state of a volume.

Theory of operation
    The newest segment starts with a checkpoint: all facts, and which older segments hold records
    of which streams. Its other frames are replayed, each checked to the last byte, until one is
    not whole or does not carry the next sequence number. Of older segments only the index beside
    them is read; a missing or damaged index is made anew by walking the segment.

    Recovery must tell a torn commit from a damaged one. A commit starts only after the one before
    it was synced, so a commit that was torn by a crash is the last thing in the log: if a whole
    commit with a later number stands behind it, or the volume was closed in order at a later
    number, or a file is shorter than it was made, then something acknowledged is gone:
    `StorageCorruptError`. Where only records of such a commit are damaged, and not its description,
    the commit is kept, and reading these records raises an error. Else the torn commit is cut, and
    reported. (That the last acknowledged commit was damaged after a crash cannot be told from a
    torn one; it is reported as cut, too.)

    A volume that follows a store may have commits that never came there. The caller says which
    commit is the first to go (`keeps`); it and all behind it are erased.

    After a crash the replayed part is written and synced once more: a failed fsync may leave
    pages in memory that read well and never reach the disk.

Cost: reads one segment whole and one index file per older segment.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gapless.core.effects import Put
from gapless.core.errors import StorageCorruptError
from gapless.storage.draft import Facts
from gapless.storage.extent import Extent, ExtentCatalogue, FrameRange, decode_index, encode_index
from gapless.storage.frame import (
    ENTRY_BYTES,
    HEADER,
    MAGIC,
    TERMINATOR,
    Block,
    Header,
    Mark,
    SegmentHolding,
    decode,
    seal,
)
from gapless.storage.segment import FRAMES_START
from gapless.storage.volume import Bounds, Recovery

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.storage.segment import Segments

    Keeps = Callable[[Put], bool]
    """Asked for each fact that a commit puts: is the commit to be kept?"""

RESTORE = "Put the missing file back, or restore the whole folder from a copy."


@dataclass(slots=True)
class State:
    """What a volume knows: its facts, where its records are, and where the next frame goes."""

    facts: Facts = field(default_factory=Facts)
    catalogue: ExtentCatalogue = field(default_factory=ExtentCatalogue)
    active: int = 0
    offset: int = 0
    sequence: int = 0
    held: list[SegmentHolding] = field(default_factory=list)
    is_cut: bool = False
    """Did the replay end at a commit that is not to be kept?"""


def recover(
    segments: Segments, salt: int, closed_at: int | None, keeps: Keeps | None = None
) -> tuple[State, Recovery]:
    """Read a folder that was closed in order with commit `closed_at`, or after a crash if None. The
    first commit of the newest segment that `keeps` refuses is erased, with all behind it."""
    numbers = segments.find()
    if not numbers:
        raise StorageCorruptError("the volume has lost all its segments")
    state = State(active=numbers[-1])
    segments.open_writer(state.active)
    rebuilt = [segments.path(n).name for n in numbers[:-1] if not load(segments, n, salt, state)]
    begun = segments.first_sequences[state.active]
    data = load_newest(segments, salt, state, closed_at or 0, keeps)
    if closed_at is not None and (state.sequence > closed_at or state.is_cut):
        closed_at = None  # the volume was opened since: this mark is of an older life
    cut_bytes = len(data) - state.offset if state.is_cut else _torn_bytes(data, state)
    if closed_at is None:
        rest = bytes(min(max(cut_bytes, len(TERMINATOR)), len(data) - state.offset))
        segments.write(0, [data[: state.offset], rest])
    drop_chopped(segments, state)
    report = Recovery(
        clean=closed_at is not None,
        sequence=state.sequence,
        replayed=state.sequence - begun,
        rebuilt=tuple(rebuilt),
        cut_bytes=cut_bytes,
    )
    return state, report


def load_newest(
    segments: Segments, salt: int, state: State, closed_at: int, keeps: Keeps | None = None
) -> bytes:
    """Replay the newest segment and return its bytes; refuse if something acknowledged is gone."""
    data = segments.read(state.active, 0, segments.sizes[state.active])
    _replay(segments, data, salt, state, closed_at, keeps)
    if state.sequence < segments.first_sequences[state.active]:
        raise StorageCorruptError(f"the checkpoint of {segments.path(state.active)} is damaged")
    if state.is_cut:
        return data
    _check_newest(segments, data, salt, state)
    if state.sequence < closed_at:
        raise StorageCorruptError(
            f"commits {state.sequence + 1} to {closed_at} are damaged in "
            f"{segments.path(state.active)}"
        )
    _look_beyond(segments, data, salt, state)
    return data


def drop_chopped(segments: Segments, state: State) -> None:
    """Forget what was released; refuse if a missing file held anything else."""
    for stream, bounds in state.facts.bounds.items():
        state.catalogue.chop(stream, bounds.start)
    _check_held(segments, state)


def add_block(catalogue: ExtentCatalogue, block: Block, segment: int, start: int, end: int) -> None:
    count = len(block.indices)
    kept = block.reach(count) + ENTRY_BYTES * count
    first, last = block.indices[0], block.indices[-1]
    frames = FrameRange(segment, start, end)
    catalogue.add(Extent(block.stream, first, last, kept, frames, block.moved))


def load(segments: Segments, number: int, salt: int, state: State, *, mends: bool = True) -> bool:
    """The extents of a full segment, from its index or, if that is not there, from its frames; it
    gets a new one then, if `mends`."""
    try:
        index = decode_index(segments.index_path(number).read_bytes(), number, salt)
    except OSError:
        index = None
    if index:
        for extent in index[0]:
            state.catalogue.add(extent)
        last_sequence = index[1]
    else:
        last_sequence, offset = _walk(segments, number, salt, state)
        if mends:
            segments.seal(number, offset, last_sequence + 1)  # a crash may have come before that
            extents = state.catalogue.in_segment(number)
            segments.write_index(number, encode_index(extents, number, last_sequence, salt))
    following = segments.first_sequences.get(number + 1)
    if following is not None and last_sequence + 1 != following:
        raise StorageCorruptError(
            f"{segments.path(number)} is damaged: commits {last_sequence + 1} to {following - 1} "
            "cannot be read"
        )
    return index is not None


def _walk(segments: Segments, number: int, salt: int, state: State) -> tuple[int, int]:
    """Add the extents of a full segment; its last commit, and where that ends."""
    data = segments.read(number, 0, segments.sizes[number])
    offset, sequence = FRAMES_START, segments.first_sequences[number] - 1
    while (description := _description(data, offset, sequence + 1, salt)) is not None:
        end = offset + Header(data, offset).frame_bytes
        for section in decode(description):
            if isinstance(section, Block):
                add_block(state.catalogue, section, number, offset, end)
        offset, sequence = end, sequence + 1
    return sequence, offset


def _description(data: bytes, offset: int, sequence: int, salt: int) -> bytes | None:
    """The description of the frame at `offset` if it is whole and has this number."""
    if offset + HEADER.size > len(data):
        return None
    header = Header(data, offset)
    if not header.is_frame or header.sequence != sequence:
        return None
    if offset + header.frame_bytes > len(data):
        return None
    start = offset + HEADER.size
    description = data[start : start + header.description_bytes]
    return description if header.is_whole(description, salt) else None


def _replay(
    segments: Segments,
    data: bytes,
    salt: int,
    state: State,
    closed_at: int,
    keeps: Keeps | None = None,
) -> None:
    """Apply every whole frame of the newest segment, its checkpoint first. A frame of which only
    records are damaged is applied too, if it is surely not torn: its description is whole, and
    reading the records raises an error."""
    state.offset = FRAMES_START
    state.sequence = segments.first_sequences[state.active] - 1
    view = memoryview(data)
    while (found := _description(data, state.offset, state.sequence + 1, salt)) is not None:
        sections = list(decode(found))
        frame = view[state.offset :]
        end = state.offset + Header(data, state.offset).frame_bytes
        is_whole = all(_is_whole(frame, each, salt) for each in sections if isinstance(each, Block))
        was_synced = state.sequence < closed_at  # or a commit follows, which began after that
        if not (is_whole or was_synced or _description(data, end, state.sequence + 2, salt)):
            break
        if keeps and not all(keeps(each) for each in sections if isinstance(each, Put)):
            state.is_cut = True
            break
        for section in sections:
            match section:
                case Block():
                    add_block(state.catalogue, section, state.active, state.offset, end)
                    state.facts.extend(section.stream, section.indices[-1] + 1)
                case Mark(stream, start, stop):
                    state.facts.bounds[stream] = Bounds(start, stop)
                case SegmentHolding():
                    state.held.append(section)
                case _:
                    state.facts.apply(section)
        state.offset, state.sequence = end, state.sequence + 1


def _is_whole(frame: memoryview, block: Block, salt: int) -> bool:
    data = frame[block.start : block.start + block.reach(len(block.indices))]
    return block.damaged_page(data, 0, block.page_count, salt) is None


def _check_newest(segments: Segments, data: bytes, salt: int, state: State) -> None:
    """Refuse if the newest segment that is there was followed by another."""
    behind = data[state.offset : state.offset + HEADER.size]
    is_sealed = behind == seal(state.sequence + 1, salt)
    if is_sealed or segments.index_path(state.active).exists():  # that is made of a full one
        raise StorageCorruptError(
            f"{segments.path(state.active + 1)}, or one with a higher number, is gone: "
            f"{segments.path(state.active).name} is "
            f"full, and all commits from {state.sequence + 1} on, which were acknowledged, stand "
            "in files behind it",
            RESTORE,
        )


def _look_beyond(segments: Segments, data: bytes, salt: int, state: State) -> None:
    """Refuse if a later commit stands behind the place where the replay ended."""
    place = data.find(MAGIC, state.offset)
    while 0 <= place <= len(data) - HEADER.size:
        header = Header(data, place)
        whole = _description(data, place, header.sequence, salt) is not None
        if whole and header.sequence > state.sequence + 1:
            raise StorageCorruptError(
                f"commit {state.sequence + 1} at byte {state.offset} of "
                f"{segments.path(state.active)} is damaged; commit {header.sequence} is not"
            )
        place = data.find(MAGIC, place + 1)


def _torn_bytes(data: bytes, state: State) -> int:
    """How much of a commit was begun where the next one would stand; 0 if none was."""
    found = data[state.offset : state.offset + HEADER.size]
    if found == TERMINATOR[: len(found)]:
        return 0
    header = Header(found.ljust(HEADER.size, b"\0"))
    if header.is_frame and header.sequence == state.sequence + 1:
        return min(header.frame_bytes, len(data) - state.offset)
    return len(found)


def _check_held(segments: Segments, state: State) -> None:
    """Refuse if a segment is missing of which the checkpoint says that it has live records."""
    for hold in state.held:
        if hold.segment in segments.sizes or hold.last < state.facts.bounds[hold.stream].start:
            continue
        if not state.catalogue.holds(hold.stream, hold.last):
            raise StorageCorruptError(
                f"{segments.path(hold.segment)} is gone; it held records of {hold.stream!r} up to "
                f"{hold.last}"
            )
