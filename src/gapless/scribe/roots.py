"""What a node knows as the root of topics, or as a replica of their roots.

Theory of operation
    Of a topic without order the root has a record (creator, access list), and the nodes closest to
    the topic have copies. One that is no longer among the closest keeps its copy until the root has
    shown that it has it, too. It stamps events with its era, so that one that comes twice is known.
    Of an ordered topic the same nodes form a `TopicGroup`, and the root leads it. When leaf sets
    change, the closest node leads, with the seats that are closest now. Other nodes that hold
    something of the topic send it a hint, again and again.
    A publication that comes to a node that is not the root is routed on.

Invariants (checked by `check`)
    I1  an event of an ordered topic goes down the tree only when it is committed
    I2  a publication is confirmed only then, too

Source: the Scribe paper, sections 3.1, 3.3 and 4.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.identity import Instant
from gapless.scribe.effects import Effect, ToNode
from gapless.scribe.group import TopicGroup
from gapless.scribe.messages import (
    Accept,
    Ballot,
    Hint,
    Prepare,
    Published,
    Replica,
    TopicCreated,
    TreeEvent,
)

if TYPE_CHECKING:
    from gapless.scribe.credentials import Guard
    from gapless.scribe.identifiers import NodeId, TopicId
    from gapless.scribe.messages import (
        Create,
        GroupMessage,
        RootPublication,
        Seat,
        TopicRecord,
    )
    from gapless.scribe.pastry import Pastry
    from gapless.scribe.settings import RingSettings
    from gapless.scribe.stream import Stream
    from gapless.scribe.topic import TreeTopic
    from gapless.scribe.tree import Tree

FULL = "this node has as many topics as it takes; choose another name"
UNKNOWN = "no such topic is known here yet; create it, or try again"


class Roots:
    """See the module docstring."""

    __slots__ = (
        "_changes",
        "_creators",
        "_group",
        "_guard",
        "_newest_era",
        "_pastry",
        "_recent",
        "_replicate_due",
        "_round_due",
        "_sent",
        "_settings",
        "_tree",
        "groups",
        "records",
    )

    def __init__(
        self,
        pastry: Pastry,
        tree: Tree,
        settings: RingSettings,
        guard: Guard,
        group: type[TopicGroup] = TopicGroup,
    ) -> None:
        self._pastry = pastry
        self._tree = tree
        self._settings = settings
        self._guard = guard
        self._group = group
        self._changes = 0
        self._round_due = self._replicate_due = Instant(0)
        self._recent: dict[tuple[TopicId, Seat, int], None] = {}
        self._newest_era = Instant(0)  # no two eras of this node are the same
        self._creators: dict[TopicId, NodeId] = {}  # nodes that wait for a group to be active
        self._sent: dict[TopicId, int] = {}  # as leader: all below this went down the tree
        self.records: dict[TopicId, TopicRecord] = {}
        self.groups: dict[TopicId, TopicGroup] = {}

    # --- topics ----------------------------------------------------------------------------------

    def create(self, create: Create, now: Instant) -> list[Effect]:
        """We are the root of a topic that is to be."""
        record, source = create.record, create.source
        topic = record.topic
        problem = self._guard.problem(create.credential, topic, "create")
        known = self.record_of(topic)
        if not problem and known is not None and known.ordered != record.ordered:
            problem = "it exists with another order; choose another name"
        if not problem and known is None and self._is_full(record):
            problem = FULL
        if problem:
            return [ToNode(source, TopicCreated(topic, problem))]
        if not record.ordered:
            effects: list[Effect] = [ToNode(source, TopicCreated(topic))]
            return effects if known is not None else effects + self._found(record)
        self._creators[topic] = source
        group, effects = self.groups.get(topic), []
        if group is None:
            group = self.groups[topic] = self._group(record, self._pastry.seat, self._settings)
            effects = group.begin(self._seats(topic), now)
        return effects + self._advance(group, now)

    def _is_full(self, record: TopicRecord) -> bool:
        if record.ordered:
            return len(self.groups) >= self._settings.groups_max
        return len(self.records) >= self._settings.records_max

    def _found(self, record: TopicRecord) -> list[Effect]:
        self.records[record.topic] = record
        others = (seat.node for seat in self._seats(record.topic))
        own = self._pastry.seat.node
        return [ToNode(node, Replica((record,))) for node in others if node != own]

    def record_of(self, topic: TopicId) -> TopicRecord | None:
        if (group := self.groups.get(topic)) is not None:
            return group.record
        return self.records.get(topic)

    def forget(self, topic: TopicId) -> None:
        """It is no more."""
        for known in (self.records, self.groups, self._sent, self._creators):
            known.pop(topic, None)

    def _seats(self, topic: TopicId) -> tuple[Seat, ...]:
        return self._pastry.members.seats_near(topic, self._settings.replicas)

    # --- publications ----------------------------------------------------------------------------

    def publish(self, publication: RootPublication, now: Instant) -> list[Effect]:
        """A publication came here, by a route or because its source thought that we are root."""
        topic, source, number = publication.topic, publication.source, publication.number
        if not self._pastry.contacts.is_responsible(topic):
            return self._pastry.route(publication, topic, now)
        record = self.record_of(topic)
        if record is None:
            problem = Published(topic, source, number, UNKNOWN, final=False)
            return [ToNode(source.node, problem)]
        problem_text = self._guard.problem(publication.credential, topic, "publish", record)
        if problem_text:
            return [ToNode(source.node, Published(topic, source, number, problem_text))]
        if record.ordered:
            return self._publish_ordered(publication, now)
        return self._publish_once(publication, now)

    def _publish_once(self, publication: RootPublication, now: Instant) -> list[Effect]:
        identifier, source, number = publication.topic, publication.source, publication.number
        effects: list[Effect] = [ToNode(source.node, Published(identifier, source, number))]
        key = identifier, source, number
        if key in self._recent:
            return effects
        self._recent[key] = None
        if len(self._recent) > self._settings.recent_max:
            del self._recent[next(iter(self._recent))]
        topic = self._tree.topics.get(identifier)
        if topic is None:
            return effects
        if topic.era is None:
            # It may have been root before, and again, within the same microsecond.
            self._newest_era = Instant(max(now, self._newest_era + 1))
            topic.era, topic.last = Ballot(self._newest_era, self._pastry.seat.node), 0
        topic.last += 1
        event = TreeEvent(identifier, topic.last, publication.body, topic.era)
        return effects + self._tree.multicast(topic, event, now)

    def _publish_ordered(self, publication: RootPublication, now: Instant) -> list[Effect]:
        group, source, number = (
            self.groups.get(publication.topic),
            publication.source,
            publication.number,
        )
        if group is None or not group.is_leader:
            return []  # not yet: it comes again
        if group.has_published(source, number):
            place = group.position_of(source, number)
            return [ToNode(source.node, Published(group.topic, source, number, position=place))]
        effects = group.publish(source, number, publication.oldest, publication.body)
        return effects + self._advance(group, now)

    def _advance(self, group: TopicGroup, now: Instant) -> list[Effect]:
        """Send what is newly committed down the tree, and confirm it."""
        topic = self._tree.topics.get(group.topic)
        if topic is not None:
            topic.leads = group.is_leader
        if not group.is_leader:
            self._sent.pop(group.topic, None)
            return []
        effects: list[Effect] = []
        if (creator := self._creators.pop(group.topic, None)) is not None:
            effects.append(ToNode(creator, TopicCreated(group.topic)))
        sent = self._sent.get(group.topic, group.base)
        self._sent[group.topic] = group.committed
        if topic is not None and topic.stream is not None:
            effects += self._place_stream(topic, topic.stream, group)
            assert topic.stream.position is not None
            sent = min(sent, topic.stream.position)
        for number, entry in group.between(sent, group.committed):
            published = Published(group.topic, entry.source, entry.number, position=number)
            effects.append(ToNode(entry.source.node, published))
            if topic is not None:
                event = TreeEvent(group.topic, number, entry.body)
                effects += self._tree.multicast(topic, event, now)
        return effects

    def joined(self, topic: TopicId, now: Instant) -> list[Effect]:
        """A node has subscribed at the root: the tree need not wait to learn where it stands."""
        group = self.groups.get(topic)
        return [] if group is None else self._advance(group, now)

    def _place_stream(self, topic: TreeTopic, stream: Stream, group: TopicGroup) -> list[Effect]:
        """The stream of a leader stands where the log does, and keeps what the log keeps."""
        effects: list[Effect] = []
        if stream.position is None:
            effects = self._tree.begin(topic, group.committed)
        elif stream.position < group.base:
            effects = self._tree.skip(topic, group.base)
        if stream.kept_from > group.base:
            older = group.between(group.base, stream.kept_from)
            stream.keep_older([TreeEvent(group.topic, n, entry.body) for n, entry in older])
        return effects

    # --- messages --------------------------------------------------------------------------------

    def receive_replica(self, sender: NodeId, replica: Replica) -> list[Effect]:
        """Take records in; as root, copy what is new, and show the sender what it may let go of."""
        own, is_active = self._pastry.seat.node, self._pastry.members.is_active
        effects: list[Effect] = []
        shown: list[TopicRecord] = []
        for record in replica.records:
            topic = record.topic
            nearest = [seat.node for seat in self._seats(topic)]
            is_root = is_active and nearest[0] == own
            if own not in nearest and sender == nearest[0]:
                self.records.pop(topic, None)  # the root has it
                continue
            if topic not in self.records and not self._is_full(record):
                self.records[topic] = record
                effects += self._found(record) if is_root else []
            if is_root and sender not in nearest and topic in self.records:
                shown.append(record)
        return [*effects, ToNode(sender, Replica(tuple(shown)))] if shown else effects

    def receive_group(self, sender: NodeId, message: GroupMessage, now: Instant) -> list[Effect]:
        record: TopicRecord | None = None
        match message:
            case Prepare(told, _) | Hint(told, _):
                record, topic = told, told.topic
            case Accept(state):
                record, topic = state.record, state.record.topic
            case _:
                topic = message.topic
        group = self.groups.get(topic)
        if group is None:
            if record is None or self._is_full(record):
                return []
            group = self.groups[topic] = self._group(record, self._pastry.seat, self._settings)
        return group.receive(sender, message, now) + self._advance(group, now)

    # --- time ------------------------------------------------------------------------------------

    @property
    def deadline(self) -> Instant | None:
        return self._round_due if self.groups or self.records else None

    def fire(self, now: Instant) -> list[Effect]:
        if now < self._round_due:
            return []
        self._round_due = Instant(now + self._settings.heartbeat)
        changed = self._changes != self._pastry.members.changes
        self._changes = self._pastry.members.changes
        replicates = changed or now >= self._replicate_due
        if replicates:
            self._replicate_due = Instant(now + self._settings.replicate_every)
        effects = self._replicate() if replicates else []
        for group in list(self.groups.values()):
            effects += self._tend(group, now, hints=replicates)
        return effects

    def _tend(self, group: TopicGroup, now: Instant, *, hints: bool) -> list[Effect]:
        """Lead if we are the root, with those closest; else tell the root that there is a group."""
        if self._pastry.contacts.is_responsible(group.topic):
            seats = self._seats(group.topic)
            settled = group.is_leader and group.lineup.seats == seats
            # One that only heard that there is a group must not begin another: it waits for hints.
            if settled or group.is_campaigning or not group.newest.seats:
                effects = group.repeat(now)
            else:
                effects = group.lead(seats, now)
            return effects + self._advance(group, now)
        effects = group.repeat(now) + self._advance(group, now)
        if hints and group.newest.seats:
            root, _ = self._pastry.contacts.next_hop(group.topic)
            effects.append(ToNode(root, Hint(group.record, group.newest)))
        return effects

    def _replicate(self) -> list[Effect]:
        """Send records to the nodes that should have them. Those that are others' business now are
        kept until the root shows that it has them (`receive_replica`): this message may be lost."""
        own = self._pastry.seat.node
        batches: dict[NodeId, list[TopicRecord]] = {}
        for topic, record in self.records.items():
            nearest = [seat.node for seat in self._seats(topic)]
            for node in nearest[1:] if nearest[0] == own else nearest[:1]:
                batches.setdefault(node, []).append(record)
        return [ToNode(node, Replica(tuple(batch))) for node, batch in batches.items()]

    def check(self) -> None:
        assert len(self._recent) <= self._settings.recent_max
        for topic, group in self.groups.items():
            group.check()
            if group.is_leader:
                assert self._sent.get(topic, 0) <= group.committed, "I1"
