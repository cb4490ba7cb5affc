"""Who keeps in step gets what it would get alone: the same items, tokens and credit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gapless.client.errors import LinkError
from gapless.client.joint_reader import together
from gapless.core.client_messages import (
    CaughtUp,
    Deliveries,
    FellBehind,
    Lost,
    Subscribe,
    Subscribed,
)
from gapless.core.events import EventBatch
from gapless.core.ticks import Span
from gapless.wire.events import encode_event
from tests.broker.stage import run
from tests.client.desk import PUBEND, Desk
from tests.client.test_shared_backlog import shown
from tests.client.test_subscription import TOPIC, deliveries

if TYPE_CHECKING:
    from gapless.client.delivery import Delivery
    from gapless.client.subscription import Subscription
    from gapless.core.token import Token

NUMBERS = (1, 2, 3)
EVENT = encode_event({"a": 1})

Step = tuple[str, object]

STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("events"), st.lists(st.sets(st.sampled_from(NUMBERS), min_size=1), max_size=4)
        ),
        st.tuples(st.just("take"), st.none()),
        st.tuples(st.sampled_from(["behind", "caught up", "lost"]), st.sampled_from(NUMBERS)),
        st.tuples(st.just("cut"), st.none()),
    ),
    max_size=25,
)


class Broker:
    """Plays the broker of three named subscriptions at a desk."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.position = 10
        self.behind: dict[int, list[int]] = {}  # ticks that are still to come, by number

    def play(self, kind: str, argument: object) -> None:
        match kind, argument:
            case "events", list() as wanted:
                self._deliver(wanted)
            case "behind", int() as number if number not in self.behind:
                self.behind[number] = []
                self.desk.inbox.switch(FellBehind(number, PUBEND))
            case "caught up", int() as number if number in self.behind:
                self._catch_up(number)
            case "lost", int() as number if number not in self.behind:
                span = Span(self.position, self.position + 2)
                self.position += 2
                self.desk.inbox.lose(Lost((number,), PUBEND, span))
                self.desk.inbox.deliver(deliveries((), self.position))
            case "cut", _:
                self._reconnect()
            case _:
                pass

    def _deliver(self, wanted: list[set[int]]) -> None:
        ticks, takers = [], []
        for numbers in wanted:
            for number in numbers & self.behind.keys():
                self.behind[number].append(self.position)
            if present := numbers - self.behind.keys():
                ticks.append(self.position)
                takers.append(tuple(sorted(present)))
            self.position += 1
        self.position += 1
        self.desk.inbox.deliver(deliveries(tuple(ticks), self.position, tuple(takers)))

    def _catch_up(self, number: int) -> None:
        ticks = tuple(self.behind.pop(number))
        events = EventBatch((EVENT,) * len(ticks))
        takers = ((number,),) * len(ticks)
        self.desk.inbox.deliver(
            Deliveries(TOPIC, self.position, PUBEND, ticks, events, takers, number)
        )
        self.desk.inbox.switch(CaughtUp(number, PUBEND))

    def _reconnect(self) -> None:
        for number in list(self.behind):
            self._catch_up(number)
        self.desk.lose(LinkError("gone"))
        self.desk.sent.clear()
        self.desk.come_back()
        for asked in [each for each in self.desk.sent if isinstance(each, Subscribe)]:
            assert asked.token is not None
            self.desk.inbox.start(Subscribed(asked.request, asked.subscription, asked.token))


class Reader:
    """Takes by itself or in step; keeps what each got, and watches its token."""

    def __init__(self, subscriptions: list[Subscription]) -> None:
        self.subscriptions = subscriptions
        self.got: dict[int, list[Delivery]] = {index: [] for index in range(len(subscriptions))}
        self._tokens = [each.token for each in subscriptions]

    def take(self) -> bool:
        taken = [self._keep(each, each.take_available() or []) for each in self.subscriptions]
        return any(taken)

    def _keep(self, subscription: Subscription, items: list[Delivery]) -> bool:
        self.got[self.subscriptions.index(subscription)] += items
        return bool(items)

    def watch(self) -> list[Token]:
        tokens = [each.token for each in self.subscriptions]
        assert all(a <= b for a, b in zip(self._tokens, tokens, strict=True)), "it never goes back"
        assert all(each._finished() <= each.token for each in self.subscriptions)
        self._tokens = tokens
        return tokens


class Marching(Reader):
    """In step."""

    def __init__(self, subscriptions: list[Subscription]) -> None:
        super().__init__(subscriptions)
        self.together = together(subscriptions)

    def take(self) -> bool:
        pairs = self.together._gather()
        for subscription, item in pairs:
            self._keep(subscription, [item])
        return bool(pairs)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, tokens=st.sampled_from(["client", "broker"]))
@example(steps=[("take", None), ("events", [{1}]), ("events", [{1}])], tokens="client")
@example(
    steps=[("behind", 1), ("take", None), ("events", [{1}]), ("caught up", 1)], tokens="client"
)
def test_whoever_keeps_in_step_gets_the_same_as_alone(steps: list[Step], tokens: str) -> None:
    async def main() -> None:
        ends: list[object] = []
        for kind in (Reader, Marching):
            desk = Desk()
            made = [desk.subscription(name=f"s{number}", tokens=tokens) for number in NUMBERS]
            for each in made:
                await each.__aenter__()
            broker, reader = Broker(desk), kind(made)
            for step in steps:
                if step[0] == "take":
                    reader.take()
                else:
                    broker.play(*step)
                reader.watch()
            for number in list(broker.behind):
                broker.play("caught up", number)
            while reader.take():
                reader.watch()
            assert [each.take_available() for each in made] == [[], [], []]
            items = {index: shown(got) for index, got in reader.got.items()}
            credit = desk.consumed if desk.session == 1 else None  # a cut loses more or less of it
            ends.append((items, reader.watch(), credit))
            for each in made:
                await each.close()
        assert ends[0] == ends[1]

    run(main())
