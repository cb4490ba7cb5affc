"""Settings of a broker process: addresses, and limits and timers of its sockets.

The limits and timers of the protocols are in `node/config.py`.
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
    """The folder of all brokers of a network on this machine. Each broker has a folder in it."""

    listen: str | None = field(default=None, metadata=BASIC)
    """Where clients and brokers connect, instead of the address in the network file. Port 0 is any
    free port, and the same one after a restart if it is still free. The broker writes it to
    `address.json` in its folder, where neighbours with the same data folder find it."""

    shared_listen: str | None = None
    """Another address where clients connect, which several brokers of this machine have in common:
    the system gives each connection to one of them. `gapless serve --processes` sets it."""

    admin: str | None = field(default="127.0.0.1:7118", metadata=BASIC)
    """Where health, statistics, metrics and the console are served; the option `none` switches them
    off. If the port is in use, any free one is taken; `address.json` says which."""

    admin_hosts: tuple[str, ...] = ()
    """Host names that admin requests may use, besides addresses and `localhost`. Without security a
    request for any other host is refused, so that no web page can read the answers through a host
    name of its own. With security, certificate and token protect the port."""

    metrics_open: bool = False
    """Whether `/metrics` needs no token where there is security: whoever reaches the admin port, on
    loopback unless `admin` says otherwise, may read it, names of topics and subscriptions
    included."""

    metrics_subscriptions_max: int = 200
    """Durable subscriptions that have metrics of their own, those that were made first. For others
    there is `gapless_subscriptions_unlisted`; `gapless subscriptions` shows all."""
    http: str | None = field(default=None, metadata=BASIC)
    """Where the HTTP door listens, instead of the address in the network file; without either there
    is no HTTP door. Port 0 is any free port, and the same one after a restart."""

    http_hosts: tuple[str, ...] = ()
    """Host names that HTTP requests may use, besides addresses and `localhost`, where there is no
    security: see `admin_hosts`."""

    http_origins: tuple[str, ...] = ()
    """Origins, such as `https://shop.example`, whose pages may use the HTTP door (CORS). Without
    any, the broker refuses requests of pages that are not its own."""

    mqtt: str | None = field(default=None, metadata=BASIC)
    """Where the MQTT door listens, instead of the address in the network file; without either there
    is no MQTT door. Port 0 is any free port, and the same one after a restart."""

    mqtt_ws: str | None = None
    """Where the MQTT door takes WebSocket connections: see `mqtt`."""

    mqtt_json: bool = False
    """Whether the MQTT door reads members of JSON payloads as attributes, for conditions."""

    security_folder: Path = field(default_factory=Path)
    """The folder that file names in `[security]` are relative to, such as the network file's."""

    insecure: bool = False
    """Whether a broker without `[security]` may listen on other addresses than loopback. Everybody
    who reaches it may do everything."""

    join: str | None = None
    """The address of a broker whose running network this broker joins, without a network file."""

    joined_max: int = 1_000
    """Brokers that joined and whose addresses are known; beyond it a new one is refused."""

    hello_patience_s: float = 5.0
    """How long a new connection may take for its TLS handshake, and then for its Hello; beyond it
    the connection is closed."""

    hello_bytes_max: int = 4096
    """The longest first frame of a connection, the Hello."""

    frame_patience_s: float = 60.0
    """How long a frame may take to arrive; then the link is dropped. Time during which the broker
    does not read, because it lacks memory, does not count."""

    frame_stall_s: float = 2.0
    """How long a large frame may bring no bytes while other frames wait for its memory; then its
    link is dropped. It must be well below 6 s, after which a client takes a broker for dead."""

    small_frame_bytes: int = 16 * KIBIBYTE
    """A client's frame up to this size is read at once. A longer frame waits until
    `input_bytes_max` has room for it."""

    request_bytes_max: int = 1 * MEBIBYTE
    """The longest frame of a client that does not carry events; beyond it its link is dropped. A
    client says its kind first; where there is security, a client that may not publish there is
    refused before the rest is read."""

    publish_bytes_max: int = 9 * MEBIBYTE
    """The longest frame of a client that carries events; beyond it its link is dropped. The broker
    serves nobody else while it takes one publication in, which for 16 MiB took 80 ms. The clients
    of this package send at most 8 MiB at a time."""

    input_bytes_max: int = 256 * MEBIBYTE
    """Bytes of all clients' frames that are being read, by their whole size. Beyond it a connection
    that begins another frame is not read until one has ended. One principal has its share."""

    output_bytes_max: int = field(default=512 * MEBIBYTE, metadata=BASIC)
    """Unsent bytes of all clients together. Beyond it the client that has lagged for longest loses
    its link. One principal has its share; beyond that, its requests for long answers wait until it
    has read some."""

    connections_max: int = field(default=10_000, metadata=BASIC)
    """Open connections; beyond it a new one is closed with a `Goodbye` that says so. The number is
    lower where the system allows fewer open files, because the log needs some of them."""

    publish_events_max: int = 10_000
    """Events that one message publishes or stages; beyond it the client's link is dropped."""

    broker_queue_bytes_max: int = 16 * MEBIBYTE
    """Unsent bytes of the link to another broker; beyond it messages are dropped and counted, and
    the protocol asks for them again."""

    client_queue_bytes_high: int = 16 * MEBIBYTE
    """Unsent bytes of one client; beyond it the broker reads nothing from the client until it has
    taken some, so that it cannot ask for more."""

    client_queue_bytes_max: int = 128 * MEBIBYTE
    """Unsent bytes of one client beyond which its link is dropped. It must be above the node's own
    bound of unconsumed bytes, which ends the subscription first."""

    far_queue_max: int = 1_000
    """Messages that wait while a broker that is no neighbour is dialled; beyond it they are dropped
    and counted, and the service asks again."""

    redial_s: float = 0.05
    """How long to wait before a neighbour is dialled again; doubles up to `redial_longest_s`."""

    redial_longest_s: float = 2.0

    silence_s: float = 6.0
    """How long a neighbour's link may bring nothing; then it is dropped and dialled again. It must
    be well above the node's heartbeat: a link that works is never silent."""

    drain_patience_s: float = 5.0
    """How long a broker that stops, or ends a link, waits for the peer to take what was sent; then
    it closes the link."""

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
