"""Over real TLS: who proves nothing learns nothing, and nobody does what it has no right to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gapless.client.errors import LinkError, RefusedError
from gapless.core.broker_messages import Nack
from gapless.core.client_messages import (
    Forget,
    Publish,
    PublisherQuery,
    Refused,
    Subscribe,
)
from gapless.core.events import EventBatch
from gapless.core.identity import (
    BrokerName,
    PubendName,
    PublisherName,
    SubscriptionName,
    TopicName,
)
from gapless.core.messages import Goodbye, Hello, Ping, Pong
from gapless.core.ticks import Span
from gapless.core.token import Token
from gapless.wire.kinds import codec
from tests.broker.castle import TABLE, Castle
from tests.broker.stage import publication, run, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.core.messages import Message

NACK = Nack(PubendName("t/0"), (Span(1, 2),))


def publish_to(topic: str) -> Publish:
    return Publish(TopicName(topic), 1, EventBatch(tuple(publication().events)))


# --- who it is ------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["", "wrong", "admin.wrong", "nobody.wrong"])
def test_who_shows_no_good_token_is_told_so_and_nothing_else(tmp_path: Path, token: str) -> None:
    async def main() -> None:
        castle = Castle(tmp_path)
        async with castle.broker() as broker:
            peer = await castle.by_hand(broker, hello=Hello(token=token))
            peer.send(publication(), Subscribe(TopicName("t"), 2, 1))
            (said,) = await peer.read_all()
            assert isinstance(said, Goodbye), "not even a Hello"
            assert said.problem == "not admitted: no valid token or certificate was given"
            assert said.final
            links = broker.statistics()["links"]
            assert isinstance(links, dict)
            assert (links["clients"], links["refused_logins"]) == (0, 1)

    run(main())


def test_a_second_guess_in_the_same_breath_is_not_looked_at(tmp_path: Path) -> None:
    async def main() -> None:
        castle = Castle(tmp_path)
        async with castle.broker() as broker:
            peer = await castle.by_hand(broker)
            peer.send(Hello(token="admin.wrong"), Hello(token=castle.tokens["admin"]))
            (said,) = await peer.read_all()
            assert isinstance(said, Goodbye)

    run(main())


def test_nothing_is_taken_from_who_waits_for_its_refusal(tmp_path: Path) -> None:
    async def main() -> None:
        castle = Castle(tmp_path, table=TABLE.replace("0.01", "600"))
        async with castle.broker() as broker:
            peer = await castle.by_hand(broker, hello=Hello(token="admin.wrong"))
            await wait_until(lambda: broker.statistics()["links"]["refused_logins"] == 1)  # type: ignore[index]
            (link,) = broker._links.all
            link.data_received(bytes(codec().frames([Hello(token=castle.tokens["admin"])])))
            assert link.peer is None
            await peer.close()

    run(main())


def test_a_good_token_is_greeted_and_served(tmp_path: Path) -> None:
    async def main() -> None:
        castle = Castle(tmp_path)
        async with castle.broker() as broker, castle.client(broker, "admin") as client:
            async with client.subscribe("t", "i > 0", name="mine") as subscription:
                await client.publish("t", {"i": 1})
                assert (await anext(subscription)).attributes == {"i": 1}  # type: ignore[union-attr]
            assert [each["owner"] for each in broker.subscriptions()] == ["admin"]

    run(main())


def test_a_certificate_of_a_known_principal_does_as_well(tmp_path: Path) -> None:
    async def main() -> None:
        castle = Castle(tmp_path)
        feed = castle.write(castle.authority.client("feed"), "feed")
        stranger = castle.write(castle.authority.client("stranger"), "stranger")
        other = Castle(tmp_path / "other")
        async with castle.broker() as broker:
            async with castle.client(broker, **feed) as client:
                await client.publish("t", {})
                with pytest.raises(RefusedError, match="not allowed to subscribe"):
                    await client.subscribe("t").__aenter__()
            with pytest.raises(RefusedError, match="not admitted"):
                await castle.client(broker, **stranger).__aenter__()
            forged = other.write(other.authority.client("feed"), "feed")
            with pytest.raises(LinkError):
                await castle.client(broker, **forged, patience_s=0.3).__aenter__()
            expired = castle.write(castle.authority.client("feed", days=-1), "old")
            with pytest.raises(LinkError):
                await castle.client(broker, **expired, patience_s=0.3).__aenter__()

    run(main())


def test_nobody_passes_for_a_broker_without_its_certificate(tmp_path: Path) -> None:
    """`a` is a neighbour of `b`, and it is for `a` to dial."""
    text = """
    cell = [
        {name = "A", brokers = [{name = "a", listen = "127.0.0.1:0"}], links = ["B"]},
        {name = "B", brokers = [{name = "b", listen = "127.0.0.1:0"}], subscribers = true},
    ]
    topic = [{name = "t", pubends = ["b"]}]
    """

    async def main() -> None:
        castle = Castle(tmp_path, "a", "b", text=text)
        async with castle.broker() as broker:
            for who in ("", "admin"):
                token = castle.tokens[who] if who else ""
                hello = Hello(sender=BrokerName("a"), token=token)
                peer = await castle.by_hand(broker, hello=hello)
                peer.send(NACK)
                (said,) = await peer.read_all()
                assert isinstance(said, Goodbye)
                assert "does not name the broker 'a'" in said.problem
        castle.write(castle.authority.broker("c"), "brokers/a")  # another's certificate
        async with castle.broker() as broker, castle.broker("a") as liar:
            await wait_until(lambda: broker.statistics()["links"]["accepted"] >= 2)  # type: ignore[index]
            assert broker.statistics()["links"]["brokers_up"] == []  # type: ignore[index]
            assert liar.statistics()["links"]["brokers_up"] == []  # type: ignore[index]

    run(main())


def test_a_broker_that_answers_under_another_name_is_not_believed(tmp_path: Path) -> None:
    text = """
    cell = [
        {name = "A", brokers = [{name = "a", listen = "127.0.0.1:0"}], links = ["B"]},
        {name = "B", brokers = [{name = "b", listen = "127.0.0.1:0"}], subscribers = true},
    ]
    topic = [{name = "t", pubends = ["b"]}]
    """

    async def main() -> None:
        castle = Castle(tmp_path, "a", "b", text=text)
        castle.write(castle.authority.broker("c"), "brokers/b")
        async with castle.broker() as wrong, castle.broker("a") as broker:
            await wait_until(lambda: broker.statistics()["links"]["refused_logins"] >= 1)  # type: ignore[index]
            assert broker.statistics()["links"]["brokers_up"] == []  # type: ignore[index]
            assert wrong.statistics()["links"]["brokers_up"] == []  # type: ignore[index]
            castle.write(castle.authority.broker("b"), "brokers/b")
            wrong.reload()
            await wait_until(lambda: broker.statistics()["links"]["brokers_up"] == ["b"])  # type: ignore[index]

    run(main())


def test_a_brokers_certificate_is_no_clients(tmp_path: Path) -> None:
    async def main() -> None:
        table = TABLE + '[security.rights]\n"*" = { publish = ["*"] }\n'
        castle = Castle(tmp_path, table=table)
        shown = castle.write(castle.authority.broker("b"), "brokers/b")
        async with castle.broker() as broker:
            with pytest.raises(RefusedError, match="not admitted"):
                await castle.client(broker, **shown).__aenter__()

    run(main())


# --- what it may do -------------------------------------------------------------------------------

REQUESTS: dict[str, tuple[Message, str, list[str]]] = {
    "publish": (publish_to("t"), "not allowed to publish on topic 't'", ["feed"]),
    "ask for a position": (
        PublisherQuery(1, TopicName("t"), PublisherName("p")),
        "not allowed to publish on topic 't'",
        ["feed"],
    ),
    "subscribe": (
        Subscribe(TopicName("t"), 1, 1),
        "not allowed to subscribe on topic 't'",
        ["desk", "rival"],
    ),
    "forget": (
        Forget(1, SubscriptionName("desks")),
        "there is no subscription 'desks' of yours",
        ["desk", "keeper"],
    ),
}


@pytest.mark.parametrize("request_name", REQUESTS)
def test_each_request_needs_its_right(tmp_path: Path, request_name: str) -> None:
    message, problem, allowed = REQUESTS[request_name]

    async def main() -> None:
        castle = Castle(tmp_path)
        async with castle.broker() as broker:
            for who in castle.tokens:
                async with (
                    castle.client(broker, "desk") as desk,
                    desk.subscribe("t", name="desks"),
                ):
                    pass
                peer = await castle.by_hand(broker, who)
                await peer.read_until(Hello)
                peer.send(message, Ping(1))
                answers = await peer.read_until(Pong)
                refused = [each for each in answers if isinstance(each, Refused)]
                assert [each.problem for each in refused] == (
                    [] if who in (*allowed, "admin") else [problem]
                ), who
                await peer.close()

    run(main())


@pytest.mark.parametrize("make", [publish_to, lambda topic: Subscribe(TopicName(topic), 1, 1)])
def test_a_refusal_does_not_tell_whether_a_topic_exists(tmp_path: Path, make: type) -> None:
    async def main() -> None:
        castle = Castle(tmp_path)
        async with castle.broker() as broker:
            said = []
            for topic in ("two", "no such topic"):
                peer = await castle.by_hand(broker, "idle")
                peer.send(make(topic))
                refused = (await peer.read_until(Refused))[-1]
                assert isinstance(refused, Refused)
                said.append(f"{refused.problem} {refused.remedy}".replace(topic, "…"))
                await peer.close()
            assert said[0] == said[1]

    run(main())


def test_topics_are_made_with_the_right_and_listed_for_who_has_any(tmp_path: Path) -> None:
    async def main() -> None:
        castle = Castle(tmp_path)
        async with (
            castle.broker() as broker,
            castle.client(broker, "idle") as idle,
            castle.client(broker, "feed") as feed,
            castle.client(broker, "admin") as admin,
        ):
            await idle.create_topic("x")
            for client, topics in ((idle, ["x"]), (feed, ["t"]), (admin, ["t", "two", "x"])):
                assert [each.name for each in await client.topics()] == topics
            for name in ("t", "none"):
                with pytest.raises(RefusedError, match=f"not allowed to create on topic '{name}'"):
                    await idle.create_topic(name)
                with pytest.raises(RefusedError, match=f"not allowed to create on topic '{name}'"):
                    await idle.delete_topic(name)
            await idle.delete_topic("x")
            assert await idle.topics() == []

    run(main())


def test_a_message_between_brokers_ends_a_clients_link(tmp_path: Path) -> None:
    async def main() -> None:
        castle = Castle(tmp_path)
        async with castle.broker() as broker:
            peer = await castle.by_hand(broker, "admin")
            peer.send(NACK)
            last = (await peer.read_all())[-1]
            assert isinstance(last, Goodbye)
            assert "not for clients" in last.problem

    run(main())


def test_a_named_subscription_is_its_owners(tmp_path: Path) -> None:
    async def main() -> None:
        castle = Castle(tmp_path)
        async with castle.broker() as broker:
            async with (
                castle.client(broker, "desk") as desk,
                castle.client(broker, "rival") as rival,
                castle.client(broker, "admin") as admin,
                desk.subscribe("t", "i > 0", name="desk-7") as subscription,
            ):
                for condition in ("i > 0", "", "i > 1"):
                    with pytest.raises(RefusedError, match=r"not allowed to use .* name 'desk-7'"):
                        await rival.subscribe("t", condition, name="desk-7").__aenter__()
                with pytest.raises(RefusedError, match="no subscription 'desk-7' of yours"):
                    await rival.unsubscribe("desk-7")
                with pytest.raises(RefusedError, match="no subscription 'none' of yours"):
                    await rival.unsubscribe("none")
                with pytest.raises(RefusedError, match="no subscription 'desk-7' of yours"):
                    await rival.acknowledge("desk-7", Token({"t/0": 1 << 60}))
                await desk.acknowledge("desk-7", subscription.token)
                await admin.publish("t", {"i": 1})
                assert (await anext(subscription)).attributes == {"i": 1}  # type: ignore[union-attr]
            async with castle.client(broker, "admin") as admin:
                await admin.unsubscribe("desk-7")
            assert broker.subscriptions() == []

    run(main())
