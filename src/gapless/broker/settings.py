"""What a broker process may be told besides its network: where, how much, how patient.

The limits of the protocols are in `node/config.py`; these are those of sockets and the process.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path

from gapless.core.errors import UsageError
from gapless.node.config import BASIC

KIBIBYTE = 1 << 10
MEBIBYTE = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Addresses, limits and patience of one broker process; see each field."""

    data: Path = field(metadata=BASIC)
    """The folder of all brokers of a network on this machine; each has one of its own inside."""

    listen: str | None = field(default=None, metadata=BASIC)
    """Where clients and brokers connect, instead of what the network file says. Port 0: any free
    port, the same again after a restart if it is still free; `address.json` in the data folder
    says which, and neighbours with the same data folder look there."""

    admin: str | None = field(default="127.0.0.1:7118", metadata=BASIC)
    """Where health, statistics and metrics are served; None: nowhere."""

    admin_hosts: tuple[str, ...] = ()
    """Names under which others ask there, besides addresses and `localhost`. Without security a
    request that names another host is refused, so that no web page reads the answers by way of a
    name of its own; with security certificate and token see to that."""

    security_folder: Path = field(default_factory=Path)
    """What the file names in the network's `[security]` are relative to: the network file's own
    folder, mostly."""

    insecure: bool = False
    """Whether a network without `[security]` may listen elsewhere than on loopback, where whoever
    reaches it may do everything."""

    join: str | None = None
    """The address of a broker of a running network that this one is to become a part of, though it
    is in no network file."""

    joined_max: int = 1_000
    """Brokers that joined, of which it is known where they are; beyond it a new one is refused."""

    hello_patience_s: float = 5.0
    """How long a new connection may take to say who it is, and before that for TLS; then it is
    closed."""

    hello_bytes_max: int = 4096
    """The longest first frame of a connection, before it is known who it is."""

    frame_patience_s: float = 60.0
    """How long the rest of a frame may take to arrive once it has begun; then the link is dropped.
    The time while the broker itself does not read, for lack of room, does not count."""

    frame_stall_s: float = 2.0
    """How long a large frame that has begun may bring nothing while others wait for its room; then
    its link is dropped. It must be well below what a client takes for a broker's silence, 6 s."""

    small_frame_bytes: int = 16 * KIBIBYTE
    """Frames of clients up to this size are read at once. For a longer one there must be room in
    `input_bytes_max` first."""

    request_bytes_max: int = 1 * MEBIBYTE
    """The longest frame of a client that does not carry events; beyond it its link is dropped. A
    client says its kind first; where there is security, a client that may not publish there is
    refused before the rest is read."""

    publish_bytes_max: int = 9 * MEBIBYTE
    """The longest frame of a client that carries events; beyond it its link is dropped. The broker
    serves nobody else while it takes one publication in, which for 16 MiB took 80 ms. The clients
    of this package send at most 8 MiB at a time."""

    input_bytes_max: int = 256 * MEBIBYTE
    """Frames of clients that are being read, by their whole size; beyond it nothing is read from a
    connection that begins another, until one has ended. Of one principal: its share."""

    output_bytes_max: int = field(default=512 * MEBIBYTE, metadata=BASIC)
    """Bytes that wait to be sent to clients that do not keep up, all together; beyond it the one
    that has been behind for longest loses its link. Of one principal: its share, beyond which
    requests for long answers wait until it has read some."""

    connections_max: int = field(default=10_000, metadata=BASIC)
    """Open connections; beyond it a new one is closed with a `Goodbye` that says so. Fewer where
    the system lets the process open fewer files: some of those are for the log."""

    publish_events_max: int = 10_000
    """Events that one message publishes or stages; beyond it the client's link is dropped."""

    broker_queue_bytes_max: int = 16 * MEBIBYTE
    """Bytes that wait to be sent to another broker; beyond it messages are dropped and counted,
    and the protocol asks for them again."""

    client_queue_bytes_high: int = 16 * MEBIBYTE
    """Bytes that wait to be sent to a client; beyond it nothing is read from it until it has
    taken some, so that it cannot ask for more."""

    client_queue_bytes_max: int = 128 * MEBIBYTE
    """The same, beyond which its link is dropped. It must be above the node's own bound of what a
    client has not consumed, which ends the subscription first."""

    far_queue_max: int = 1_000
    """Messages for a broker that is no neighbour, while it is being dialled; beyond it they are
    dropped and counted, and the service asks again."""

    redial_s: float = 0.05
    """How long to wait before a neighbour is dialled again; doubles up to `redial_longest_s`."""

    redial_longest_s: float = 2.0

    silence_s: float = 6.0
    """A neighbour's link that has brought nothing for so long is dropped and dialled anew. It must
    be well above the node's heartbeat: a link that works is never silent."""

    drain_patience_s: float = 5.0
    """How long a broker that stops, or ends a link, waits for the peer to take what was sent; then
    it just closes."""

    check_every_s: float = 60.0
    """How often the node's invariants are checked, a portion at a time. A broken one stops the
    process."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if type(value) in (int, float) and value <= 0:
                raise UsageError(f"{each.name} must be above zero")
        if self.client_queue_bytes_high >= self.client_queue_bytes_max:
            raise UsageError("client_queue_bytes_high must be below client_queue_bytes_max")
