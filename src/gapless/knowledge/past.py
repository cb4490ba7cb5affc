"""Past: what a pubend knows of its earlier lives, and what of them is lost with an earlier disk.

Theory of operation
    A pubend whose disk knows nothing of it is born: it notes the first tick of this life (`born`)
    with its first write. Nothing is told before that is durable, so every position that was ever
    told in this life lies at or beyond `born`. A position before it was told in another life, of
    which this disk knows nothing: everything from there up to `born` is lost. Nobody needs proof
    for that: `born` counts as released. Only a reader that begins with the oldest event, or at a
    time before a new topic, is told nothing.
    A disk may also be an older copy. Its log ends somewhere, and this life begins at the clock;
    whatever was written between these two is lost (`lost_spans`), once it is known that the disk
    is a copy (the seal of the disk, `node.seal`) or that the pubend had promised more than this
    disk knows (other brokers keep its promises, `node.promises`). Until those brokers have
    answered (`is_hearing`), nothing is said of the doubtful span. Lost spans read like damaged ones
    (`PastStore`), so everyone who asks is told, as of any damage.
    After a loss the numbers of publishers and producers may have been used: `number_floor` is
    beyond all of them, because no publisher gives more than one number in a microsecond.

Invariants (checked by `check`)
    I1  lost spans ascend, are disjoint, and lie at or beyond `born`
    I2  nothing is doubtful once the other brokers have been heard
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from gapless.core.effects import Put
from gapless.core.errors import StorageDamagedError
from gapless.core.spans import SpanSet
from gapless.core.ticks import CLOCK_MAX, PUBEND_BITS, Span

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gapless.core.identity import Instant, PubendName
    from gapless.core.store import RecordRun, Store

LIVES = "lives"
"""Table on disk: of each pubend where its life began, since when numbers may have been used, and
what is lost."""

HEAD, PAIR = Struct("<qq"), Struct("<qq")

SPANS_MAX = 100
"""Lost spans of one pubend that are kept apart; beyond it the oldest become one."""


class DiskHistory(NamedTuple):
    """What is known of the disk as a broker starts."""

    is_copy: bool  # it is not the disk that the broker had last
    is_hearing: bool  # other brokers are asked for what they know


SAME_DISK = DiskHistory(is_copy=False, is_hearing=False)


class Past:
    """The earlier lives of one pubend, as far as this disk and other brokers know them."""

    def __init__(
        self,
        pubend: PubendName,
        store: Store,
        promise: int,
        copied: int,
        now: Instant,
        disk: DiskHistory,
        promise_step: int = 0,
    ) -> None:
        """`copied`: where the transaction ends that is being copied into the log, or 0.
        `promise_step`: how far ahead of its clock a pubend promises, in microseconds."""
        self.pubend = pubend
        self.stream = f"log/{pubend}"
        _, logged = store.bounds(self.stream)
        first = min(now, CLOCK_MAX) << PUBEND_BITS
        fact = store.get(LIVES, pubend)
        born, lost_at, spans = decode(fact) if fact else (0, 0, [])
        self.is_birth = fact is None and max(logged, promise) == 0
        self.born = first if self.is_birth else born
        self.lost_at = lost_at  # when numbers were lost, in microseconds; 0: never
        self.lost_spans = spans
        self.is_durable = not self.is_birth
        self.spoken = max(logged, promise)  # as this disk knows it
        end = max(self.spoken, first, self.born)
        start = min(max(logged, self.born, copied), end)
        self.doubtful_span = Span(start, end + (start == end))
        """A newer disk may have had events there."""
        self.is_hearing = disk.is_hearing
        self.has_found_loss = False  # in this life
        if disk.is_copy and not self.is_birth:
            # A life that began before its clock had reached the promise has used ticks beyond it.
            end = max(end, self.spoken + (promise_step << PUBEND_BITS))
            self.doubtful_span = Span(start, end)
            self.lose()

    @property
    def is_doubtful(self) -> bool:
        """May the other brokers still say that the doubtful span is lost?"""
        return self.is_hearing and not self.is_birth and not self.has_found_loss

    @property
    def silent_below(self) -> int:
        """Before this tick nothing was ever published; 0: that is not known."""
        return 0 if self.lost_at else self.born

    @property
    def lost_count(self) -> int:
        """How many spans are lost with earlier disks, including everything before a birth."""
        return len(self.lost_spans) + (self.born > 0 and self.lost_at > 0 and not self.lost_spans)

    @property
    def number_floor(self) -> int:
        """Numbers below may have been used by publishers of which this disk knows nothing."""
        return self.lost_at

    def is_news(self, spoken: int) -> bool:
        """Does it prove a loss that this pubend had promised everything below `spoken`?"""
        return spoken > (0 if self.is_birth else self.spoken) and not self.has_found_loss

    def lose(self) -> None:
        """This disk is not the one that the pubend had last: the doubtful span is lost."""
        span = self.doubtful_span
        self.has_found_loss = True
        self.lost_at = max(self.lost_at, span.end >> PUBEND_BITS, 1)
        if not self.is_birth:
            self.add(span)
        self.is_durable = False

    def add(self, span: Span) -> None:
        """Something is lost."""
        self.lost_spans[:] = SpanSet([*self.lost_spans, span])
        while len(self.lost_spans) > SPANS_MAX:
            second = self.lost_spans.pop(1)
            self.lost_spans[0] = Span(self.lost_spans[0].start, second.end)
        self.is_durable = False

    def write(self) -> tuple[Put, ...]:
        """What is to be written; nothing if all is durable."""
        if self.is_durable:
            return ()
        pairs = b"".join(PAIR.pack(span.start, span.end) for span in self.lost_spans)
        return (Put(LIVES, self.pubend, HEAD.pack(self.born, self.lost_at) + pairs),)

    def settled_parts(self, span: Span) -> list[Span]:
        """The parts of a span of which may be spoken."""
        doubt = self.doubtful_span
        if not self.is_doubtful or span.end <= doubt.start or span.start >= doubt.end:
            return [span]
        parts = (span.start, min(span.end, doubt.start)), (max(span.start, doubt.end), span.end)
        return [Span(start, end) for start, end in parts if start < end]

    def check(self) -> None:
        end = self.born
        for span in self.lost_spans:
            assert end <= span.start < span.end, "I1"
            end = span.end
        assert self.is_hearing or not self.is_doubtful, "I2"


def decode(fact: bytes) -> tuple[int, int, list[Span]]:
    born, lost_at = HEAD.unpack_from(fact)
    return born, lost_at, [Span(*pair) for pair in PAIR.iter_unpack(fact[HEAD.size :])]


class PastStore:
    """A store in which the lost spans of one log read as damaged. Works like any other store."""

    def __init__(self, store: Store, past: Past) -> None:
        self._store = store
        self._stream = past.stream
        self._spans = past.lost_spans
        self.bounds = store.bounds
        self.get = store.get
        self.items = store.items

    def _look(self, stream: str, start: int, end: int) -> None:
        for span in self._spans if stream == self._stream else ():
            if span.start < end and start < span.end:
                raise StorageDamagedError(
                    f"{stream!r} was lost from {span.start} to {span.end} with an earlier disk",
                    stream=stream,
                    start=span.start,
                    end=span.end,
                )

    def read(self, stream: str, index: int) -> bytes:
        self._look(stream, index, index + 1)
        return self._store.read(stream, index)

    def read_near(self, stream: str, index: int) -> Mapping[int, bytes]:
        self._look(stream, index, index + 1)
        return self._store.read_near(stream, index)

    def scan(
        self, stream: str, start: int, end: int, *, bytes_max: int = 1 << 20
    ) -> tuple[list[int], list[bytes]]:
        self._look(stream, start, end)
        return self._store.scan(stream, start, end, bytes_max=bytes_max)

    def scan_runs(self, stream: str, start: int, end: int, *, bytes_max: int) -> list[RecordRun]:
        self._look(stream, start, end)
        return self._store.scan_runs(stream, start, end, bytes_max=bytes_max)
