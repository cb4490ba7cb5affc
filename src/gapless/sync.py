"""The client without an event loop: the same names, blocking, for scripts and notebooks.

Methods that wait take `timeout_s` where the asyncio client is used with `asyncio.timeout`.

A thread of its own runs the loop; each call is handed to it and waited for. What has come is taken
by the caller's own thread, so that iterating over a subscription pays for a hand-over only when it
has to wait.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, suppress
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from gapless.client import client as asynchronous
from gapless.client.errors import LinkError
from gapless.client.loop_thread import LoopThread, chunks
from gapless.client.publisher import LINGER_S
from gapless.client.publisher import Publisher as AsyncPublisher
from gapless.client.subscription import Subscription as AsyncSubscription
from gapless.client.together import together as asynchronous_together
from gapless.client.transaction import Stager as AsyncStager
from gapless.client.transaction import Transaction as AsyncTransaction
from gapless.client.twin import explained_by
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import Unpack

    from gapless.client.credentials import Options
    from gapless.client.delivery import Delivery, Gap, Receipt
    from gapless.client.range import Gaps, RangeBatch
    from gapless.client.topics import Topic
    from gapless.client.transaction import CommitReceipt
    from gapless.client.wish import Interruption, Start
    from gapless.core.client_messages import Order, TokenKeeper
    from gapless.core.events import Value
    from gapless.core.identity import BrokerName
    from gapless.core.token import Token
    from gapless.core.topic_messages import Service
    from gapless.wire.framing import Bytes

Result = TypeVar("Result")
Inner = TypeVar("Inner", bound=AbstractAsyncContextManager[Any, None])
InnerSender = TypeVar("InnerSender", bound="AsyncPublisher | AsyncTransaction")  # or a stager


async def within(work: Awaitable[Result], timeout_s: float | None) -> Result:
    """The result of `work`; `TimeoutError` when it takes longer. In the loop, not in the caller's
    thread: there a result that comes at the last moment would be lost."""
    try:
        async with asyncio.timeout(timeout_s):
            return await work
    except TimeoutError:
        raise TimeoutError(f"nothing came for {timeout_s} s") from None


class Entered(Generic[Inner]):
    """Something of the asynchronous client that is entered and left, from this thread."""

    def __init__(self, thread: LoopThread, inner: Inner) -> None:
        self._thread = thread
        self._inner = inner

    def __enter__(self) -> Self:
        self._thread.run(self._inner.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._thread.run(self._inner.__aexit__(kind, error, trace))


@explained_by(AsyncPublisher)
class Sender(Entered[InnerSender]):
    """What events are handed to."""

    def send(self, attributes: Mapping[str, Value], body: Bytes = b"") -> int:
        return self._thread.run(self._inner.send(attributes, body))

    def send_many(self, events: Iterable[tuple[Mapping[str, Value], Bytes]]) -> None:
        """Many at once: one hand-over for hundreds of them. `events` is iterated over in this
        thread, and may be slow, or use the client."""
        for some in chunks(events):
            self._thread.run(self._inner.send_many(some))

    def flush(self, timeout_s: float | None = None) -> None:
        """Block until everything sent so far is on stable storage. `TimeoutError` after
        `timeout_s`: what was sent is still on its way, and may be flushed again."""
        self._thread.run(within(self._inner.flush(), timeout_s))


@explained_by(AsyncPublisher)
class Publisher(Sender["AsyncPublisher"]):
    """A named publisher; see `gapless.client.publisher`."""

    @property
    def sequence(self) -> int:
        """The number of its next event."""
        return self._inner.sequence

    @property
    def confirmed(self) -> int:
        return self._inner.confirmed

    def wait_confirmed(self, beyond: int, timeout_s: float | None = None) -> int:
        return self._thread.run(within(self._inner.wait_confirmed(beyond), timeout_s))


@explained_by(AsyncStager)
class Stager(Sender["AsyncStager"]):
    """One part of a transaction; see `gapless.client.transaction`."""

    @property
    def part(self) -> str:
        """Its name, which `commit` wants."""
        return self._inner.part

    @property
    def count(self) -> int:
        return self._inner.sequence

    def send_encoded(self, events: Sequence[bytes]) -> None:
        self._thread.run(self._inner.send_encoded(events))


@explained_by(AsyncTransaction)
class Transaction(Sender["AsyncTransaction"]):
    """Commits at the end of `with`, or aborts; see `gapless.client.transaction`."""

    @property
    def count(self) -> int:
        return self._inner.count

    @property
    def receipt(self) -> CommitReceipt | None:
        """What the commit was answered; None before that."""
        return self._inner.receipt


@explained_by(AsyncSubscription)
class Subscription(Entered["AsyncSubscription"]):
    """A subscription to iterate over; see `gapless.client.subscription`."""

    @property
    def address(self) -> str:
        return self._inner.address

    @property
    def token(self) -> Token:
        return self._inner.token

    def __iter__(self) -> Iterator[Delivery]:
        pop = self._inner.pop
        while True:
            while (item := pop()) is not None:
                yield item
            if not self._thread.run(self._inner.wait_ready()):
                return

    def take(self, timeout_s: float | None = None) -> list[Delivery]:
        """All that has come, at least one; empty when the subscription is over. `TimeoutError` when
        nothing comes for `timeout_s`: nothing is lost, take again."""
        while not (batch := self._inner.pop_all()):
            if not self._thread.run(within(self._inner.wait_ready(), timeout_s)):
                break
        return batch

    def batches(self) -> Iterator[list[Delivery]]:
        while batch := self.take():
            yield batch

    @property
    def unreached(self) -> tuple[BrokerName, ...]:
        """Of a reliable topic: what is published there, or behind them, is missed as yet."""
        return self._inner.unreached

    def reached(self, timeout_s: float | None = None) -> None:
        self._thread.run(within(self._inner.reached(), timeout_s))

    def acknowledge(self, timeout_s: float | None = None) -> None:
        self._thread.run(within(self._inner.acknowledge(), timeout_s))

    def close(self) -> None:
        with suppress(LinkError):  # it ended with its client
            self._thread.run(self._inner.close())

    def __exit__(self, *raised: Any) -> None:
        with suppress(LinkError):
            super().__exit__(*raised)


class Together:
    """Made by `together`: subscriptions of one client, read in one loop."""

    def __init__(self, subscriptions: Iterable[Subscription]) -> None:
        self._outer = {each._inner: each for each in subscriptions}
        self._threads = {each._thread for each in self._outer.values()}
        if len(self._threads) > 1:
            raise UsageError(
                "these subscriptions are of several clients", "Read those of each client apart."
            )

    def batches(self) -> Iterator[list[tuple[Subscription, Delivery]]]:
        """All that has come, as pairs of a subscription and what came for it; asking for the next
        batch says that this one is finished."""
        for thread in self._threads:
            batches, outer = asynchronous_together(self._outer).batches(), self._outer
            try:
                while batch := thread.run(_following(batches)):
                    yield [(outer[each], delivery) for each, delivery in batch]
            finally:
                thread.run(_close(batches))


async def _following(batches: AsyncIterator[Result]) -> Result | None:
    return await anext(batches, None)


async def _close(batches: AsyncIterator[Any]) -> None:
    await batches.aclose()  # type: ignore[attr-defined]


def together(subscriptions: Iterable[Subscription]) -> Together:
    """As `gapless.together`, for a plain `for batch in together(some).batches()`."""
    return Together(subscriptions)


@explained_by(asynchronous.Client)
class Client:
    """A connection to a network of brokers; make it with `gapless.sync.connect`."""

    def __init__(self, addresses: str, *, patience_s: float, **options: Unpack[Options]) -> None:
        self._thread = LoopThread()

        async def make() -> asynchronous.Client:
            return asynchronous.connect(addresses, patience_s=patience_s, **options)

        try:
            self._client = self._thread.run(make())
        except BaseException:
            self._thread.close()
            raise

    def publish(
        self,
        topic: str,
        attributes: Mapping[str, Value],
        body: Bytes = b"",
        *,
        confirmed: bool = False,
    ) -> Receipt:
        published = self._client.publish(topic, attributes, body, confirmed=confirmed)
        return self._thread.run(published)

    def publish_many(
        self,
        topic: str,
        events: Iterable[tuple[Mapping[str, Value], Bytes]],
        *,
        confirmed: bool = False,
    ) -> list[Receipt]:
        published = self._client.publish_many(topic, list(events), confirmed=confirmed)
        return self._thread.run(published)

    def publisher(self, topic: str, *, name: str, linger_s: float = LINGER_S) -> Publisher:
        async def make() -> AsyncPublisher:
            return self._client.publisher(topic, name=name, linger_s=linger_s)

        return Publisher(self._thread, self._thread.run(make()))

    def subscribe(
        self,
        topic: str,
        condition: str = "",
        *,
        name: str | None = None,
        order: Order = "publisher",
        start: Start = "latest",
        tokens: TokenKeeper = "client",
        interruption: Interruption = "raise",
        silence: bool = False,
    ) -> Subscription:
        async def make() -> AsyncSubscription:
            return self._client.subscribe(
                topic,
                condition,
                name=name,
                order=order,
                start=start,
                tokens=tokens,
                interruption=interruption,
                silence=silence,
            )

        return Subscription(self._thread, self._thread.run(make()))

    def create_topic(
        self,
        name: str,
        service: Service = "durable",
        pubends: int = 1,
        retention_seconds: float | None = None,
        retention_bytes: int | None = None,
        hosts: Sequence[str] | None = None,
        *,
        ordered: bool = False,
    ) -> None:
        limits = pubends, retention_seconds, retention_bytes, hosts
        self._thread.run(self._client.create_topic(name, service, *limits, ordered=ordered))

    def delete_topic(self, name: str) -> None:
        self._thread.run(self._client.delete_topic(name))

    def topics(self) -> list[Topic]:
        return self._thread.run(self._client.topics())

    def transaction(self, topic: str, *, producer: str, id: int) -> Transaction:  # noqa: A002
        async def make() -> AsyncTransaction:
            return self._client.transaction(topic, producer=producer, id=id)

        return Transaction(self._thread, self._thread.run(make()))

    def stage(
        self,
        topic: str,
        *,
        producer: str,
        id: int,  # noqa: A002
        part: str | None = None,
    ) -> Stager:
        async def make() -> AsyncStager:
            return self._client.stage(topic, producer=producer, id=id, part=part)

        return Stager(self._thread, self._thread.run(make()))

    def commit(
        self,
        topic: str,
        *,
        producer: str,
        id: int,  # noqa: A002
        parts: Sequence[str] | Mapping[str, int],
    ) -> CommitReceipt:
        work = self._client.commit(topic, producer=producer, id=id, parts=parts)
        return self._thread.run(work)

    def abort(
        self,
        topic: str,
        *,
        producer: str,
        id: int,  # noqa: A002
        part: str | None = None,
    ) -> None:
        self._thread.run(self._client.abort(topic, producer=producer, id=id, part=part))

    def last_committed(self, topic: str, *, producer: str) -> int | None:
        return self._thread.run(self._client.last_committed(topic, producer=producer))

    def positions(self, topic: str) -> dict[str, tuple[int, int]]:
        return self._thread.run(self._client.positions(topic))

    def read(
        self,
        topic: str,
        condition: str = "",
        *,
        start: Token | None = None,
        end: Token | None = None,
        pubends: Sequence[str] | None = None,
        limit: int | None = None,
        gaps: Gaps = "raise",
    ) -> Iterator[RangeBatch | Gap]:
        batches = self._client.read(
            topic, condition, start=start, end=end, pubends=pubends, limit=limit, gaps=gaps
        )

        async def following() -> RangeBatch | Gap | None:
            return await anext(batches, None)

        while (item := self._thread.run(following())) is not None:
            yield item

    def read_arrow(
        self,
        topic: str,
        condition: str = "",
        *,
        start: Token | None = None,
        end: Token | None = None,
        pubends: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> Any:
        return self._thread.run(
            self._client.read_arrow(
                topic, condition, start=start, end=end, pubends=pubends, limit=limit
            )
        )

    def acknowledge(self, name: str, token: Token) -> None:
        self._thread.run(self._client.acknowledge(name, token))

    def unsubscribe(self, name: str) -> None:
        self._thread.run(self._client.unsubscribe(name))

    def retire(self, broker: str) -> None:
        self._thread.run(self._client.retire(broker))

    def close(self) -> None:
        """Fine to repeat."""
        with suppress(LinkError):  # it is closed
            self._thread.run(self._client.close())
        self._thread.close()

    def __enter__(self) -> Self:
        try:
            self._thread.run(self._client.__aenter__())
        except BaseException:
            self._thread.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect(addresses: str, *, patience_s: float = 30.0, **options: Unpack[Options]) -> Client:
    """As `gapless.connect`, for a plain `with`."""
    return Client(addresses, patience_s=patience_s, **options)
