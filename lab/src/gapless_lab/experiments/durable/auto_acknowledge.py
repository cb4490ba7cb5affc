"""The auto-acknowledge table: the broker keeps the tokens, and each event is acknowledged alone.

Theory of operation
    A subscriber takes one event, acknowledges it, and takes the next only when it was told that
    this is durable. All tokens that wait while the disk writes go into the next write together. So
    one subscriber waits for the disk each time, while many share each wait. Events are published
    ahead, so that nobody ever waits for one. Processor and rates are unscaled here.

Source: DSN 2003, sec. 5.2. Deviation: one line of writes, not four database connections.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapless.core.client_messages import Acknowledge, Consumed, Deliveries, Done, Publish, Subscribe
from gapless.core.events import EventBatch
from gapless.core.identity import ClientName, SubscriptionName
from gapless.wire.events import encode_event
from gapless_lab.experiments.durable.absences import SUBSCRIBERS
from gapless_lab.experiments.durable.clients import BODY_BYTES
from gapless_lab.experiments.durable.processor import REAL
from gapless_lab.experiments.durable.setting import HOST, TOPIC, Setting, star

if TYPE_CHECKING:
    from gapless.core.messages import Message

SYNC_US = 5_000
"""How long a write takes."""

EVENT_COUNT = 400
BATCH = 50
WARM_S = 3.0


@dataclass(frozen=True, kw_only=True)
class Row:
    """One number of subscribers."""

    subscribers: int
    events_per_s: float
    commits_per_s: float
    busy: float
    """Share of the processor of the subscribers' host."""

    @property
    def events_per_commit(self) -> float:
        return self.events_per_s / self.commits_per_s


class Acknowledger:
    """Acknowledges each event, and waits until that is durable."""

    def __init__(self, setting: Setting, number: int) -> None:
        name = ClientName(f"acknowledger {number}")
        connection = setting.world.connect(name, self, SUBSCRIBERS)
        assert connection is not None, f"{SUBSCRIBERS} is not up"
        self._connection = connection
        self._inbox: deque[tuple[str, int]] = deque()
        self._is_waiting = False
        self.acknowledged = 0
        wish = Subscribe(TOPIC, 1, 1, name=SubscriptionName(f"{number}"), tokens="broker")
        connection.send(wish)

    def tell(self, message: Message) -> None:
        if isinstance(message, Deliveries):
            self._inbox.extend((str(message.pubend), tick) for tick in message.ticks)
        elif isinstance(message, Done):
            self._is_waiting = False
            self.acknowledged += 1
            if self.acknowledged % BATCH == 0:
                self._connection.send(Consumed(BATCH))
        if self._inbox and not self._is_waiting:
            self._is_waiting = True
            pubend, tick = self._inbox.popleft()
            request = 2 + self.acknowledged
            self._connection.send(Acknowledge(1, {pubend: tick + 1}, request))

    def cut_off(self) -> None:
        raise AssertionError("no broker fails here")


class Burst:
    """Publishes a number of events at once."""

    def __init__(self, setting: Setting) -> None:
        connection = setting.world.connect(ClientName("burst"), self, HOST)
        assert connection is not None, f"{HOST} is not up"
        for first in range(0, EVENT_COUNT, BATCH):
            events = [
                encode_event({"number": number}, bytes(BODY_BYTES))
                for number in range(first, first + BATCH)
            ]
            connection.send(Publish(TOPIC, first, EventBatch.join(events)))

    def tell(self, message: Message) -> None:
        """Receipts: nothing fails here."""

    def cut_off(self) -> None:
        raise AssertionError("no broker fails here")


def play_auto_acknowledge(subscribers: int, *, seconds: float, seed: int) -> Row:
    setting = Setting(star(1, 1), seed=seed, sync_us=SYNC_US, costs=REAL)
    found = [Acknowledger(setting, number) for number in range(subscribers)]
    setting.play(WARM_S)
    Burst(setting)
    while not all(each.acknowledged for each in found):
        setting.play(0.05)
    watch = setting.watch
    begin, commits = total(found), len(watch.commits)
    busy = setting.busy_us[SUBSCRIBERS].total()
    setting.play(seconds)
    events = total(found) - begin
    assert max(each.acknowledged for each in found) < EVENT_COUNT, "somebody waited for an event"
    return Row(
        subscribers=subscribers,
        events_per_s=events / seconds,
        commits_per_s=(len(watch.commits) - commits) / seconds,
        busy=(setting.busy_us[SUBSCRIBERS].total() - busy) / 1e6 / seconds,
    )


def total(found: list[Acknowledger]) -> int:
    return sum(each.acknowledged for each in found)
