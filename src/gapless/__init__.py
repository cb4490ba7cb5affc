"""gapless: content-based publish/subscribe that never leaves a silent gap.

The public names; each is loaded when it is first used, so that `import gapless` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gapless.version import __version__

if TYPE_CHECKING:
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
    from gapless.filters.filter import Filter
    from gapless.filters.matcher import Matcher

_HOME = {
    "Event": "gapless.core.events",
    "Filter": "gapless.filters.filter",
    "Matcher": "gapless.filters.matcher",
}
_ERRORS = "gapless.core.errors"

__all__ = [
    "Event",
    "EventError",
    "Filter",
    "FilterError",
    "GaplessError",
    "Matcher",
    "ProtocolError",
    "StorageCorruptError",
    "StorageError",
    "StorageFullError",
    "UsageError",
    "WireError",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'gapless' has no attribute {name!r}")
    return getattr(import_module(_HOME.get(name, _ERRORS)), name)


def __dir__() -> list[str]:
    return __all__
