"""However much was published and released while subscribers were away: when they return, no step of
any broker does more than a bound, and all steps together no more than for a short absence."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from gapless.core.client_messages import (
    CaughtUp,
    Consumed,
    Deliveries,
    Lost,
    Publish,
    Subscribe,
    Subscribed,
)
from gapless.core.events import EventBatch
from gapless.core.identity import BrokerName, ClientName, Instant, SubscriptionName, TopicName
from gapless.durable.catch_up import CatchUp
from gapless.node.config import MILLISECOND, SECOND, Config
from gapless.node.context import EventEncoding
from gapless.node.network import Network, Topic
from gapless.node.node import Node
from gapless.node.parts import Parts
from gapless.testing.checkers.bounded_steps import BoundedSteps
from gapless.testing.record import Record, Violation
from gapless.testing.shapes import cell
from gapless.testing.trace import Trace
from gapless.testing.watch import Watch
from gapless.testing.world import World
from gapless.wire.events import decode_attributes, encode_event
from tests.bounds import so_long_as

if TYPE_CHECKING:
    from gapless.core.broker_messages import Knowledge
    from gapless.core.identity import PeerName
    from gapless.core.messages import Message
    from gapless.core.store import Store
    from gapless.testing.checkers.checker import Broker
    from gapless.testing.links import Connection

T, P = TopicName("t"), BrokerName("p")
BATCH = 10
KEPT = 20
EVENT = encode_event({"n": 1_000})
SIZE = {"retention_bytes": KEPT * len(EVENT)}
AGE = {"retention_us": 4 * SECOND}
CONFIG = Config(
    batch_events_max=BATCH,
    waiting_events_max=2 * BATCH,
    nack_spans_max=BATCH,
    catch_up_window=4,
    catch_up_total_max=16,
    catch_up_work_max=20,
    filtered_read_max=10,
    filtered_walk_max=10,
)
WITHOUT_BUDGET = replace(CONFIG, catch_up_work_max=1 << 40)


class Steps(Watch):
    """Sees nothing but steps: what clients get is looked at by themselves."""

    def told(self, client: ClientName, message: Message) -> None: ...
    def sent(self, broker: Broker, to: PeerName, message: Message) -> None: ...
    def received(self, broker: Broker, sender: PeerName, message: Message) -> None: ...


class Reader:
    """A named subscription, which leaves and returns with its token."""

    def __init__(self, world: World, broker: str, name: str, condition: str) -> None:
        self.world, self.broker, self.name = world, BrokerName(broker), name
        self.condition = condition
        self.connection: Connection | None = None
        self.start: int | None = None
        self.lost = self.count = self.returns = 0
        self.has_caught_up = False

    def attach(self, *, empty: bool = False) -> None:
        self.returns += 1
        name = ClientName(f"{self.name}.{self.returns}")
        self.connection = self.world.connect(name, self, self.broker)
        assert self.connection is not None
        token = None if self.start is None else {} if empty else {"t/0": self.start}
        durable = SubscriptionName(self.name)
        self.connection.send(Subscribe(T, 1, 1, self.condition, name=durable, token=token))

    def tell(self, message: Message) -> None:
        match message:
            case Subscribed(start=start):
                self.start = self.start or start["t/0"]
            case Lost():
                assert not self.count, "it comes before all that is kept"
                self.lost += 1
            case CaughtUp():
                self.has_caught_up = True
            case Deliveries(ticks=ticks) if ticks:
                self.count += len(ticks)
                assert self.connection is not None
                self.connection.send(Consumed(len(ticks)))
            case _:
                pass

    def cut_off(self) -> None: ...


class Absence:
    """Readers leave, much is published and most of it released; then they return."""

    def __init__(
        self,
        retention: dict[str, int],
        hops: int = 0,
        *,
        readers: int = 1,
        backlog: int = 100,
        parts: Parts | None = None,
        config: Config = CONFIG,
    ) -> None:
        rows = [cell("p", 1, subscribers=not hops)]
        rows += [cell(f"m{n}", 1, [rows[-1].name]) for n in range(hops - 1)]
        rows += [cell("s", 1, [rows[-1].name], subscribers=True)] if hops else []
        network = Network(tuple(rows), (Topic(T, (P,), **retention),))  # type: ignore[arg-type]

        def make(name: BrokerName, store: Store, now: Instant) -> Node:
            decode = decode_attributes
            return Node(
                name,
                network,
                store,
                now,
                encoding=EventEncoding(decode),
                config=config,
                parts=parts,
            )

        record = Record(network)
        self.steps = BoundedSteps(record, CONFIG)
        watch, dice = Steps(record, [self.steps]), random.Random(1)
        self.world = World(network, make, dice, Trace(), watch, check_every=50)
        self.world.start()
        self.world.run(5 * SECOND)
        edge = rows[-1].brokers[0].name
        self.readers = [
            Reader(self.world, edge, f"r{number}", f"n >= -{number % 3}")
            for number in range(readers)
        ]
        for reader in self.readers:
            reader.attach()
        self.wait(lambda: all(reader.start for reader in self.readers))
        for reader in self.readers:
            assert reader.connection is not None
            reader.connection.close()
        self.publish(backlog * KEPT)
        self.world.run(5 * SECOND)
        self.publish(KEPT)
        self.world.run(1 * SECOND)

    def wait(self, is_done: Any) -> None:
        for _ in so_long_as(lambda: not is_done()):
            self.world.run(10 * MILLISECOND)

    def publish(self, count: int) -> None:
        name = ClientName(f"publisher.{self.world.now}")
        connection = self.world.connect(name, Reader(self.world, P, "", ""), P)
        assert connection is not None
        for start in range(0, count, BATCH):
            events = [encode_event({"n": start + each}) for each in range(BATCH)]
            connection.send(Publish(T, start + 1, EventBatch.join(events)))
            self.world.run(5 * MILLISECOND)
        connection.close()

    def end(self, *, empty: bool = False) -> int:
        """All of them return; how much all steps did until each has what is kept."""
        before = self.steps.total
        for reader in self.readers:
            reader.attach(empty=empty)
        self.wait(lambda: all(reader.has_caught_up for reader in self.readers))
        return self.steps.total - before


@pytest.mark.parametrize("readers", [1, 100])
@pytest.mark.parametrize("hops", [0, 2])
@pytest.mark.parametrize("retention", [SIZE, AGE], ids=["size", "age"])
def test_those_that_return_after_a_hundred_times_what_is_retained(
    retention: dict[str, int], hops: int, readers: int
) -> None:
    absence = Absence(retention, hops, readers=readers)
    absence.end()
    for reader in absence.readers:
        assert reader.lost == 1, "one gap"
        assert 0 < reader.count < 10 * KEPT


@pytest.mark.parametrize("hops", [0, 2])
@pytest.mark.parametrize("retention", [SIZE, AGE], ids=["size", "age"])
def test_what_was_released_costs_nothing_however_much_it_is(
    retention: dict[str, int], hops: int
) -> None:
    short, long = (Absence(retention, hops, backlog=backlog).end() for backlog in (10, 100))
    assert long < 1.5 * short


@pytest.mark.parametrize("hops", [0, 2])
def test_one_that_shows_the_empty_token_starts_with_what_is_kept(hops: int) -> None:
    absence = Absence(SIZE, hops)
    absence.end(empty=True)
    [reader] = absence.readers
    assert reader.lost == 0, "it starts with the first event that is kept"
    assert 0 < reader.count < 10 * KEPT


# --- as it was once -------------------------------------------------------------------------------


class WalksThroughLosses(CatchUp):
    """Looks for every single event that was released."""

    def __init__(self, taker: Any, start: int, source: Any, timing: Any) -> None:
        super().__init__(taker, start, replace(source, released=None), timing)

    def receive_knowledge(self, knowledge: Knowledge, now: Instant) -> Any:
        nacks = super().receive_knowledge(knowledge, now)
        self._lost_below = 0
        return nacks


WALKS = Parts(catch_up=WalksThroughLosses)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that walks wakes often for nothing, which another checker finds first."""
    monkeypatch.setattr("gapless.testing.process.BUSY_MAX", 1_000_000)


@pytest.mark.usefixtures("patient")
def test_one_that_walks_through_what_was_released_is_found_where_a_step_has_no_budget() -> None:
    with pytest.raises(Violation, match="bounded steps"):
        Absence(SIZE, parts=WALKS, config=WITHOUT_BUDGET).end()


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("hops", [0, 2])
def test_one_that_walks_through_what_was_released_takes_the_longer_the_more_it_is(
    hops: int,
) -> None:
    short, long = (Absence(SIZE, hops, backlog=each, parts=WALKS).end() for each in (10, 100))
    assert long > 3 * short
