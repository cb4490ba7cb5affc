"""gapless: content-based publish/subscribe that never leaves a silent gap.

The public names; each is loaded when it is first used, so that `import gapless` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gapless.version import __version__

if TYPE_CHECKING:
    from gapless import sync
    from gapless.client.channel import ConnectionChange
    from gapless.client.client import connect
    from gapless.client.delivery import Gap, Silence
    from gapless.client.errors import (
        LinkError,
        LostError,
        RefusedError,
        SubscriptionInterruptedError,
    )
    from gapless.client.joint_reader import together
    from gapless.core.errors import (
        EventError,
        FilterError,
        GaplessError,
        ProtocolError,
        StorageCorruptError,
        StorageError,
        StorageFullError,
        UsageError,
        WireError,
    )
    from gapless.core.events import Event
    from gapless.core.token import Token
    from gapless.filters.filter import Filter
    from gapless.filters.matcher import Matcher

_HOME = {
    "ConnectionChange": "gapless.client.channel",
    "Event": "gapless.core.events",
    "Filter": "gapless.filters.filter",
    "Gap": "gapless.client.delivery",
    "LinkError": "gapless.client.errors",
    "LostError": "gapless.client.errors",
    "Matcher": "gapless.filters.matcher",
    "RefusedError": "gapless.client.errors",
    "Silence": "gapless.client.delivery",
    "SubscriptionInterruptedError": "gapless.client.errors",
    "Token": "gapless.core.token",
    "connect": "gapless.client.client",
    "together": "gapless.client.joint_reader",
}
_ERRORS = "gapless.core.errors"

__all__ = [
    "ConnectionChange",
    "Event",
    "EventError",
    "Filter",
    "FilterError",
    "Gap",
    "GaplessError",
    "LinkError",
    "LostError",
    "Matcher",
    "ProtocolError",
    "RefusedError",
    "Silence",
    "StorageCorruptError",
    "StorageError",
    "StorageFullError",
    "SubscriptionInterruptedError",
    "Token",
    "UsageError",
    "WireError",
    "__version__",
    "connect",
    "sync",
    "together",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'gapless' has no attribute {name!r}")
    if name == "sync":
        return import_module("gapless.sync")
    found = getattr(import_module(_HOME.get(name, _ERRORS)), name)
    globals()[name] = found  # so that this is asked once for each name
    return found


def __dir__() -> list[str]:
    return __all__
