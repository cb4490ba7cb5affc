"""The network: which cells there are, how they are linked, who hosts what.

Theory of operation
    Cells form a tree. An inner cell may have several brokers that back each other up; a broker
    that hosts pubends or subscribers is alone in its cell, because what it holds is held nowhere
    else. For each pubend the tree is directed away from its host's cell: every other cell has one
    neighbour *upstream*, towards the host, and the rest *downstream*. The same TOML file serves
    a network of processes, one broker of it, and the simulator.

Invariants (checked on construction)
    I1  names are unique, and those of brokers fit for folders; links are mutual; the cells are
        one tree
    I2  a hosting broker is alone in its cell; every pubend has a host in the network
"""

from __future__ import annotations

import tomllib
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any, TypeVar

from gapless.core.errors import UsageError
from gapless.core.identity import (
    TOPIC_NAMES,
    BrokerName,
    CellName,
    PubendName,
    TopicName,
    is_topic_name,
)
from gapless.core.ticks import PUBEND_COUNT_MAX
from gapless.core.topic_messages import SERVICES, Service

DEFAULT_LISTEN = "127.0.0.1:7117"
OPTIONAL_TEXTS = ("advertise", "http", "mqtt", "mqtt_ws", "store", "process")
NAME_BYTES_MAX = 200
FieldT = TypeVar("FieldT")


@dataclass(frozen=True)
class BrokerEntry:
    """One broker of a cell, and the address it listens on."""

    name: BrokerName
    listen: str = DEFAULT_LISTEN
    advertise: str | None = None
    """Where others reach it, if that is not where it listens."""
    http: str | None = None
    """Where its HTTP door listens, if it has one."""
    mqtt: str | None = None
    mqtt_ws: str | None = None
    """Where its MQTT door listens, and where over WebSocket, if it has one."""
    store: str | None = None
    """The database that has its commits too, if that is not the network's; empty: none."""
    process: str = ""
    """`gapless up` runs brokers with the same text here in one process; empty: each in its own."""
    standbys: tuple[str, ...] = ()
    """Where others reach the processes that stand by for it, once one of them has its name."""

    @property
    def addresses(self) -> str:
        """All that others may dial to reach it, with commas in between."""
        return ",".join((self.advertise or self.listen, *self.standbys))


@dataclass(frozen=True)
class Cell:
    """A node of the routing tree."""

    name: CellName
    brokers: tuple[BrokerEntry, ...]
    links: tuple[CellName, ...] = ()
    subscribers: bool = False  # whether clients may subscribe here


@dataclass(frozen=True)
class PubendEntry:
    """A publisher endpoint: the number makes its ticks unlike those of its topic's others."""

    name: PubendName
    topic: TopicName
    number: int
    host: BrokerName


@dataclass(frozen=True)
class Topic:
    """A named stream of events. `hosts`: for each of its pubends, the broker that has it; topics
    of a service that stores nothing have none."""

    name: TopicName
    hosts: tuple[BrokerName, ...]
    service: Service = "durable"
    retention_us: int | None = None
    """Events older than this are given up even if a durable subscription has not consumed them."""
    retention_bytes: int | None = None
    """So are the oldest, while the log of a pubend is larger than this."""
    incarnation: int = 1
    """Counts creations and deletions of the name."""
    ordered: bool = False
    """Of a multicast topic: whether all subscribers get everything, in one order."""
    keep_us: int | None = None
    """Events that are younger than this are kept, subscribed or not."""
    keep_bytes: int | None = None
    """So are the newest, this many bytes for each pubend."""

    @property
    def label(self) -> TopicName:
        """A name that no other incarnation has, so that what is left of a topic that was deleted
        never meets one that was created later."""
        return self.name if self.incarnation == 1 else TopicName(f"{self.name}@{self.incarnation}")

    @cached_property
    def pubends(self) -> tuple[PubendEntry, ...]:
        return tuple(
            PubendEntry(PubendName(f"{self.label}/{number}"), self.name, number, host)
            for number, host in enumerate(self.hosts)
        )


@dataclass(frozen=True)
class Network:
    """All cells and topics. Look-ups are by name; `Route` answers where things go."""

    cells: tuple[Cell, ...]
    topics: tuple[Topic, ...] = ()
    name: str = "gapless"
    security: Any = None  # the `[security]` table, for `broker/security/policy.py`
    store: str = ""
    """The database that has the commits of all brokers too; empty: none."""
    lease_s: float | None = None
    """How long a standby waits for a silent holder; None: as long as it does by default."""
    moved: tuple[tuple[BrokerName, BrokerName], ...] = ()
    """Brokers that are no more, each with the broker that has its pubends now."""
    joins: bool = False
    """It is one broker that joins a network of others: they decide about topics."""
    _neighbours: dict[CellName, tuple[CellName, ...]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        topics = tuple(map(self.placed_topic, self.topics))
        object.__setattr__(self, "topics", topics)
        self._check_names()
        links: dict[CellName, set[CellName]] = {cell.name: set() for cell in self.cells}
        for cell in self.cells:
            for other in cell.links:
                if other not in links or other == cell.name:
                    raise refuse(f"cell {cell.name!r} links to {other!r}, which is no other cell")
                links[cell.name].add(other)
                links[other].add(cell.name)
        self._neighbours.update({name: tuple(sorted(others)) for name, others in links.items()})
        edges = sum(map(len, links.values())) // 2
        reached = self._reach(self.cells[0].name)
        if len(reached) < len(self.cells) or edges != len(self.cells) - 1:
            raise refuse(
                f"{len(self.cells)} cells with {edges} links are no tree: "
                f"from {self.cells[0].name!r} one reaches {len(reached)} cells"
            )
        self._check_hosts()
        for gone, host in self.moved:
            if gone in self.cell_of or host not in self.cell_of:
                raise refuse(f"moved: {gone!r} is still there, or {host!r} is not")

    def _check_names(self) -> None:
        if not self.cells:
            raise refuse("a network needs at least one cell")
        named: dict[str, list[str]] = {
            "cell": [cell.name for cell in self.cells],
            "broker": [broker.name for cell in self.cells for broker in cell.brokers],
            "topic": [topic.name for topic in self.topics],
        }
        for what, names in named.items():
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice or not all(names):
                raise refuse(f"every {what} needs a name of its own: {twice or 'one is empty'}")
            for name in names:
                if name.startswith("@") or (what == "topic" and "@" in name):
                    raise refuse(f"the {what} name {name!r} contains @, which gapless needs itself")
        for name in named["broker"]:
            _check_broker_name(name)
        for name in named["topic"]:
            if not is_topic_name(name):
                raise UsageError(f"{name!r} is no name for a topic", TOPIC_NAMES)
        for cell in self.cells:
            if not cell.brokers:
                raise refuse(f"cell {cell.name!r} has no broker")

    def _check_hosts(self) -> None:
        for cell in self.cells:
            if cell.subscribers and len(cell.brokers) > 1:
                raise refuse(f"cell {cell.name!r} hosts subscribers, so it must have one broker")
        for topic in self.topics:
            if topic.service not in SERVICES:
                raise refuse(f"topic {topic.name!r} has no service {topic.service!r}")
            if topic.service != "durable" and topic.hosts:
                raise refuse(f"topic {topic.name!r} stores nothing, so it has no pubends")
            if topic.ordered and topic.service != "multicast":
                raise refuse(f"topic {topic.name!r} is ordered anyhow: leave that out")
            if not (topic.service == "durable") <= len(topic.hosts) <= PUBEND_COUNT_MAX:
                raise refuse(f"topic {topic.name!r} needs 1 to {PUBEND_COUNT_MAX} pubends")
            for host in topic.hosts:
                if host not in self.cell_of or len(self.cell_of[host].brokers) > 1:
                    raise refuse(f"topic {topic.name!r}: {host!r} is no broker alone in its cell")

        for broker in (each for cell in self.cells for each in cell.brokers):
            if broker.standbys and not self.store_of(broker):
                raise refuse(f"broker {broker.name!r} has standbys and no store")
            if len({broker.listen, *broker.standbys}) <= len(broker.standbys):
                raise refuse(f"the standbys of {broker.name!r} need addresses of their own")

    def store_of(self, broker: BrokerEntry) -> str:
        """The URL of the store of one broker; empty if it has none."""
        return self.store if broker.store is None else broker.store

    def _reach(self, start: CellName) -> set[CellName]:
        reached, rest = {start}, [start]
        while rest:
            for other in self._neighbours[rest.pop()]:
                if other not in reached:
                    reached.add(other)
                    rest.append(other)
        return reached

    @cached_property
    def cell(self) -> dict[CellName, Cell]:
        return {cell.name: cell for cell in self.cells}

    @cached_property
    def cell_of(self) -> dict[BrokerName, Cell]:
        return {broker.name: cell for cell in self.cells for broker in cell.brokers}

    @cached_property
    def topic(self) -> dict[TopicName, Topic]:
        return {topic.name: topic for topic in self.topics}

    @cached_property
    def pubends(self) -> dict[PubendName, PubendEntry]:
        return {pubend.name: pubend for topic in self.topics for pubend in topic.pubends}

    def placed(self, hosts: tuple[BrokerName, ...]) -> tuple[BrokerName, ...]:
        """The brokers that have the pubends of these hosts now."""
        now = dict(self.moved)
        return tuple(now.get(host, host) for host in hosts) if now else hosts

    def placed_topic(self, topic: Topic) -> Topic:
        hosts = self.placed(topic.hosts)
        return topic if hosts == topic.hosts else replace(topic, hosts=hosts)

    @cached_property
    def digest(self) -> int:
        """A number that networks share which are the same but for addresses, limits and security.
        Brokers with different ones do not speak to each other; never 0."""
        cells = [
            (each.name, [broker.name for broker in each.brokers], each.subscribers)
            for each in sorted(self.cells, key=lambda each: each.name)
        ]
        links = sorted(self._neighbours.items())
        topics = sorted((each.name, each.hosts, each.service) for each in self.topics)
        text = repr((cells, links, topics, sorted(self.moved))).encode()
        return int.from_bytes(blake2b(text, digest_size=7).digest(), "little") | 1

    def without(self, cell: CellName) -> Network:
        """The same network with one cell less, which hosts no pubend and links to one other."""
        cells = tuple(
            replace(each, links=tuple(other for other in each.links if other != cell))
            for each in self.cells
            if each.name != cell
        )
        return replace(self, cells=cells)

    def own(self) -> Network:
        """A copy for one broker, whose topics may change."""
        twin = copy(self)
        for name in ("topic", "pubends"):
            twin.__dict__[name] = dict(getattr(self, name))
        return twin

    def put_topic(self, topic: Topic) -> None:
        """Only of an own copy; `topics` stays what the network file says."""
        topic = self.placed_topic(topic)
        self.topic[topic.name] = topic
        self.pubends.update((pubend.name, pubend) for pubend in topic.pubends)

    def drop_topic(self, name: TopicName) -> None:
        for pubend in self.topic.pop(name).pubends:
            del self.pubends[pubend.name]

    def neighbours(self, cell: CellName) -> tuple[CellName, ...]:
        return self._neighbours[cell]

    def members(self, cell: CellName) -> tuple[BrokerName, ...]:
        return tuple(broker.name for broker in self.cell[cell].brokers)

    def upstream(self, pubend: PubendEntry, cell: CellName) -> CellName | None:
        """The neighbouring cell towards the pubend's host; None at the host's own cell."""
        return self._hops.get((cell, self.cell_of[pubend.host].name))

    def downstream(self, pubend: PubendEntry, cell: CellName) -> tuple[CellName, ...]:
        """The neighbouring cells away from the host behind which there may be subscribers."""
        above = self.upstream(pubend, cell)
        return tuple(
            other
            for other in self._neighbours[cell]
            if other != above and self.leaves_beyond[cell, other]
        )

    @cached_property
    def _hops(self) -> dict[tuple[CellName, CellName], CellName]:
        """For each pair of cells: the neighbour of the first on the way to the second."""
        hops: dict[tuple[CellName, CellName], CellName] = {}
        for target in self._neighbours:
            rest = [target]
            while rest:
                here = rest.pop()
                for other in self._neighbours[here]:
                    if other != target and (other, target) not in hops:
                        hops[other, target] = here
                        rest.append(other)
        return hops

    def next_hop(self, here: CellName, target: CellName) -> CellName:
        return self._hops[here, target]

    @cached_property
    def leaves_beyond(self) -> dict[tuple[CellName, CellName], tuple[BrokerName, ...]]:
        """For each link, by direction: the brokers beyond it that host subscribers."""
        answer: dict[tuple[CellName, CellName], tuple[BrokerName, ...]] = {}
        for here in self._neighbours:
            for other in self._neighbours[here]:
                beyond, rest, found = {here}, [other], list[BrokerName]()
                while rest:
                    cell = rest.pop()
                    beyond.add(cell)
                    if self.cell[cell].subscribers:
                        found += self.members(cell)
                    rest += [more for more in self._neighbours[cell] if more not in beyond]
                answer[here, other] = tuple(sorted(found))
        return answer


def _check_broker_name(name: str) -> None:
    """A broker's folder, and files of its certificate, are called like it."""
    is_plain = name.isprintable() and name == name.strip() and not name.startswith(".")
    if not is_plain or "/" in name or "\\" in name or len(name.encode()) > NAME_BYTES_MAX:
        raise UsageError(
            f"{name!r} is no name for a broker, whose folder is called like it",
            f"Use 1 to {NAME_BYTES_MAX} bytes of printable characters without / and \\, "
            "with no dot at the beginning and no blanks at the ends.",
        )


def refuse(problem: str) -> UsageError:
    return UsageError(f"the network file is wrong: {problem}", "Correct it there.")


def parse_network(text: str) -> Network:
    """The network that a TOML file describes; `UsageError` says what is wrong with it."""
    try:
        read = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"the network file is not TOML: {error}", "Correct it there.") from None
    try:
        _only(read, "the file", "network", "cell", "topic", "security")
        whole = _only(
            read.get("network", {}), "[network]", "name", "store", "lease_seconds", "moved"
        )
        lease, moved = whole.get("lease_seconds"), _field(whole, "moved", dict, {})
        return Network(
            cells=tuple(map(_cell, read.get("cell", []))),
            topics=tuple(map(_topic, read.get("topic", []))),
            name=str(whole.get("name", "gapless")),
            moved=tuple((BrokerName(old), BrokerName(str(new))) for old, new in moved.items()),
            security=read.get("security"),
            store=_field(whole, "store", str, ""),
            lease_s=None if lease is None else float(lease),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise refuse(f"a field is missing or of the wrong type: {error}") from None


def _field(read: dict[str, Any], name: str, kind: type[FieldT], default: object = None) -> FieldT:
    value = read[name] if default is None else read.get(name, default)
    if not isinstance(value, kind):
        raise TypeError(f"{name} = {value!r} is not of type {kind.__name__}")
    return value


def _only(read: dict[str, Any], what: str, *names: str) -> dict[str, Any]:
    """Refuse what we would otherwise silently ignore."""
    if not isinstance(read, dict):
        raise TypeError(f"{what} is {read!r}, which is no table")
    if unknown := sorted(set(read) - set(names)):
        raise refuse(f"{what} has no field {', '.join(map(repr, unknown))}; it has {names}")
    return read


def _cell(read: dict[str, Any]) -> Cell:
    _only(read, "a cell", "name", "links", "subscribers", "brokers")
    return Cell(
        name=CellName(_field(read, "name", str)),
        brokers=tuple(
            BrokerEntry(
                BrokerName(_field(b, "name", str)),
                _field(b, "listen", str, DEFAULT_LISTEN),
                **{each: _field(b, each, str) for each in OPTIONAL_TEXTS if each in b},
                standbys=tuple(map(str, _field(b, "standbys", list, []))),
            )
            for b in (
                _only(each, "a broker", "name", "listen", "standbys", *OPTIONAL_TEXTS)
                for each in read["brokers"]
            )
        ),
        links=tuple(map(CellName, read.get("links", []))),
        subscribers=_field(read, "subscribers", bool, default=False),
    )


def _topic(read: dict[str, Any]) -> Topic:
    limits = ("retention_seconds", "retention_bytes", "keep_seconds", "keep_bytes")
    _only(read, "a topic", "name", "pubends", "service", "ordered", *limits)
    for name in limits:
        value = read.get(name)
        if value is not None and (not isinstance(value, int | float) or value <= 0):
            raise refuse(f"{name} = {value!r} is not above zero")
    seconds, size, keep_seconds, keep_size = (read.get(name) for name in limits)
    for kept, most in ((keep_seconds, seconds), (keep_size, size)):
        if kept is not None and most is not None and kept > most:
            raise refuse(f"a topic cannot keep {kept} and have a retention of {most}")
    service = read.get("service", "durable")
    hosts = read["pubends"] if service == "durable" else read.get("pubends", ())
    return Topic(
        name=TopicName(_field(read, "name", str)),
        hosts=tuple(map(BrokerName, hosts)),
        service=service,
        retention_us=None if seconds is None else int(seconds * 1_000_000),
        retention_bytes=None if size is None else int(size),
        ordered=_field(read, "ordered", bool, default=False),
        keep_us=None if keep_seconds is None else int(keep_seconds * 1_000_000),
        keep_bytes=None if keep_size is None else int(keep_size),
    )
