"""What an administrator may ask about the names that a topic remembers: list them, strike some off.

A broker answers for the pubends that it hosts. A name is struck off where it is remembered, which
is found by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.client import arguments
from gapless.client.insistence import obtain
from gapless.core.client_messages import Done
from gapless.core.identity import TopicName
from gapless.core.roster_messages import Roster, RosterQuery, Strike

if TYPE_CHECKING:
    from gapless.client.carrier import Carrier
    from gapless.core.roster_messages import RosterKind


async def roster(carrier: Carrier, topic: str, of: RosterKind) -> Roster:
    """Publishers, producers or open transactions of a topic, at the broker that is asked."""
    name = TopicName(arguments.text("topic", topic))
    return await obtain(carrier, lambda request: RosterQuery(name, request, of), Roster)


async def strike(carrier: Carrier, topic: str, of: RosterKind, name: str, number: int = 0) -> None:
    """Forget a publisher or producer, or drop an open transaction. Fine if there is none."""
    place = TopicName(arguments.text("topic", topic))
    known = arguments.text("name", name)
    await obtain(carrier, lambda request: Strike(place, request, of, known, number), Done)
