"""EventReader: what a node learns of encoded events, by compiled code once that pays.

A broker that has taken in some thousand events is worth the time and the memory that compiled code
takes (`broker.compiled_code`). From then on events are let in and matched without decoding them
(`wire.attribute_rows`), and matchers find their kernels loaded; until then, and where it cannot be
loaded, events are decoded. What was never compiled on this machine is compiled first.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

from gapless import machine_code
from gapless.broker.compiled_code import Compiled, require_kept
from gapless.core.errors import WireError
from gapless.core.events import EventBatch
from gapless.wire.events import check_events, decode_attributes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gapless.core.events import Attributes

DECODED_MAX = 10_000
"""Events that are decoded before compiled code is asked for."""

STEP_BYTES = 256 * 1024
"""How much of a large batch is looked at in one step."""


class EventCode(NamedTuple):
    """Two ways to look at a batch."""

    check: Callable[[EventBatch], object]
    attributes_of: Callable[[EventBatch], Sequence[Attributes]]


class EventReader:
    """Lets events in, and reads their attributes."""

    def __init__(self, decoded_max: int = DECODED_MAX) -> None:
        self.compiled = Compiled(_load, "events are read without compiled code")
        self._decoded = 0
        self._decoded_max = decoded_max
        self._reading = EventCode(check_events, decode_attributes)
        self._is_compiled = False
        self._checked: tuple[EventBatch, WireError | None] | None = None  # in steps, just now

    def checking(self, batch: EventBatch) -> Iterator[None]:
        """The same as `check`, in steps between which others may do something; `check` of this
        very batch then knows what came of it."""
        start = size = 0
        error: WireError | None = None
        for end, event in enumerate(batch, 1):
            size += len(event)
            if size < STEP_BYTES and end < len(batch):
                continue
            try:
                self.check(EventBatch(batch.events[start:end]))
            except WireError as found:
                error = found
                break
            start, size = end, 0
            yield
        self._checked = (batch, error)

    def check(self, batch: EventBatch) -> None:
        """`WireError` if an event is not whole, or beyond a limit."""
        known, self._checked = self._checked, None
        if known is not None and known[0] is batch:
            if known[1] is not None:
                raise known[1]
            return
        if not self._is_compiled:
            self._count(len(batch))
        self._reading.check(batch)

    def attributes_of(self, batch: EventBatch) -> Sequence[Attributes]:
        """Of every event of a batch that was let in."""
        return self._reading.attributes_of(batch)

    def _count(self, events: int) -> None:
        self._decoded += events
        if self._decoded > self._decoded_max and (reading := self.compiled.get()) is not None:
            self._reading, self._is_compiled = reading, True


def _load() -> EventCode:
    require_kept()
    from gapless.broker import compiled_code
    from gapless.filters.matching import kernels
    from gapless.wire.attribute_rows import AttributeRows, check_plain, prepare

    if compiled_code.find_uncompiled():  # a process of its own: compiling would hold up the loop
        command = [sys.executable, "-m", compiled_code.__name__]
        known = machine_code.environment()
        subprocess.run(command, stdout=subprocess.DEVNULL, env=known, check=True)
    kernels.prepare()
    prepare()
    return EventCode(check_plain, AttributeRows)
