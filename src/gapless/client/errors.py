"""What can go wrong between a client and its broker.

GaplessError
├── LinkError           no broker answers, or the connection broke while an answer was due
├── RefusedError        the broker said no, and why
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


class SubscriptionInterruptedError(GaplessError):
    """A subscription has ended: what follows might have a gap. All before it was delivered."""

    default_remedy = "Subscribe again; what was published meanwhile is not delivered."
