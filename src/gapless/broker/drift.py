"""Drift: what a holder still does for its clients when it cannot reach its store any more.

Theory of operation
    The lease may have ended, so another process may have the name, and nothing can be confirmed.
    Whoever waits for a confirmation must go and look for that process: links to brokers, and links
    on which nothing was said for a while, end at once. But what is settled is true whoever holds
    the name, and a subscriber that is behind still has some of it to come. Its link stays, for as
    long as the broker has something to say on it. Nobody is let in meanwhile.

    A link is busy if the broker sent more messages on it than came in: receipts and answers to
    pings, which each follow a message of the other end, do not count.

Source: docs/protocols/replicated-commits.md, 9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gapless.broker.link import Link
    from gapless.broker.link_table import Links
    from gapless.core.errors import GaplessError

QUIET_S = 1.0
"""A link on which nothing was said for so long is not busy."""


class Drift:
    """Which links of a broker are busy, and the end of the others."""

    def __init__(self, links: Links, now_s: float) -> None:
        self.is_under_way = False
        self._links = links
        self._marked_s = now_s
        self._said: dict[Link, int] = {}
        self._busy: set[Link] = set()

    def look(self, now_s: float) -> None:
        """Call it a few times a second."""
        if now_s < self._marked_s + QUIET_S:
            return
        self._marked_s = now_s
        said = {
            link: link.messages_out - link.messages_in
            for link in self._links.all
            if not link.is_broker and link.peer is not None
        }
        self._busy = {link for link, count in said.items() if count > self._said.get(link, count)}
        self._said = said

    def go_on(self, why: GaplessError) -> bool:
        """The lease may have ended: end the links that are not busy; whether any is left."""
        self.is_under_way = self._links.is_draining = True
        for link in self._links.all - self._busy:
            link.fall_silent(why)
        return bool(self._busy & self._links.all)

    def end(self) -> None:
        """The lease is good again."""
        self.is_under_way = self._links.is_draining = False
