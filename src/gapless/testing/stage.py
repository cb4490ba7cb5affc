"""The stage: a heap of steps, one clock, one pair of dice, one trace.

Theory of operation
    Everything that will happen is an entry `(instant, sequence, action, arguments)`; ties break by
    sequence, so the order is total. An action may draw from the dice and add entries. Nothing else
    decides anything: same seed, same course, whatever the machine or the hash seed.

Cost: one heap push and pop a step, a few microseconds.
"""

from __future__ import annotations

import heapq
from collections import Counter
from typing import TYPE_CHECKING, Any

from gapless.core.identity import Instant
from gapless.testing.clock import START
from gapless.testing.record import Violation

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from gapless.core.messages import Message
    from gapless.testing.trace import Trace
    from gapless.testing.watch import Watch
    from gapless.wire.codec import Codec

STEPS_MAX = 200_000
"""How many steps one call of `run` may add: more is a storm, and no test waits for its end."""


class Stage:
    """Where steps happen, one after the other."""

    def __init__(
        self, dice: random.Random, trace: Trace, watch: Watch, codec: Codec | None = None
    ) -> None:
        self.now = START
        self.dice = dice
        self.trace = trace
        self.watch = watch
        self.reached: Counter[str] = Counter()
        self._codec = codec
        self._heap: list[tuple[Instant, int, Callable[..., object], tuple[Any, ...]]] = []
        self._sequence = 0

    def at(self, instant: Instant, action: Callable[..., object], *arguments: Any) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (instant, self._sequence, action, arguments))

    def after(self, delay: int, action: Callable[..., object], *arguments: Any) -> None:
        self.at(Instant(self.now + delay), action, *arguments)

    def run(self, duration: int) -> None:
        """Play everything that happens in the next `duration` microseconds."""
        heap, end = self._heap, Instant(self.now + duration)
        limit = self._sequence + STEPS_MAX
        while heap and heap[0][0] <= end:
            self.now, _, action, arguments = heapq.heappop(heap)
            action(*arguments)
            if self._sequence > limit:
                raise Violation("it comes to rest", f"{STEPS_MAX} steps in {duration} µs")
        self.now = end

    def step(self, end: int | None) -> bool:
        """Play the next step, if it comes before `end`; else only time goes on to there."""
        if self._heap and (end is None or self._heap[0][0] <= end):
            self.now, _, action, arguments = heapq.heappop(self._heap)
            action(*arguments)
            return True
        if end is not None:
            self.now = Instant(end)
        return False

    def say(self, text: str) -> None:
        """A line of the trace."""
        self.trace.line(self.now, text)

    def on_the_wire(self, message: Message) -> Message:
        """The message as it arrives: with a codec, encoded and decoded as between processes."""
        if self._codec is None:
            return message
        arrived = self._codec.decode(self._codec.encode(message))
        assert arrived == message, f"{message} became {arrived} on the wire"
        return message if not isinstance(arrived, type(message)) else arrived
