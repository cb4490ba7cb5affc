"""The catalogue: which topics there are, as one broker knows, and which broker decides.

Theory of operation
    Each name has one owner among the brokers (`owner`). The owner alone creates and deletes a topic
    of that name: it writes the entry down, and only then answers and tells its neighbours. So two
    different creations cannot both win, and no agreement is needed. A broker that learns an entry
    newer than its own writes it down and passes it on. Neighbours compare digests of their
    catalogues with each ping; if the digests stay different, they send each other everything. So
    all catalogues become equal. All brokers know the topics of the network file from the start.
    A broker that is asked about an unknown topic asks the owner before it says no for good: a topic
    that a client has created is there for this client at every broker at once.
    A deletion is remembered for `topic_forget`, so that no broker that was away brings the topic
    back. Then each broker forgets it, by its own clock, and the name takes no room. The highest
    incarnation of all forgotten names is written down (`floor`): a name that comes back begins
    above it. If a broker that was away for longer brings a forgotten topic back, the owner of the
    name sees an incarnation that it must have forgotten, and deletes the topic again.
    Topics and pubends are charged to the principal that created them: each has a share.

Invariants (checked by `check`)
    I1  entries only ever grow: of one name, the higher incarnation stays
    I2  the digest is that of the entries
    I3  no topic of the network file has an entry that contradicts it
    I4  the accounts count the names and the pubends of all entries, for their creators

Cost: an entry is about 100 bytes on the wire; a digest that stays unlike costs all of them.
A broker that lost its disk waits, before it decides anything, until it agrees with a neighbour, or
until no neighbour can be heard; if it then still knew less, a contradiction of the same
incarnation would be settled by comparing the two entries.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from msgspec.structs import asdict, replace

from gapless.core.client_messages import Refused
from gapless.core.effects import Delete, Effect, Persist, Put, Send, Tell, Write
from gapless.core.errors import UsageError, listed, quoted
from gapless.core.identity import BrokerName, ClientName, Instant, TopicName
from gapless.core.ledger import Account
from gapless.core.messages import Message
from gapless.core.portion import WHOLE, Portion
from gapless.core.topic_messages import TopicEntry, TopicNews, TopicQuestion
from gapless.node.directory.owner import ranking
from gapless.node.network import Topic
from gapless.node.recent import remember
from gapless.node.redirect import refuse_unknown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gapless.core.store import Store
    from gapless.node.config import Config
    from gapless.node.network import Network
    from gapless.node.redirect import ClientRequest
    from gapless.node.routing import Routing

CATALOGUE, FLOORS = "catalogue", "catalogue floors"
NEWS_ENTRIES_MAX = 500
NEWS_BYTES_MAX = 1 << 20
"""Entries in one message, and about their bytes; more go into several."""

LATER_FIELDS = {"ordered": False, "keep_us": None, "keep_bytes": None, "revision": 0}
"""Fields of an entry that came later, and what they are where an entry does not have them."""

ASKED_MAX = 1_000
"""Names about which we asked an owner lately, or got a no; beyond it the oldest is forgotten."""


class EntryPersisted(Message, frozen=True):
    """To ourselves: the entry that this client asked for is durable (or, not `ok`, had no room)."""

    entry: TopicEntry
    client: ClientName
    request: int
    ok: bool = True


class Catalogue:
    """All entries that one broker knows. See the module docstring."""

    def __init__(
        self,
        name: BrokerName,
        network: Network,
        config: Config,
        store: Store,
        routing: Routing,
        now: Instant,
    ) -> None:
        """`network` is this broker's own; the topics that are known from before are put in."""
        self.name = name
        self.network = network
        self.config = config
        self.routing = routing
        self.static = frozenset(network.topic)
        self.entries: dict[TopicName, TopicEntry] = {}
        self.digest = 0
        self.newcomers: dict[BrokerName, None] = {}  # linked to us, and in no network file
        self.writing: set[TopicName] = set()  # about to be decided
        self.floor = int.from_bytes(store.get(FLOORS, CATALOGUE) or b"", "little")
        self._is_agreed = not routing.peers or self.floor > 0  # the disk is there
        self._lonely_at = Instant(now + config.dead_after)
        self._unlike: dict[BrokerName, tuple[int, int]] = {}  # digests, theirs and ours
        self._asked: dict[TopicName, Instant] = {}  # when the owner may be asked again
        self._denied: dict[TopicName, Instant] = {}  # until when his no counts
        share = config.principal_share_percent
        self.names = Account("names of topics", config.topics_max, share)
        self.pubends = Account("pubends", config.pubends_max, share)
        self._counted: dict[TopicName, str] = {}  # for whom each name counts
        self._creators: dict[TopicName, str] = {}  # of those that are about to be decided
        self._tombs: list[tuple[int, TopicName]] = []  # a heap: when each was deleted
        for topic in network.topic.values():
            self.names.take("")
            self.pubends.take("", len(topic.hosts))
        for fact in store.items(CATALOGUE).values():
            entry = decode(fact)
            self._check_static(entry)
            self._put(entry)
            self._is_agreed = True  # the disk is there
            if not entry.is_deleted and entry.name not in self.static:
                self._check_hosts(entry)
                network.put_topic(topic_of(entry))

    def _check_hosts(self, entry: TopicEntry) -> None:
        """A broker may be restarted with a file that lacks a host of a topic that it knows."""
        missing = [each for each in self.network.placed(entry.hosts) if not self._is_here(each)]
        if missing:
            problem = f"topic {quoted(entry.name)} has a pubend at {missing[0]!r}"
            remedy = "Put it back into the file, or move its pubends with `gapless adopt`."
            raise UsageError(f"{problem}, which is not in the network file", remedy)

    def _is_here(self, host: BrokerName) -> bool:
        return self.network.joins or host in self.network.cell_of

    def contradiction(self, entry: TopicEntry) -> str:
        """How it contradicts a topic of the network file; empty if it does not."""
        static = self.network.topic.get(entry.name) if entry.name in self.static else None
        placed = self.network.placed_topic(topic_of(entry))
        if static is None or (not entry.is_deleted and placed == static):
            return ""
        how = "was deleted" if entry.is_deleted else f"was created as {show_entry(entry)}"
        return f"topic {quoted(entry.name)} of the network file {how} at run time"

    def _check_static(self, entry: TopicEntry) -> None:
        if problem := self.contradiction(entry):
            remedy = "Make the file say the same, leave the topic out, or use another name."
            raise UsageError(problem, remedy)

    def _put(self, entry: TopicEntry) -> None:
        old = self.entries.get(entry.name)
        self.digest ^= digest_of(entry) ^ (digest_of(old) if old is not None else 0)
        self._count(old, entry)
        self.entries[entry.name] = entry
        self.routing.announce_catalogue(self.digest)
        self._denied.pop(entry.name, None)
        if entry.is_deleted and entry.deleted_us:
            heappush(self._tombs, (entry.deleted_us, entry.name))

    def _count(self, old: TopicEntry | None, new: TopicEntry | None) -> None:
        """Names count as long as there is an entry, pubends while the topic is there."""
        before = ""
        if old is not None and old.name not in self.static:
            before = self._counted.pop(old.name)
            self.names.give_back(before)
            self.pubends.give_back(before, 0 if old.is_deleted else len(old.hosts))
        if new is not None and new.name not in self.static:
            creator = self._creators.pop(new.name, before if new.is_deleted else "")
            who = self._counted[new.name] = new.owner or creator
            self.names.take(who)
            self.pubends.take(who, 0 if new.is_deleted else len(new.hosts))

    # --- deleted long ago -----------------------------------------------------------------------

    def _is_outdated(self, entry: TopicEntry, now: Instant) -> bool:
        return 0 < entry.deleted_us <= now - self.config.topic_forget

    def forget(self, now: Instant) -> list[Effect]:
        """Forget the names of topics that were deleted long ago."""
        writes: list[Write] = []
        while self._tombs and self._tombs[0][0] <= now - self.config.topic_forget:
            _, name = heappop(self._tombs)
            entry = self.entries.get(name)
            if entry is None or name in self.writing or not self._is_outdated(entry, now):
                continue  # it is there again, or was deleted again
            self.digest ^= digest_of(entry)
            self.routing.announce_catalogue(self.digest)
            self._count(entry, None)
            del self.entries[name]
            self.floor = max(self.floor, entry.incarnation)
            writes.append(Delete(CATALOGUE, name))
        if not writes:
            return []
        return [Persist((*writes, Put(FLOORS, CATALOGUE, self.floor.to_bytes(8, "little"))))]

    # --- what is known --------------------------------------------------------------------------

    def owner(self, topic: TopicName) -> BrokerName | None:
        return next(iter(ranking(self.network, topic)), None)

    def live(self, topic: TopicName) -> TopicEntry | None:
        """The topic as it is now, of the network file or created."""
        if topic in self.static:
            return entry_of(self.network.topic[topic])
        entry = self.entries.get(topic)
        return None if entry is None or entry.is_deleted else entry

    def topics(self) -> tuple[TopicEntry, ...]:
        names = sorted({*self.static, *self.entries})
        return tuple(entry for name in names if (entry := self.live(name)) is not None)

    def is_newer(self, entry: TopicEntry) -> bool:
        """Does the entry say more than ours? Of one incarnation there is one, unless an owner lost
        its disk; then all choose the same of the two."""
        old = self.entries.get(entry.name)
        return old is None or rank(entry) > rank(old)

    # --- decided here ---------------------------------------------------------------------------

    def may_decide(self, topic: TopicName, now: Instant) -> bool:
        """Whether we know all that counts: nothing is being written, and the disk was not lost."""
        return topic not in self.writing and (self._is_agreed or now >= self._lonely_at)

    def decide(
        self, entry: TopicEntry, client: ClientName, request: int, creator: str = ""
    ) -> list[Effect]:
        """Write down what we have decided; it holds when that is durable. `creator`: for whom a new
        topic counts, in this life, who has not proved to be anybody."""
        self.writing.add(entry.name)
        if creator:
            self._creators[entry.name] = creator
        done = EntryPersisted(entry, client, request)
        put = Put(CATALOGUE, entry.name, fact_of(entry))
        return [Persist((put,), (Tell(done),), (Tell(replace(done, ok=False)),))]

    def decided(self, message: EntryPersisted) -> list[Effect]:
        """It is durable: let everybody know."""
        self.writing.discard(message.entry.name)
        if not message.ok:
            self._creators.pop(message.entry.name, None)
            return []
        self._put(message.entry)
        return self._spread((message.entry,), self.name)

    # --- learnt from others ---------------------------------------------------------------------

    def learn(
        self, sender: BrokerName, entries: Iterable[TopicEntry], now: Instant
    ) -> tuple[list[TopicEntry], list[Effect]]:
        """Take in what is newer: which entries that is, and effects."""
        fresh = [
            self._buried(entry, now)
            for entry in entries
            if not self._is_outdated(entry, now) and self.is_newer(entry)
        ]
        for entry in fresh:
            self._put(entry)
        if not fresh:
            return [], []
        # Without room for it, we learn it again after a restart.
        puts = tuple(Put(CATALOGUE, entry.name, fact_of(entry)) for entry in fresh)
        return fresh, [Persist(puts), *self._spread(tuple(fresh), sender)]

    def _buried(self, entry: TopicEntry, now: Instant) -> TopicEntry:
        """A topic that the owner of its name does not know, though it knows incarnations as high:
        it was deleted, and that was forgotten. It is deleted again, for everybody."""
        is_known = entry.is_deleted or entry.name in self.entries or entry.name in self.static
        if is_known or entry.incarnation > self.floor or self.owner(entry.name) != self.name:
            return entry
        return TopicEntry(
            entry.name,
            self.floor + 1,
            entry.hosts,
            entry.service,
            is_deleted=True,
            owner=entry.owner,
            deleted_us=now,
        )

    def _spread(self, entries: tuple[TopicEntry, ...], source: BrokerName) -> list[Effect]:
        effects = [
            effect
            for peer in self.routing.peers
            if peer != source
            for effect in self._tell(peer, entries)
        ]
        served = tuple(entry for entry in entries if entry.service != "durable")
        for newcomer in self.newcomers:
            effects += self._tell(newcomer, served) if newcomer != source else []
        return effects

    def welcome(self, newcomer: BrokerName) -> list[Effect]:
        """It is told of topics that need no host, from now on."""
        self.newcomers[newcomer] = None
        static = [entry_of(self.network.topic[name]) for name in sorted(self.static)]
        served = [
            entry for entry in (*static, *self.entries.values()) if entry.service != "durable"
        ]
        return self._tell(newcomer, tuple(served))

    def farewell(self, newcomer: BrokerName) -> None:
        """The link to a broker broke: it is told nothing more, if it was a newcomer."""
        self.newcomers.pop(newcomer, None)

    def _tell(self, peer: BrokerName, entries: tuple[TopicEntry, ...]) -> list[Effect]:
        effects: list[Effect] = []
        piece: list[TopicEntry] = []
        size = 0
        for entry in entries:
            weight = size_of(entry)
            if piece and (len(piece) >= NEWS_ENTRIES_MAX or size + weight > NEWS_BYTES_MAX):
                effects.append(Send(peer, TopicNews(tuple(piece))))
                piece, size = [], 0
            piece.append(entry)
            size += weight
        return [*effects, Send(peer, TopicNews(tuple(piece)))] if piece else effects

    def compare(self, peer: BrokerName, digest: int, now: Instant) -> list[Effect]:
        """A neighbour says what it has. What is unlike twice in a row is not just on its way."""
        return self.forget(now) + self._compare(peer, digest)

    def _compare(self, peer: BrokerName, digest: int) -> list[Effect]:
        if digest == self.digest:
            self._is_agreed = True
            self._unlike.pop(peer, None)
            return []
        before, self._unlike[peer] = self._unlike.get(peer), (digest, self.digest)
        if before != (digest, self.digest):
            return []
        return self._tell(peer, tuple(self.entries.values()))

    # --- topics that are not known here ---------------------------------------------------------

    def missing(
        self, client: ClientName, message: ClientRequest, topic: TopicName, now: Instant
    ) -> list[Effect]:
        """A client wants something of a topic that is not known here; its owner may know it."""
        question = self.ask(topic, now)
        if question is None:
            return refuse_unknown(client, message, topic, self.network)
        owner = self.owner(topic)
        problem = f"topic {quoted(topic)} is not known here, and {owner!r} is being asked about it"
        refused = Refused(message.request, problem, f"See that {owner!r} runs.", retry=True)
        return [Send(client, refused), *question]

    def ask(self, topic: TopicName, now: Instant) -> list[Effect] | None:
        """Ask the owner about an unknown topic; None if it is certain that there is none."""
        owner = self.owner(topic)
        if owner in (None, self.name) or now < self._denied.get(topic, Instant(0)):
            return None
        assert owner is not None
        if now < self._asked.get(topic, now):
            return []
        remember(self._asked, topic, Instant(now + self.config.topic_ask_repeat), ASKED_MAX)
        return self.routing.send_on(TopicQuestion(topic, self.name, owner), now)

    def receive_question(
        self, message: TopicQuestion, now: Instant
    ) -> tuple[list[TopicEntry], list[Effect]]:
        """Pass it on; answer it; or take the answer in."""
        if message.receiver != self.name:
            return [], self.routing.send_on(message, now)
        if not message.is_answer:
            entry = self.entries.get(message.topic)
            answer = TopicQuestion(message.topic, self.name, message.sender, True, entry)
            return [], self.routing.send_on(answer, now)
        if message.entry is None or message.entry.is_deleted:
            until = Instant(now + self.config.topic_denied)
            remember(self._denied, message.topic, until, ASKED_MAX)
        entries = [message.entry] if message.entry is not None else []
        return self.learn(message.sender, entries, now)

    def check(self, portion: Portion = WHOLE) -> None:
        digest = 0
        for entry in portion.of(self.entries.values()):
            digest ^= digest_of(entry)
            self._check_static(entry)
        if portion.is_whole:
            assert digest == self.digest == self.routing.catalogue_digest, "I2"
        created = [entry for entry in self.entries.values() if entry.name not in self.static]
        assert self.names.total == len(created) + len(self.static), "I4"
        self.names.check()
        self.pubends.check()


def topic_of(entry: TopicEntry) -> Topic:
    return Topic(
        entry.name,
        entry.hosts,
        entry.service,
        entry.retention_us,
        entry.retention_bytes,
        entry.incarnation,
        entry.ordered,
        entry.keep_us,
        entry.keep_bytes,
    )


def entry_of(topic: Topic) -> TopicEntry:
    return TopicEntry(
        topic.name,
        topic.incarnation,
        topic.hosts,
        topic.service,
        topic.retention_us,
        topic.retention_bytes,
        ordered=topic.ordered,
        keep_us=topic.keep_us,
        keep_bytes=topic.keep_bytes,
    )


def rank(entry: TopicEntry) -> tuple[int, int, bytes]:
    """Of two entries of one name, the one with the greater rank holds."""
    return entry.incarnation, entry.revision, encode(entry)


def encode(entry: TopicEntry) -> bytes:
    """What a topic is. What came later is left out where it says nothing, and what does not matter
    to others always: digests of all versions are alike."""
    fields = asdict(entry)
    for name, default in LATER_FIELDS.items():
        if fields[name] == default:
            del fields[name]
    del fields["owner"], fields["deleted_us"]
    return json.dumps(fields, sort_keys=True).encode()


def fact_of(entry: TopicEntry) -> bytes:
    """As it is written down."""
    details = {"owner": entry.owner, "deleted_us": entry.deleted_us}
    more = {name: value for name, value in details.items() if value}
    return json.dumps(json.loads(encode(entry)) | more, sort_keys=True).encode()


def decode(fact: bytes) -> TopicEntry:
    fields = json.loads(fact)
    return TopicEntry(**{**fields, "hosts": tuple(map(BrokerName, fields["hosts"]))})


def digest_of(entry: TopicEntry) -> int:
    return int.from_bytes(blake2b(encode(entry), digest_size=7).digest(), "little")


def size_of(entry: TopicEntry) -> int:
    """About its bytes in a message, or more."""
    return 200 + len(entry.name.encode()) + sum(3 + len(host.encode()) for host in entry.hosts)


def show_entry(entry: TopicEntry) -> str:
    """What it is, for people."""
    kept = [
        "ordered" if entry.ordered else "",
        f"retention {entry.retention_us / 1e6:g} s" if entry.retention_us else "",
        f"retention {entry.retention_bytes} bytes" if entry.retention_bytes else "",
        f"keeps {entry.keep_us / 1e6:g} s" if entry.keep_us else "",
        f"keeps {entry.keep_bytes} bytes" if entry.keep_bytes else "",
    ]
    hosts = listed(entry.hosts)
    parts = (entry.service, f"{len(entry.hosts)} pubends at {hosts}" if hosts else "", *kept)
    return "; ".join(part for part in parts if part)
