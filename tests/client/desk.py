"""A client's connection played by hand: what its parts send is kept, and answered by the test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gapless.client.inbox import Inbox
from gapless.client.publisher import Publisher
from gapless.client.requests import OtherBrokers
from gapless.client.subscription import Subscription
from gapless.client.subscription_options import SubscriptionOptions
from gapless.core.client_messages import (
    Publish,
    PublisherPosition,
    PublisherQuery,
    Receipt,
    Subscribe,
    Subscribed,
)
from gapless.core.identity import BrokerName, PubendName, PublisherName, TopicName

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.client.channel import ChangeKind
    from gapless.core.client_messages import Done, Refused
    from gapless.core.errors import GaplessError
    from gapless.core.messages import Message

PUBEND = PubendName("t/0")


def receipt(publish: Publish) -> Receipt:
    return Receipt(publish.request, PUBEND, tuple(range(len(publish.events))))


def numbers(publishes: list[Publish]) -> list[tuple[int, int]]:
    """First number and count of each."""
    return [(each.sequence, len(each.events)) for each in publishes]


class Desk:
    """Stands in for a `Client`: a `Channel` without a socket."""

    def __init__(self) -> None:
        self.patience_s = 30.0
        self.session = 1
        self.broker: BrokerName | None = BrokerName("b1")
        self.address = "b1:1"
        self.problem: GaplessError | None = None
        self.down: GaplessError | None = None
        self.sent: list[Message] = []
        self.consumed = 0
        self.told = 0
        self.starts = {"t/0": 10}
        self.behind: tuple[str, ...] = ()
        self.moves = 0
        self.asked: list[Subscribe] = []
        self.next_number = 0
        self.places: dict[str, Desk] = {}
        self.other_brokers = OtherBrokers(self._open_other)
        self.is_idle = self.is_up = True
        self.is_closed = False
        self.refusals: list[Refused] = []  # what the next questions get
        self.reports: list[tuple[ChangeKind, str]] = []
        self.inbox = Inbox(self)
        self.listeners: list[Callable[[], None]] = []
        self._answers: dict[int, Callable[[Message | GaplessError], None]] = {}
        self._request = 0

    def send(self, message: Message) -> None:
        self.sent.append(message)

    def request(self, answer: Callable[[Message | GaplessError], None]) -> int:
        self._request += 1
        self._answers[self._request] = answer
        return self._request

    def answer(self, message: Receipt | Refused | Done) -> None:
        self._answers.pop(message.request)(message)

    def lose(self, error: GaplessError) -> None:
        answers, self._answers = self._answers, {}
        for answer in answers.values():
            answer(error)
        self.inbox.interrupt(error)

    def come_back(self, broker: str = "b1") -> None:
        self.session += 1
        self.broker = BrokerName(broker)
        for changed in self.listeners:
            changed()
        self.inbox.resume()

    def _open_other(self, addresses: str) -> Desk:
        desk = self.places[addresses] = Desk()
        desk.other_brokers = self.other_brokers
        return desk

    async def close(self) -> None:
        self.is_closed = True

    async def ask(self, make: Callable[[int], Message]) -> Message | GaplessError:
        if self.refusals:
            return self.refusals.pop(0)
        match make(0):
            case PublisherQuery():
                return PublisherPosition(0, self.next_number)
            case Subscribe(subscription=number) as asked:
                self.asked.append(asked)
                subscribed = Subscribed(0, number, self.starts, self.behind, self.moves)
                self.inbox.start(subscribed)
                return subscribed
            case other:
                raise AssertionError(other)

    async def wait_up(self) -> None:
        if self.down is not None:
            raise self.down

    async def wait_writable(self) -> None:
        pass

    def listen(self, changed: Callable[[], None]) -> None:
        self.listeners.append(changed)

    def unlisten(self, changed: Callable[[], None]) -> None:
        self.listeners.remove(changed)

    def consume(self, count: int) -> None:
        self.consumed += count

    def report(self, kind: ChangeKind, reason: str = "") -> None:
        self.reports.append((kind, reason))

    def tell_consumed(self) -> None:
        self.told = self.consumed

    def publisher(self, window_events_max: int = 100, linger_s: float = 0.0) -> Publisher:
        return Publisher(self, TopicName("t"), PublisherName("feed"), window_events_max, linger_s)

    def subscription(self, **options: Any) -> Subscription:
        return Subscription(self, SubscriptionOptions(topic=TopicName("t"), **options))

    @property
    def published(self) -> list[Publish]:
        return [message for message in self.sent if isinstance(message, Publish)]
