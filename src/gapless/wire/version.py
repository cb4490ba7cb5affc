"""Which protocol version two ends speak.

Each end states in its `Hello` the range of versions it understands. They speak the highest that
both do. If the ranges do not meet, one end is too old, and the error says which.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.errors import WireError

if TYPE_CHECKING:
    from gapless.core.messages import Hello


def agree(mine: Hello, theirs: Hello) -> int:
    """The version to speak on this link; both ends come to the same."""
    version = min(mine.version, theirs.version)
    if version >= max(mine.version_min, theirs.version_min):
        return version
    too_old, side = (
        (theirs, "the other end") if theirs.version < mine.version else (mine, "this end")
    )
    raise WireError(
        f"no common protocol version: we speak {_range(mine)}, the other end {_range(theirs)}",
        f"Upgrade {side}{_named(too_old)}.",
    )


def _range(hello: Hello) -> str:
    if hello.version_min == hello.version:
        return str(hello.version)
    return f"{hello.version_min} to {hello.version}"


def _named(hello: Hello) -> str:
    names = [name for name in (hello.sender, hello.software) if name]
    return f" ({', '.join(names)})" if names else ""
