"""Flat: a batch of encoded events as Arrow arrays, without decoding them one by one.

Theory of operation
    `wire.parse` finds where everything stands; numpy picks what a column wants, and Arrow takes the
    memory as it is. Texts and bodies are copied once, next to each other, as Arrow has them.
    For a batch that the walks refuse, and for few events, `flatten` is None: decode them instead.

Cost: `python -m benchmarks ranges`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from gapless.core.attribute_table import BOOL, FLOAT, INT, MISSING, TEXT
from gapless.core.events import EventRun
from gapless.core.identity import PublisherName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

EVENTS_MIN = 500
"""With fewer, loading the compiled code takes longer than it saves."""

COPIED_BYTES_MAX = 1 << 30
"""A longer batch is decoded event by event: Arrow's offsets have 32 bits."""


def flatten(run: EventRun) -> Flat | None:
    """The places of all that is in these events; None: decode them one by one."""
    if len(run) < EVENTS_MIN or len(run.data) > COPIED_BYTES_MAX:
        return None
    from gapless.wire import parse

    data = np.frombuffer(run.data, np.uint8)
    bounds = np.zeros(len(run) + 1, np.int64)
    bounds[1:] = np.frombuffer(run.ends, "<u4")
    firsts = np.empty(len(bounds), np.int64)
    if not parse.count(data, bounds, firsts):  # as it does if ends go back, or beyond the last
        return None
    places = int(firsts[-1])
    names, kinds = np.empty((places, 3), np.int64), np.empty(places, np.uint8)
    values, rest = np.empty(places, np.int64), np.empty((len(run), 5), np.int64)
    if not parse.parse(data, bounds, firsts, names, kinds, values, rest):
        return None
    return Flat(data, firsts, names, kinds, values, rest)


def join_runs(runs: Sequence[EventRun]) -> EventRun:
    """One behind the other."""
    if len(runs) == 1:
        return runs[0]
    bases = np.repeat(
        np.cumsum([0, *(len(run.data) for run in runs[:-1])]), [len(run) for run in runs]
    )
    ends = np.frombuffer(b"".join([run.ends for run in runs]), "<u4") + bases
    ticks, data = b"".join([run.ticks for run in runs]), b"".join([run.data for run in runs])
    return EventRun(ticks, ends.astype("<u4").tobytes(), data)


def prepare() -> None:
    """Compile what is not compiled yet, once a machine."""
    from gapless.wire.events import encode_event

    event = encode_event({"a": "b", "n": 1}, b"c", PublisherName("d"), 0)
    flat = flatten(EventRun.of(range(EVENTS_MIN), [event] * EVENTS_MIN))
    assert flat is not None
    flat.find("a").texts()


class Flat:
    """Where everything stands in one batch."""

    def __init__(
        self,
        data: NDArray[np.uint8],
        firsts: NDArray[np.int64],
        names: NDArray[np.int64],
        kinds: NDArray[np.uint8],
        values: NDArray[np.int64],
        rest: NDArray[np.int64],
    ) -> None:
        self._data = data
        self._firsts = firsts
        self._names = names
        self._kinds = kinds
        self._values = values
        self._rest = rest
        self.count = len(firsts) - 1

    # --- columns of attributes -------------------------------------------------------------------

    def find(self, name: str) -> Found:
        """The values of one attribute in all events."""
        from gapless.wire import parse

        places = np.empty(self.count, np.int64)
        wanted = np.frombuffer(name.encode(), np.uint8)
        parse.find(self._data, self._firsts, self._names, wanted, places)
        return self._at(places)

    def _at(self, places: NDArray[np.int64]) -> Found:
        if not len(self._kinds):
            empty = np.zeros(len(places), np.int64)
            return Found(self, empty.astype(np.uint8), empty, empty)
        kinds = np.where(places < 0, np.uint8(MISSING), self._kinds[places])
        return Found(self, kinds, self._values[places], self._names[places, 2])

    def attributes(self, value_type: Any) -> Any:
        """All attributes, as maps from name to a struct in which one of four fields is set."""
        found = Found(self, self._kinds, self._values, self._names[:, 2])
        fields = [
            found.numbers(BOOL, pa.bool_()),
            found.numbers(INT, pa.int64()),
            found.numbers(FLOAT, pa.float64()),
            found.texts(),
        ]
        structs = pa.StructArray.from_arrays(fields, fields=list(value_type))
        names = self.pieces(self._names[:, 0], self._names[:, 1], None, pa.string())
        return pa.MapArray.from_arrays(pa.array(self._firsts.astype(np.int32)), names, structs)

    # --- what is behind them ---------------------------------------------------------------------

    def bodies(self) -> Any:
        return self.pieces(self._rest[:, 0], self._rest[:, 1], None, pa.binary())

    def publishers(self) -> Any:
        is_named = self._rest[:, 2] >= 0
        return self.pieces(self._rest[:, 2], self._rest[:, 3], is_named, pa.string())

    def sequences(self) -> Any:
        return pa.array(self._rest[:, 4], pa.int64(), mask=self._rest[:, 4] < 0)

    def pieces(
        self,
        starts: NDArray[np.int64],
        lengths: NDArray[np.int64],
        valid: NDArray[np.bool_] | None,
        kind: Any,
    ) -> Any:
        """Texts or bytes that stand in the events."""
        from gapless.wire import parse

        if valid is not None:
            lengths = np.where(valid, lengths, 0)
        ends = np.zeros(len(starts) + 1, np.int64)
        np.cumsum(lengths, out=ends[1:])
        out = np.empty(int(ends[-1]), np.uint8)
        parse.gather(self._data, np.ascontiguousarray(starts), ends, out)
        buffers = [_bitmap(valid), pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(out)]
        return pa.Array.from_buffers(kind, len(starts), buffers)


class Found:
    """Values of any kind, one for each place; kind 0: there is none."""

    def __init__(
        self,
        flat: Flat,
        kinds: NDArray[np.uint8],
        values: NDArray[np.int64],
        lengths: NDArray[np.int64],
    ) -> None:
        self._flat = flat
        self.kinds = kinds
        self.values = values
        self._lengths = lengths

    def texts(self) -> Any:
        return self._flat.pieces(self.values, self._lengths, self.kinds == TEXT, pa.string())

    def numbers(self, kind: int, arrow: Any) -> Any:
        """Those of one kind, all others null."""
        values: Any = self.values
        if kind == BOOL:
            values = values != 0
        elif kind == FLOAT:
            values = values.view(np.float64)
        return pa.array(values, arrow, mask=self.kinds != kind)


def _bitmap(valid: NDArray[np.bool_] | None) -> Any:
    if valid is None:
        return None
    return pa.py_buffer(np.packbits(valid, bitorder="little"))
