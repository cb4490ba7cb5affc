"""Planted faults of the tree: brokers with one thing wrong, to see that the checkers find it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.tree.broker import Parts
from gapless.tree.forwarding import Forwarding
from gapless.tree.publications import Publications, session_of
from gapless.tree.settings import TreeSettings
from gapless.tree.spreading import Held, Spreading

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gapless.core.identity import BrokerName
    from gapless.tree.messages import Publication
    from gapless.tree.publications import Entry
    from gapless.tree.subscriptions import Routed


class ShortWindow(TreeSettings):
    """Compares fewer numbers than it takes to find every repeat."""

    @property
    def window(self) -> int:
        return max(1, self.failures_tolerated)


class NoLegitimacy(Publications):
    """Sends over however many brokers have been bypassed."""

    def _may_go(self, copy: Publication) -> bool:
        return True


class NoHolding(Publications):
    """Lets younger publications pass one that is held."""

    def due(
        self, session: BrokerName, active: frozenset[BrokerName]
    ) -> Iterator[tuple[Entry, Publication]]:
        for entry in list(self):
            if session in entry.sent:
                continue
            if all(session_of(route, active) != session for route in entry.routes):
                continue
            copy = self._copy(entry, session)
            if self._may_go(copy):
                entry.sent.add(session)
                self._owed[session].add(entry.publication.id)
                yield entry, copy


class NoFlush(Spreading):
    """Confirms a subscription before what was queued earlier has gone."""

    def _is_flushed(self, held: Held) -> bool:
        return True


class NoTags(Forwarding):
    """Delivers whatever matches."""

    def _is_safe(self, routed: Routed, publication: Publication) -> bool:
        return routed.is_complete


PLANTED_PARTS: dict[str, Parts] = {
    "no-legitimacy": Parts(publications=NoLegitimacy),
    "no-holding": Parts(publications=NoHolding),
    "no-flush": Parts(spreading=NoFlush),
    "no-tags": Parts(forwarding=NoTags),
}
"""By name; `ShortWindow` is a setting, not a part."""
