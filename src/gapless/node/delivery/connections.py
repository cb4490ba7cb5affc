"""Connections: the clients that are connected to one broker, shared by all services.

A connection knows the principal behind its client, the client's anonymous subscriptions that are
matched here, and what the client was sent and has not consumed yet. All other subscriptions of a
connection are known to their services alone (`Service.has`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.core.client_messages import Order
    from gapless.core.identity import ClientName, PubendName, TopicName


def nowhere(_: str) -> bool:
    """The client administers no topic."""
    return False


@dataclass(slots=True)
class ClientConnection:
    """One connection: its subscriptions by number, and what its client has not consumed yet."""

    owner: str = ""  # the principal that the client has proved to be; empty: nobody asks
    administers: Callable[[str], bool] = nowhere  # on this topic; "*": everywhere
    who: str = ""  # the account that pays; begins with @ if the client has proved nothing
    subscriptions: dict[int, tuple[TopicName, Order]] = field(default_factory=dict)  # anonymous
    parcels: deque[list[int]] = field(default_factory=deque)  # count and bytes not yet consumed
    outstanding: int = 0
    outstanding_bytes: int = 0
    delivered: int = 0  # events, live or by catch-up, whether consumed or not
    through: dict[tuple[TopicName, PubendName | None], int] = field(default_factory=dict)

    def may_use(self, owner: str, topic: str) -> bool:
        """Is a named subscription of this owner for this client? A subscription without an owner
        was made before clients had to prove who they are: it is for administrators of its topic."""
        return owner == self.owner or (not owner and self.administers(topic))

    def may_end(self, owner: str, topic: str) -> bool:
        return owner == self.owner or self.administers(topic)

    def send(self, count: int, size: int) -> None:
        if count:
            self.delivered += count
            self.parcels.append([count, size])
            self.outstanding += count
            self.outstanding_bytes += size

    def consume(self, count: int) -> None:
        """Take events off the parcels, oldest first. A part of a parcel frees that part of its
        bytes."""
        while count > 0 and self.parcels:
            parcel = self.parcels[0]
            taken = min(count, parcel[0])
            size = parcel[1] * taken // parcel[0]
            if taken == parcel[0]:
                self.parcels.popleft()
            else:
                parcel[0] -= taken
                parcel[1] -= size
            count -= taken
            self.outstanding -= taken
            self.outstanding_bytes -= size


class ClientConnections(dict["ClientName", ClientConnection]):
    """The connected clients of one broker, by name."""

    def __init__(self) -> None:
        super().__init__()
        self._delivered_before = 0  # to clients that are gone

    def connect(
        self,
        name: ClientName,
        owner: str = "",
        administers: Callable[[str], bool] = nowhere,
        who: str = "",
    ) -> None:
        """`who`: the account that pays for a client that has proved nothing."""
        self.setdefault(name, ClientConnection(owner, administers, owner or who))

    def disconnect(self, name: ClientName) -> None:
        connection = self.pop(name, None)
        self._delivered_before += connection.delivered if connection is not None else 0

    @property
    def delivered(self) -> int:
        """Events sent so far to all clients that there were, live and by catch-up."""
        return self._delivered_before + sum(each.delivered for each in self.values())
