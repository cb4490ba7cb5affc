"""A subscription that is read by ranges belongs to one run of one query at a time."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from gapless.core.client_messages import Acknowledge, Done, Refused, Subscribe, Unsubscribe
from gapless.core.effects import Send
from gapless.core.identity import Instant, SubscriptionName
from gapless.node.context import EventEncoding
from gapless.node.node import Node
from gapless.node.parts import Parts
from gapless.node.subscriptions.leases import LEASE_US
from gapless.testing.lattice import strict
from gapless.wire.events import decode_attributes
from tests.node.town import ALONE, NEWS, Town

DESK = SubscriptionName("desk")
RUNS = ("a1", "a2", "a3", "b1", "b2", "c1")
"""Runs of the queries a, b and c."""


class Desk(Town):
    """A broker with one named subscription, and readers of it."""

    def __init__(self) -> None:
        super().__init__("h", ALONE)
        self.connect("maker")
        self.receive("maker", Subscribe(NEWS, 1, 1, name=DESK))
        self.wait(1_000_000)
        self.receive("maker", Unsubscribe(1))

    def ask(self, run: str, *, takes: bool = False, tick: int = 0) -> Done | Refused:
        query = run[0] if takes else ""
        token = {"news/0": tick} if tick else {}
        message = Acknowledge(0, token, 7, DESK, run, query)
        [answer] = [each for to, each in self.receive(run, message) if to == run]
        assert isinstance(answer, Done | Refused)
        return answer

    def attach(self, client: str) -> Any:
        self.connect(client)
        return self.receive(client, Subscribe(NEWS, 1, 1, name=DESK, tokens="client"))[0][1]

    def restart(self) -> None:
        self.now = Instant(self.now + 1_000)
        self.node = Node(
            self.node.name,
            self.network,
            self.volume,
            self.now,
            encoding=EventEncoding(decode_attributes),
            config=self.node.config,
            parts=strict(Parts()),
        )
        self._do(self.node.start(self.now))
        self.flush()


@pytest.fixture
def desk() -> Desk:
    made = Desk()
    for run in RUNS:
        made.connect(run)
    return made


def test_another_query_is_refused_by_name_while_a_run_has_the_lease(desk: Desk) -> None:
    assert isinstance(desk.ask("a1", takes=True), Done)
    refused = desk.ask("b1", takes=True)
    assert isinstance(refused, Refused)
    assert "query 'a' (run 'a1')" in refused.problem
    assert not refused.retry  # the run is connected: to wait would not help
    assert isinstance(desk.ask("a1", tick=5), Done)


def test_a_run_whose_connection_is_gone_is_waited_for_and_then_its_lease_ends(desk: Desk) -> None:
    desk.ask("a1", takes=True)
    desk.leave("a1")
    refused = desk.ask("b1", takes=True)
    assert isinstance(refused, Refused)
    assert refused.retry
    desk.wait(LEASE_US + 1)
    assert isinstance(desk.ask("b1", takes=True), Done)


def test_a_later_run_of_the_same_query_takes_over_at_once_and_the_zombie_is_refused(
    desk: Desk,
) -> None:
    desk.ask("a1", takes=True)
    assert isinstance(desk.ask("a2", takes=True), Done)
    refused = desk.ask("a1", tick=9)
    assert isinstance(refused, Refused)
    assert "run 'a2'" in refused.problem


def test_a_client_cannot_attach_while_a_run_reads(desk: Desk) -> None:
    desk.ask("a1", takes=True)
    assert isinstance(desk.attach("ann"), Refused)
    desk.wait(LEASE_US + 1)
    assert not isinstance(desk.attach("ann"), Refused)
    refused = desk.ask("a1", tick=5)
    assert isinstance(refused, Refused)
    assert "attached" in refused.problem


def test_an_application_that_is_no_run_acknowledges_as_before(desk: Desk) -> None:
    desk.ask("a1", takes=True)
    desk.connect("app")
    [(_, answer)] = desk.receive("app", Acknowledge(0, {"news/0": 4}, 8, DESK))
    assert isinstance(answer, Done)


def play(desk: Desk, dice: Random, steps: int) -> int:
    """Runs come, acknowledge, hang and come back, and the broker restarts: how often a run was
    refused. After each step, what the promise says must hold."""
    owner, lost, refusals = "", set[str](), 0
    for _ in range(steps):
        run = dice.choice(RUNS)
        match dice.randrange(8):
            case 0:
                desk.restart()
                for each in RUNS:
                    desk.connect(each)
            case 1:
                desk.wait(dice.randrange(2 * LEASE_US))
            case 2 | 3:
                if run in lost:
                    continue  # a run asks once
                if isinstance(desk.ask(run, takes=True), Done):
                    lost |= {owner} - {run, ""}
                    owner = run
                else:
                    refusals += 1
            case _:
                if isinstance(desk.ask(run), Done):
                    assert run == owner, "L1"
                    assert run not in lost, "L1"
                else:
                    assert run != owner, "the run that has the lease may acknowledge"
                    refusals += 1
        if len(lost) == len(RUNS) - 1:
            lost.clear()  # new runs under the old names
    return refusals


def test_at_most_one_run_may_acknowledge_whatever_happens(desk: Desk) -> None:
    assert play(desk, Random(1), 600) > 100


def test_a_lease_that_is_not_written_down_is_noticed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forgetful(
        subscriptions: Any, subscription: Any, client: Any, message: Any, now: Any
    ) -> Any:
        del subscriptions, subscription, now
        return [Send(client, Done(message.request))]

    monkeypatch.setattr("gapless.node.subscriptions.attachments.grant", forgetful)
    with pytest.raises(AssertionError):
        play(desk, Random(1), 600)
