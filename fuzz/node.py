"""Fuzz whole brokers: well-formed messages in odd orders, and whatever a driver may do meanwhile.

    python fuzz/node.py --steps 10_000_000
    python fuzz/node.py --seed 7 --episode 1234        # one episode again, made short

Theory of operation
    An episode is one small network and some hundred steps. A step is a client's message, a message
    between brokers that arrives, is lost, doubled or comes a second time much later, the outcome of
    a write, a link that breaks or comes back, time that passes, a clock that jumps, a restart.
    Values come from small pools, so that numbers, names, topics and tokens collide, and from the
    ends of what the decoder accepts. Clients are never honest; brokers are, but for the episodes
    that are forged.
    Nothing but answers and `ProtocolError` may come out of a node, and `check` holds after each
    step. To check takes longer than to step, so most episodes are checked every `CHECK_EACH` steps
    and at their end; what is found there is played again with a check after each step. One in
    `STRICT_EACH` episodes is checked so from the start: it finds what is wrong for a few steps.
    A broker must take every message that another broker sends. What fits no frame, what a disk
    refuses and a node that wants to be woken again and again at one instant are findings too.
    In a forged episode neighbours lie too: what a broker might say, with values from the pools, or
    what one has said, with a field changed. A lie may make honest brokers contradict each other, so
    that links are dropped there, and nobody judges what comes through or what stays behind. But no
    lie ends a broker: nothing but `ProtocolError` comes out, and `check` holds. One thing is not
    asked of it: to know all that was ever said of a stream (streams are not strict there).
    The same seed gives the same episodes. A step holds its values, so that an episode can be played
    without some of its steps: a finding is shown as the few steps that are needed for it.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import os
import random
import sys
import time
import traceback
from collections import deque
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import accumulate, islice
from math import inf
from multiprocessing import Pool
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from gapless.core.broker_messages import Addressed, DigestNack, Propagated, Routed, Sideways
from gapless.core.client_messages import Acknowledge, Subscribe
from gapless.core.effects import Append, Effect, Persist, Put, Send
from gapless.core.errors import ProtocolError, StorageFullError, WireError
from gapless.core.events import EventBatch
from gapless.core.identity import BrokerName, ClientName, Instant, PublisherName
from gapless.core.messages import Ping, Pong
from gapless.core.ticks import PUBEND_BITS, TICK_MAX, Span
from gapless.core.topic_messages import CreateTopic, DeleteTopic, TopicNews
from gapless.node.config import Config
from gapless.node.context import EventEncoding
from gapless.node.dispatch import KINDS as SERVICE_KINDS
from gapless.node.network import parse_network
from gapless.node.node import Node
from gapless.node.reliable.service import Reliable
from gapless.testing.lattice import strict
from gapless.testing.memory_volume import MemoryVolume
from gapless.tree.messages import Carried, Hop, Position
from gapless.wire.codec import Unknown
from gapless.wire.events import check_events, decode_attributes, encode_event
from gapless.wire.framing import FRAME_BYTES_MAX
from gapless.wire.kinds import KINDS, codec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gapless.core.messages import Message

CODEC = codec(*SERVICE_KINDS)
BEGIN = Instant(1_700_000_000_000_000)
EPISODE_STEPS = 300
CHECK_EACH = 50
STRICT_EACH = 50
BATCH_EPISODES = 20
"""What one process plays before it reports."""

END_SHARE = 0.2
"""Of the episodes, how many are played to their end: it takes as long as the rest."""

FORGED_SHARE = 0.3
"""Of the episodes, in how many brokers lie."""

LIE_SHARE = 0.3
"""Of the steps of such an episode, how many are lies."""

SECOND = 1_000_000
FIRES_MAX = 100
"""Wake-ups of one node at one instant: more is a busy loop."""

QUEUE_MAX = 200
HISTORY_MAX = 50
CLIENTS_MAX = 3
BOSS = "boss"
"""Who administers every topic, where clients have to say who they are."""

NETWORKS = {
    "alone": """
cell = [{name = "one", brokers = [{name = "a"}], subscribers = true}]
topic = [{name = "t", pubends = ["a", "a"]}]
""",
    "pair": """
cell = [
    {name = "one", brokers = [{name = "a"}], subscribers = true, links = ["two"]},
    {name = "two", brokers = [{name = "b"}], subscribers = true},
]
topic = [{name = "t", pubends = ["a"]}]
""",
    "row": """
cell = [
    {name = "one", brokers = [{name = "a"}], subscribers = true, links = ["two"]},
    {name = "two", brokers = [{name = "b"}], subscribers = true, links = ["three"]},
    {name = "three", brokers = [{name = "c"}], subscribers = true},
]
topic = [{name = "t", pubends = ["a", "c"]}]
""",
    "twins": """
cell = [
    {name = "one", brokers = [{name = "a"}], subscribers = true, links = ["two"]},
    {name = "two", brokers = [{name = "b"}, {name = "c"}], links = ["three"]},
    {name = "three", brokers = [{name = "d"}], subscribers = true},
]
topic = [{name = "t", pubends = ["a"]}]
""",
}
SERVED = (
    "topic = [",
    'topic = [{name = "q", service = "reliable"}, {name = "m", service = "multicast"}, ',
)
"""Where brokers lie, every service has a topic from the start, so that all of them listen."""

LIMITS: tuple[dict[str, Any], ...] = (
    {},
    {"propagates": False},
    {
        "subscriptions_max": 6,
        "durable_subscriptions_max": 3,
        "name_questions_max": 2,
        "names_max": 2,
        "topics_max": 4,
        "transactions_max": 2,
        "publishers_max": 2,
        "producers_max": 2,
        "client_queue_max": 4,
        "batch_events_max": 2,
        "cache_events_max": 4,
        "waiting_events_max": 6,
        "publish_pending_max": 4,
        "tree_queue_max": 4,
        "tree_window_max": 2,
    },
)

# --- values ---------------------------------------------------------------------------------------

POSITIVE = (1, 2, 1_000, 1 << 20, 1 << 31, 1 << 62, (1 << 63) - 1, 1 << 63)
NUMBERS = (0, *POSITIVE, (1 << 64) - 1, *(-each for each in POSITIVE))
SMALL = ("request", "subscription", "sequence", "term", "opening", "transaction", "position")
VECTORS = ("vector", "constraint", "minimum", "wanted")
MOVES = (0, 0, 1, 2, 3, 1 << 31, 1 << 32, 1 << 60, 1 << 62, (1 << 64) - 1)
NAMES: dict[str, tuple[str, ...]] = {
    "TopicName": ("t", "t", "t", "q", "q", "r", "m", "", "n" * 255),
    "PubendName": ("t/0", "t/1", "q/0", "q@1/0", "q@2/0", "q@3/0", ""),
    "SubscriptionName": ("x", "x", "y", "", "n" * 255, "a\nb"),
    "PublisherName": ("p", "q", "n" * 255),
    "ProducerName": ("p", "once/p"),
    "BrokerName": ("a", "b", "c", "d", "e", ""),
    "CellName": ("one", "two", "three", ""),
}
TEXTS: dict[str, tuple[str, ...]] = {
    "condition": ("", "", "c = 'red'", "c = 'blue' OR n > 3", "c >", "NOT (c LIKE '%e%')"),
    "part": ("k", "l", ""),
}
EVENTS = (
    encode_event({"c": "red"}),
    encode_event({"c": "blue", "n": 4}),
    encode_event({}, b"x" * 50),
    encode_event({}, b"", PublisherName("p"), 3),
    b"\xc1",
)
WEIGHTS = {
    "Subscribe": 16, "Forget": 6, "Acknowledge": 6, "Unsubscribe": 4, "Publish": 8, "Consumed": 3,
    "CreateTopic": 3, "DeleteTopic": 2, "PublisherQuery": 2, "Stage": 3, "Commit": 3, "Abort": 2,
    "ReadRange": 2, "PositionsQuery": 1, "ProducerQuery": 1, "TopicsQuery": 1,
}  # fmt: skip
OTHERS = 1
"""The weight of all other kinds together: those that are not for clients."""

ASKED = [each for each in KINDS if each.__name__ in WEIGHTS]
ASKED_WEIGHTS = list(accumulate(WEIGHTS[each.__name__] for each in ASKED))
STRANGE = [each for each in (*KINDS, *SERVICE_KINDS) if each.__name__ not in WEIGHTS]
TOLD = [
    each for each in (*KINDS, *SERVICE_KINDS)
    if each in (*get_args(Routed), *get_args(Propagated), *get_args(Addressed), *SERVICE_KINDS)
    or each in (Ping, Pong, Sideways, DigestNack, TopicNews)
]  # fmt: skip
"""What brokers say to each other."""

CARRYING = [Carried, *get_args(Routed)]
"""Of those, what is drawn more often: most of what can go wrong is in it."""

hints_of: Callable[[Any], dict[str, Any]] = cache(get_type_hints)
fields_of: Callable[[Any], tuple[msgspec.structs.FieldInfo, ...]] = cache(msgspec.structs.fields)


class Drawing:
    """Draws messages."""

    often = 0.5
    """How often a field is given that has a default."""

    def __init__(self, dice: random.Random, world: World) -> None:
        self.dice = dice
        self.world = world

    def message(self) -> Message | None:
        """None: it would not be taken from the wire."""
        dice = self.dice
        if dice.random() * (ASKED_WEIGHTS[-1] + OTHERS) < ASKED_WEIGHTS[-1]:
            kind = dice.choices(ASKED, cum_weights=ASKED_WEIGHTS)[0]
        else:
            kind = dice.choice(STRANGE)
        try:
            drawn = self._struct(kind)
            if self.dice.random() < 0.6:
                drawn = self._likely(drawn)
            return taken(drawn)
        except (ValueError, TypeError, OverflowError, WireError):
            return None

    def _likely(self, message: Any) -> Any:
        """The same, with less that is refused at once: much of it has to live for a while."""
        dice = self.dice
        changes: dict[str, Any] = {}
        fields = message.__struct_fields__
        if "topic" in fields:
            changes["topic"] = dice.choice(("t", "t", "q"))
        if "name" in fields:
            is_topic = isinstance(message, CreateTopic | DeleteTopic)
            changes["name"] = dice.choice(("q", "r", "m") if is_topic else ("x", "x", "y"))
        if isinstance(message, Subscribe):
            has_moved, is_shown = dice.random() < 0.4, dice.random() < 0.4
            changes |= {
                "condition": dice.choice(("", "", "c = 'red'")),
                "order": "publisher",
                "earliest": False,
                "instant": None,
                "token": self._token() if has_moved or is_shown else None,
                "previous": dice.choice(self.world.names) if has_moved else None,
                "moves": self._number("moves") if has_moved else 0,
            }
        if isinstance(message, Acknowledge):
            changes |= {"token": self._token(), "request": dice.randrange(1, 4)}
        if isinstance(message, CreateTopic):
            changes |= {"pubends": 1, "hosts": (), "retention_us": None, "retention_bytes": None}
            changes["ordered"] = message.service == "multicast" and message.ordered
        return msgspec.structs.replace(message, **changes)

    def _token(self) -> dict[str, int]:
        """One that may be true."""
        back = self.dice.choice((0, 1_000, 1_000_000))
        tick = max(0, self.world.now - back) << PUBEND_BITS
        return self.dice.choice(({}, {"t/0": tick}, {"t/0": 0}))

    def _struct(self, kind: type) -> Any:
        hints, given = hints_of(kind), fields_of(kind)
        often = 0.25 if kind.__name__ == "Subscribe" else self.often
        values = {}
        for each in given:
            share = 0.7 if each.name == "name" else often
            if each.required or self.dice.random() < share:
                values[each.name] = self._value(hints[each.name], each.name)
        return kind(**values)

    def _value(self, kind: Any, name: str) -> Any:
        dice, options = self.dice, get_args(kind)
        if hasattr(kind, "__supertype__"):
            pool = NAMES.get(kind.__name__)
            return dice.choice(pool) if pool else self._value(kind.__supertype__, name)
        if kind is int:
            return self._number(name)
        if kind is str:
            return dice.choice(TEXTS.get(name, ("", "x", "t/0")))
        if kind is bool:
            return dice.random() < 0.5
        if kind is bytes:
            return dice.choice((b"", b"\0", b"x" * 20))
        if kind is EventBatch:
            return EventBatch(tuple(dice.choices(EVENTS, k=dice.choice((1, 1, 2, 3)))))
        if kind is Span:
            low, high = sorted((self._tick(), self._tick()))
            return Span(low, high)
        if get_origin(kind) is Literal:
            return dice.choice(options)
        if get_origin(kind) is dict:
            return self._map(options, name)
        if get_origin(kind) is tuple:
            if len(options) == 2 and options[1] is Ellipsis:
                return tuple(self._value(options[0], name) for _ in range(dice.choice((0, 1, 2))))
            return tuple(self._value(each, name) for each in options)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct | tuple):
            return self._struct(kind) if issubclass(kind, msgspec.Struct) else self._tuple(kind)
        if not options:
            return None if kind is type(None) else kind(dice.choice((0, 1, 2)))
        return self._value(dice.choice(options), name)

    def _tuple(self, kind: Any) -> Any:
        hints = hints_of(kind)
        return kind(*(self._value(hints[each], each) for each in kind._fields))

    def _map(self, options: tuple[Any, ...], name: str) -> dict[Any, Any]:
        if options == (str, int):  # a token, or a vector
            pool = NAMES["BrokerName"] if name in VECTORS else NAMES["PubendName"]
            count = self.dice.choice((0, 1, 1, 2))
            return {self.dice.choice(pool): self._tick() for _ in range(count)}
        return {self._value(options[0], name): self._value(options[1], name)}

    def _number(self, name: str) -> int:
        if name == "pubends":  # a thousand would make every check slow
            return self.dice.choice((1, 1, 2, 3, 0, -1, 1_025, 1 << 63))
        if name == "moves":
            return self.dice.choice(MOVES)
        if (name in SMALL or self.dice.random() < 0.5) and self.dice.random() < 0.95:
            return self.dice.randrange(4)
        return self.dice.choice(NUMBERS)

    def _tick(self) -> int:
        now = self.world.now << PUBEND_BITS
        delivered = (
            stream.delivered
            for node in self.world.nodes.values()
            for stream in node.durable.named.streams.values()
        )
        back = self.dice.choice((0, 1, 1_000, 1_000_000)) << PUBEND_BITS
        return self.dice.choice(
            (0, 1, now, now - back, now - back, TICK_MAX, *islice(delivered, 2))
        )


class Forgery(Drawing):
    """Draws what a broker might say to another, which is not so."""

    often = 0.8

    def lie(self, sender: str, to: str) -> Message | None:
        """None: it would not be taken from the wire."""
        histories = self.world.history
        of_link = list(histories[sender, to])
        others = [each for pair, some in histories.items() if to in pair for each in some]
        said = of_link if of_link and self.dice.random() < 0.7 else others
        try:
            if not said or self.dice.random() < 0.5:
                kind = self.dice.choice(TOLD if self.dice.random() < 0.8 else CARRYING)
                drawn = self._struct(kind)
            else:
                kind = self.dice.choice(list(dict.fromkeys(map(type, said))))  # most are pings
                drawn = self._changed(self.dice.choice([e for e in said if type(e) is kind]))
            if isinstance(drawn, Carried):
                drawn = self._carried(sender, to, drawn)
            return taken(drawn)
        except (ValueError, TypeError, OverflowError, WireError):
            return None

    def _real(self, kind: Any) -> list[str]:
        """Names of what there is."""
        node = next(iter(self.world.nodes.values()))
        match getattr(kind, "__name__", ""):
            case "BrokerName":
                return self.world.names
            case "CellName":
                return list(map(str, node.network.cell))
            case "PubendName":
                return list(map(str, node.network.pubends))
            case "TopicName":
                return [str(topic.label) for topic in node.network.topic.values()]
            case _:
                return []

    def _carried(self, sender: str, to: str, carried: Carried) -> Carried:
        """With the numbers that are next on the connection: with others it would be passed over."""
        reliable = self.world.nodes[to].services.by_name["reliable"]
        tree = reliable.tree if isinstance(reliable, Reliable) else None
        end = tree._connections._ends.get(BrokerName(sender)) if tree is not None else None
        if end is None or end.theirs is None or end.received is None or self.dice.random() < 0.1:
            return carried
        return msgspec.structs.replace(carried, session=end.theirs, number=end.received)

    def _changed(self, struct: Any) -> Any:
        """The same, with a field or two changed, or one in a struct within."""
        fields = fields_of(type(struct))
        if not fields:
            return struct
        hints, changes = hints_of(type(struct)), {}
        for each in self.dice.choices(fields, k=self.dice.choice((1, 1, 2))):
            value = getattr(struct, each.name)
            changes[each.name] = self._other(value, hints[each.name], each.name)
        return msgspec.structs.replace(struct, **changes)

    def _other(self, value: Any, kind: Any, name: str) -> Any:
        """Another value for one that was said."""
        dice = self.dice
        if isinstance(value, msgspec.Struct) and kind is not EventBatch and dice.random() < 0.7:
            return self._changed(value)
        if type(value) is int and dice.random() < 0.5:
            return value + dice.choice((-(1 << 20), -1, 1, 1 << 20, 1 << 40))
        if type(value) is tuple and value and dice.random() < 0.7:
            at = dice.randrange(len(value))
            options = get_args(kind)
            each = options[0] if len(options) == 2 and options[1] is Ellipsis else options[at]
            return (*value[:at], self._other(value[at], each, name), *value[at + 1 :])
        return self._value(kind, name)

    def _value(self, kind: Any, name: str) -> Any:
        """Often one that somebody has said in such a place."""
        if kind is EventBatch:
            return EventBatch(tuple(self.dice.choices(EVENTS, k=self.dice.choice((0, 1, 1, 2)))))
        if name == "hops" and get_origin(kind) is tuple and self.dice.random() < 0.7:
            length = self.dice.randrange(1, len(self.world.names) + 1)
            way = [BrokerName(each) for each in self.dice.sample(self.world.names, length)]
            return tuple(Hop(each, Position(1, 1)) for each in way)
        if self.dice.random() < 0.7 and (real := self._real(kind)):
            return self.dice.choice(real)
        if self.dice.random() < 0.4:
            histories = [each for each in self.world.history.values() if each]
            for _ in range(3 if histories else 0):
                message = self.dice.choice(self.dice.choice(histories))
                values = [value for each, value in parts_of(message) if each == (kind, name)]
                if values:
                    return self.dice.choice(values)
        return super()._value(kind, name)


def parts_of(struct: Any) -> Iterable[tuple[tuple[Any, str], Any]]:
    """All values in a struct, each with its type and the name of its field."""
    hints = hints_of(type(struct))
    for name in struct.__struct_fields__:
        value = getattr(struct, name)
        yield (hints[name], name), value
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, msgspec.Struct):
                yield from parts_of(each)
            elif hasattr(each, "_fields"):
                yield (type(each), name), each


def taken(message: Message) -> Message:
    """As who gets it decodes it."""
    payload = CODEC.encode(message)
    if len(payload) > FRAME_BYTES_MAX:
        raise FoundError(f"a message of {len(payload)} bytes fits no frame")
    decoded = CODEC.decode(payload)
    assert not isinstance(decoded, Unknown)
    return decoded


# --- the world ------------------------------------------------------------------------------------


class FoundError(AssertionError):
    """Something that must not happen, and is no exception of a node."""


class World:
    """Brokers of one network, their disks, links and clients. Each method is a step."""

    def __init__(
        self,
        network: str,
        limits: int,
        is_secure: bool,
        is_forged: bool = False,
        *,
        is_strict: bool = True,
    ) -> None:
        self.is_strict = is_strict  # is every node checked after all that it does?
        text = NETWORKS[network]
        self.network = parse_network(text.replace(*SERVED) if is_forged else text)
        self.config = Config(**LIMITS[limits])
        self.owners = ("ann", "bob", BOSS) if is_secure else ("",)
        self.now = BEGIN
        self.names = [str(each) for each in self.network.cell_of]
        self.skew = dict.fromkeys(self.names, 0)
        self.volumes = {each: MemoryVolume() for each in self.names}
        self.disks: dict[str, deque[Persist]] = {each: deque() for each in self.names}
        self.clients: dict[str, dict[str, None]] = {each: {} for each in self.names}
        self.queues: dict[tuple[str, str], deque[Message]] = {
            (one, other): deque() for one in self.names for other in self.names if one != other
        }
        self.history: dict[tuple[str, str], deque[Message]] = {
            pair: deque(maxlen=HISTORY_MAX) for pair in self.queues
        }
        self.cut: set[tuple[str, str]] = set()
        self.heard: dict[str, list[Message]] = {}  # by client
        self.is_forged = is_forged
        self.has_lied = False  # has a broker, so far?
        self.nodes: dict[str, Node] = {}
        for each in self.names:
            self._boot(each)
        for one, other in self.queues:
            self._link(one, other)

    def clock(self, name: str) -> Instant:
        return Instant(self.now + self.skew[name])

    def _boot(self, name: str) -> None:
        volume, now = self.volumes[name], self.clock(name)
        self.nodes[name] = node = Node(
            BrokerName(name), self.network, volume, now,
            encoding=EventEncoding(decode_attributes, check_events), config=self.config,
            parts=None if self.is_forged else strict(),
        )  # fmt: skip
        self._do(name, node.start(now))

    def _link(self, one: str, other: str) -> None:
        if other in self.nodes[one].routing.peers:
            self._do(one, self.nodes[one].link_up(BrokerName(other), self.clock(one)))

    def _do(self, name: str, effects: Iterable[Effect]) -> None:
        """What a driver does."""
        rest, node = list(effects), self.nodes[name]
        for effect in rest:  # which grows on the way
            if isinstance(effect, Send):
                self._send(name, effect.to, effect.message)
            elif isinstance(effect, Persist):
                self.disks[name].append(effect)
            else:
                rest += node.receive(node.name, effect.message, self.clock(name))
            if len(rest) > 100_000:
                raise FoundError("a step does not end")
        if self.is_strict:
            node.check()

    def check(self) -> None:
        for node in self.nodes.values():
            node.check()

    def _send(self, name: str, to: str, message: Message) -> None:
        try:
            arriving = taken(message)
        except WireError:
            if not self.has_lied:
                raise
            return  # a lie that was believed, and who gets it does not
        queue = self.queues.get((name, to))
        if to in self.clients[name]:
            self.heard.setdefault(to, []).append(arriving)
        if queue is None or (name, to) in self.cut or (to, name) in self.cut:
            return
        queue.append(arriving)
        self.history[name, to].append(arriving)
        if len(queue) > QUEUE_MAX:
            queue.popleft()

    # --- steps ------------------------------------------------------------------------------------

    def say(self, name: str, client: str, message: Message) -> None:
        """A client says something; a `ProtocolError` ends its link."""
        if client not in self.clients[name]:
            return
        node, now = self.nodes[name], self.clock(name)
        try:
            effects = node.receive(ClientName(client), message, now)
        except ProtocolError as error:
            if error.__cause__ is not None:
                raise
            if self.is_strict:
                node.check()
            self.leave(name, client)
        else:
            self._do(name, effects)

    def come(self, name: str, client: str, owner: str) -> None:
        self.clients[name][client] = None
        administers = BOSS.__eq__ if owner != BOSS else str.isprintable
        node, now = self.nodes[name], self.clock(name)
        self._do(name, node.link_up(ClientName(client), now, owner, administers))

    def leave(self, name: str, client: str) -> None:
        if self.clients[name].pop(client, self) is None:
            self._do(name, self.nodes[name].link_down(ClientName(client), self.clock(name)))

    def arrive(self, sender: str, to: str, fate: str) -> None:
        """The next message of a link is taken, lost, taken twice, or an old one comes again."""
        queue, history = self.queues[sender, to], self.history[sender, to]
        if fate.startswith("again") and history:
            self._take(sender, to, history[int(fate.partition(" ")[2]) % len(history)])
        if not queue:
            return
        message = queue[0] if fate == "doubled" else queue.popleft()
        if fate != "lost":
            self._take(sender, to, message)

    def _take(self, sender: str, to: str, message: Message) -> None:
        node = self.nodes[to]
        try:
            effects = node.receive(BrokerName(sender), message, self.clock(to))
        except ProtocolError:
            if not self.has_lied:
                raise
            if self.is_strict:
                node.check()
            if (min(sender, to), max(sender, to)) not in self.cut:
                self.turn(min(sender, to), max(sender, to))
                self.turn(min(sender, to), max(sender, to))
        else:
            self._do(to, effects)

    def lie(self, sender: str, to: str, message: Message) -> None:
        """A broker says what is not so."""
        self.has_lied = True
        self._take(sender, to, message)

    def write(self, name: str, fate: str) -> None:
        """The next write of a disk is durable, finds no room, or the process ends with it."""
        disk, volume = self.disks[name], self.volumes[name]
        if not disk:
            return
        effect = disk.popleft()
        grows = any(isinstance(each, Append | Put) for each in effect.writes)
        if fate == "full" and grows:
            self._do(name, effect.otherwise)
            return
        try:
            volume.commit(effect.writes)
        except StorageFullError:
            self._do(name, effect.otherwise)
            return
        if fate == "unanswered":
            self.restart(name)
        else:
            self._do(name, effect.then)

    def calm(self, rounds: int) -> None:
        """All that is under way arrives, and what follows from it: else little comes to an end."""
        for _ in range(rounds):
            for sender, to in self.queues:
                for _ in range(len(self.queues[sender, to])):
                    self.arrive(sender, to, "taken")
            for name, disk in self.disks.items():
                for _ in range(len(disk)):
                    self.write(name, "ok")

    def restart(self, name: str) -> None:
        """A crash: what is not durable is gone, and so is every link."""
        self.disks[name].clear()
        self.clients[name].clear()
        for one, other in self.queues:
            if name in (one, other):
                self.queues[one, other].clear()
                if other == name:
                    self._lose(one, other)
        self._boot(name)
        for other in self.names:
            if other != name and (name, other) not in self.cut and (other, name) not in self.cut:
                self._link(name, other)
                self._link(other, name)

    def _lose(self, one: str, other: str) -> None:
        self._do(one, self.nodes[one].link_down(BrokerName(other), self.clock(one)))

    def turn(self, one: str, other: str) -> None:
        """A link breaks, or comes back."""
        if (one, other) in self.cut:
            self.cut.discard((one, other))
            self._link(one, other)
            self._link(other, one)
            return
        self.cut.add((one, other))
        self.queues[one, other].clear()
        self.queues[other, one].clear()
        self._lose(one, other)
        self._lose(other, one)

    def wait(self, microseconds: int) -> None:
        self.now = Instant(self.now + microseconds)
        for name in self.names:
            for count in range(FIRES_MAX + 1):
                deadline = self.nodes[name].deadline
                if deadline is None or deadline > self.clock(name):
                    break
                if count == FIRES_MAX:
                    raise FoundError(f"{name} wants to be woken again and again at one instant")
                self._do(name, self.nodes[name].fire(self.clock(name)))

    def jump(self, name: str, microseconds: int) -> None:
        self.skew[name] += microseconds

    def end(self) -> None:
        """All clients leave, every link works, time passes: nothing of theirs may be left."""
        for pair in sorted(self.cut):
            self.turn(*pair)
        for name in self.names:
            for client in list(self.clients[name]):
                self.leave(name, client)
        for _ in range(10):
            self.calm(3)
            self.wait(SECOND)
        for name, node in self.nodes.items():
            left = {
                "starts": node.durable.requests.pending,
                "questions": node.durable.homes.waiting,
                "records": node.durable.named.table.serving(),
                "audiences": node.subscribers.sessions_of,
            }
            if kept := {what: some for what, some in left.items() if some}:
                raise FoundError(f"{name} keeps what nobody waits for: {kept}")


# --- episodes -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """A method of the world, and what it is called with."""

    what: str
    arguments: tuple[Any, ...]

    def do(self, world: World) -> None:
        getattr(world, self.what)(*self.arguments)

    def __str__(self) -> str:
        return f"{self.what}({', '.join(map(repr, self.arguments))})"


@dataclass
class Episode:
    """A beginning, and the steps so far."""

    network: str
    limits: int
    is_secure: bool
    is_forged: bool = False
    steps: list[Step] = field(default_factory=list)

    def world(self, *, is_strict: bool = True) -> World:
        return World(self.network, self.limits, self.is_secure, self.is_forged, is_strict=is_strict)

    def play(self) -> BaseException | None:
        """What it ends with, checked after each step; steps behind that are dropped."""
        played = 0
        try:
            world = self.world()
            for step in self.steps:
                played += 1
                step.do(world)
        except Exception as error:
            del self.steps[played:]
            return error
        return None


WAITS = (1_000, 10_000, 100_000, 500_000, SECOND, SECOND, 3 * SECOND, 20 * SECOND)
JUMPS = (-3_600 * SECOND, -SECOND, SECOND, 3_600 * SECOND)


class Odds:
    """Options, each with its weight."""

    def __init__(self, **weights: float) -> None:
        self._options = list(weights)
        self._weights = list(accumulate(weights.values()))

    def pick(self, dice: random.Random) -> str:
        return dice.choices(self._options, cum_weights=self._weights)[0]


FATES = Odds(taken=90, lost=2, doubled=3, again=5)
WRITES = Odds(ok=94, full=5, unanswered=1)
ACTS = Odds(
    say=40, arrive=40, write=25, wait=9, come=4, leave=2, turn=0.6, jump=0.3, restart=0.4, calm=4
)


class Player:
    """Draws the steps of one episode, and does them."""

    def __init__(self, seed: int, number: int) -> None:
        self.dice = random.Random(f"{seed} {number}")
        network = self.dice.choice(list(NETWORKS))
        limits = self.dice.randrange(len(LIMITS))
        self.forging = random.Random(f"{seed} {number} forged")
        """Dice of their own: without lies an episode is what it was."""
        self.is_forged = self.forging.random() < FORGED_SHARE and network != "alone"
        self.episode = Episode(network, limits, self.dice.random() < 0.4, self.is_forged)
        self.world = self.episode.world(is_strict=number % STRICT_EACH == 0)
        self.drawing = Drawing(self.dice, self.world)
        self.clients = 0
        self.forgery = Forgery(self.forging, self.world)

    def run(self, steps: int) -> BaseException | None:
        """What it ends with, if that is a finding."""
        try:
            for step in (Step("calm", (5,)), Step("wait", (SECOND,)), Step("calm", (5,))):
                self.episode.steps.append(step)
                step.do(self.world)
            while len(self.episode.steps) < steps:
                for step in self._lie() or self._draw():
                    self.episode.steps.append(step)
                    step.do(self.world)
                if len(self.episode.steps) % CHECK_EACH == 0:
                    self.world.check()
            self.world.check()
            if not self.is_forged and self.dice.random() < END_SHARE:
                self.episode.steps.append(Step("end", ()))
                self.world.end()
        except Exception as error:
            return error
        return None

    def _lie(self) -> list[Step]:
        if not self.is_forged or self.forging.random() >= LIE_SHARE:
            return []
        sender, to = self.forging.sample(self.world.names, 2)
        if self.forging.random() < 0.9:
            sender = str(self.forging.choice(self.world.nodes[to].routing.peers))
        lie = self.forgery.lie(sender, to)
        return [Step("lie", (sender, to, lie))] if lie is not None else []

    def _draw(self) -> list[Step]:
        dice, world = self.dice, self.world
        act, name = ACTS.pick(dice), dice.choice(world.names)
        match act:
            case "say":
                clients, message = list(world.clients[name]), self.drawing.message()
                if not clients:
                    return [self._come(name)]
                if message is None:
                    return []
                return [Step("say", (name, dice.choice(clients), message))]
            case "arrive":
                busy = [pair for pair, queue in world.queues.items() if queue]
                fate = FATES.pick(dice)
                if fate == "again":  # from the last ones, over whatever link
                    pair = dice.choice(list(world.queues)) if world.queues else None
                    fate = f"again {dice.randrange(HISTORY_MAX)}"
                    return [Step("arrive", (*pair, fate))] if pair else []
                return [Step("arrive", (*dice.choice(busy), fate))] if busy else []
            case "write":
                busy_disks = [each for each in world.names if world.disks[each]]
                if not busy_disks:
                    return []
                return [Step("write", (dice.choice(busy_disks), WRITES.pick(dice)))]
            case "wait":
                return [Step("wait", (dice.choice(WAITS),))]
            case "come":
                return [self._come(name)] if len(world.clients[name]) < CLIENTS_MAX else []
            case "leave":
                clients = list(world.clients[name])
                return [Step("leave", (name, dice.choice(clients)))] if clients else []
            case "turn":
                pairs = [pair for pair in world.queues if pair[0] < pair[1]]
                return [Step("turn", dice.choice(pairs))] if pairs else []
            case "jump":
                return [Step("jump", (name, dice.choice(JUMPS)))]
            case "calm":
                return [Step("calm", (dice.choice((1, 2, 5)),))]
            case _:
                return [Step("restart", (name,))]

    def _come(self, name: str) -> Step:
        self.clients += 1
        owner = self.dice.choice(self.world.owners)
        return Step("come", (name, f"client:{self.clients}", owner))


def shortened(episode: Episode, error: BaseException, plays_max: int) -> Episode:
    """The same finding with fewer steps: leave out what is not needed, in ever smaller pieces."""
    steps, size = episode.steps, max(1, len(episode.steps) // 2)
    while size and plays_max > 0:
        at = 0
        while at < len(steps) and plays_max > 0:
            fewer = dataclasses.replace(episode, steps=steps[:at] + steps[at + size :])
            found = fewer.play()
            plays_max -= 1
            if found is not None and place_of(found) == place_of(error):
                steps = fewer.steps
            else:
                at += size
        size //= 2
    return dataclasses.replace(episode, steps=steps)


def place_of(error: BaseException) -> tuple[str, str, int]:
    """What tells findings apart: the kind, and where it was raised."""
    cause = error.__cause__ if isinstance(error, ProtocolError) and error.__cause__ else error
    frame = traceback.extract_tb(cause.__traceback__)[-1]
    return type(cause).__name__, frame.filename, frame.lineno or 0


def report(episode: Episode, error: BaseException, seed: int, number: int) -> str:
    shown = "".join(traceback.format_exception(error))
    steps = "\n".join(f"  {each}" for each in episode.steps)
    head = f"network {episode.network!r}, limits {episode.limits}, secure {episode.is_secure}"
    head += ", forged" if episode.is_forged else ""
    return (
        f"{shown}\nfound in episode {number} of seed {seed}; {head}; {len(episode.steps)} steps:\n"
        f"{steps}\nagain: python fuzz/node.py --seed {seed} --episode {number}"
    )


def find(seed: int, steps: int, *, first: int = 0, plays_max: int = 1_000) -> str | None:
    """Play episodes until so many steps are over: the first finding, or None.

    A finding is played `plays_max` times at most to make it shorter.
    """
    done, number = 0, first
    while done < steps:
        player = Player(seed, number)
        error = player.run(EPISODE_STEPS)
        done += len(player.episode.steps)
        if error is not None:
            error = player.episode.play() or error
            short = shortened(player.episode, error, plays_max)
            return report(short, short.play() or error, seed, number)
        number += 1
    return None


def find_some(seed: int, batch: int) -> str | None:
    """What the episodes of one batch find."""
    return find(seed, BATCH_EPISODES * EPISODE_STEPS, first=batch * BATCH_EPISODES)


def find_on_all_cores(seed: int, steps: int, seconds: float, jobs: int) -> str | None:
    """Play batches of episodes in several processes: the first finding, or None."""
    begin_s, done = time.monotonic(), 0
    batches = -(-steps // (BATCH_EPISODES * EPISODE_STEPS))
    with Pool(jobs, initializer=gc.set_threshold, initargs=(100_000,)) as pool:
        for found in pool.imap_unordered(partial(find_some, seed), range(batches)):
            passed_s = time.monotonic() - begin_s
            done += BATCH_EPISODES * EPISODE_STEPS
            print(f"\r{done:,} steps, {done / passed_s:,.0f} a second", end="", flush=True)
            if found is not None or passed_s > seconds:
                break
        else:
            found = None
    print()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz whole brokers.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=lambda text: int(text.replace("_", "")), default=1_000_000)
    parser.add_argument("--seconds", type=float, default=inf, help="stop after so long")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--episode", type=int, help="play this one alone")
    given = parser.parse_args()
    if given.episode is not None:
        found = find(given.seed, 1, first=given.episode)
    else:
        found = find_on_all_cores(given.seed, given.steps, given.seconds, given.jobs)
    print("nothing found" if found is None else found)
    return found is not None


if __name__ == "__main__":
    sys.exit(main())
