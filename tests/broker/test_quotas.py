"""No principal takes everything: what one has used up, others still have, also after a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gapless.client.errors import RefusedError
from gapless.client.topics import roster, strike
from gapless.core.client_messages import (
    Done,
    PublisherPosition,
    PublisherQuery,
    Refused,
    Subscribe,
    Subscribed,
)
from gapless.core.identity import ProducerName, PublisherName, SubscriptionName, TopicName
from gapless.core.topic_messages import CreateTopic
from gapless.core.transaction_messages import Stage
from gapless.node.config import Config
from tests.broker.castle import Castle
from tests.broker.stage import ByHand, connected, make_broker, publication, run

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.core.messages import Message

T = TopicName("t")
CONFIG = Config(publishers_max=8, transactions_max=8, producers_max=8, definition_bytes_max=40_000)
"""A principal may have two of each."""


async def ask(peer: ByHand, message: Message, answer: type[Message]) -> str:
    """Empty if it is granted; or why not."""
    peer.send(message)
    while True:
        for each in await peer.read_some():
            if isinstance(each, answer):
                return ""
            if isinstance(each, Refused):
                return each.problem


def opening(name: str) -> PublisherQuery:
    return PublisherQuery(1, T, PublisherName(name), 1)


def staging(number: int) -> Stage:
    events = publication(1).events
    return Stage(T, 1, ProducerName(f"job{number}"), 1, "p", 0, events)


def test_names_of_publishers_that_one_principal_used_up_are_there_for_others(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        castle = Castle(tmp_path)
        for _ in range(2):  # a restart changes nothing
            async with castle.broker(config=CONFIG) as broker:
                greedy = await castle.by_hand(broker, "feed")
                for number in range(2):
                    assert await ask(greedy, opening(f"mine-{number}"), PublisherPosition) == ""
                for number in range(2, 12):
                    refused = await ask(greedy, opening(f"mine-{number}"), PublisherPosition)
                    assert "'feed' has 2 names of publishers" in refused
                async with (
                    castle.client(broker, "admin") as client,
                    client.publisher("t", name="innocent") as publisher,
                ):
                    await publisher.send({})
                    await publisher.flush()
                await greedy.close()

    run(main())


def test_an_administrator_sees_names_and_strikes_them_off_and_nobody_else_does(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        castle = Castle(tmp_path)
        async with (
            castle.broker(config=CONFIG) as broker,
            castle.client(broker, "keeper") as keeper,
            castle.client(broker, "feed") as feed,
        ):
            for name in ("one", "two"):
                async with feed.publisher("t", name=name) as publisher:
                    await publisher.send({})
            found = (await roster(keeper, "t", "publishers")).entries
            assert [(each.name, each.number, each.owner) for each in found] == [
                ("one", 1, "feed"),
                ("two", 1, "feed"),
            ]
            for refused in (roster(feed, "t", "publishers"), strike(feed, "t", "publishers", "x")):
                with pytest.raises(RefusedError, match="not allowed to administer on topic 't'"):
                    await refused
            await strike(keeper, "t", "publishers", "one")
            await strike(keeper, "t", "publishers", "one")  # which is not there any more
            async with feed.publisher("t", name="three") as publisher:
                await publisher.send({})
            names = [each.name for each in (await roster(keeper, "t", "publishers")).entries]
            assert names == ["three", "two"]

    run(main())


def test_open_transactions_of_one_principal_leave_room_and_an_administrator_drops_them(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        castle = Castle(tmp_path)
        async with castle.broker(config=CONFIG) as broker:
            greedy = await castle.by_hand(broker, "feed")
            for number in range(2):
                assert await ask(greedy, staging(number), Done) == ""
            assert "'feed' has 2 open transactions" in await ask(greedy, staging(2), Done)
            admin = await castle.by_hand(broker, "admin")
            assert await ask(admin, staging(2), Done) == ""
            async with castle.client(broker, "keeper") as keeper:
                found = (await roster(keeper, "t", "transactions")).entries
                assert [(each.name, each.owner) for each in found] == [
                    ("job0", "feed"),
                    ("job1", "feed"),
                    ("job2", "admin"),
                ]
                await strike(keeper, "t", "transactions", "job0", 1)
            assert await ask(greedy, staging(3), Done) == ""
            for peer in (greedy, admin):
                await peer.close()

    run(main())


def test_conditions_of_one_principal_do_not_fill_the_tables(tmp_path: Path) -> None:
    long = "a = '" + "x" * 4_500 + "'"

    def named(number: int) -> Subscribe:
        return Subscribe(T, number, number, long, name=SubscriptionName(f"n{number}"))

    async def main() -> None:
        castle = Castle(tmp_path)
        for first in (1, 11):  # a restart changes nothing
            async with castle.broker(config=CONFIG) as broker:
                greedy = await castle.by_hand(broker, "desk")
                if first == 1:
                    assert await ask(greedy, named(1), Subscribed) == ""
                    assert await ask(greedy, named(2), Subscribed) == ""
                refused = await ask(greedy, named(first + 2), Subscribed)
                assert "'desk' has " in refused
                assert "bytes of names and conditions" in refused
                rival = await castle.by_hand(broker, "rival")
                assert await ask(rival, named(first + 3), Subscribed) == ""
                for peer in (greedy, rival):
                    await peer.close()

    run(main())


def test_without_security_each_connection_of_this_machine_has_a_share(tmp_path: Path) -> None:
    async def main() -> None:
        config = Config(subscriptions_max=8)
        async with make_broker(tmp_path, config=config) as broker, connected(broker) as client:
            greedy = await ByHand.connect(broker)
            for number in range(2):
                assert await ask(greedy, Subscribe(T, number, number), Subscribed) == ""
            refused = await ask(greedy, Subscribe(T, 2, 2), Subscribed)
            assert "this client has 2 subscriptions" in refused
            async with client.subscribe("t"):
                pass
            await greedy.close()

    run(main())


def test_without_security_one_connection_does_not_use_up_names_for_others(tmp_path: Path) -> None:
    """Publishers, transactions and topics; a restart forgets who it was."""

    async def main() -> None:
        config = Config(publishers_max=8, transactions_max=8, topics_max=10)
        async with make_broker(tmp_path, config=config) as broker, connected(broker) as client:
            greedy = await ByHand.connect(broker)
            for number in range(2):
                assert await ask(greedy, opening(f"mine-{number}"), PublisherPosition) == ""
                assert await ask(greedy, staging(number), Done) == ""
                create = CreateTopic(1, TopicName(f"mine-{number}"))
                assert await ask(greedy, create, Done) == ""
            refused = await ask(greedy, opening("mine-2"), PublisherPosition)
            assert "this client has 2 names of publishers" in refused
            assert "this client has 2 open transactions" in await ask(greedy, staging(2), Done)
            refused = await ask(greedy, CreateTopic(1, TopicName("mine-2")), Done)
            assert "this client has 2 names of topics" in refused
            async with client.publisher("t", name="innocent") as publisher:
                await publisher.send({})
            await client.create_topic("innocent")
            found = (await roster(client, "t", "publishers")).entries
            owners = {each.name: each.owner.startswith("@127.0.0.1:") for each in found}
            assert owners == {"mine-0": True, "mine-1": True, "innocent": True}
            await strike(client, "t", "publishers", "mine-0")
            assert await ask(greedy, opening("mine-2"), PublisherPosition) == ""
            await client.delete_topic("mine-0")
            await greedy.close()
        async with make_broker(tmp_path, config=config) as broker, connected(broker) as client:
            found = (await roster(client, "t", "publishers")).entries
            assert [each.owner for each in found] == ["", "", ""]
            broker._pump.node.check()

    run(main())
