"""Tokens that clients show: one that cannot be true is refused, before anything is lost by it.

Theory of operation
    A token says that everything below its ticks is consumed. Of a pubend that it does not name
    nothing is; but one that names what the topic does not have is of another topic, of one that was
    deleted and created again, or mistyped: to take it as it is would be to begin at the oldest
    event without a word. And all that is published below a tick that its pubend has not reached
    would be passed over.
    The host of a pubend knows where it stands, and that what comes next is not behind its clock.
    Any other broker may be behind, and its clock may be slow: what is not beyond belief it takes
    for what it does not know yet, and says "later". So it does with a pubend of a later creation of
    the topic than the one it knows.

Deviation: DSN 2003 has none of this; its tokens are never wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.client_messages import Refused
from gapless.core.errors import listed, quoted
from gapless.core.identity import PubendName
from gapless.core.ticks import AHEAD_MAX, CLOCK_MAX, PUBEND_BITS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gapless.core.identity import Instant
    from gapless.knowledge.pubend import Pubend
    from gapless.knowledge.subend import Subend
    from gapless.node.config import Config
    from gapless.node.network import Topic

REMEDY = 'Give the token of a subscription to this topic, or start="earliest" for all that is kept.'
SHOWN_MAX = 4
"""Pubends of a topic that a refusal names."""

DIGITS_MAX = 18
"""Of an incarnation: more than are ever counted."""


class Tokens:
    """What one broker believes of tokens."""

    def __init__(
        self,
        pubends: Mapping[PubendName, Pubend],
        subends: Mapping[PubendName, Subend],
        config: Config,
    ) -> None:
        self.pubends = pubends
        self.subends = subends
        self.config = config

    def doubt(
        self, request: int, topic: Topic, token: Mapping[str, int], now: Instant
    ) -> Refused | None:
        """Why a token cannot be believed; None where it can."""
        known = {each.name for each in topic.pubends}
        for pubend, tick in token.items():
            if pubend not in known:
                return unknown(request, topic, pubend)
            if refused := self._ahead(request, PubendName(pubend), tick, now):
                return refused
        return None

    def _ahead(self, request: int, pubend: PubendName, tick: int, now: Instant) -> Refused | None:
        """Is the tick one that the pubend has not reached?"""
        hosted, subend = self.pubends.get(pubend), self.subends.get(pubend)
        reached = min(now, CLOCK_MAX) << PUBEND_BITS  # what comes next comes after the clock
        if hosted is not None:
            reached = max(reached, hosted.end)
        elif subend is not None:
            reached = max(reached, subend.horizon)
        ahead = tick - reached
        if ahead <= AHEAD_MAX:
            return None
        problem = (
            f"the token says {tick} for {pubend!r}, which is at {reached}: that is yet to come"
        )
        skew = self.config.clock_skew_max << PUBEND_BITS
        return Refused(request, problem, REMEDY, retry=hosted is None and ahead <= skew)


def unknown(request: int, topic: Topic, pubend: str) -> Refused:
    """The token is not of this topic, or not of what it is now."""
    incarnation = incarnation_of(pubend.rpartition("/")[0], topic)
    is_later = incarnation > topic.incarnation
    if is_later:
        what = f"of a topic {quoted(topic.name)} created later than the one that is known here"
    elif 0 < incarnation < topic.incarnation:
        what = f"of a topic {quoted(topic.name)} that was deleted"
    else:
        what = f"which topic {quoted(topic.name)} does not have"
    shown = [each.name for each in topic.pubends]
    problem = f"the token names {quoted(pubend)}, {what}: it has {listed(shown, SHOWN_MAX)}"
    return Refused(request, problem, REMEDY, retry=is_later)


def incarnation_of(label: str, topic: Topic) -> int:
    """Which of the topics of this name has the label; 0: none."""
    name, _, number = label.rpartition("@")
    if label == topic.name:
        return 1
    is_number = number.isascii() and number.isdecimal() and len(number) < DIGITS_MAX
    return int(number) if name == topic.name and is_number else 0
