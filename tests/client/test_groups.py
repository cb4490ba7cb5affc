"""Members of a group at a real broker: what they get, finish, reject, and are refused."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING

import pytest

import gapless
from gapless import sync
from gapless.broker import embedded
from gapless.client.group_subscription import GroupSubscription
from tests.broker.stage import run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path

    from gapless.client.client import Client
    from gapless.core.events import Event, Value

    Story = Callable[[Client], Coroutine[object, object, None]]


def tell(tmp_path: Path, story: Story, *more: str) -> None:
    async def main() -> None:
        async with (
            embedded(["orders", "dead_letters", *more], tmp_path) as broker,
            gapless.connect(f"gapless://{broker.address}") as client,
        ):
            await story(client)

    run(main())


async def publish(client: Client, *orders: tuple[str, int]) -> None:
    events: list[tuple[dict[str, Value], bytes]] = [
        ({"customer": customer, "number": number}, b"") for customer, number in orders
    ]
    await client.publish_many("orders", events)


def join(client: Client, attempts_max: int | None = None) -> GroupSubscription:
    return client.subscribe(
        "orders", name="billing", share_by="customer", attempts_max=attempts_max
    )


async def next_event(subscription: GroupSubscription) -> Event:
    item = await subscription.take()
    assert isinstance(item, gapless.Event)
    return item


def number_of(event: Event) -> int:
    return int(event.attributes["number"])


async def numbers(subscription: GroupSubscription, count: int) -> AsyncIterator[int]:
    for _ in range(count):
        yield number_of(await next_event(subscription))


def test_each_event_goes_to_one_member_and_a_key_to_the_same_one(tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        async with join(client) as one, join(client) as other:
            await publish(client, ("a", 0), ("b", 1), ("a", 2), ("b", 3))
            assert [each async for each in numbers(one, 2)] == [0, 2]
            assert [each async for each in numbers(other, 2)] == [1, 3]

    tell(tmp_path, story)


def test_what_was_finished_never_comes_again_and_the_rest_goes_to_the_next_member(
    tmp_path: Path,
) -> None:
    async def story(client: Client) -> None:
        async with client.subscribe("orders", name="billing", share_by="customer") as one:
            await publish(client, ("a", 0), ("b", 1), ("a", 2))
            first = await next_event(one)
            await one.finish(first)
            with pytest.raises(gapless.RefusedError, match="is not in hand"):
                await one.finish(first)
            assert number_of(await next_event(one)) == 1
            await one.close()  # without finishing it
        async with client.subscribe("orders", name="billing", share_by="customer") as other:
            got = [each async for each in numbers(other, 2)]
            assert sorted(got) == [1, 2]

    tell(tmp_path, story)


def test_a_rejected_event_comes_again_before_what_is_behind_it(tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        async with client.subscribe("orders", name="billing", share_by="customer") as member:
            await publish(client, ("a", 0), ("a", 1), ("b", 2))
            first = await next_event(member)
            assert member.attempts(first) == 0
            await member.reject(first, delay_s=0.05, reason="later")
            with pytest.raises(gapless.RefusedError, match="is not in hand"):
                await member.reject(first)
            assert number_of(await next_event(member)) == 2
            again = await next_event(member)
            assert number_of(again) == 0
            assert member.attempts(again) == 1
            assert number_of(await next_event(member)) == 1

    tell(tmp_path, story)


def test_an_event_that_is_rejected_too_often_becomes_a_dead_letter_with_why(
    tmp_path: Path,
) -> None:
    async def story(client: Client) -> None:
        group = client.subscribe("orders", name="billing", share_by="customer", attempts_max=2)
        async with group, client.subscribe("dead_letters") as letters:
            await publish(client, ("a", 0), ("a", 1))
            for _ in range(2):
                event = await next_event(group)
                await group.reject(event, reason="no")
            assert number_of(await next_event(group)) == 1
            letter = await anext(letters)
            assert isinstance(letter, gapless.Event)
            assert letter.attributes == {
                "customer": "a",
                "number": 0,
                "dead_letter_subscription": "billing",
                "dead_letter_topic": "orders",
                "dead_letter_pubend": event.pubend,
                "dead_letter_tick": event.tick,
                "dead_letter_attempts": 2,
                "dead_letter_reason": "no",
            }

    tell(tmp_path, story)


def test_an_exception_rejects_the_event_that_was_taken(tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        async with client.subscribe("dead_letters") as letters:
            with pytest.raises(ZeroDivisionError):  # noqa: PT012
                async with join(client, attempts_max=1) as member:
                    await publish(client, ("a", 0))
                    await next_event(member)
                    raise ZeroDivisionError("by customer")
            async with join(client, attempts_max=1):
                letter = await anext(letters)
            assert isinstance(letter, gapless.Event)
            assert letter.attributes["dead_letter_reason"] == "ZeroDivisionError: by customer"

    tell(tmp_path, story)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"share_by": "region"}, "has share_by='customer' and no attempts_max"),
        (
            {"share_by": "customer", "attempts_max": 3},
            "has share_by='customer' and no attempts_max",
        ),
        ({}, "is a group that shares by 'customer'"),
    ],
)
def test_a_member_that_wants_something_else_is_refused(
    tmp_path: Path, options: dict[str, object], problem: str
) -> None:
    async def story(client: Client) -> None:
        async with client.subscribe("orders", name="billing", share_by="customer"):
            other = client.subscribe("orders", name="billing", **options)  # type: ignore[call-overload]
            with pytest.raises(gapless.RefusedError, match=problem):
                await other.__aenter__()

    tell(tmp_path, story)


def test_a_subscription_with_one_client_is_no_group(tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        async with client.subscribe("orders", name="desk"):
            other = client.subscribe("orders", name="desk", share_by="customer")
            with pytest.raises(gapless.RefusedError, match="'desk' is no group"):
                await other.__aenter__()

    tell(tmp_path, story)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"share_by": "k"}, "a group needs a name"),
        ({"share_by": "k", "name": "g", "start": '{"orders/0":7}'}, "has no token to start at"),
        ({"share_by": "k", "name": "g", "order": "total"}, "order by key"),
        ({"share_by": "k", "name": "g", "dead_letters": "d"}, "dead letters need attempts_max"),
        ({"share_by": "k", "name": "g", "attempts_max": 0}, "attempts_max"),
        ({"share_by": "", "name": "g"}, "share_by"),
        ({"name": "g", "attempts_max": 3}, "only a group has attempts_max"),
    ],
)
def test_options_that_contradict_each_other_are_refused_at_once(
    tmp_path: Path, options: dict[str, object], problem: str
) -> None:
    async def story(client: Client) -> None:
        with pytest.raises(gapless.UsageError, match=problem):
            client.subscribe("orders", **options)  # type: ignore[call-overload]

    tell(tmp_path, story)


def test_a_topic_for_dead_letters_must_exist_and_be_another(tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        for topic, problem in (("nowhere", "there is no topic"), ("orders", "cannot take")):
            group = client.subscribe(
                "orders", name="billing", share_by="customer", attempts_max=1, dead_letters=topic
            )
            with pytest.raises(gapless.RefusedError, match=problem):
                await group.__aenter__()

    tell(tmp_path, story)


def test_a_group_has_no_token(tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        async with client.subscribe("orders", name="billing", share_by="customer") as member:
            with pytest.raises(gapless.UsageError, match="no token"):
                _ = member.token
            with pytest.raises(gapless.UsageError, match="no token"):
                await member.acknowledge()
            with pytest.raises(gapless.RefusedError, match="is a group"):
                await client.acknowledge("billing", gapless.Token({"orders/0": 1}))

    tell(tmp_path, story)


def test_unsubscribing_ends_the_group_for_all_members(tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        async with client.subscribe("orders", name="billing", share_by="customer") as member:
            waiting = asyncio.create_task(member.take())
            await client.unsubscribe("billing")
            with pytest.raises(gapless.SubscriptionInterruptedError, match="was ended"):
                await waiting

    tell(tmp_path, story)


def test_the_blocking_client_has_the_same_names(tmp_path: Path) -> None:
    def public(cls: type) -> set[str]:
        members = inspect.getmembers(cls)
        return {name for name, _ in members if not name.startswith("_")}

    library = {"hand", "start", "lose", "end", "interrupt", "relocate", "resume", "add", "settle"}
    library |= {"set_behind", "set_unreached", "set_condition"}
    assert public(GroupSubscription) - library == public(sync.GroupSubscription)


def test_the_blocking_client_shares_too(tmp_path: Path) -> None:
    async def main() -> None:
        async with embedded(["orders"], tmp_path) as broker:
            await asyncio.to_thread(work, f"gapless://{broker.address}")

    def work(url: str) -> None:
        with (
            sync.connect(url) as client,
            client.subscribe("orders", name="billing", share_by="customer") as member,
        ):
            client.publish_many("orders", [({"customer": "a", "n": n}, b"") for n in range(3)])
            first = member.take(timeout_s=30)
            assert isinstance(first, gapless.Event)
            member.finish(first)
            second = member.take(timeout_s=30)
            assert isinstance(second, gapless.Event)
            member.reject(second, reason="no")
            got = []
            for event in member:
                assert isinstance(event, gapless.Event)
                got.append(event.attributes["n"])
                if len(got) == 2:
                    break
            assert got == [1, 2]
            with pytest.raises(TimeoutError):
                member.take(timeout_s=0.05)

    run(main())


def test_a_member_takes_several_before_it_finishes_the_first_and_no_more_than_it_asked_for(
    tmp_path: Path,
) -> None:
    async def story(client: Client) -> None:
        def member() -> GroupSubscription:
            return client.subscribe("orders", name="g", share_by="none", in_hand_max=2)

        async with member() as one, member() as other:
            await publish(client, *(("a", number) for number in range(5)))
            first, second = [await one.take(finishes=False) for _ in range(2)]
            mine = [await other.take(finishes=False) for _ in range(2)]
            with pytest.raises(TimeoutError):  # both have as many as they asked for
                async with asyncio.timeout(0.2):
                    await one.take(finishes=False)
            assert isinstance(second, gapless.Event)
            one.finish_later(second)  # out of order
            fifth = await one.take(finishes=False)
            got = [first, second, *mine, fifth]
            numbers = [each.attributes["number"] for each in got if isinstance(each, gapless.Event)]
            assert sorted(numbers) == [0, 1, 2, 3, 4]

    tell(tmp_path, story)


def test_only_a_group_says_how_much_a_member_has_in_hand(tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        with pytest.raises(gapless.UsageError, match="only a group"):
            client.subscribe("orders", name="g", in_hand_max=2)  # type: ignore[call-overload]

    tell(tmp_path, story)
