"""The limits and timers of one broker of the tree.

`failures_tolerated` is the paper's δ: how many neighbouring brokers or links may fail at once with
nothing lost. It is the same at all brokers of a network; everything else follows from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gapless.core.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class TreeSettings:
    """Times are whole microseconds."""

    failures_tolerated: int = 2
    """The paper's δ, 0 or more."""
    repeats: Literal["source", "trail"] = "source"
    """How a broker tells that a publication has come before: by the number of its source, of which
    it keeps the last; or, as in the paper, by the numbers of brokers nearby (`trail`), which costs
    less memory, and holds back what has bypassed too many of them, with all that comes after it."""
    tags: Literal["literal", "scoped"] = "scoped"
    """What a subscription hears that is made while brokers are down: `literal`, nothing from beyond
    them until they return; `scoped`, all from behind those that were reached over them. The latter
    needs `repeats` by source."""
    beat_every: int = 1_000_000
    """How often a broker says that it lives, to the brokers it wants to reach."""
    patience: int = 3_000_000
    """How long without an answer until a broker counts as unreachable."""
    queue_max: int = 10_000
    """Publications of one topic that wait to be confirmed at which `publish` refuses more of it. At
    half of them the older half of those is given up for brokers that are out of reach, and so it is
    where as many, of whatever source, wait for them; they are told when they are back."""
    window_max: int = 1_000
    """Publications that a neighbour was sent and has not taken; the rest waits in the queue."""
    batch_max: int = 500
    """Messages for one neighbour that go as one; more go as several."""
    batch_bytes_max: int = 1 << 20
    """Bytes of bodies and conditions in one batch; it ends with the message that reaches them."""
    subscriptions_max: int = 100_000
    """Subscriptions of own subscribers at which `subscribe` refuses more."""
    remote_subscriptions_max: int = 1_000_000
    """Subscriptions of others that a broker knows; one more is refused, and ends where it began:
    its driver is told which broker has no room."""
    sources_max: int = 10_000
    """Sources, which are brokers, whose last number is remembered; beyond it the one silent for
    longest is forgotten, and a repeat from there that is still under way would count as new."""

    def __post_init__(self) -> None:
        if self.failures_tolerated < 0:
            raise UsageError(f"a tree cannot tolerate {self.failures_tolerated} failures")
        if self.tags == "scoped" and self.repeats != "source":
            raise UsageError(
                "scoped tags need the source's numbers", 'Say repeats="source", or tags="literal".'
            )
        if not 0 < self.beat_every < self.patience:
            raise UsageError("patience must be longer than the time between two beats")
        limits = (
            self.queue_max,
            self.window_max,
            self.batch_max,
            self.batch_bytes_max,
            self.subscriptions_max,
            self.remote_subscriptions_max,
            self.sources_max,
        )
        if min(limits) < 1:
            raise UsageError("every limit of a tree is at least 1")

    @property
    def reach(self) -> int:
        """The paper's Δ: how far a broker knows the tree, and may step over others."""
        return self.failures_tolerated + 1

    @property
    def held_max(self) -> int:
        """Of our own publications for a topic: at more, the older half is given up for those out of
        reach. So much less than `queue_max` that publishers do not wait for that."""
        return self.queue_max // 2

    @property
    def window(self) -> int:
        """The paper's D_SEQ: in so many brokers in a row at most δ may be bypassed."""
        return 2 * self.failures_tolerated + 1
