"""One `Ringed` for every message that brokers of the multicast service send each other."""

from __future__ import annotations

from gapless.core.identity import BrokerName, Identifier, NodeId, TopicId
from gapless.scribe import messages as m

NODE = NodeId(Identifier(0xA7 << 120))
OTHER = NodeId(Identifier(5))
TOPIC = TopicId(Identifier(0x7E << 120 | 1))
SEAT = m.Seat(NODE, 3)
BALLOT = m.Ballot(2, NODE)
RECORD = m.TopicRecord(TOPIC, "b1", ("feed",), ordered=True, first=7)
CREDENTIAL = m.Credential("feed", ("publish",), b"proof")
LINEUP = m.Lineup(BALLOT, (SEAT,), active=True)
ENTRY = m.LogEntry(SEAT, 4, b"body")
STATE = m.GroupState(RECORD, LINEUP, 7, (ENTRY,), ((SEAT, 4),))
PUBLICATION = m.RootPublication(TOPIC, SEAT, 4, 2, b"body", CREDENTIAL)
SUBSCRIBE = m.Graft(TOPIC, NODE, ordered=True, position=9, credential=CREDENTIAL)

INNER: tuple[m.ScribeMessage, ...] = (
    m.LeafPing(3),
    m.Probe(3, (NODE, OTHER), active=False),
    m.ProbeReply(3, (NODE,)),
    m.Routed(1, TOPIC, m.RingJoin(NODE, fresh=False, contacts=(OTHER,)), near=True, hops=2),
    m.Routed(2, TOPIC, m.Create(RECORD, NODE, CREDENTIAL)),
    m.Routed(3, TOPIC, SUBSCRIBE),
    m.Routed(4, TOPIC, PUBLICATION),
    m.RingWelcome((NODE,), (OTHER,)),
    m.Leave(),
    m.RowQuery(1, (NODE,)),
    m.RowReply((NODE,)),
    m.Passed(4),
    m.TopicCreated(TOPIC, "no room"),
    SUBSCRIBE,
    m.Adopted(TOPIC, (NODE,), 9, rooted=True),
    m.Divert(TOPIC, (NODE, OTHER)),
    m.Prune((TOPIC,)),
    m.Refresh(((TOPIC, True, 9), (TOPIC, False, None))),
    m.Heartbeat((m.TopicBeat(TOPIC, (NODE,), 9, rooted=True),)),
    m.AccessDenied(TOPIC, "not genuine"),
    PUBLICATION,
    m.Published(TOPIC, SEAT, 4, "no such topic", final=False, position=9),
    m.TreeEvent(TOPIC, 9, b"body", BALLOT),
    m.Pull(TOPIC, NODE, 7, 9),
    m.Gone(TOPIC, 9),
    m.Replica((RECORD,)),
    m.Prepare(RECORD, BALLOT),
    m.Promise(TOPIC, BALLOT, SEAT, STATE, LINEUP),
    m.Outvoted(TOPIC, BALLOT),
    m.Accept(STATE),
    m.LogAppend(TOPIC, BALLOT, 7, (ENTRY,), True),
    m.Appended(TOPIC, BALLOT, SEAT, 8),
    m.Hint(RECORD, LINEUP),
    m.Retired(TOPIC, LINEUP),
)

RINGED = {
    f"ringed {index}: {type(each).__name__}": m.Ringed((each,)) for index, each in enumerate(INNER)
} | {
    "ringed with names": m.Ringed((m.LeafPing(3), m.Leave()), (BrokerName("b2"), BrokerName("b3"))),
}
