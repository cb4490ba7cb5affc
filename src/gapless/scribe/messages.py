"""The messages of the multicast service, between nodes that need not be neighbours.

Theory of operation
    What is `Routed` goes from node to node towards a key; each hop is confirmed. All else goes
    straight to the node it is for. Every one may be lost, late, doubled or out of order: a receiver
    does the right thing then, and a sender asks again.
    On the wire all that one step has for one broker goes in a `Ringed`, together with the names of
    the brokers that it speaks of: any of them may be sent to, and node ids do not tell its name.
"""

from __future__ import annotations

import msgspec

from gapless.core.identity import BrokerName, Identifier, NodeId, TopicId
from gapless.core.lengths import AnyCount, Name, Prose
from gapless.core.messages import Message


class Ballot(msgspec.Struct, frozen=True, order=True):
    """Of two that lead a group the one with the greater ballot holds."""

    number: AnyCount = 0
    node: NodeId = NodeId(Identifier(0))


class Seat(msgspec.Struct, frozen=True, order=True):
    """One life of one node: one that comes back has forgotten what it knew."""

    node: NodeId
    born: AnyCount


class Credential(msgspec.Struct, frozen=True):
    """Says that a principal has rights to a topic; the proof is made with the network's secret."""

    principal: Name = ""
    rights: tuple[Name, ...] = ()
    proof: bytes = b""


class TopicRecord(msgspec.Struct, frozen=True):
    """What the root of a topic knows of it, and its replicas with it."""

    topic: TopicId
    creator: Name = ""
    publishers: tuple[Name, ...] = ()  # that may publish; none: all with the right
    ordered: bool = False
    first: AnyCount = 1  # of an ordered topic: the number of the first event


# --- the ring -------------------------------------------------------------------------------------


class LeafPing(Message, frozen=True):
    """Proof of life, to every member of the leaf set."""

    born: AnyCount


class Probe(Message, frozen=True):
    """Are you there? This is my leaf set. `active`: I have joined, take me into yours."""

    born: AnyCount
    leaves: tuple[NodeId, ...]
    active: bool = True


class ProbeReply(Message, frozen=True):
    """I am, and this is mine."""

    born: AnyCount
    leaves: tuple[NodeId, ...]


class RingJoin(Message, frozen=True):
    """Routed towards the identifier of a newcomer; each node on the way adds a row of its table.

    `fresh`: the newcomer knows nothing, even if it was here before. Otherwise it has joined, and
    looks for its place in a part of the ring that it had lost sight of.
    """

    newcomer: NodeId
    fresh: bool = True
    contacts: tuple[NodeId, ...] = ()


class RingWelcome(Message, frozen=True):
    """From the node that was closest to a newcomer: its leaf set, and the rows of the way."""

    leaves: tuple[NodeId, ...]
    contacts: tuple[NodeId, ...]


class Leave(Message, frozen=True):
    """I leave; do not wait until you miss me."""


class RowQuery(Message, frozen=True):
    """What do you have in this row of your table? This is mine."""

    row: AnyCount
    nodes: tuple[NodeId, ...] = ()


class RowReply(Message, frozen=True):
    """The answer to a `RowQuery`."""

    nodes: tuple[NodeId, ...]


class Passed(Message, frozen=True):
    """A hop arrived."""

    number: AnyCount


# --- trees ----------------------------------------------------------------------------------------


class Create(Message, frozen=True):
    """Routed to the root of a topic that is to be."""

    record: TopicRecord
    source: NodeId
    credential: Credential | None = None


class TopicCreated(Message, frozen=True):
    """The topic exists at the root and its replicas; or why not."""

    topic: TopicId
    problem: Prose = ""


class Graft(Message, frozen=True):
    """Routed towards a topic until a node takes `child` on. `position`: what it has of an ordered
    topic, none if it is new to it."""

    topic: TopicId
    child: NodeId
    ordered: bool = False
    position: AnyCount | None = None
    credential: Credential | None = None


class Adopted(Message, frozen=True):
    """I am your parent now. `path`: those above me, the next one first. `rooted`: the last of them
    is the root, or I am."""

    topic: TopicId
    path: tuple[NodeId, ...]
    position: AnyCount | None = None
    rooted: bool = False


class Divert(Message, frozen=True):
    """I have as many children as I take: ask one of them."""

    topic: TopicId
    siblings: tuple[NodeId, ...]


class Prune(Message, frozen=True):
    """I am no longer your child."""

    topics: tuple[TopicId, ...]


class Refresh(Message, frozen=True):
    """Child to parent: I still want these, and this is what I have of those that are ordered."""

    topics: tuple[tuple[TopicId, bool, AnyCount | None], ...]


class TopicBeat(msgspec.Struct, frozen=True):
    """One topic in a heartbeat: those above the sender, and what it has of an ordered one."""

    topic: TopicId
    path: tuple[NodeId, ...]
    position: AnyCount | None = None
    rooted: bool = False


class Heartbeat(Message, frozen=True):
    """Parent to child, for all topics that they share and that had no event lately."""

    beats: tuple[TopicBeat, ...]


class AccessDenied(Message, frozen=True):
    """The receiver may not do what it asked for."""

    topic: TopicId
    problem: Prose


# --- events ---------------------------------------------------------------------------------------


class RootPublication(Message, frozen=True):
    """To the root of a topic. `oldest`: the least number of the source that is still unanswered."""

    topic: TopicId
    source: Seat
    number: AnyCount
    oldest: AnyCount
    body: bytes
    credential: Credential | None = None


class Published(Message, frozen=True):
    """The answer of the root, whose address it is by the way; or why not."""

    topic: TopicId
    source: Seat  # which life of a node asked: the next one begins at 1 again
    number: AnyCount
    problem: Prose = ""
    final: bool = True  # with a problem: asking again will not help
    position: AnyCount = 0  # its number in an ordered topic, where that is still known


class TreeEvent(Message, frozen=True):
    """An event on its way down a tree. `era`: of which root, where the topic is not ordered."""

    topic: TopicId
    number: AnyCount
    body: bytes
    era: Ballot | None = None


class Pull(Message, frozen=True):
    """Up the tree of an ordered topic, until a node has it: `asker` lacks these."""

    topic: TopicId
    asker: NodeId
    start: AnyCount
    end: AnyCount


class Gone(Message, frozen=True):
    """From the root: what you asked for below `start` is no longer kept."""

    topic: TopicId
    start: AnyCount


# --- what roots know, and replicas with them ------------------------------------------------------


class Replica(Message, frozen=True):
    """The record of a topic that is not ordered, for the nodes closest to it."""

    records: tuple[TopicRecord, ...]


class LogEntry(msgspec.Struct, frozen=True):
    """One event of an ordered topic, before and after it is committed."""

    source: Seat
    number: AnyCount
    body: bytes


class Lineup(msgspec.Struct, frozen=True):
    """The seats of a group, under which ballot. `active`: a majority is known to have taken it."""

    ballot: Ballot = Ballot()
    seats: tuple[Seat, ...] = ()
    active: bool = False


class GroupState(msgspec.Struct, frozen=True):
    """All that a member of a group holds: its seats, and the log."""

    record: TopicRecord
    lineup: Lineup
    base: AnyCount  # the number of the first entry
    entries: tuple[LogEntry, ...]
    sources: tuple[tuple[Seat, AnyCount], ...]  # the last number of each, the least recent first

    @property
    def end(self) -> int:
        return self.base + len(self.entries)


class Prepare(Message, frozen=True):
    """May I lead the group of this topic?"""

    record: TopicRecord
    ballot: Ballot


class Promise(Message, frozen=True):
    """Yes, I follow no lesser ballot from now on. `state`: what I hold; `known`: what I know of."""

    topic: TopicId
    ballot: Ballot
    seat: Seat
    state: GroupState
    known: Lineup


class Outvoted(Message, frozen=True):
    """No: I follow this one."""

    topic: TopicId
    ballot: Ballot


class Accept(Message, frozen=True):
    """Hold this instead of what you hold."""

    state: GroupState


class LogAppend(Message, frozen=True):
    """Add these to the log, from number `start` on. `active`: a majority has taken this ballot."""

    topic: TopicId
    ballot: Ballot
    start: AnyCount
    entries: tuple[LogEntry, ...]
    active: bool


class Appended(Message, frozen=True):
    """I hold all below `end` under this ballot."""

    topic: TopicId
    ballot: Ballot
    seat: Seat
    end: AnyCount


class Hint(Message, frozen=True):
    """To what seems to be the root: there is a group for this topic, and these are in it."""

    record: TopicRecord
    known: Lineup


class Retired(Message, frozen=True):
    """The group of this topic goes on without you: let go of its log."""

    topic: TopicId
    known: Lineup


Payload = RingJoin | Create | Graft | RootPublication


class Routed(Message, frozen=True):
    """A payload on its way to a key. `near`: it travels by leaf sets already."""

    number: AnyCount
    key: Identifier
    payload: Payload
    near: bool = False
    hops: AnyCount = 0


RingMessage = (
    LeafPing | Probe | ProbeReply | RingWelcome | Leave | RowQuery | RowReply | Passed | Routed
)
EdgeMessage = Adopted | Divert | Graft | Prune | Refresh | Heartbeat | AccessDenied
BranchMessage = EdgeMessage | TreeEvent | Pull | Gone
RootMessage = TopicCreated | Published | Replica
GroupMessage = Prepare | Promise | Outvoted | Accept | LogAppend | Appended | Hint | Retired
ScribeMessage = RingMessage | BranchMessage | RootMessage | GroupMessage | RootPublication


# --- on the wire ----------------------------------------------------------------------------------


class Ringed(Message, frozen=True):
    """From one broker to another, neighbours or not. `names`: of brokers that the messages speak of
    and that the receiver may not know; anyone can make their node ids."""

    messages: tuple[ScribeMessage, ...]
    names: tuple[BrokerName, ...] = ()
