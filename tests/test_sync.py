"""The blocking client does the same as the other."""

from __future__ import annotations

import inspect
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

import gapless
from gapless import sync
from gapless.client.channel import Subscriber
from gapless.client.client import Client
from gapless.client.event_loop import LoopThread
from gapless.client.joint_reader import JointReader
from gapless.client.joint_subscription import JointSubscription
from gapless.client.publisher import Publisher
from gapless.client.subscription import Subscription
from gapless.client.transaction import Stager, Transaction
from tests.broker.stage import make_broker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@contextmanager
def broker_in_a_thread(folder: Path) -> Iterator[str]:
    """Its address; the tests' own thread stays free to block."""
    thread = LoopThread()
    broker = make_broker(folder)
    thread.run(broker.start())
    try:
        yield f"gapless://{broker.address}"
    finally:
        thread.run(broker.drain())
        thread.close()


def test_a_script_publishes_and_subscribes(tmp_path: Path) -> None:
    with (
        broker_in_a_thread(tmp_path) as url,
        gapless.sync.connect(url) as client,
        client.subscribe("t", "i > 0") as subscription,
    ):
        receipt = client.publish("t", {"i": 1}, b"x")
        client.publish_many("t", [({"i": 0}, b""), ({"i": 2}, b"")])
        with client.publisher("t", name="feed") as publisher:
            assert publisher.send({"i": 3}) == 0
            publisher.send_many([({"i": 4}, b"")])
            publisher.flush()
            assert publisher.sequence == 2
        found = []
        for event in subscription:
            assert isinstance(event, gapless.Event)
            found.append(event.attributes["i"])
            if len(found) == 4:
                break
        assert found == [1, 2, 3, 4]
        assert subscription.token.get("t/0") > receipt.tick


def test_a_script_reads_many_subscriptions_in_one_loop(tmp_path: Path) -> None:
    with (
        broker_in_a_thread(tmp_path) as url,
        gapless.sync.connect(url) as client,
        client.subscribe("t", "i < 6") as low,
        client.subscribe("t", "i > 3") as high,
        client.publisher("t", name="feed") as publisher,
    ):
        found: dict[object, list[object]] = {low: [], high: []}
        publisher.send({"i": 0})
        for batch in gapless.sync.together([low, high]).batches():
            for subscription, delivery in batch:
                assert isinstance(delivery, gapless.Event)
                found[subscription].append(delivery.attributes["i"])
            if publisher.sequence < 10:
                publisher.send({"i": publisher.sequence})
            elif found[high][-1:] == [9]:
                break
        assert found == {low: [0, 1, 2, 3, 4, 5], high: [4, 5, 6, 7, 8, 9]}
        assert low.token == high.token
        client.publish("t", {"i": 5})
        assert [event.tick for event in [next(iter(low)), next(iter(high))]] == [  # type: ignore[union-attr]
            low.token.get("t/0") - 1,
            high.token.get("t/0") - 1,
        ]


def test_a_loop_over_subscriptions_of_several_clients_is_refused(tmp_path: Path) -> None:
    with (
        broker_in_a_thread(tmp_path) as url,
        gapless.sync.connect(url) as one,
        gapless.sync.connect(url) as other,
        one.subscribe("t") as first,
        other.subscribe("t") as second,
        pytest.raises(gapless.UsageError, match="several clients"),
    ):
        gapless.sync.together([first, second])
    assert list(gapless.sync.together([]).batches()) == []


def test_a_script_goes_on_from_its_token_which_counts_what_it_has_taken(tmp_path: Path) -> None:
    with broker_in_a_thread(tmp_path) as url, gapless.sync.connect(url) as client:
        with client.subscribe("t", name="desk") as subscription:
            receipts = client.publish_many("t", [({"i": i}, b"") for i in range(3)])
            first = next(iter(subscription))
            assert isinstance(first, gapless.Event)
            assert subscription.token == gapless.Token({"t/0": receipts[0].tick + 1})
            subscription.acknowledge()
        with client.subscribe("t", name="desk", tokens="broker") as subscription:
            found = [event for _, event in zip(range(2), subscription, strict=False)]
            assert [event.tick for event in found if isinstance(event, gapless.Event)] == [
                receipt.tick for receipt in receipts[1:]
            ]
        client.unsubscribe("desk")
        with pytest.raises(gapless.RefusedError, match="no subscription 'desk'"):
            client.unsubscribe("desk")


def test_an_error_reaches_the_caller(tmp_path: Path) -> None:
    with (
        broker_in_a_thread(tmp_path) as url,
        gapless.sync.connect(url) as client,
        pytest.raises(gapless.RefusedError, match="no topic"),
    ):
        client.publish("nope", {})


def test_no_thread_is_left_behind() -> None:
    before = threading.active_count()
    with (
        pytest.raises(gapless.LinkError),
        gapless.sync.connect("gapless://127.0.0.1:1", patience_s=0.01),
    ):
        pass
    with pytest.raises(gapless.UsageError):
        gapless.sync.connect("http://x")
    assert threading.active_count() == before


def test_what_was_not_entered_or_was_left_takes_nothing(tmp_path: Path) -> None:
    with broker_in_a_thread(tmp_path) as url:
        with gapless.sync.connect(url) as client:
            with client.publisher("t", name="feed") as publisher:
                publisher.send({"i": 0})
            with pytest.raises(gapless.UsageError, match="has not begun"):
                client.publisher("t", name="feed").send({"i": 1})  # would pass for a repeat
        with pytest.raises(gapless.LinkError, match="the client is closed"):
            client.publish("t", {"i": 2})


TWINS: list[tuple[type, type]] = [
    (sync.Client, Client),
    (sync.Publisher, Publisher),
    (sync.Subscription, Subscription),
    (sync.Stager, Stager),
    (sync.Transaction, Transaction),
    (sync.JointReader, JointReader),
    (sync.JointSubscription, JointSubscription),
]


@pytest.mark.parametrize(("blocking", "other"), TWINS)
def test_whoever_asks_for_help_is_told_what_each_method_does(blocking: type, other: type) -> None:
    names = [name for name in dir(blocking) if not name.startswith("_")]
    assert names
    for name in names:
        explained = getattr(blocking, name).__doc__
        assert explained, f"{blocking.__name__}.{name}"
        assert "`async " not in explained, "it blocks"
        if callable(method := getattr(other, name, None)):
            assert method.__doc__, f"{other.__name__}.{name}"
    assert sync.Client.subscribe.__doc__ != sync.Client.publish.__doc__


INTERNAL = {  # what other parts of the library call; not for applications
    "Subscription": {
        *(name for name in vars(Subscriber) if not name.startswith("_")),
        *("inbox", "join_shared", "leave_shared", "pop", "pop_all", "take_available", "wait_ready"),
        *("advance", "tell_consumed"),
    },
    "JointSubscription": {"pop", "pop_all", "wait_ready"},
    "Stager": {"forget"},
}


def public(of: type) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_")}


@pytest.mark.parametrize(("blocking", "other"), TWINS)
def test_the_blocking_client_has_every_name_of_the_other(blocking: type, other: type) -> None:
    assert public(other) - public(blocking) == INTERNAL.get(blocking.__name__, set())


@pytest.mark.parametrize(("blocking", "other"), TWINS)
def test_blocking_methods_take_the_parameters_of_the_others(blocking: type, other: type) -> None:
    """And perhaps a `timeout_s`."""
    for name in public(blocking) & public(other):
        ours, theirs = getattr(blocking, name), getattr(other, name)
        assert isinstance(ours, property) == isinstance(theirs, property), name
        if callable(theirs):
            assert parameters(ours) == parameters(theirs), name


def parameters(of: Callable[..., object]) -> list[tuple[str, object, object]]:
    return [
        (each.name, each.kind, each.default)
        for each in inspect.signature(of).parameters.values()
        if each.name != "timeout_s"
    ]


def test_both_clients_are_made_alike() -> None:
    assert parameters(sync.connect) == parameters(gapless.connect)


def test_a_script_reads_subscriptions_together(tmp_path: Path) -> None:
    with (
        broker_in_a_thread(tmp_path) as url,
        gapless.sync.connect(url) as client,
        client.subscribe("t", "i < 5") as low,
        client.subscribe("t", "i >= 5") as high,
    ):
        client.publish_many("t", [({"i": i}, b"") for i in range(10)])
        found: dict[sync.Subscription, list[object]] = {low: [], high: []}
        for subscription, batch in sync.together([low, high]):
            found[subscription] += [
                each.attributes["i"] for each in batch if isinstance(each, gapless.Event)
            ]
            if sum(map(len, found.values())) == 10:
                break
        assert found == {low: [0, 1, 2, 3, 4], high: [5, 6, 7, 8, 9]}


def test_names_are_imported_from_the_module() -> None:
    from gapless.sync import connect

    assert connect is gapless.sync.connect


def test_a_script_takes_batches_and_gives_up_when_nothing_comes(tmp_path: Path) -> None:
    with (
        broker_in_a_thread(tmp_path) as url,
        gapless.sync.connect(url) as client,
        client.subscribe("t", name="desk") as subscription,
        client.publisher("t", name="feed") as publisher,
    ):
        with pytest.raises(TimeoutError, match=r"nothing came for 0\.01 s"):
            subscription.take(timeout_s=0.01)
        publisher.send_many([({"i": i}, b"") for i in range(10)])
        assert publisher.wait_confirmed(9 - 1, timeout_s=60) == publisher.confirmed == 10
        found: list[object] = []
        for batch in subscription.batches():
            found += [each.attributes["i"] for each in batch if isinstance(each, gapless.Event)]
            if len(found) == 10:
                break
        assert found == list(range(10))
        subscription.acknowledge(timeout_s=60)
        with pytest.raises(TimeoutError):
            publisher.wait_confirmed(10, timeout_s=0.01)
