"""Topics: created, deleted and learnt of while a broker runs.

Theory of operation
    The catalogue says which topics there are. Here requests of clients become entries of the
    catalogue, and new entries are applied: the service of a topic gets it, or gives it up. A topic
    that is deleted takes everything along: its subscriptions end, requests that wait are refused,
    and its service frees the space. Each incarnation of a name has pubends of its own, so that
    nothing that is still under way meets the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from gapless.core.client_messages import Done, Refused
from gapless.core.effects import NO_ROOM, Send
from gapless.core.errors import ProtocolError, listed, quoted
from gapless.core.identity import TOPIC_NAMES, is_topic_name
from gapless.core.lengths import NAME_BYTES_MAX
from gapless.core.ticks import PUBEND_COUNT_MAX
from gapless.core.topic_messages import (
    UNCHANGED,
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    TopicEntry,
    TopicList,
    TopicsQuery,
)
from gapless.node.directory.catalogue import show_entry, size_of, topic_of
from gapless.node.directory.owner import choose_hosts, ranking
from gapless.node.redirect import refuse_elsewhere

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gapless.core.effects import Effect
    from gapless.core.identity import BrokerName, ClientName, Instant, TopicName
    from gapless.core.topic_messages import TopicNews, TopicQuestion
    from gapless.node.delivery.connections import ClientConnections
    from gapless.node.directory.catalogue import Catalogue, EntryPersisted
    from gapless.node.network import Topic
    from gapless.node.redirect import ClientRequest
    from gapless.node.service import Service

LIST_BYTES_MAX = 12 << 20
"""The longest list of all topics; a longer one is refused."""

REMEDY = "Create it again, or use another."

TopicChange = CreateTopic | AlterTopic | DeleteTopic
"""What the owner of a topic's name decides about."""

SETTINGS = ("retention_us", "retention_bytes", "keep_us", "keep_bytes")
"""The settings of a durable topic that may be changed."""


class Topics:
    """The topics of one broker. See the module docstring."""

    def __init__(
        self,
        catalogue: Catalogue,
        connections: ClientConnections,
        services: Mapping[str, Service],
    ) -> None:
        """`services`: by name."""
        self.catalogue = catalogue
        self.connections = connections
        self.services = services
        self.network = catalogue.network
        self.joined_at: BrokerName | None = None
        """Where this broker is linked to a network that it joined."""

    def join(self, at: BrokerName) -> None:
        """This broker is in no network file, and has a link to that one of the network."""
        self.joined_at = at

    # --- what clients ask for -------------------------------------------------------------------

    def request(
        self,
        client: ClientName,
        message: CreateTopic | AlterTopic | DeleteTopic | TopicsQuery,
        now: Instant,
    ) -> list[Effect]:
        if self.network.joins and not isinstance(message, TopicsQuery):
            return self._to_network(client, message)
        match message:
            case AlterTopic():
                return self.alter(client, message, now)
            case CreateTopic():
                return self.create(client, message, now)
            case DeleteTopic():
                return self.delete(client, message, now)
            case TopicsQuery():
                return self.show(client, message)

    def create(self, client: ClientName, message: CreateTopic, now: Instant) -> list[Effect]:
        catalogue, name = self.catalogue, message.name
        problem, remedy = self._problem(message)
        if problem:
            return refuse(client, message, problem, remedy)
        current = catalogue.live(name)
        if name not in catalogue.static and catalogue.owner(name) != catalogue.name:
            return self._to_owner(client, message, name)
        if current is not None and name not in catalogue.writing:
            problem = how_it_differs(current, message)
            if not problem:
                return [Send(client, Done(message.request))]
            return refuse(client, message, problem, "Ask for it as it is, or use another name.")
        old = catalogue.entries.get(name)
        forgotten = catalogue.forget(now) if old is None else []
        asking = self.connections[client]
        hosts = self._hosts(message)
        if problem := self._lack_of_room(asking.who, len(hosts), is_new=old is None):
            remedy = "Use a name again that was deleted, or delete topics and wait."
            return forgotten + refuse(client, message, problem, remedy)
        entry = TopicEntry(
            name,
            catalogue.floor + 1 if old is None else old.incarnation + 1,
            hosts,
            message.service,
            message.retention_us,
            message.retention_bytes,
            ordered=message.ordered,
            owner=asking.owner,
            keep_us=message.keep_us,
            keep_bytes=message.keep_bytes,
        )
        return forgotten + self._decide(client, message, entry, now, asking.who)

    def alter(self, client: ClientName, message: AlterTopic, now: Instant) -> list[Effect]:
        """Change the settings of a topic; every broker learns of it like of a new topic."""
        catalogue, name = self.catalogue, message.name
        if name in catalogue.static:
            problem = f"topic {quoted(name)} is one of the network file"
            return refuse(client, message, problem, "Change it there, and restart the brokers.")
        if catalogue.owner(name) not in (None, catalogue.name):
            return self._to_owner(client, message, name)
        current = catalogue.live(name)
        if current is None and name not in catalogue.writing:
            remedy = "`gapless topic list` shows those that are there."
            return refuse(client, message, f"there is no topic {quoted(name)}", remedy)
        if current is None:
            return self._later(client, message)
        given = {field: getattr(message, field) for field in SETTINGS}
        changes = {field: value for field, value in given.items() if value != UNCHANGED}
        wanted = replace(current, **changes)
        problem, remedy = limits_problem(wanted)
        if problem:
            return refuse(client, message, problem, remedy)
        if wanted == current and name not in catalogue.writing:
            return [Send(client, Done(message.request))]
        wanted = replace(wanted, revision=current.revision + 1)
        return self._decide(client, message, wanted, now)

    def _lack_of_room(self, owner: str, pubends: int, *, is_new: bool) -> str:
        """Why there may not be one more topic; empty if there may."""
        names, limit = self.catalogue.names, self.catalogue.config.topics_max
        undecided = len(self.catalogue.writing - self.catalogue.entries.keys())
        if is_new and names.total + undecided >= limit:
            return f"this network has had {limit} names of topics, which is its limit"
        refused = names.refusal(owner, 1) if is_new else ""
        return refused or self.catalogue.pubends.refusal(owner, pubends)

    def delete(self, client: ClientName, message: DeleteTopic, now: Instant) -> list[Effect]:
        catalogue, name = self.catalogue, message.name
        if name in catalogue.static:
            problem = f"topic {quoted(name)} is one of the network file"
            return refuse(client, message, problem, "Leave it out there, and restart the brokers.")
        if catalogue.owner(name) not in (None, catalogue.name):
            return self._to_owner(client, message, name)
        current = catalogue.live(name)
        if current is None and name not in catalogue.writing:
            remedy = "`gapless topic list` shows those that are there."
            return refuse(client, message, f"there is no topic {quoted(name)}", remedy)
        entry = current or catalogue.entries.get(name)
        if entry is None:
            return self._later(client, message)
        number, hosts, service = entry.incarnation + 1, entry.hosts, entry.service
        tombstone = TopicEntry(
            name, number, hosts, service, is_deleted=True, owner=entry.owner, deleted_us=now
        )
        return self._decide(client, message, tombstone, now)

    def show(self, client: ClientName, message: TopicsQuery) -> list[Effect]:
        topics = self.catalogue.topics()
        size = sum(map(size_of, topics))
        if size > LIST_BYTES_MAX:
            problem = f"a list of {len(topics)} topics has {size} bytes, more than fit an answer"
            return refuse(client, message, problem, "Ask about topics by name.")
        return [Send(client, TopicList(message.request, topics))]

    def _problem(self, message: CreateTopic) -> tuple[str, str]:
        """What is wrong with the request, whoever decides, and the remedy."""
        name, hosts = message.name, message.hosts
        has_streams = message.pubends != 1 or bool(hosts)
        is_kept = any(getattr(message, field) is not None for field in SETTINGS)
        if message.service != "durable" and (has_streams or is_kept):
            problem = f"a topic of the {message.service} service stores nothing"
            return problem, "Leave pubends, hosts and retention out, or make it durable."
        if message.ordered and message.service != "multicast":
            return f"a {message.service} topic is ordered anyhow", "Leave `ordered` out."
        if not is_topic_name(name):
            return f"{quoted(name)} is no name for a topic", TOPIC_NAMES
        if not 1 <= message.pubends <= PUBEND_COUNT_MAX or len(hosts) > PUBEND_COUNT_MAX:
            problem = f"a topic cannot have {len(hosts) or message.pubends} pubends"
            return problem, f"Use 1 to {PUBEND_COUNT_MAX}."
        if hosts and message.pubends not in (1, len(hosts)):  # 1: it was not said
            problem = f"{message.pubends} pubends and {len(hosts)} hosts contradict each other"
            return problem, "Name a host for each pubend, or leave one of the two out."
        problem, remedy = limits_problem(message)
        if problem:
            return problem, remedy
        may = {cell.brokers[0].name for cell in self.network.cells if len(cell.brokers) == 1}
        if wrong := [host for host in hosts if host not in may]:
            return f"{quoted(wrong[0])} may host no pubend", f"Use some of: {listed(sorted(may))}."
        if not ranking(self.network, name):
            return "no broker of this network is alone in its cell", "Add one to the network file."
        return "", ""

    def _hosts(self, message: CreateTopic) -> tuple[BrokerName, ...]:
        if message.service != "durable":
            return ()
        return message.hosts or choose_hosts(self.network, message.name, message.pubends)

    def _to_network(self, client: ClientName, message: TopicChange) -> list[Effect]:
        """We joined a network: the broker that we are linked to knows which one decides."""
        problem = "this broker joined a network, and decides about no topics"
        if self.joined_at is None:
            remedy = "Try again when it has a link to the network."
            return [Send(client, Refused(message.request, problem, remedy, retry=True))]
        return refuse_elsewhere(client, message, problem, [self.joined_at])

    def _to_owner(self, client: ClientName, message: TopicChange, name: TopicName) -> list[Effect]:
        owner = self.catalogue.owner(name)
        assert owner is not None
        problem = f"about topic {quoted(name)} the broker {owner!r} decides"
        return refuse_elsewhere(client, message, problem, [owner])

    def _later(self, client: ClientName, message: TopicChange) -> list[Effect]:
        problem = f"topic {quoted(message.name)} cannot be decided about just now"
        return [Send(client, Refused(message.request, problem, "Try again.", retry=True))]

    def _decide(
        self,
        client: ClientName,
        message: TopicChange,
        entry: TopicEntry,
        now: Instant,
        creator: str = "",
    ) -> list[Effect]:
        if not self.catalogue.may_decide(entry.name, now):
            return self._later(client, message)
        return self.catalogue.decide(entry, client, message.request, creator)

    # --- what becomes of it ---------------------------------------------------------------------

    def persisted(self, message: EntryPersisted, now: Instant) -> list[Effect]:
        """Our decision is durable, so that it holds."""
        entry, client = message.entry, message.client
        effects = self.catalogue.decided(message)
        if not message.ok:
            problem = NO_ROOM
            return [Send(client, Refused(message.request, problem, "Try again later.", retry=True))]
        effects += self._apply([entry], now)
        return [*effects, Send(client, Done(message.request))]

    def receive_news(self, sender: BrokerName, message: TopicNews, now: Instant) -> list[Effect]:
        self._check_entries(message.entries)
        fresh, effects = self.catalogue.learn(sender, message.entries, now)
        return effects + self._apply(fresh, now)

    def receive_question(self, message: TopicQuestion, now: Instant) -> list[Effect]:
        for broker in (message.sender, message.receiver):
            if broker not in self.network.cell_of:
                raise ProtocolError(f"no broker is called {broker!r}")
        self._check_entries([message.entry] if message.entry is not None else [])
        fresh, effects = self.catalogue.receive_question(message, now)
        return effects + self._apply(fresh, now)

    def _check_entries(self, entries: Iterable[TopicEntry]) -> None:
        """`ProtocolError` if no owner of a name can have decided one of them."""
        for entry in entries:
            if problem := self._contradiction(entry, quoted(entry.name)):
                raise ProtocolError(problem)

    def _contradiction(self, entry: TopicEntry, name: str) -> str:
        """Why there can be no such entry; empty if there can."""
        if not entry.name or "@" in entry.name:
            return f"{name} is no name of a topic, which is told of"
        if entry.is_deleted and entry.incarnation == 1:
            return f"topic {name} was deleted before it was created"
        if len(topic_of(entry).label) > NAME_BYTES_MAX:
            return f"topic {name} has too long a name for its incarnation"
        if entry.service != "durable" and entry.hosts:
            return f"topic {name} is {entry.service}, and has pubends"
        if entry.ordered and entry.service != "multicast":
            return f"topic {name} is {entry.service}, and ordered"
        cells = self.network.cell_of
        for host in self.network.placed(entry.hosts):
            if host not in cells:
                return f"{quoted(host)}, which is to host {name}, is unknown"
            if len(cells[host].brokers) > 1:
                return f"{quoted(host)}, which is to host {name}, is not alone in its cell"
        return self.catalogue.contradiction(entry)

    def _apply(self, entries: list[TopicEntry], now: Instant) -> list[Effect]:
        effects: list[Effect] = []
        for entry in entries:
            if entry.name in self.catalogue.static:
                continue
            old = self.network.topic.get(entry.name)
            new = self.network.placed_topic(topic_of(entry))
            if old is not None and not entry.is_deleted and has_same_pubends(old, new):
                self.network.put_topic(new)
                if old.service == "durable":  # topics of other services have no settings
                    self.services[old.service].alter(new, now)
                continue
            if old is not None:
                problem = f"topic {quoted(old.name)} was deleted"
                effects += self.services[old.service].remove(old, problem, REMEDY, now)
                self.network.drop_topic(old.name)
            if not entry.is_deleted:
                self.network.put_topic(new)
                effects += self.services[new.service].add(new, now)
        return effects


def has_same_pubends(old: Topic, new: Topic) -> bool:
    """Is it the same topic, perhaps with other settings? An owner that lost its disk may have made
    another one of the same incarnation."""
    places = [(each.incarnation, each.service, each.hosts, each.ordered) for each in (old, new)]
    return places[0] == places[1]


def refuse(client: ClientName, message: ClientRequest, problem: str, remedy: str) -> list[Effect]:
    return [Send(client, Refused(message.request, problem, remedy))]


def limits_problem(wanted: CreateTopic | TopicEntry) -> tuple[str, str]:
    """What is wrong with the settings of a topic, and the remedy; empty if nothing is."""
    if wanted.service != "durable":
        if any(getattr(wanted, field) is not None for field in SETTINGS):
            return f"a topic of the {wanted.service} service stores nothing", "Use a durable topic."
        return "", ""
    for field in SETTINGS:
        limit = getattr(wanted, field)
        if limit is not None and limit <= 0:
            what = "retention" if field.startswith("retention") else "minimum to keep"
            return f"a {what} of {limit} is not above zero", "Leave it out to have none."
    for kept, most, unit in (
        (wanted.keep_us, wanted.retention_us, "microseconds"),
        (wanted.keep_bytes, wanted.retention_bytes, "bytes"),
    ):
        if kept is not None and most is not None and kept > most:
            problem = f"to keep {kept} {unit} and to have a retention of {most} is a contradiction"
            return problem, "Keep at most what the retention allows."
    return "", ""


def how_it_differs(current: TopicEntry, wanted: CreateTopic) -> str:
    """Why the topic that is there is not what is asked for; empty if it is."""
    hosts = wanted.hosts or current.hosts[: wanted.pubends]
    if (current.service, current.ordered) == (wanted.service, wanted.ordered) != ("durable", False):
        return ""
    same_count = len(current.hosts) == (len(wanted.hosts) or wanted.pubends)
    are_same = all(getattr(current, field) == getattr(wanted, field) for field in SETTINGS)
    if same_count and hosts == current.hosts and current.service == wanted.service and are_same:
        return ""
    return f"topic {quoted(current.name)} exists, but otherwise: {show_entry(current)}"
