"""The key by which a group shares its events among its members.

Broker and client use the same function: the broker to choose the member, the client to give back
the events of a key when the application rejects one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from gapless.core.events import Value


def share_key(attributes: Mapping[str, Value], share_by: str) -> Hashable:
    """The key of an event; None: it has none. Numbers are equal by value, and booleans are no
    numbers. All NaN are one key."""
    value = attributes.get(share_by)
    if isinstance(value, bool):
        return "truth", value
    if isinstance(value, float) and value != value:
        return "not a number", True
    return value
