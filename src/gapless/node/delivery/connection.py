"""A client's connection: its subscriptions, what it was sent and what it has not consumed yet."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.core.client_messages import Order
    from gapless.core.identity import PubendName, TopicName


def nowhere(_: str) -> bool:
    return False


@dataclass(slots=True)
class ClientConnection:
    """One connection: its subscriptions by number, and what it has not consumed yet."""

    owner: str = ""  # who it has proved to be; empty: nobody asks
    administers: Callable[[str], bool] = nowhere  # on this topic; "*": everywhere
    who: str = ""  # whose share it takes; begins with @ if it has not proved who it is
    subscriptions: dict[int, tuple[TopicName, Order]] = field(default_factory=dict)
    parcels: deque[list[int]] = field(default_factory=deque)  # count and bytes not yet consumed
    outstanding: int = 0
    outstanding_bytes: int = 0
    delivered: int = 0  # events, live or by catch-up, whether consumed or not
    through: dict[tuple[TopicName, PubendName | None], int] = field(default_factory=dict)

    def may_use(self, owner: str, topic: str) -> bool:
        """Is a named subscription this client's? One that nobody owns, from a time before anybody
        was asked who he is, is for those who administer its topic."""
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
        """Of a parcel that is consumed in part, its bytes count by the share of its events."""
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
