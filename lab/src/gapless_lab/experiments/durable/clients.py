"""Who uses the network: feeds that publish steadily, subscribers that leave and return.

Theory of operation
    A feed is bound to one pubend and publishes an event every `period`, each to one of the groups
    in turn. A subscriber takes what comes at once, and moves its token with it; four times a
    second it acknowledges the token and says how much it has taken. When it leaves it keeps its
    token and returns with it. It notes what it got in each second and how long it caught up.
    An event that comes twice, or not at all, is noted too.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from gapless.core.client_messages import (
    Acknowledge,
    CaughtUp,
    Consumed,
    Deliveries,
    FellBehind,
    Publish,
    Receipt,
    Subscribe,
    Subscribed,
)
from gapless.core.events import EventBatch
from gapless.core.identity import ClientName, SubscriptionName
from gapless.wire.events import encode_event
from gapless_lab.experiments.durable.setting import GROUP_COUNT, HOST, TOPIC
from gapless_lab.experiments.meter import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.core.identity import BrokerName, Instant
    from gapless.core.messages import Message
    from gapless.testing.links import Connection
    from gapless_lab.experiments.durable.setting import Setting

BODY_BYTES = 250
ACKNOWLEDGE_AFTER = SECOND // 4
"""The paper's: released(s) is updated every 250 ms."""

JOIN_S_MAX = 60


class Feed:
    """Publishes to one pubend, one event a request."""

    def __init__(self, setting: Setting, pubend_number: int, events_per_s: float) -> None:
        self._world = setting.world
        self._number = pubend_number
        self._period = round(SECOND / events_per_s)
        self._is_stopped = False
        self.published: dict[bytes, Instant] = {}
        """By event: when it was made."""
        self.groups: Counter[int] = Counter()
        self.receipts: dict[int, Instant] = {}
        """By number of the event: when it was known to be durable."""
        name = bound_name(pubend_number, len(setting.network.topic[TOPIC].pubends))
        connection = self._world.connect(name, self, HOST)
        assert connection is not None, f"{HOST} is not up"
        self._connection = connection
        self._world.after(self._period * (pubend_number + 1) // GROUP_COUNT, self._publish)

    def _publish(self) -> None:
        if self._is_stopped:
            return
        number = len(self.published)
        group = number % GROUP_COUNT
        body = f"{self._number} {number} ".encode().ljust(BODY_BYTES, b".")
        encoded = encode_event({"group": group, "number": number}, body)
        self.published[encoded] = self._world.now
        self.groups[group] += 1
        self._connection.send(Publish(TOPIC, number, EventBatch.join([encoded])))
        self._world.after(self._period, self._publish)

    def stop(self) -> None:
        self._is_stopped = True

    def tell(self, message: Message) -> None:
        if isinstance(message, Receipt):
            self.receipts[message.request] = self._world.now

    def cut_off(self) -> None:
        raise AssertionError("the host of the pubends does not fail in these experiments")


def bound_name(pubend_number: int, pubend_count: int) -> ClientName:
    """A client whose publications go to this pubend."""
    names = (f"feed {pubend_number}.{attempt}" for attempt in range(1_000))
    return next(ClientName(n) for n in names if crc32(n.encode()) % pubend_count == pubend_number)


def feeds(setting: Setting, events_per_s: float) -> list[Feed]:
    """One for each pubend; together they publish at this rate."""
    count = len(setting.network.topic[TOPIC].pubends)
    return [Feed(setting, number, events_per_s / count) for number in range(count)]


class Return(NamedTuple):
    """One return of a subscriber that had to catch up."""

    away_s: float
    returned: Instant
    caught_up_s: float
    """How long it took until it was level with everybody at all pubends."""


class Subscriber:
    """One connection with one subscription, to one group."""

    def __init__(
        self,
        setting: Setting,
        broker: BrokerName,
        number: int,
        group: int,
        *,
        is_durable: bool = True,
    ) -> None:
        self._setting = setting
        self._world = setting.world
        self._broker = broker
        self._is_durable = is_durable
        self.number = number
        self.group = group
        self.connection: Connection | None = None
        self.token: dict[str, int] | None = None
        self.behind: set[str] = set()
        self.taken: set[tuple[str, int]] = set()
        """Pubend and tick of everything that came."""
        self.doubled = 0
        self.by_second: Counter[int] = Counter()
        self.alone: Counter[int] = Counter()
        """By second: how many of those came by a stream of its own."""
        self.latencies_us: list[int] = []
        self.returns: list[Return] = []
        self.made_of: Callable[[bytes], Instant] | None = None
        self._is_attached = False
        self._connections = 0
        self._untold = 0
        self._left = self._returned = self._world.now
        phase = 1 + self._world.dice.randrange(ACKNOWLEDGE_AFTER)
        self._world.after(phase, self._acknowledge)

    @property
    def is_level(self) -> bool:
        return self._is_attached and not self.behind

    def connect(self) -> None:
        self._connections += 1
        name = ClientName(f"subscriber {self.number}.{self._connections}")
        self.connection = self._world.connect(name, self, self._broker)
        assert self.connection is not None, f"{self._broker} is not up"
        self._untold = 0
        self._returned = self._world.now
        named = SubscriptionName(f"subscription {self.number}") if self._is_durable else None
        self.connection.send(
            Subscribe(TOPIC, 1, 1, f"group = {self.group}", name=named, token=self.token)
        )

    def leave(self, away_s: float) -> None:
        """Hang up, and return after some time."""
        if self.connection is not None and self.is_level:
            self.connection.close()
            self.cut_off()
            self._world.after(round(away_s * SECOND), self.connect)

    def cut_off(self) -> None:
        self.connection = None
        self._is_attached = False
        self._left = self._world.now

    def tell(self, message: Message) -> None:
        match message:
            case Subscribed(start=start, behind=behind):
                self._is_attached = True
                self.behind = set(behind)
                self.token = dict(start)
            case FellBehind(pubend=pubend):
                self.behind.add(pubend)
                self._returned = self._left = self._world.now
            case CaughtUp(pubend=pubend):
                self._caught_up(pubend)
            case Deliveries():
                self._take(message)
            case _:
                pass

    def _caught_up(self, pubend: str) -> None:
        self.behind.discard(pubend)
        if not self.behind:
            now, returned = self._world.now, self._returned
            away_s = (returned - self._left) / SECOND
            self.returns.append(Return(away_s, returned, (now - returned) / SECOND))

    def _take(self, message: Deliveries) -> None:
        assert self.token is not None
        assert message.pubend is not None
        pubend, second = str(message.pubend), self._setting.second
        if message.only is not None or pubend not in self.behind:
            self.token[pubend] = max(self.token[pubend], message.through)
        for tick in message.ticks:
            self.doubled += (pubend, tick) in self.taken
            self.taken.add((pubend, tick))
        if self.made_of is not None:
            made = map(self.made_of, message.events)
            self.latencies_us += [self._world.now - instant for instant in made]
        self._untold += len(message.ticks)
        self.by_second[second] += len(message.ticks)
        if message.only is not None:
            self.alone[second] += len(message.ticks)

    def _acknowledge(self) -> None:
        self._world.after(ACKNOWLEDGE_AFTER, self._acknowledge)
        if self.connection is None or self.token is None or not self._is_attached:
            return
        if self._is_durable:
            self.connection.send(Acknowledge(1, dict(self.token)))
        if self._untold:
            self.connection.send(Consumed(self._untold))
            self._untold = 0


def join(
    setting: Setting, hosts: list[BrokerName], count: int, *, is_durable: bool = True
) -> list[Subscriber]:
    """So many subscribers at each host, connected a little apart, and all of them started."""
    found = [
        Subscriber(
            setting,
            host,
            number * len(hosts) + place,
            number % GROUP_COUNT,
            is_durable=is_durable,
        )
        for number in range(count)
        for place, host in enumerate(hosts)
    ]
    for place, subscriber in enumerate(found):
        setting.world.after(place * 5_000 // len(hosts), subscriber.connect)
    setting.play_until(lambda: all(each.is_level for each in found), JOIN_S_MAX)
    for each in found:
        each.returns.clear()  # to begin a moment behind the others is no return
    return found


class Books(NamedTuple):
    """Whether everything came once."""

    delivered: int
    lost: int
    doubled: int


def close_books(subscribers: list[Subscriber], published: list[Feed]) -> Books:
    """To be called when everything had time to arrive, of subscribers that began before feeds."""
    wanted = sum((feed.groups for feed in published), Counter[int]())
    delivered = sum(len(each.taken) for each in subscribers)
    expected = sum(wanted[each.group] for each in subscribers)
    return Books(delivered, expected - delivered, sum(each.doubled for each in subscribers))
