"""Errors between a client and its broker.

GaplessError
├── LinkError           no broker answers, or the connection broke while an answer was due
├── RefusedError        the broker refused a request, and says why
├── LostError           a range that is to be read was released
└── InterruptedError…   see SubscriptionInterruptedError: deliveries would not be gapless
"""

from __future__ import annotations

from gapless.core.errors import GaplessError


class LinkError(GaplessError, ConnectionError):
    """No broker answers, or the connection broke before the answer came."""

    default_remedy = "Check the address, or start a broker with `gapless serve`."


class RefusedError(GaplessError):
    """The broker refused a request. Nothing of it took effect."""

    default_remedy = "See the reason; nothing was changed."


class LostError(GaplessError):
    """Part of a range that is to be read was released: the message names it."""

    default_remedy = 'Start the read later, or give gaps="yield" to go on behind it.'

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(f"{problem} was released and is lost", remedy)


class SubscriptionInterruptedError(GaplessError):
    """A subscription has ended, for what follows might have a gap. All before it was delivered."""

    default_remedy = "Subscribe again; what was published meanwhile is not delivered."
