"""The client without an event loop: the same names, blocking, for scripts and notebooks.

A thread of its own runs the loop; each call is handed to it and waited for. The caller's own thread
takes what has arrived, so that iterating over a subscription pays for a hand-over only when it has
to wait. Methods that wait take `timeout_s` where the asyncio client is used with `asyncio.timeout`.

Most methods are those of the asyncio client with `blocking`, `making` or `iterating` around them,
so that both clients have one signature and one explanation.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, suppress
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from gapless.client import client as asynchronous
from gapless.client.errors import LinkError
from gapless.client.event_loop import LoopThread, chunks
from gapless.client.group_subscription import GroupSubscription as AsyncGroupSubscription
from gapless.client.joint_reader import JointReader as AsyncJointReader
from gapless.client.joint_subscription import JointSubscription as AsyncJointSubscription
from gapless.client.publisher import Publisher as AsyncPublisher
from gapless.client.subscribe_method import SubscribeMethod
from gapless.client.subscription import Subscription as AsyncSubscription
from gapless.client.transaction import Stager as AsyncStager
from gapless.client.transaction import Transaction as AsyncTransaction
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Awaitable,
        Callable,
        Coroutine,
        Iterable,
        Iterator,
        Mapping,
    )
    from types import TracebackType
    from typing import Unpack

    from gapless.client.channel import ConnectionChange
    from gapless.client.credentials import CredentialOptions
    from gapless.client.delivery import Delivery, Gap, Receipt
    from gapless.client.transaction import CommitReceipt
    from gapless.core.events import Event, Value
    from gapless.core.identity import BrokerName
    from gapless.core.token import Token
    from gapless.wire.framing import Bytes

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Class = TypeVar("Class", bound=type)
Inner = TypeVar("Inner", bound=AbstractAsyncContextManager[Any, None])
InnerSender = TypeVar("InnerSender", bound="AsyncPublisher | AsyncTransaction")  # or a stager
InnerSubscription = TypeVar(
    "InnerSubscription", AsyncSubscription, AsyncGroupSubscription, AsyncJointSubscription
)
InnerReadable = TypeVar("InnerReadable", AsyncSubscription, AsyncJointSubscription)
Outer = TypeVar("Outer")


# --- a method of the asyncio client, for a class of this module -----------------------------------


def blocking(
    method: Callable[Concatenate[Any, Parameters], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[Any, Parameters], Result]:
    """The method, waited for."""

    @wraps(method)
    def call(self: Any, /, *args: Parameters.args, **options: Parameters.kwargs) -> Result:
        work = getattr(self._inner, method.__name__)
        result: Result = self._thread.run(work(*args, **options))
        return result

    return _explained(call)


def making(
    outer: Callable[[LoopThread, Inner], Outer],
    method: Callable[Concatenate[Any, Parameters], Inner],
) -> Callable[Concatenate[Any, Parameters], Outer]:
    """The method, its result as an object of this module."""

    @wraps(method)
    def make(self: Any, /, *args: Parameters.args, **options: Parameters.kwargs) -> Outer:
        async def inner() -> Inner:
            return method(self._inner, *args, **options)

        return outer(self._thread, self._thread.run(inner()))

    return _explained(make)


def iterating(
    method: Callable[Concatenate[Any, Parameters], AsyncIterator[Result]],
) -> Callable[Concatenate[Any, Parameters], Iterator[Result]]:
    """The method, its result to be iterated over without a loop."""

    @wraps(method)
    def iterate(
        self: Any, /, *args: Parameters.args, **options: Parameters.kwargs
    ) -> Iterator[Result]:
        return _drain(self._thread, method(self._inner, *args, **options))

    return _explained(iterate)


def _drain(thread: LoopThread, items: AsyncIterator[Result]) -> Iterator[Result]:
    async def following() -> Result | None:
        return await anext(items, None)

    async def close() -> None:
        if (aclose := getattr(items, "aclose", None)) is not None:
            await aclose()

    try:
        while (item := thread.run(following())) is not None:
            yield item
    finally:
        with suppress(LinkError):  # it ended with its client
            thread.run(close())


def _explained(member: Result, by: object = None) -> Result:
    member.__doc__ = ((by or member).__doc__ or "").replace("`async ", "`")
    return member


def explained_by(twin: type) -> Callable[[Class], Class]:
    """A decorator: each public member without a docstring gets that of its namesake in `twin`."""

    def explain(made: Class) -> Class:
        for name, member in vars(made).items():
            if not name.startswith("_") and not member.__doc__:
                _explained(member, getattr(twin, name))
        return made

    return explain


async def within(work: Awaitable[Result], timeout_s: float | None) -> Result:
    """The result of `work`; `TimeoutError` when it takes longer. This waits in the loop: in the
    caller's thread a result that comes at the last moment would be lost."""
    try:
        async with asyncio.timeout(timeout_s):
            return await work
    except TimeoutError:
        raise TimeoutError(f"nothing came for {timeout_s} s") from None


# --- publishing -----------------------------------------------------------------------------------


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


class Sender(Entered[InnerSender]):
    """What takes events."""

    send = blocking(AsyncPublisher.send)
    send_table = blocking(AsyncPublisher.send_table)

    def send_many(self, events: Iterable[tuple[Mapping[str, Value], Bytes]]) -> None:
        """Hand many events over, hundreds at a time. `events` is iterated over in this thread, and
        may be slow, or use the client."""
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
class Stager(Publisher):
    """One part of a transaction; see `gapless.client.transaction`."""

    _inner: AsyncStager

    @property
    def part(self) -> str:
        """Its name, which `commit` wants."""
        return self._inner.part

    @property
    def count(self) -> int:
        return self._inner.count

    send_encoded = blocking(AsyncStager.send_encoded)


@explained_by(AsyncTransaction)
class Transaction(Sender["AsyncTransaction"]):
    """Commits at the end of `with`, or aborts; see `gapless.client.transaction`."""

    @property
    def count(self) -> int:
        return self._inner.count

    @property
    def receipt(self) -> CommitReceipt | None:
        """The receipt of the commit; None before that."""
        return self._inner.receipt


# --- subscribing ----------------------------------------------------------------------------------


@explained_by(AsyncSubscription)
class SubscriptionBase(Entered[InnerSubscription]):
    """What a subscription and a member of a group have in common."""

    @property
    def address(self) -> str:
        return self._inner.address

    @property
    def token(self) -> Token:
        return self._inner.token

    def close(self) -> None:
        with suppress(LinkError):  # it ended with its client
            self._thread.run(self._inner.close())

    def __exit__(self, *raised: Any) -> None:
        with suppress(LinkError):
            super().__exit__(*raised)


@explained_by(AsyncSubscription)
class ReadableSubscription(SubscriptionBase[InnerReadable]):
    """What is iterated over, on one topic or on several."""

    def __iter__(self) -> Iterator[Delivery]:
        if self._inner.acknowledges_each:
            yield from _drain(self._thread, self._inner)
            return
        pop = self._inner.pop
        while True:
            while (item := pop()) is not None:
                yield item
            if not self._thread.run(self._inner.wait_ready()):
                return

    def take(self, timeout_s: float | None = None) -> list[Delivery]:
        """All that has come, at least one; empty when the subscription is over. `TimeoutError` when
        nothing comes for `timeout_s`: nothing is lost, take again."""
        if self._inner.acknowledges_each:
            return self._thread.run(within(self._inner.take(), timeout_s))
        while not (batch := self._inner.pop_all()):
            if not self._thread.run(within(self._inner.wait_ready(), timeout_s)):
                break
        return batch

    def batches(self) -> Iterator[list[Delivery]]:
        while batch := self.take():
            yield batch

    arrow_batches = iterating(AsyncSubscription.arrow_batches)

    @property
    def unreached(self) -> tuple[BrokerName, ...]:
        """Of a reliable topic: brokers that are not reached. Events published there, or behind
        them, are missed."""
        return self._inner.unreached

    def reached(self, timeout_s: float | None = None) -> None:
        self._thread.run(within(self._inner.reached(), timeout_s))

    def acknowledge(self, timeout_s: float | None = None) -> None:
        self._thread.run(within(self._inner.acknowledge(), timeout_s))


class Subscription(ReadableSubscription["AsyncSubscription"]):
    """A subscription to iterate over; see `gapless.client.subscription`."""


class JointSubscription(ReadableSubscription["AsyncJointSubscription"]):
    """A subscription over several topics; see `gapless.client.joint_subscription`."""

    @property
    def topics(self) -> tuple[str, ...]:
        """Its topics, sorted."""
        return self._inner.topics


@explained_by(AsyncGroupSubscription)
class GroupSubscription(SubscriptionBase["AsyncGroupSubscription"]):
    """A member of a group; see `gapless.client.group_subscription`."""

    def __iter__(self) -> Iterator[Event | Gap]:
        return _drain(self._thread, self._inner)

    def take(self, timeout_s: float | None = None, *, finishes: bool = True) -> Event | Gap | None:
        """The next event for this member; the one before is finished by that, unless `finishes` is
        false. None: the subscription was closed. `TimeoutError` when nothing comes for
        `timeout_s`."""
        return self._thread.run(within(self._inner.take(finishes=finishes), timeout_s))

    def attempts(self, event: Event) -> int:
        return self._inner.attempts(event)

    def finish_later(self, event: Event) -> bool:
        async def finish() -> bool:
            return self._inner.finish_later(event)

        return self._thread.run(finish())

    finish = blocking(AsyncGroupSubscription.finish)
    reject = blocking(AsyncGroupSubscription.reject)

    acknowledge = blocking(AsyncGroupSubscription.acknowledge)


@explained_by(AsyncJointReader)
class JointReader:
    """Made by `together`: subscriptions of one client, read in one loop."""

    def __init__(self, subscriptions: Iterable[Subscription]) -> None:
        self._outer = {each._inner: each for each in subscriptions}
        threads = {each._thread for each in self._outer.values()}
        if len(threads) > 1:
            raise UsageError(
                "these subscriptions are of several clients", "Read those of each client apart."
            )

        async def make() -> AsyncJointReader:
            return AsyncJointReader(self._outer)

        self._readers = [(thread, thread.run(make())) for thread in threads]  # none, or one

    def __iter__(self) -> Iterator[tuple[Subscription, list[Delivery]]]:
        for thread, reader in self._readers:
            for subscription, batch in _drain(thread, reader):
                yield self._outer[subscription], batch

    def batches(self) -> Iterator[list[tuple[Subscription, Delivery]]]:
        for thread, reader in self._readers:
            for batch in _drain(thread, reader.batches()):
                yield [(self._outer[each], delivery) for each, delivery in batch]


def together(subscriptions: Iterable[Subscription]) -> JointReader:
    """As `gapless.together`, for a plain `for batch in together(some).batches()`."""
    return JointReader(subscriptions)


# --- the client -----------------------------------------------------------------------------------


@explained_by(asynchronous.Client)
class Client(
    Entered[asynchronous.Client],
    SubscribeMethod[Subscription, GroupSubscription, JointSubscription],
):
    """A connection to a network of brokers; make it with `gapless.sync.connect`."""

    @property
    def address(self) -> str:
        return self._inner.address

    @property
    def broker(self) -> BrokerName | None:
        return self._inner.broker

    publish = blocking(asynchronous.Client.publish)

    def publish_many(
        self,
        topic: str,
        events: Iterable[tuple[Mapping[str, Value], Bytes]],
        *,
        confirmed: bool = False,
    ) -> list[Receipt]:
        published = self._inner.publish_many(topic, list(events), confirmed=confirmed)
        return self._thread.run(published)

    publisher = making(Publisher, asynchronous.Client.publisher)
    _make_subscription = making(Subscription, asynchronous.Client._make_subscription)
    _make_group = making(GroupSubscription, asynchronous.Client._make_group)
    _make_joint = making(JointSubscription, asynchronous.Client._make_joint)
    acknowledge = blocking(asynchronous.Client.acknowledge)
    lease = blocking(asynchronous.Client.lease)
    unsubscribe = blocking(asynchronous.Client.unsubscribe)
    alter_subscription = blocking(asynchronous.Client.alter_subscription)
    retire = blocking(asynchronous.Client.retire)
    why = blocking(asynchronous.Client.why)

    create_topic = blocking(asynchronous.Client.create_topic)
    delete_topic = blocking(asynchronous.Client.delete_topic)
    alter_topic = blocking(asynchronous.Client.alter_topic)
    topics = blocking(asynchronous.Client.topics)

    transaction = making(Transaction, asynchronous.Client.transaction)
    stage = making(Stager, asynchronous.Client.stage)
    commit = blocking(asynchronous.Client.commit)
    abort = blocking(asynchronous.Client.abort)
    last_committed = blocking(asynchronous.Client.last_committed)

    positions = blocking(asynchronous.Client.positions)
    read = iterating(asynchronous.Client.read)
    count = iterating(asynchronous.Client.count)
    read_arrow = blocking(asynchronous.Client.read_arrow)

    def close(self) -> None:
        """Close the connection. Fine to repeat."""
        with suppress(LinkError):  # it is closed
            self._thread.run(self._inner.close())
        self._thread.close()

    def __enter__(self) -> Self:
        try:
            return super().__enter__()
        except BaseException:
            self._thread.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()


def connect(
    addresses: str,
    *,
    patience_s: float = 30.0,
    on_change: Callable[[ConnectionChange], None] | None = None,
    **options: Unpack[CredentialOptions],
) -> Client:
    """As `gapless.connect`, for a plain `with`. `on_change` is called in the client's own thread,
    and must not use the client."""
    thread = LoopThread()

    async def make() -> asynchronous.Client:
        return asynchronous.connect(
            addresses, patience_s=patience_s, on_change=on_change, **options
        )

    try:
        return Client(thread, thread.run(make()))
    except BaseException:
        thread.close()
        raise
