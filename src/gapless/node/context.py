"""The context of one broker: what every part of it is made with.

A part takes the context instead of a list of arguments, so that its constructor names only the
other parts that it works with. The context never changes; what lives in it (the network's topics,
the routing, the epoch, the catalogue) does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gapless.core.errors import ProtocolError, WireError
from gapless.node.config import Config
from gapless.node.epoch import Epoch
from gapless.node.parts import Parts
from gapless.node.routing import Routing
from gapless.node.seal import Seal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy import float64, uint8
    from numpy.typing import NDArray

    from gapless.core.events import Attributes, EventBatch, Piece
    from gapless.core.identity import BrokerName, Instant
    from gapless.core.store import Store
    from gapless.node.directory.catalogue import Catalogue
    from gapless.node.network import Network

    Survey = Callable[
        [Sequence[Piece], Sequence[str]],
        Sequence[tuple[NDArray[uint8], NDArray[float64]]] | None,
    ]
    """Of the events of these pieces, and for each name: by event, the kind of the attribute and a
    number that stands for it, as `filters.sieve` has them. None: decode them, for something is
    unknown to it, or it is not ready."""


@dataclass(frozen=True)
class EventEncoding:
    """What depends on how events are encoded; the driver supplies it."""

    attributes_of: Callable[[EventBatch], Sequence[Attributes]]
    """Reads the attributes of a batch."""

    check: Callable[[EventBatch], object] | None = None
    """Raises `WireError` for a batch that a client may not publish; `attributes_of` if None."""

    survey: Survey | None = None
    """Searches a part of a log faster than event by event, if the driver can."""

    extend: Callable[[bytes, Attributes], bytes] | None = None
    """Makes a copy of an event with further attributes, or with as much of it as fits."""

    def check_events(self, events: EventBatch) -> None:
        """Raise `WireError` for a batch that a client may not publish."""
        (self.check or self.attributes_of)(events)

    def check_received(self, events: EventBatch) -> None:
        """Raise `ProtocolError` for a batch of another broker that no client can have published:
        who matches it would fail later, when nobody knows whose it was."""
        try:
            self.check_events(events)
        except WireError as error:
            raise ProtocolError(f"an event of another broker: {error.problem}") from error


@dataclass(frozen=True)
class Context:
    """One broker: its name, its network, its disk, its limits."""

    name: BrokerName
    network: Network
    store: Store
    started: Instant
    encoding: EventEncoding
    config: Config = field(default_factory=Config)
    parts: Parts = field(default_factory=Parts)
    routing: Routing = field(init=False)
    epoch: Epoch = field(init=False)
    seal: Seal = field(init=False)
    catalogue: Catalogue = field(init=False)

    def __post_init__(self) -> None:
        routing = Routing(self.name, self.network, self.config, self.started)
        object.__setattr__(self, "routing", routing)
        object.__setattr__(self, "seal", Seal(self.store))
        is_copy = self.seal.is_copy
        epoch = Epoch(self.store, self.config, self.started, is_copy=is_copy)
        object.__setattr__(self, "epoch", epoch)
        catalogue = self.parts.catalogue(
            self.name, self.network, self.config, self.store, routing, self.started
        )
        object.__setattr__(self, "catalogue", catalogue)
