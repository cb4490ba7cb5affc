"""Acknowledging by name: for who consumes a named subscription by range reads.

Such a client is never attached, so that nothing is delivered to it, and its subscription does what
it is for: it holds back the release of what was not acknowledged yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.client import arguments
from gapless.client.insistence import obtain
from gapless.core.client_messages import Acknowledge, Done

if TYPE_CHECKING:
    from gapless.client.carrier import Carrier
    from gapless.core.token import Token


class Acknowledging:
    """What a client can say of subscriptions that it is not attached to."""

    async def acknowledge(self: Carrier, name: str, token: Token) -> None:
        """Of the subscription of this name everything below the token may be released; durable
        when this returns. A token that is behind changes nothing."""
        known = arguments.subscription(name)
        consumed = dict(arguments.token("token", token))
        await obtain(
            self,
            lambda request: Acknowledge(0, consumed, request, known),
            Done,
            f"subscription {name}",
        )
