"""What a door has of its broker, and nothing more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from gapless.doors.clients import DoorClients

    Certificate = dict[str, Any]


class Identities(Protocol):
    """The principals of a broker with security."""

    def by_proof(self, token: str, certificate: Certificate | None = None) -> Any:
        """The principal that a token or a certificate proves; None: neither does."""

    def lend(self, principal: Any) -> str:
        """A token by which the door is this principal, which has proved itself to the door."""

    def lend_to_door(self) -> str:
        """A token for what a door does for itself."""


@dataclass(frozen=True, kw_only=True)
class DoorSurroundings:
    """What a door has of its broker. Without security the last three fields are None."""

    name: str
    """The broker's."""
    folder: Path
    """The broker's, for files of the door's own."""
    clients: DoorClients
    """By which the door is a client, as any other; shared with other doors."""
    subscriptions: Callable[[str, str | None], list[dict[str, Any]]]
    """The named subscriptions that the holder of a token may see; or the one of a name."""
    addresses: Mapping[str, str]
    """By entrance, where clients reach the broker's doors."""
    is_alone: bool
    """Whether the network has no other broker."""
    tls: ssl.SSLContext | None = None
    """What the door shows its callers."""
    tls_with_certificates: ssl.SSLContext | None = None
    """The same, for callers that may show certificates of their own."""
    identities: Identities | None = None
