"""The cost model: what each thing that a broker handles takes, measured on the real parts.

Theory of operation
    EventEncoding, decoding, a node's handling of knowledge, of a publication and of an answer, and
    matching are each timed alone, here, on the codec, node and matcher that ship. What depends on
    the number of events in a message is told apart by timing messages of 1 and of 11 events.
    A broker's processor time is then the sum over its tally. The disk and the sockets are not in
    it. Timed alone, again and again, everything is quicker than among other work: `load` fits one
    factor to the processor time that the played nodes took, and says how well the model does then.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from gapless.core.broker_messages import Knowledge, StartReply
from gapless.core.client_messages import Consumed, Publish
from gapless.core.effects import Persist, Tell
from gapless.core.events import EventBatch
from gapless.core.identity import BrokerName, CellName, ClientName, PubendName, TopicName
from gapless.core.ticks import Span
from gapless.filters.matcher import Matcher
from gapless.node.config import Config
from gapless.node.context import EventEncoding
from gapless.node.network import BrokerEntry, Cell, Network, Topic
from gapless.node.node import Node
from gapless.testing.clock import START
from gapless.testing.memory_volume import MemoryVolume
from gapless.wire.events import check_events, decode_attributes, encode_event
from gapless.wire.kinds import codec

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.core.effects import Effect
    from gapless.core.identity import PeerName
    from gapless.core.messages import Message
    from gapless_lab.experiments.propagation.tally import Tally

    Clock = Callable[[], float]

FEW, MANY = 1, 11
"""Events in a message, to tell what a message costs from what an event in it does."""

ROUNDS = 5
"""How often each thing is timed; the least counts."""

CALLS = 40
"""In each round."""

CELLS = 4
"""Below the relay, and how many topics there are: as in `load`."""

TOPIC = TopicName("t0")
PUBEND = PubendName("t0/0")
STEP = 1 << 10


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Microseconds of processor time."""

    decode: float
    """A message off a wire."""
    decode_event: float
    """Each event in it."""
    encode: float
    encode_event: float
    write: float
    """To log what waits, and send it on its way."""
    publication: float
    """Each publisher's request, of one event, in it."""
    relay: float
    """A message of knowledge, at a broker that hosts no one."""
    passing: float
    """Each message that it makes of it, for one cell below."""
    host: float
    """A message of knowledge, at a broker that may host subscribers."""
    event: float
    """Each event in it."""
    other: float
    """A message without events."""
    matching: float
    """To match a batch of events against all conditions."""
    match: float
    """Each event in it: to read its attributes and look them up."""

    def cpu_s(self, tally: Tally) -> float:
        """What a broker that handled this much took."""
        return 1e-6 * (
            self.decode * tally.decoded
            + self.decode_event * tally.events_decoded
            + self.encode * tally.encoded
            + self.encode_event * tally.events_encoded
            + self.write * tally.writes
            + self.publication * tally.publications
            + self.relay * tally.relayed
            + self.passing * tally.passed
            + self.host * tally.hosted
            + self.event * tally.events_in
            + self.other * tally.others_in
            + self.matching * tally.matchings
            + self.match * tally.matches
        )


def measure_costs(clock: Clock, conditions: list[str]) -> Costs:
    """Time everything once. `conditions` are those that events are matched against."""
    coder = codec()
    messages = {count: knowledge(0, count) for count in (FEW, MANY)}
    encoded = {count: coder.encode(message) for count, message in messages.items()}
    encoding = {n: timed(clock, partial(coder.encode, messages[n])) for n in messages}
    decoding = {n: timed(clock, partial(coder.decode, encoded[n])) for n in messages}
    relaying = {cells: time_knowledge(clock, "r", FEW, cells) for cells in (1, CELLS)}
    hosting = {n: time_knowledge(clock, "s1", n) for n in messages}
    passing = max(0.0, (relaying[CELLS] - relaying[1]) / (CELLS - 1))
    publishing = {n: time_publication(clock, n) for n in messages}
    matcher = Matcher(enumerate(conditions))
    matching = {n: timed(clock, partial(match, matcher, messages[n].events)) for n in messages}
    return Costs(
        decode=alone(decoding),
        decode_event=each(decoding),
        encode=alone(encoding),
        encode_event=each(encoding),
        write=alone(publishing),
        publication=each(publishing),
        relay=max(0.0, relaying[1] - passing - FEW * each(hosting)),
        passing=passing,
        host=alone(hosting),
        event=each(hosting),
        other=time_other(clock),
        matching=alone(matching),
        match=each(matching),
    )


def match(matcher: Matcher[int], batch: EventBatch) -> object:
    return matcher.match_batch(decode_attributes(batch))


def each(took_us: dict[int, float]) -> float:
    """For one more event."""
    return max(0.0, (took_us[MANY] - took_us[FEW]) / (MANY - FEW))


def alone(took_us: dict[int, float]) -> float:
    """For the message, without its events."""
    return max(0.0, took_us[FEW] - FEW * each(took_us))


def timed(clock: Clock, call: Callable[[], object], calls: int = CALLS) -> float:
    """Microseconds a call takes, at best."""
    best = float("inf")
    for _ in range(ROUNDS):
        begin = clock()
        for _ in range(calls):
            call()
        best = min(best, clock() - begin)
    return best / calls * 1e6


def event(number: int) -> bytes:
    return encode_event({"publisher": f"p{number}"}, f"{number}".encode().ljust(200, b"."))


def knowledge(number: int, count: int) -> Knowledge:
    """The `number`th message of a stream, of `count` events."""
    start = (int(START) << 10) + number * count * STEP
    ticks = tuple(start + index * STEP for index in range(count))
    events = EventBatch.join([event(number * count + index) for index in range(count)])
    return Knowledge(PUBEND, Span(start, start + count * STEP), ticks, events)


def make_node(name: str, cells: int = CELLS) -> Node:
    """One of p - r - s1, s2, ..., without propagation: whatever filters is counted as a match."""
    host, relay = CellName("p"), CellName("r")
    below = [CellName(f"s{number + 1}") for number in range(cells)]
    network = Network(
        cells=(
            Cell(host, (BrokerEntry(BrokerName("p")),)),
            Cell(relay, (BrokerEntry(BrokerName("r")),), (host,)),
            *(Cell(s, (BrokerEntry(BrokerName(s)),), (relay,), subscribers=True) for s in below),
        ),
        topics=tuple(Topic(TopicName(f"t{n}"), (BrokerName("p"),)) for n in range(CELLS)),
    )
    node = Node(
        BrokerName(name),
        network,
        MemoryVolume(),
        START,
        config=Config(propagates=False),
        encoding=EventEncoding(decode_attributes, check_events),
    )
    node.start(START)
    return node


def step(node: Node, sender: PeerName, message: Message) -> list[Effect]:
    """What a driver does with a message: hand it over, and see when to come again."""
    effects = node.receive(sender, message, START)
    _ = node.deadline
    return effects


def time_knowledge(clock: Clock, name: str, count: int, cells: int = CELLS) -> float:
    """At the relay, which passes it on, or at a host of subscribers."""
    node = make_node(name, cells)
    sender = BrokerName("p" if name == "r" else "r")
    if name != "r":  # it has asked where the pubend stands
        step(node, sender, StartReply(PUBEND, CellName(name), 1, knowledge(0, 1).span.start))
    messages = iter([knowledge(number, count) for number in range(ROUNDS * CALLS)])
    return timed(clock, lambda: step(node, sender, next(messages)))


def time_publication(clock: Clock, count: int) -> float:
    """At the pubend's host: one request, the others while that is written, and their one write.
    Half of it is for one write, then."""
    node = make_node("p")
    client = ClientName("c")
    node.link_up(client, START)
    total = 2 * count * ROUNDS * CALLS
    requests = iter([Publish(TOPIC, n, EventBatch.join([event(n)])) for n in range(total)])

    def group() -> None:
        effects = step(node, client, next(requests))
        for _ in range(2 * count - 1):
            step(node, client, next(requests))
        while effects:
            thens = [then for e in effects if isinstance(e, Persist) for then in e.then]
            effects = [
                more
                for then in thens
                if isinstance(then, Tell)
                for more in step(node, node.name, then.message)
            ]

    return timed(clock, group) / 2


def time_other(clock: Clock) -> float:
    """What comes most: a client says that it has taken something."""
    node = make_node("s1")
    client, message = ClientName("c"), Consumed(1)
    node.link_up(client, START)
    return timed(clock, lambda: step(node, client, message))
